"""The linear ranker: one sparse linear classifier per label.

    margin(x, l) = w_l . x + b_l
    q_l = sigmoid(margin)  (logistic loss)     or     exp(-max(0, 1 - margin)^3)  (squared hinge, the authors' program)

In the stacked ranker x is tf-idf, and a label's classifier is trained on its own texts against the texts that retrieved
it wrongly by words (`inverted_index`); labels without a positive have no weights and a bias of -1. The published ranker
trains the same classifiers on other pairs (`published.py`). Solved by dual coordinate descent
(`kernels/linear_ranker.py`; the definition is liblinear, as scikit-learn has it), stored sparse, small weights dropped.
In: rows, their labels, their candidates. Out: `SparseRows`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core import model_schema
from ..core.files import read_tensors, write_tensors
from ..core.predictions import PAD
from ..core.schema import check_arrays
from ..core.settings import LinearRankerSettings
from .sparse_rows import SparseRows

NAME = "linear_ranker.safetensors"
LABELS_AT_ONCE = 512
NO_POSITIVES = -1.0  # bias of a label that has none
LOSSES = {"squared-hinge": 0, "logistic": 1}


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs (row, sign) by classifier: those of classifier l are starts[l] : ends[l]."""

    starts: np.ndarray  # int64
    ends: np.ndarray  # int64
    rows: np.ndarray  # int32
    signs: np.ndarray  # int8: 1 for a positive, -1 for a negative

    def __len__(self) -> int:
        return len(self.starts)


def training_pairs(candidates: np.ndarray, labels: sp.csr_matrix, excluded: sp.csr_matrix) -> TrainingPairs:
    """Every positive pair, and every candidate that is neither positive nor excluded.

    `candidates` [rows, m] holds labels, PAD for none; rows beyond its last have positives only.
    """
    n_labels = labels.shape[1]
    if not kernels.serve():
        return _pairs_reference(candidates, labels, excluded)
    from ..kernels.linear_ranker import pairs_by_label

    matrices = (labels.indptr, labels.indices, labels.data, excluded.indptr, excluded.indices, excluded.data)
    counts, last = np.zeros(n_labels, dtype=np.int64), np.full(n_labels, -1, dtype=np.int64)
    rows, signs = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8)
    pairs_by_label(candidates, *matrices, last.copy(), counts, rows, signs, False)
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows, signs = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.int8)
    pairs_by_label(candidates, *matrices, last, starts[:-1].copy(), rows, signs, True)
    return TrainingPairs(starts[:-1], starts[1:], rows, signs)


def _pairs_reference(candidates: np.ndarray, labels: sp.csr_matrix, excluded: sp.csr_matrix) -> TrainingPairs:
    lists: list[list[tuple[int, int]]] = [[] for _ in range(labels.shape[1])]
    for row in range(labels.shape[0]):
        positives = dict.fromkeys(labels[row].indices[labels[row].data > 0].tolist())
        masked = set(excluded[row].indices[excluded[row].data > 0].tolist())
        found = dict.fromkeys(candidates[row].tolist()) if row < len(candidates) else {}
        for label in positives:
            lists[label].append((row, 1))
        for label in found:
            if label >= 0 and label not in positives and label not in masked:
                lists[label].append((row, -1))
    ends = np.cumsum([len(pairs) for pairs in lists], dtype=np.int64)
    flat = np.array([pair for pairs in lists for pair in pairs], dtype=np.int32).reshape(-1, 2)
    return TrainingPairs(np.concatenate([[0], ends[:-1]]), ends, flat[:, 0].copy(), flat[:, 1].astype(np.int8))


def train_ranker(
    features: sp.csr_matrix, candidates: np.ndarray, labels: sp.csr_matrix, excluded: sp.csr_matrix,
    settings: LinearRankerSettings, *, threads: int = 1,
) -> SparseRows:  # fmt: skip
    """The classifiers of all labels."""
    n_labels = labels.shape[1]
    learned = np.bincount(labels.indices[labels.data > 0], minlength=n_labels) > 0
    # Labels without positives need no negatives. A PAD reads some label's entry and stays PAD either way.
    candidates = np.where(learned[candidates], candidates, PAD).astype(np.int32)
    pairs = training_pairs(candidates, labels, excluded)
    ranker = solve(features, pairs, settings, threads=threads)
    ranker.biases[~learned] = NO_POSITIVES
    return ranker


