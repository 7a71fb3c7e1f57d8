"""Step 10 of a run: from rows of a dataset to arrays. The split, tf-idf, the encoder at its start.

What is held out is held out of everything: the vocabulary, the SVD, clusters and edges see training rows only. A fold
of cross-fitting shares vocabulary and SVD, which know no labels, with the run around it; clusters, edges, weights and
ranking parts of a fold see its training rows only.

Where texts can be labels of each other (the dataset excludes own ids), a new text is no label yet. So in a fold the
labels with the id of a held-out row are unknown: no training row has them, and no held-out row counts them as right.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..core.devices import torch_threads
from ..core.errors import DataError, SettingsError
from ..core.files import link_tree, read_tensors, write_tensors
from ..core.progress import Progress
from ..core.settings import EncoderSettings, Settings, known
from ..core.sparse_files import open_csr, write_csr
from ..dataset import Dataset, Rows
from ..dataset.label_texts import labels_with_text, with_label_texts, with_own_ids
from ..dataset.split import NearDuplicates, reserve
from ..encoders import Encoder, Inputs, load_encoder
from ..encoders.bag import BagEncoder
from ..encoders.dense import DenseEncoder
from ..encoders.svd import svd_embeddings
from ..encoders.tfidf import TfIdf
from ..training.trainer import TrainingRows
from .context import FitContext
from .near_duplicates import near_duplicates

STEP = "10-features"
NO_LABELS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class FeatureSet:
    """What every later step works on."""

    train: TrainingRows
    validation: TrainingRows
    held_out: TrainingRows  # for the score model
    bow: sp.csr_matrix | np.ndarray  # of the training rows: tf-idf, or the user's own vectors
    bow_held_out: sp.csr_matrix | np.ndarray
    held_out_rows: np.ndarray  # their numbers in the file they come from
    label_counts: np.ndarray  # n_l of the training rows; with held-out rows in it, it would give their labels away
    vectorizer: TfIdf | None
    folder: Path  # of the step

    @property
    def encoder_folder(self) -> Path:
        """The encoder as it starts."""
        return self.folder / "encoder"


def features_step(context: FitContext) -> FeatureSet:
    """Build step 10, or open it."""
    s = context.settings
    depends: dict[str, Any] = {
        "features": vars(s.features),
        "encoder": vars(s.encoder),
        "seed": s.run.seed,
        "threads": s.run.threads,
        "folds": bool(s.score_model.folds),  # with folds, no rows are held out for the score model here
    }
    after = None
    if context.whole is not None:
        after, depends["split"] = [context.whole], vars(s.split)
    folder = context.run.step(STEP, depends, lambda part: _write(context, part), after=after)
    return _open(context, folder)


def _write(context: FitContext, folder: Path) -> None:
    data, settings = context.data, context.settings
    if data.train.labels.nnz == 0:
        raise DataError(f"{data.name}: no training row has a label, so there is nothing to learn")
    parts = reserve_rows(context)
    write_tensors(folder / "split.safetensors", parts)
    learned = rows_of(context, parts, "train")
    train = _with_texts_of_labels(learned, data, settings)
    if train.labels.nnz == 0:
        aside = {name: len(parts[name]) for name in ("validation", "calibration") if len(parts[name])}
        counts = " and ".join(f"{count} {name}" for name, count in aside.items())
        remedy = " and ".join(f"split.{name}_rows=0" for name in aside)
        message = f"no labeled row is left to train on after {counts} rows were set aside"
        raise DataError(f"{data.name}: {message}; label more rows" + (f", or set {remedy}" if remedy else ""))
    if context.tokens is not None:
        tokens = context.tokens.of(parts["train"], _label_numbers(learned, data, settings))
        if context.whole is None:
            min_df, most = settings.features.min_df, settings.features.max_words
            vectorizer = TfIdf.fit_counts(tokens, min_df=min_df, max_words=most)
        else:
            vectorizer = TfIdf.load(context.whole)
        bow = vectorizer.transform_counts(tokens)
        if bow.nnz == 0:
            least = settings.features.min_df
            raise DataError(f"{data.name}: no word occurs in {least} training texts; try features.min_df=1")
        vectorizer.save(folder)
        write_csr(folder / "bow-train", bow)
        for name in ("validation", "calibration"):
            if held_out_of(data) is data.train:
                words = vectorizer.transform_counts(context.tokens.of(parts[name], NO_LABELS))
            else:
                words = vectorizer.transform(held_out_of(data).take(parts[name]).texts or [])
            write_csr(folder / f"bow-{name}", words)
    elif sp.issparse(train.vectors):
        bow = sp.csr_matrix(train.vectors, dtype=np.float32)
    else:
        bow = None
    if context.whole is None:
        new_encoder(settings, train, bow).save(folder / "encoder")
    else:
        link_tree(context.whole / "encoder", folder / "encoder")
    _open(context, folder)  # a transformer encodes or tokenizes every text here, once


def _open(context: FitContext, folder: Path) -> FeatureSet:
    """The step as later steps use it, memory-mapped where it is large."""
    data, settings = context.data, context.settings
    parts, _ = read_tensors(folder / "split.safetensors")
    encoder = load_encoder(folder / "encoder", threads=context.threads)
    encoder.to(context.device)
    vectorizer = TfIdf.load(folder) if (folder / "vectorizer.json").exists() else None
    found: dict[str, TrainingRows] = {}
    bows: dict[str, sp.csr_matrix | np.ndarray] = {}
    counts = np.zeros(len(data.labels), dtype=np.int64)
    for name in ("train", "validation", "calibration"):
        rows = rows_of(context, parts, name)
        if name == "train":
            counts = np.bincount(rows.labels.indices, minlength=len(data.labels))
            rows = _with_texts_of_labels(rows, data, settings)
        inputs = inputs_of(rows, open_csr(folder / f"bow-{name}") if vectorizer is not None else None)
        with torch_threads(context.threads):
            prepared = encoder.prepare(inputs, folder / f"prepared-{name}", _Live(context.progress))
        found[name] = TrainingRows(prepared, rows.labels, rows.excluded, rows.weights, rows.kinds)
        words = inputs.bow if inputs.bow is not None else inputs.vectors
        assert words is not None
        bows[name] = words
    return FeatureSet(
        train=found["train"],
        validation=found["validation"],
        held_out=found["calibration"],
        bow=bows["train"],
        bow_held_out=bows["calibration"],
        held_out_rows=parts["calibration"],
        label_counts=counts,
        vectorizer=vectorizer,
        folder=folder,
    )


class _Live:
    """Feeds the live line while texts are encoded or tokenized."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.started = progress, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(STEP, done, total, time.monotonic() - self.started, f"{done:,} of {total:,} texts")


