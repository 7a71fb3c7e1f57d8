"""What a fit will need, before it starts: memory by part, and a rough time.

Memory is counted from the shapes. On a CUDA device the tables, the transformer and its activations are in the memory of
the GPU, texts and ranking parts in main memory.
Time comes from constants that fit two datasets of 45,000 rows on 2 cores (12:34 and 5:41 min beside other jobs, guessed
11:55 and 7:24) and cuts of 1,500 and 10,000 rows of three datasets (20 to 106 s, guessed 1.3 to 1.5 times as much); it
is a guide, not a promise. Transformers: `transformer_cost.py`.
The vocabulary of a large dataset is counted on a sample and extended by Heaps' law.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.defaults import DataSize
from ..core.settings import ONE_VERSUS_ALL, PUBLISHED, STACKED, Settings, StageSettings, known
from ..dataset import Dataset
from ..encoders.tfidf import TfIdf
from .transformer_cost import (
    LIBRARY,
    TransformerLoad,
    activation_bytes,
    on_gpu,
    prepared_bytes,
    saved_bytes,
    transformer_load,
    transformer_seconds,
    weight_bytes,
)

FLOAT, HALF = 4, 2
STAGES = ("stage1", "stage2")
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
WORKSPACES = 512 << 20  # bytes of a GPU for the workspaces of its libraries, and for what its allocator leaves unused
WORDS_KEPT = 128  # of a label in the published ranker; 52 and 108 weights measured with min_weight 0.1, phi included
SCORES_AT_ONCE = 1 << 26, 1 << 22  # floats of batch x labels on a GPU and on a CPU, as in `classifiers.py`
A_PAIR, A_PATH = 64, 24  # bytes: a shortlisted label of a row, an edge that a row follows
NOTABLE = 0.01  # share of the memory that a setting must save to be named
PER_DENSE_PRODUCT = 3.2e-11  # one-versus-all, update included: a step at L = 53,023, d = 512, batch 256 took 0.65 s


@dataclass(frozen=True)
class Estimate:
    """Bytes by part, in main memory and on the GPU (empty without one), and seconds."""

    memory_bytes: dict[str, int]
    seconds: float
    gpu_bytes: dict[str, int] = field(default_factory=dict)
    smaller: dict[str, Estimate] = field(default_factory=dict)  # settings that save memory, and the estimate with them
    machine: str = "2 cores"  # that the seconds are for

    @property
    def total_bytes(self) -> int:
        return sum(self.memory_bytes.values())

    @property
    def total_gpu_bytes(self) -> int:
        return sum(self.gpu_bytes.values())


def input_size(data: Dataset, settings: Settings) -> tuple[int, float]:
    """(size of the vocabulary, words of a text in it), of a fit with these settings."""
    texts, vectors = data.train.texts, data.train.vectors
    if isinstance(vectors, np.ndarray):
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


@dataclass(frozen=True)
class Workload:
    """The numbers of a dataset that memory and time follow from."""

    size: DataSize
    n_labels: int
    n_words: int
    words_per_text: float
    text_bytes: int = 0
    label_texts: int = 0  # training rows made of them
    transformer: TransformerLoad | None = None

    @property
    def rows(self) -> int:
        return self.size.rows + self.label_texts

    def dim(self, settings: Settings) -> int:
        """d: the transformer's, that of the vectors, or a setting."""
        if settings.encoder.kind == "transformer" and self.transformer is not None:
            return self.transformer.size.hidden
        return self.size.dense_dim or known(settings.encoder.dim)

    def table_words(self, settings: Settings) -> int:
        """Rows of the table of word embeddings; a transformer has none."""
        return 0 if settings.encoder.kind == "transformer" else self.n_words


def estimate(settings: Settings, work: Workload) -> Estimate:
    """`settings` must be resolved."""
    needed = _estimate(settings, work)
    return replace(needed, smaller=_smaller(settings, work, needed))