def solve(
    features: sp.csr_matrix, pairs: TrainingPairs, settings: LinearRankerSettings, *,
    labels_at_once: int = LABELS_AT_ONCE, threads: int = 1,
) -> SparseRows:  # fmt: skip
    """One classifier per range of the pairs; without a pair, no weights and a bias of 0."""
    if not kernels.serve():
        return _solve_reference(features, pairs, settings)
    from ..kernels.linear_ranker import row_squares, solve_labels

    squares = np.empty(features.shape[0])
    kernels.run(row_squares, len(squares), threads, features.indptr, features.data, squares)
    cuts = [*range(0, len(pairs), labels_at_once), len(pairs)]
    parts = kernels.run_ranges(
        solve_labels, cuts, threads, pairs.starts, pairs.ends, pairs.rows, pairs.signs, features.indptr,
        features.indices, features.data, squares, features.shape[1], LOSSES[settings.loss], settings.cost,
        settings.tolerance, settings.max_iterations, settings.min_weight,
    )  # fmt: skip
    words, weights, counts, biases = (np.concatenate([part[i] for part in parts]) for i in range(4))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SparseRows(indptr, words, weights, biases, features.shape[1])


def _solve_reference(features: sp.csr_matrix, pairs: TrainingPairs, settings: LinearRankerSettings) -> SparseRows:
    """Label by label with liblinear."""
    rows, biases = [], np.zeros(len(pairs), dtype=np.float32)
    for label, (x, y) in enumerate(_problems(features, pairs)):
        weights, biases[label] = _liblinear(x, y, settings) if len(y) else (np.zeros(features.shape[1]), 0.0)
        kept = np.where(np.abs(weights) < settings.min_weight, 0.0, weights)
        rows.append(sp.csr_matrix(kept[None], dtype=np.float32))
    matrix = sp.csr_matrix(sp.vstack(rows, format="csr")) if rows else sp.csr_matrix((0, features.shape[1]))
    return SparseRows.from_csr(matrix, biases)


def _problems(features: sp.csr_matrix, pairs: TrainingPairs) -> Iterator[tuple[sp.csr_matrix, np.ndarray]]:
    for start, end in zip(pairs.starts.tolist(), pairs.ends.tolist(), strict=True):
        yield sp.csr_matrix(features[pairs.rows[start:end]]), pairs.signs[start:end]


def _liblinear(x: sp.csr_matrix, y: np.ndarray, settings: LinearRankerSettings) -> tuple[np.ndarray, float]:
    """(weights, bias) of one classifier."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    sample_weight = np.ones(len(y))
    if (y == y[0]).all():  # scikit-learn wants two classes: one pair more, which counts for almost nothing
        x = sp.csr_matrix(sp.vstack([x, sp.csr_matrix((1, x.shape[1]))], format="csr"))
        y, sample_weight = np.append(y, -y[0]), np.append(sample_weight, 1e-9)
    options: dict[str, Any] = {"C": settings.cost, "tol": settings.tolerance, "max_iter": settings.max_iterations}
    if settings.loss == "logistic":
        solver = LogisticRegression(solver="liblinear", dual=True, random_state=0, **options)
    else:
        solver = LinearSVC(loss="squared_hinge", dual=True, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a classifier that reaches max_iter is kept as it is, as ours is
        solver.fit(x, y, sample_weight=sample_weight)
    return solver.coef_.ravel(), float(solver.intercept_[0])


def q_of(margins: np.ndarray, loss: str) -> np.ndarray:
    """q of the margins of classifiers trained with this loss."""
    if loss == "logistic":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -60, 60))), dtype=np.float32)
    return np.asarray(np.exp(-(np.maximum(0.0, 1.0 - margins) ** 3)), dtype=np.float32)


def save_ranker(ranker: SparseRows, folder: Path) -> None:
    write_tensors(folder / NAME, ranker.arrays("ranker"))


def load_ranker(folder: Path, *, n_labels: int, n_words: int, coded: bool = True) -> SparseRows:
    """`coded`: as the stacked ranker stores it."""
    schema = model_schema.LINEAR_RANKER if coded else model_schema.PUBLISHED_RANKER
    path, sizes = folder / NAME, {"labels": n_labels, "words": n_words}
    arrays = check_arrays(path, read_tensors(path)[0], schema, sizes)
    return SparseRows.from_arrays(arrays, "ranker", n_words)