def inputs_of(rows: Rows, bow: sp.csr_matrix | None) -> Inputs:
    """Rows of a dataset as an encoder takes them."""
    if rows.texts is not None:
        return Inputs(texts=rows.texts, bow=bow)
    if sp.issparse(rows.vectors):
        return Inputs(bow=sp.csr_matrix(rows.vectors, dtype=np.float32))
    return Inputs(vectors=np.asarray(rows.vectors, dtype=np.float32))


def reserve_rows(context: FitContext) -> dict[str, np.ndarray]:
    """Row numbers of train, validation and calibration; validation rows come from a validation file if there is one."""
    data, settings = context.data, context.settings
    wanted = known(settings.split.validation_rows)
    for_score = 0 if settings.score_model.folds else known(settings.split.calibration_rows)
    own_file = data.validation is not None and len(data.validation) > 0
    split = reserve(
        data.train,
        validation_rows=0 if own_file else wanted,
        calibration_rows=0 if own_file else for_score,
        seed=settings.split.seed,
        near_duplicates=_near_duplicates_of(context),
    )
    validation, calibration = split.validation, split.calibration
    if own_file and data.validation is not None:
        every = np.arange(len(data.validation))
        calibration = _evenly(every, for_score)
        validation = _evenly(np.setdiff1d(every, calibration), wanted)
    return {"train": split.train, "validation": validation, "calibration": calibration}


def _near_duplicates_of(context: FitContext) -> NearDuplicates | None:
    """Near-duplicates of training rows, by a tf-idf of their own; none where there are no words."""
    rows, settings, tokens = context.data.train, context.settings, context.tokens
    if not settings.split.near_duplicates or isinstance(rows.vectors, np.ndarray):
        return None

    def duplicates_of(asked: np.ndarray) -> list[np.ndarray]:
        if tokens is not None:
            texts = tokens.of(np.arange(len(rows)), NO_LABELS)
            bow = TfIdf.fit_counts(texts, min_df=settings.features.min_df).transform_counts(texts)
        else:
            assert rows.vectors is not None
            bow = sp.csr_matrix(rows.vectors, dtype=np.float32)
        return near_duplicates(bow, asked, threads=known(settings.run.threads))

    return duplicates_of


def _evenly(rows: np.ndarray, wanted: int) -> np.ndarray:
    """`wanted` of the rows, evenly spaced; all if there are fewer."""
    wanted = min(wanted, len(rows))
    chosen: np.ndarray = rows[np.linspace(0, len(rows) - 1, wanted).astype(np.int64)] if wanted else rows[:0]
    return chosen


def rows_of(context: FitContext, parts: dict[str, np.ndarray], name: str) -> Rows:
    """The rows of a part, in a fold without the labels that are unknown there."""
    rows = (context.data.train if name == "train" else held_out_of(context.data)).take(parts[name])
    return rows if context.whole is None else replace(rows, labels=known_in_fold(rows.labels, context.data, parts))