def _estimate(settings: Settings, work: Workload) -> Estimate:
    size, n_labels, n_words, words_per_text = work.size, work.n_labels, work.n_words, work.words_per_text
    dim, clusters, label_texts = work.dim(settings), known(settings.clustering.clusters), work.label_texts
    edges = clusters * known(settings.index.kappa)
    memory = {
        "label classifiers": n_labels * dim * _bytes_a_value(settings, label=True),
        "word embeddings": work.table_words(settings) * dim * _bytes_a_value(settings, label=False),
        "clusters": clusters * dim * _bytes_a_value(settings, label=False, dense=True),
        "edges": edges * FLOAT * 6,
    }
    if work.transformer is not None:
        memory["transformer"] = weight_bytes(work.transformer, settings)
        memory["activations"] = activation_bytes(work.transformer, settings)
    if on_gpu(settings) or not settings.run.kernels:
        memory["labels of a batch"] = _batch_bytes(settings, n_labels, dim)
    gpu: dict[str, int] = {}
    if on_gpu(settings):
        gpu = {**memory, "workspaces": WORKSPACES}
        # A table is made in main memory, and comes back to be saved.
        memory = {"label classifiers": n_labels * dim * _value_bytes(settings)}
    if work.transformer is not None:
        memory["transformer"] = memory.get("transformer", 0) + saved_bytes(work.transformer)
        memory["tokens or vectors"] = prepared_bytes(work.transformer, settings, work.rows)
    memory |= {
        "texts as arrays": int(work.rows * words_per_text * 8),
        "texts": work.text_bytes,
        "python, torch, numba": BASE + (LIBRARY if work.transformer is not None else 0),
    }
    seconds, folds = 0.0, settings.score_model.folds or 0
    networks = 1 + folds * (1 - known(settings.split.calibration_rows) / max(1, size.rows))  # a fold has fewer rows
    if settings.ranking.kind == PUBLISHED:
        found = min(settings.ranking.network_candidates, n_labels)
        psi, pairs = size.rows * (words_per_text + dim), size.rows * found
        # psi of all rows twice while it is made; weights of a label by word and by dimension of phi; pairs.
        words = min(n_words, WORDS_KEPT) if settings.linear_ranker.min_weight > 0 else n_words
        weights = min(n_labels * words, pairs * words_per_text) + n_labels * dim
        memory["published ranker"] = int(2 * 8 * psi + 8 * weights) + 9 * pairs
        seconds += PER_PAIR_WORD * pairs * (words_per_text + dim)
    if settings.ranking.kind == STACKED and n_words:
        vectors = min(n_labels * settings.inverted_index.words_per_label, (size.pairs + label_texts) * words_per_text)
        memory["words of labels, ranker"] = int(3 * 8 * vectors) + 5 * size.rows * settings.linear_ranker.negatives
        passes = networks if settings.score_model.folds else 2
        for number in range(settings.label_tree.trees):
            leaf_size = settings.label_tree.leaf_size << number
            levels = max(1, int(np.ceil(np.log2(max(2, n_labels / leaf_size)) / 4)))
            siblings = (size.pairs + label_texts) * (leaf_size // 2 + 5 * levels)
            centroids = (size.pairs + label_texts) * words_per_text
            memory["label trees"] = int(2 * 8 * centroids) + 5 * min(siblings, SIBLINGS_AT_A_TIME)
            seconds += passes * PER_SIBLING_WORD * siblings * words_per_text
        if settings.knn.neighbors:
            memory["k-NN"] = int(2 * 8 * size.rows * min(words_per_text, settings.knn.words_per_text))
        seconds += passes * size.rows * (PER_SEARCH + PER_PAIR_WORD * settings.linear_ranker.negatives * words_per_text)
        seconds += _score_model_seconds(settings)
    if work.transformer is not None:
        seconds += networks * transformer_seconds(work.transformer, settings, work.rows)
    if not (
        on_gpu(settings) and settings.encoder.is_fine_tuned
    ):  # the time of a transformer on a GPU is all of training
        for stage in (settings.stage1, settings.stage2):
            seconds += networks * _stage_seconds(settings, stage, work, stage is settings.stage2)
    seconds += 10 + 2e-7 * work.table_words(settings) * dim
    return Estimate(memory, seconds, gpu, machine="2 cores and a GPU such as an A6000" if gpu else "2 cores")


def _score_model_seconds(settings: Settings) -> float:
    """The score model, and those of its inner folds (`ranking/cross_fitting.py`), side by side on 2 cores."""
    own, rows = settings.score_model, max(1, settings.score_model.folds or 0) * known(settings.split.calibration_rows)
    if not rows:
        return 0.0
    fits = 2 if rows >= MANY else 4  # of all rows, and 2 of a half or 4 of three quarters
    candidates = own.negatives or settings.ranking.network_candidates + settings.inverted_index.candidates
    step = PER_SCORE_STEP + PER_SCORED * candidates * known(own.hidden_units)
    return fits / 2 * known(own.epochs) * rows / SCORE_BATCH * step


def _smaller(settings: Settings, work: Workload, now: Estimate) -> dict[str, Estimate]:
    """Settings that save memory, one by one, and what is needed with them."""
    changes: list[dict[str, Any]] = [
        {"network.precision": "bfloat16"},
        {"stage1.optimizer": "rowwise", "stage2.optimizer": "rowwise"},
        {"stage1.average_from": 1.0, "stage2.average_from": 1.0},
    ]
    if work.transformer is not None and settings.encoder.is_fine_tuned:
        halves = {f"{stage}.batch_size": max(1, known(getattr(settings, stage).batch_size) // 2) for stage in STAGES}
        changes += [{"encoder.precision": "bfloat16"}, halves, {"encoder.frozen": True}]
        changes.append({"encoder.checkpointing": True})
    found: dict[str, Estimate] = {}
    for change in changes:
        then = _estimate(settings.updated(change), work)
        saved = now.total_bytes - then.total_bytes, now.total_gpu_bytes - then.total_gpu_bytes
        if saved[0] > NOTABLE * now.total_bytes or saved[1] > NOTABLE * now.total_gpu_bytes:
            found[" ".join(f"{key}={_as_set(value)}" for key, value in change.items())] = then
    return found


def _as_set(value: Any) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value_bytes(settings: Settings) -> int:
    """Of one number of a label classifier."""
    return HALF if settings.network.precision == "bfloat16" else FLOAT


def _bytes_a_value(settings: Settings, *, label: bool, dense: bool = False) -> int:
    """Of a large table in training: the value, the gradient of a step, the running mean, moments of the optimizer."""
    size = _value_bytes(settings) if label else FLOAT
    stages = (settings.stage1, settings.stage2)
    moments = {"rowwise": 2 * FLOAT if dense else 0, "adamw": 2 * FLOAT}
    mean = size if any(stage.average_from < 1 for stage in stages) else 0
    return size + FLOAT + mean + max(moments[stage.optimizer] for stage in stages)


def _batch_bytes(settings: Settings, n_labels: int, dim: int) -> int:
    """Of a step in torch: the classifiers of a batch's labels and their gradient, a block of their products, the
    shortlist, the paths. The kernels hold next to nothing of it."""
    gpu, index = on_gpu(settings), settings.index
    batch = max(known(settings.stage1.batch_size), known(settings.stage2.batch_size))
    listed = min(n_labels, index.training_shortlist_size if settings.network.kind != ONE_VERSUS_ALL else n_labels)
    union = min(n_labels, batch * listed)
    block = min(batch * union, SCORES_AT_ONCE[0 if gpu else 1])
    clusters = known(settings.clustering.clusters)
    paths = batch * min(clusters, index.beam_size + index.parent_slots) * known(index.kappa)
    return 2 * union * dim * FLOAT + 3 * block * FLOAT + A_PAIR * batch * listed + A_PATH * paths


def _stage_seconds(settings: Settings, stage: StageSettings, work: Workload, learned: bool) -> float:
    n_labels, rows = work.n_labels, work.rows
    words = work.words_per_text if work.table_words(settings) else 0.0
    dim, shortlist = work.dim(settings), min(settings.index.training_shortlist_size, n_labels)
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
    work = Workload(
        size,
        n_labels=len(data.labels),
        n_words=n_words,
        words_per_text=words_per_text,
        text_bytes=text_bytes(data),
        label_texts=size.label_texts if settings.features.label_texts else 0,
        transformer=transformer_load(data, settings),
    )
    return estimate(settings, work)
