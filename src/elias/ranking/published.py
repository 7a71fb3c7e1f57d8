"""ELIAS++ as published: the network's candidates, ranked by p q or by T + p q.

    psi(x) = [tf-idf / |tf-idf|, phi / |phi|]
    q_l    = q of the margin w_l . psi(x) + b_l                      (`linear_ranker.py`: logistic, or squared hinge)
    score  = p q     or, calibrated,     w T(p, q, p q, n_l) + (1 - w) p q                      (`decision_tree.py`)

w_l is trained on the training texts that have l among their 100 best labels of the network, whether they have l or not;
with `published.unretrieved_positives` also on the texts of l that do not retrieve it. T is grown on rows held out of
network, ranker and choice of checkpoint, with n_l counted in the rows that these were trained on. The paper's sum
T + p q is w = 0.5 up to a factor of 2; the authors' program has 0.3 T + 0.7 p q.

A label that no training text retrieves has no classifier: its margin is 0, q = 1/2 (logistic) or 1/e (squared hinge).
One that only wrong texts retrieve has a classifier like any other, which rejects nearly every text. Scores are no
probabilities. In: predictions of the network, phi and tf-idf of the texts. Out: `Predictions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core import model_schema
from ..core.errors import ModelError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.predictions import Predictions
from ..core.schema import check_arrays, check_object
from ..core.settings import LinearRankerSettings
from ..encoders.centroids import psi
from .decision_tree import DecisionTree, fit_tree
from .linear_ranker import load_ranker, q_of, save_ranker, solve, training_pairs
from .sparse_rows import SparseRows

NAME, TREE_NAME = "published.json", "calibration_tree.safetensors"


@dataclass(frozen=True)
class TreeCalibration:
    """w T(p, q, p q, n_l) + (1 - w) p q."""

    tree: DecisionTree
    counts: np.ndarray  # n_l, int64 [L], of the rows that network and ranker were trained on
    weight: float

    def leaf(self, labels: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """T of the labels [B, m]."""
        return self.tree(tree_inputs(p, q, self.counts[np.maximum(labels, 0)]))


def tree_inputs(p: np.ndarray, q: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[..., 4]: p, q, p q and n_l."""
    return np.stack([p, q, p * q, counts], axis=-1).astype(np.float32)


@dataclass(kw_only=True)
class PublishedRanker:
    """Ranks what the network finds. Holds no state of a query."""

    ranker: SparseRows  # on psi
    loss: str  # of the ranker: which q a margin has
    network_candidates: int
    calibration: TreeCalibration | None  # None: p q
    threads: int = 1

    gives_probabilities = False

    def depth(self, k: int) -> int:
        """How many labels of the network the k best are chosen from."""
        return min(max(k, self.network_candidates), len(self.ranker))

    def q(self, bow: sp.csr_matrix, phi: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """q of the labels [B, m] of each text; 0 at PAD."""
        margins = self.ranker.products(sp.csr_matrix(psi(bow, phi)), labels, threads=self.threads)
        return np.where(labels >= 0, q_of(margins, self.loss), 0).astype(np.float32)

    def rank(
        self, found: Predictions, bow: sp.csr_matrix, phi: np.ndarray, k: int, *, explain: bool = False
    ) -> Predictions:
        """The k best by score, ties to the lower label. `found`: by p, with the parts of p if it is explained."""
        labels, p = found.labels, found.scores
        own = {"ranker": self.q(bow, phi, labels)}
        scores = p * own["ranker"]
        if self.calibration is not None:
            own["tree"] = np.where(labels >= 0, self.calibration.leaf(labels, p, own["ranker"]), 0).astype(np.float32)
            scores = self.calibration.weight * own["tree"] + (1 - self.calibration.weight) * scores
        order = np.lexsort((labels, np.where(labels >= 0, -scores, np.inf)), axis=1)[:, :k]
        parts = {**(found.parts or {}), **own} if explain else {}
        best, values, *shown = (np.take_along_axis(a, order, axis=1) for a in (labels, scores, *parts.values()))
        named = dict(zip(parts, shown, strict=True)) if explain else None
        return Predictions(labels=best, scores=values.astype(np.float32), parts=named).resize(k)

    def save(self, folder: Path) -> None:
        save_ranker(self.ranker, folder)
        save_calibration(folder, self.loss, self.network_candidates, self.calibration)

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, dim: int, threads: int) -> PublishedRanker:
        """`dim`: of phi."""
        path = folder / NAME
        content = check_object(path, read_json(path), model_schema.PUBLISHED)
        weight = content["tree_weight"]
        return cls(
            ranker=load_ranker(folder, n_labels=n_labels, n_words=n_words + dim, coded=False),
            loss=content["loss"],
            network_candidates=content["network_candidates"],
            calibration=None if weight is None else _load_calibration(folder / TREE_NAME, float(weight), n_labels),
            threads=threads,
        )


def save_calibration(folder: Path, loss: str, network_candidates: int, calibration: TreeCalibration | None) -> None:
    """What a ranker has beside its classifiers."""
    weight = None if calibration is None else calibration.weight
    write_json(folder / NAME, {"network_candidates": network_candidates, "loss": loss, "tree_weight": weight})
    if calibration is not None:
        write_tensors(folder / TREE_NAME, {**calibration.tree.arrays(), "counts": calibration.counts})


def _load_calibration(path: Path, weight: float, n_labels: int) -> TreeCalibration:
    arrays = check_arrays(path, read_tensors(path)[0], model_schema.CALIBRATION_TREE, {"labels": n_labels})
    try:
        return TreeCalibration(DecisionTree.from_arrays(arrays), arrays["counts"], weight)
    except ValueError as problem:
        raise ModelError(f"{path}: not a decision tree of elias ({problem}); restore it from a copy") from None


# -- training ---------------------------------------------------------------------------------------------------------


def train_published_ranker(
    features: sp.csr_matrix, retrieved: np.ndarray, labels: sp.csr_matrix, settings: LinearRankerSettings, *,
    unretrieved_positives: bool, threads: int = 1,
) -> SparseRows:  # fmt: skip
    """The classifiers of all labels, from psi of the training rows and the labels that each retrieves [rows, m]."""
    positives = labels if unretrieved_positives else _among(labels, retrieved)
    none, ends = np.empty(0, dtype=np.int32), np.zeros(labels.shape[0] + 1, dtype=np.int32)
    excluded = sp.csr_matrix((none, none, ends), shape=labels.shape)  # were left out of the search already
    pairs = training_pairs(retrieved, positives, excluded)
    return solve(features, pairs, settings, threads=threads)


def _among(labels: sp.csr_matrix, retrieved: np.ndarray) -> sp.csr_matrix:
    """The labels of each row that it retrieves."""
    real = retrieved >= 0
    indptr = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    found = sp.csr_matrix((np.ones(indptr[-1], dtype=np.float32), retrieved[real], indptr), shape=labels.shape)
    return sp.csr_matrix(labels.multiply(found))


def fit_tree_calibration(
    found: Predictions, q: np.ndarray, labels: sp.csr_matrix, counts: np.ndarray, weight: float
) -> TreeCalibration:
    """T from what the network finds for held-out rows, its q [rows, m], and the labels of these rows."""
    real = found.labels >= 0
    rows = np.nonzero(real)[0]
    right = np.asarray(labels[rows, found.labels[real]]).ravel() > 0
    inputs = tree_inputs(found.scores[real], q[real], counts[found.labels[real]])
    return TreeCalibration(fit_tree(inputs, right), counts.astype(np.int64), weight)
