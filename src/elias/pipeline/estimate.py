"""What a fit will need, before it starts: memory by part, and a rough time.

Memory is counted from the shapes. Time comes from constants that fit two datasets of 45,000 rows on 2 cores (12:34 and
5:41 min beside other jobs, guessed 11:55 and 7:24) and cuts of 1,500 and 10,000 rows of three datasets (20 to 106 s,
guessed 1.3 to 1.5 times as much); it is a guide, not a promise.
The vocabulary of a large dataset is counted on a sample and extended by Heaps' law.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.defaults import DataSize
from ..core.settings import ONE_VERSUS_ALL, Settings, StageSettings, known
from ..dataset import Dataset
from ..encoders.tfidf import TfIdf

FLOAT, HALF = 4, 2
BASE = 850 << 20  # bytes; with it the sum meets the measured peaks of two datasets (1.4 and 1.9 GiB)
SAMPLE = 5_000  # texts
HEAPS = 0.6  # words grow with this power of the number of texts; measured on titles and on long documents
# Seconds on 2 cores: an edge followed, a multiplication in a classifier or bag, a float of a table row updated.
PER_EDGE, PER_PRODUCT, PER_UPDATE = 2e-9, 1.2e-10, 6.5e-10
PER_SEARCH, PER_PAIR_WORD = 2e-4, 7e-8  # by words for a row; one word of one pair of the ranker, all passes
PER_SIBLING_WORD = 2e-8  # the same of the label tree
PER_SCORE_STEP, PER_SCORED = 1.2e-3, 4.5e-7  # on one core, a step of the score model; of it, a candidate and unit
MANY, SCORE_BATCH = 2000, 64  # as in `cross_fitting.py` and `score_model.py`, which import torch
SIBLINGS_AT_A_TIME = 1 << 24  # its pairs in memory, as in `label_tree.py`
PER_DENSE_PRODUCT = 3.2e-11  # one-versus-all, update included: a step at L = 53,023, d = 512, batch 256 took 0.65 s


@dataclass(frozen=True)
class Estimate:
    memory_bytes: dict[str, int]
    seconds: float
    smaller: dict[str, int] = field(default_factory=dict)  # settings, and the bytes of "label classifiers" with them

    @property
    def total_bytes(self) -> int:
        return sum(self.memory_bytes.values())


def input_size(data: Dataset, settings: Settings) -> tuple[int, float]:
    """(rows of the word table, entries of a text in it), of a fit with these settings."""
    texts, vectors = data.train.texts, data.train.vectors
    if isinstance(vectors, np.ndarray) or settings.encoder.kind == "transformer":
        return 0, 0.0
    if texts is None:
        assert vectors is not None
        return int(vectors.shape[1]), vectors.nnz / vectors.shape[0]
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(np.int64))
    min_df, most = settings.features.min_df, settings.features.max_words
    sample = [texts[row] for row in rows.tolist()]
    vectorizer, bow = TfIdf.fit_transform(sample, min_df=min_df, max_words=most)
    n_words = vectorizer.n_features * (len(texts) / len(rows)) ** HEAPS
    return min(most, round(n_words)), bow.nnz / len(rows)


def text_bytes(data: Dataset) -> int:
    """UTF-8 bytes of all texts; the training texts are held twice, whole and without the held-out rows."""
    sizes = {name: int(rows.texts.lengths().sum()) for name, rows in data.splits.items() if rows.texts is not None}
    return sum(sizes.values()) + sizes.get("train", 0)


def estimate(
    settings: Settings, size: DataSize, *, n_labels: int, n_words: int, words_per_text: float, text_bytes: int = 0,
    label_texts: int = 0,
) -> Estimate:  # fmt: skip
    """`settings` must be resolved; `label_texts` is the number of training rows made of them."""
    dim, clusters = settings.encoder.dim, known(settings.clustering.clusters)
    edges = clusters * known(settings.index.kappa)
    memory = {
        "label classifiers": _classifier_bytes(settings, n_labels),
        "word embeddings": n_words * dim * _bytes_a_value(settings, label=False),
        "edges": edges * FLOAT * 6,
        "texts as arrays": int((size.rows + label_texts) * words_per_text * 8),
        "texts": text_bytes,
        "python, torch, numba": BASE,
    }
    seconds, folds = 0.0, settings.score_model.folds or 0
    networks = 1 + folds * (1 - known(settings.split.calibration_rows) / max(1, size.rows))  # a fold has fewer rows
    if settings.ranking.kind != "none" and n_words:
        vectors = min(n_labels * settings.inverted_index.words_per_label, (size.pairs + label_texts) * words_per_text)
        memory["words of labels, ranker"] = int(3 * 8 * vectors) + 5 * size.rows * settings.linear_ranker.negatives
        passes, columns = networks if settings.score_model.folds else 2, words_per_text
        if settings.linear_ranker.embedding:
            memory["phi in the ranker"] = 8 * dim * (2 * n_labels + size.rows + label_texts)
            columns += dim
        if settings.label_tree.enabled:
            levels = max(1, int(np.ceil(np.log2(max(2, n_labels / settings.label_tree.leaf_size)) / 4)))
            siblings = (size.pairs + label_texts) * (settings.label_tree.leaf_size // 2 + 5 * levels)
            centroids = (size.pairs + label_texts) * words_per_text
            memory["label tree"] = int(2 * 8 * centroids) + 5 * min(siblings, SIBLINGS_AT_A_TIME)
            seconds += passes * PER_SIBLING_WORD * siblings * words_per_text
        if settings.knn.neighbors:
            memory["k-NN"] = int(2 * 8 * size.rows * min(words_per_text, settings.knn.words_per_text))
        seconds += passes * size.rows * (PER_SEARCH + PER_PAIR_WORD * settings.linear_ranker.negatives * columns)
        seconds += _score_model_seconds(settings)
    for stage in (settings.stage1, settings.stage2):
        rows = size.rows + label_texts
        a_network = _stage_seconds(settings, stage, rows, n_labels, words_per_text, stage is settings.stage2)
        seconds += networks * a_network
    return Estimate(memory, seconds + 10 + 2e-7 * n_words * dim, _smaller(settings, n_labels))


def _score_model_seconds(settings: Settings) -> float:
    """The score model, and those of its inner folds (`ranking/cross_fitting.py`), side by side on 2 cores."""
    own, rows = settings.score_model, max(1, settings.score_model.folds or 0) * known(settings.split.calibration_rows)
    if own.kind != "learned" or not rows:
        return 0.0
    fits = 2 if rows >= MANY else 4  # of all rows, and 2 of a half or 4 of three quarters
    candidates = own.negatives or settings.ranking.network_candidates + settings.inverted_index.candidates
    step = PER_SCORE_STEP + PER_SCORED * candidates * known(own.hidden_units)
    return fits / 2 * known(own.epochs) * rows / SCORE_BATCH * step


def _classifier_bytes(settings: Settings, n_labels: int) -> int:
    return n_labels * settings.encoder.dim * _bytes_a_value(settings, label=True)


def _smaller(settings: Settings, n_labels: int) -> dict[str, int]:
    """Settings that make the label classifiers smaller, one by one, and their bytes then."""
    changes: list[dict[str, Any]] = [
        {"network.precision": "bfloat16"},
        {"stage1.optimizer": "rowwise", "stage2.optimizer": "rowwise"},
        {"stage1.average_from": 1.0, "stage2.average_from": 1.0},
    ]
    now, found = _classifier_bytes(settings, n_labels), {}
    for change in changes:
        then = _classifier_bytes(settings.updated(change), n_labels)
        if 0 < then < now:
            found[" ".join(f"{key}={value}" for key, value in change.items())] = then
    return found


def _bytes_a_value(settings: Settings, *, label: bool) -> int:
    """Of a large table in training: the value, the gradient of a step, the running mean, moments of the optimizer."""
    size = HALF if label and settings.network.precision == "bfloat16" else FLOAT
    stages = (settings.stage1, settings.stage2)
    moments = {"rowwise": 0, "adamw": 2 * FLOAT}
    mean = size if any(stage.average_from < 1 for stage in stages) else 0
    return size + FLOAT + mean + max(moments[stage.optimizer] for stage in stages)


def _stage_seconds(
    settings: Settings, stage: StageSettings, rows: float, n_labels: int, words: float, learned: bool
) -> float:
    dim, shortlist = settings.encoder.dim, min(settings.index.training_shortlist_size, n_labels)
    if settings.network.kind == ONE_VERSUS_ALL:
        per_row = PER_DENSE_PRODUCT * 3 * dim * n_labels + (PER_PRODUCT * 3 + PER_UPDATE) * dim * words
        return known(stage.epochs) * rows * per_row
    beam = min(settings.index.beam_size + settings.index.parent_slots, known(settings.clustering.clusters))
    per_cluster = known(settings.index.kappa) if learned else n_labels / known(settings.clustering.clusters)
    batch = known(stage.batch_size)
    updated = dim * min(n_labels, shortlist * batch * 0.2)
    updated += dim * min(words * batch, words * 60 + batch * words * 0.3)
    products = 3 * dim * (shortlist + words + known(settings.clustering.clusters))
    per_row = PER_EDGE * beam * per_cluster + PER_PRODUCT * products
    return known(stage.epochs) * rows * (per_row + PER_UPDATE * updated / batch)


def estimate_fit(data: Dataset, settings: Settings, size: DataSize) -> Estimate:
    """What a fit of a dataset with resolved settings needs."""
    n_words, words_per_text = input_size(data, settings)
    return estimate(
        settings,
        size,
        n_labels=len(data.labels),
        n_words=n_words,
        words_per_text=words_per_text,
        text_bytes=text_bytes(data),
        label_texts=size.label_texts if settings.features.label_texts else 0,
    )