def known_in_fold(labels: sp.csr_matrix, data: Dataset, parts: dict[str, np.ndarray]) -> sp.csr_matrix:
    """Labels of rows [rows, L] without those that are unknown in a fold with these parts."""
    if not data.settings.exclude_own_id:
        return labels
    known_there = np.ones(len(data.labels), dtype=labels.dtype)
    known_there[unknown_labels(data, parts)] = 0
    kept = labels.data * known_there[labels.indices]
    found = sp.csr_matrix((kept, labels.indices.copy(), labels.indptr.copy()), shape=labels.shape)
    found.eliminate_zeros()
    return found


def unknown_labels(data: Dataset, parts: dict[str, np.ndarray]) -> np.ndarray:
    """The labels that have the id of a row held out."""
    ids = data.train.ids
    if ids is None:
        return NO_LABELS
    held_out = np.concatenate([parts["validation"], parts["calibration"]]).tolist()
    numbers = (data.labels.number_of.get(ids[row]) for row in held_out)
    return np.array([number for number in numbers if number is not None], dtype=np.int64)


def _with_texts_of_labels(rows: Rows, data: Dataset, settings: Settings) -> Rows:
    """Training rows as they are learned from: own ids among the positives, then a row per label text."""
    wanted = settings.features
    rows = with_own_ids(rows, data.labels) if wanted.own_ids and data.settings.exclude_own_id else rows
    return with_label_texts(rows, data.labels, ids=wanted.label_ids) if wanted.label_texts else rows


def _label_numbers(rows: Rows, data: Dataset, settings: Settings) -> np.ndarray:
    """The labels whose texts are training rows beside these."""
    return labels_with_text(rows, data.labels) if settings.features.label_texts else NO_LABELS


def held_out_of(data: Dataset) -> Rows:
    """Where held-out rows come from: the validation file if there is one."""
    return data.validation if data.validation is not None and len(data.validation) else data.train


def holds_out_training_rows(data: Dataset, features: FeatureSet) -> bool:
    """Whether training on `all_rows` is training on more."""
    return held_out_of(data) is data.train and len(features.validation) + len(features.held_out) > 0


def all_rows(context: FitContext, vectorizer: TfIdf | None) -> tuple[sp.csr_matrix, Rows]:
    """Every row of the training file, held out or not, and label texts: (tf-idf, rows)."""
    data = context.data
    rows = _with_texts_of_labels(data.train, data, context.settings)
    if vectorizer is not None and context.tokens is not None:
        numbers = _label_numbers(data.train, data, context.settings)
        return vectorizer.transform_counts(context.tokens.of(np.arange(len(data.train)), numbers)), rows
    assert rows.vectors is not None
    return sp.csr_matrix(rows.vectors, dtype=np.float32), rows


def new_encoder(settings: Settings, train: Rows, bow: sp.csr_matrix | None) -> Encoder:
    """The encoder as it starts: word embeddings from an SVD, or a pretrained transformer, or both, or the bare head."""
    wanted: EncoderSettings = settings.encoder
    if wanted.kind in ("transformer", "hybrid"):
        if train.texts is None:
            raise SettingsError(f"encoder.kind={wanted.kind} needs texts; this dataset has vectors")
        from ..encoders.transformer import TransformerEncoder

        pretrained = TransformerEncoder.from_settings(wanted)
        if wanted.kind == "transformer":
            return pretrained
        from ..encoders.hybrid import HybridEncoder

        assert bow is not None
        bag = _new_bag(settings, bow)
        return HybridEncoder(bag, pretrained, seed=settings.run.seed)
    if wanted.kind == "bag" and train.texts is None and bow is None:
        raise SettingsError("encoder.kind=bag needs texts or sparse vectors; this dataset has dense vectors")
    if wanted.kind == "vectors" and train.texts is not None:
        raise SettingsError("encoder.kind=vectors needs vectors; this dataset has texts (bag, hybrid, transformer)")
    if bow is None:
        assert isinstance(train.vectors, np.ndarray)
        return DenseEncoder(
            train.vectors.shape[1], radius=wanted.radius, dropout=wanted.dropout, threads=known(settings.run.threads)
        )
    return _new_bag(settings, bow)


def _new_bag(settings: Settings, bow: sp.csr_matrix) -> BagEncoder:
    wanted, threads = settings.encoder, known(settings.run.threads)
    words = svd_embeddings(bow, known(wanted.dim), seed=settings.run.seed, threads=threads)
    return BagEncoder(
        torch.from_numpy(words),
        radius=wanted.radius,
        dropout=wanted.dropout,
        threads=threads,
    )
