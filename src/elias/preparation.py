"""From rows to arrays: the split, tf-idf, the encoder at its start. Step 10 of a run.

What is held out is held out of everything: the vocabulary, the SVD, clusters and edges see training rows only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from .config import EncoderSettings, Settings, known
from .dataset import Dataset, Rows
from .devices import pick_device, torch_threads
from .encoders import Encoder, Inputs, load_encoder
from .encoders.bag import BagEncoder, svd_embeddings
from .encoders.dense import DenseEncoder
from .errors import DataError, SettingsError
from .features import TfIdf, open_csr, write_csr
from .label_texts import with_label_texts
from .persistence import read_tensors, write_tensors
from .progress import Progress
from .split import reserve
from .training import TrainingRows


@dataclass(frozen=True)
class Prepared:
    """What every later step works on."""

    train: TrainingRows
    validation: TrainingRows
    bow: sp.csr_matrix | np.ndarray  # what labels are clustered on: tf-idf rows, or the user's own vectors
    vectorizer: TfIdf | None
    encoder_folder: Path


def write_preparation(data: Dataset, settings: Settings, folder: Path, progress: Progress) -> None:
    """Build step 10 in `folder`."""
    if data.train.labels.nnz == 0:
        raise DataError(f"{data.name}: no training row has a label, so there is nothing to learn")
    parts = reserve_rows(data, settings)
    write_tensors(folder / "split.safetensors", parts)
    train = _train(data, parts, settings)
    if train.labels.nnz == 0:
        raise DataError(
            f"{data.name}: no labelled row is left to train on after {len(parts['validation'])} validation and "
            f"{len(parts['calibration'])} calibration rows were set aside; try split.validation_rows=0"
        )
    if train.texts is not None:
        vectorizer, bow = TfIdf.fit_transform(
            train.texts, min_df=settings.features.min_df, max_words=settings.features.max_words
        )
        if bow.nnz == 0:
            least = settings.features.min_df
            raise DataError(f"{data.name}: no word occurs in {least} training texts; try features.min_df=1")
        vectorizer.save(folder)
        write_csr(folder / "bow-train", bow)
        write_csr(folder / "bow-validation", vectorizer.transform(_validation(data, parts).texts or []))
    elif sp.issparse(train.vectors):
        bow = sp.csr_matrix(train.vectors, dtype=np.float32)
    else:
        bow = None
    encoder = new_encoder(settings, train, bow)
    encoder.save(folder / "encoder")
    open_preparation(data, settings, folder, progress)  # a transformer encodes or tokenises every text here, once


def open_preparation(data: Dataset, settings: Settings, folder: Path, progress: Progress) -> Prepared:
    """Step 10 as later steps use it, memory-mapped where it is large."""
    parts, _ = read_tensors(folder / "split.safetensors")
    encoder = load_encoder(folder / "encoder", threads=known(settings.run.threads))
    encoder.to(pick_device(settings.run.device))
    vectorizer = TfIdf.load(folder) if (folder / "vectorizer.json").exists() else None
    out: dict[str, TrainingRows] = {}
    for name, rows in (("train", _train(data, parts, settings)), ("validation", _validation(data, parts))):
        inputs = inputs_of(rows, open_csr(folder / f"bow-{name}") if vectorizer is not None else None)
        with torch_threads(known(settings.run.threads)):
            prepared = encoder.prepare(inputs, folder / f"prepared-{name}", _Live(progress))
        out[name] = TrainingRows(prepared, rows.labels, rows.excluded, rows.weights, rows.kinds)
        if name == "train":
            bow = inputs.bow if inputs.bow is not None else inputs.vectors
    assert bow is not None
    return Prepared(out["train"], out["validation"], bow, vectorizer, folder / "encoder")


class _Live:
    """Feeds the live line while texts are encoded or tokenised."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.started = progress, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        self.progress.update(
            "10-features", done, total, time.monotonic() - self.started, f"{done:,} of {total:,} texts"
        )


def inputs_of(rows: Rows, bow: sp.csr_matrix | None) -> Inputs:
    """Rows of a dataset as an encoder takes them."""
    if rows.texts is not None:
        return Inputs(texts=rows.texts, bow=bow)
    if sp.issparse(rows.vectors):
        return Inputs(bow=sp.csr_matrix(rows.vectors, dtype=np.float32))
    return Inputs(vectors=np.asarray(rows.vectors, dtype=np.float32))


def reserve_rows(data: Dataset, settings: Settings) -> dict[str, np.ndarray]:
    """Row numbers of train, validation and calibration; validation rows come from a validation file if there is one."""
    wanted = known(settings.split.validation_rows)
    own_file = data.validation is not None and len(data.validation) > 0
    split = reserve(
        data.train,
        validation_rows=0 if own_file else wanted,
        calibration_rows=settings.split.calibration_rows,
        seed=settings.split.seed,
    )
    validation = split.validation
    if own_file and data.validation is not None:
        n = len(data.validation)
        validation = (
            np.unique(np.linspace(0, n - 1, min(n, wanted)).astype(np.int64)) if wanted else np.empty(0, np.int64)
        )
    return {"train": split.train, "validation": validation, "calibration": split.calibration}


def _train(data: Dataset, parts: dict[str, np.ndarray], settings: Settings) -> Rows:
    """The rows to learn from, label texts last."""
    rows = data.train.take(parts["train"])
    wanted = settings.features
    return with_label_texts(rows, data.labels, ids=wanted.label_ids) if wanted.label_texts else rows


def _validation(data: Dataset, parts: dict[str, np.ndarray]) -> Rows:
    source = data.validation if data.validation is not None and len(data.validation) else data.train
    return source.take(parts["validation"])


def new_encoder(settings: Settings, train: Rows, bow: sp.csr_matrix | None) -> Encoder:
    """The encoder as it starts: word embeddings from an SVD, or a pretrained transformer, or the bare head."""
    wanted: EncoderSettings = settings.encoder
    if wanted.kind == "transformer":
        if train.texts is None:
            raise SettingsError("encoder.kind=transformer needs texts; this dataset has vectors")
        from .encoders.transformer import TransformerEncoder

        return TransformerEncoder.from_settings(wanted)
    if wanted.kind == "bag" and train.texts is None and bow is None:
        raise SettingsError("encoder.kind=bag needs texts or sparse vectors; this dataset has dense vectors")
    if wanted.kind == "vectors" and train.texts is not None:
        raise SettingsError("encoder.kind=vectors needs vectors; this dataset has texts (use bag or transformer)")
    if bow is None:
        assert isinstance(train.vectors, np.ndarray)
        return DenseEncoder(train.vectors.shape[1], radius=wanted.radius, dropout=wanted.dropout)
    words = svd_embeddings(bow, wanted.dim, power=wanted.svd_power, seed=settings.run.seed)
    return BagEncoder(
        torch.from_numpy(words),
        radius=wanted.radius,
        dropout=wanted.dropout,
        word_dropout=wanted.word_dropout,
        threads=known(settings.run.threads),
    )
