"""From rows to arrays: the split, tf-idf, the encoder at its start. Step 10 of a run.

What is held out is held out of everything: the vocabulary, the SVD, clusters and edges see training rows only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from ..core.devices import pick_device, torch_threads
from ..core.errors import DataError, SettingsError
from ..core.files import read_tensors, write_tensors
from ..core.progress import Progress
from ..core.settings import EncoderSettings, Settings, known
from ..core.sparse_files import open_csr, write_csr
from ..dataset import Dataset, Rows
from ..dataset.label_texts import with_label_texts
from ..dataset.split import NearDuplicates, reserve
from ..encoders import Encoder, Inputs, load_encoder
from ..encoders.bag import BagEncoder
from ..encoders.dense import DenseEncoder
from ..encoders.svd import svd_embeddings
from ..encoders.tfidf import TfIdf
from ..training.trainer import TrainingRows
from .near_duplicates import near_twins


@dataclass(frozen=True)
class Prepared:
    """What every later step works on."""

    train: TrainingRows
    validation: TrainingRows
    calibration: TrainingRows
    bow_calibration: sp.csr_matrix | np.ndarray
    bow: sp.csr_matrix | np.ndarray  # what labels are clustered on: tf-idf rows, or the user's own vectors
    vectorizer: TfIdf | None
    folder: Path  # of the step
    fold: dict[str, int] = field(default_factory=dict)  # which fold of the training rows is left out, of how many

    @property
    def encoder_folder(self) -> Path:
        """The encoder as it starts."""
        return self.folder / "encoder"


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
        for name, rows in (("validation", _validation(data, parts)), ("calibration", _calibration(data, parts))):
            write_csr(folder / f"bow-{name}", vectorizer.transform(rows.texts or []))
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
    bows: dict[str, sp.csr_matrix | np.ndarray] = {}
    parts_of = {"train": _train(data, parts, settings), "validation": _validation(data, parts)}
    for name, rows in {**parts_of, "calibration": _calibration(data, parts)}.items():
        inputs = inputs_of(rows, open_csr(folder / f"bow-{name}") if vectorizer is not None else None)
        with torch_threads(known(settings.run.threads)):
            prepared = encoder.prepare(inputs, folder / f"prepared-{name}", _Live(progress))
        out[name] = TrainingRows(prepared, rows.labels, rows.excluded, rows.weights, rows.kinds)
        words = inputs.bow if inputs.bow is not None else inputs.vectors
        assert words is not None
        bows[name] = words
    return Prepared(
        out["train"], out["validation"], out["calibration"], bows["calibration"], bows["train"], vectorizer, folder
    )


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
    for_score = 0 if settings.fusion.draws else known(settings.split.calibration_rows)
    own_file = data.validation is not None and len(data.validation) > 0
    split = reserve(
        data.train,
        validation_rows=0 if own_file else wanted,
        calibration_rows=0 if own_file else for_score,
        seed=settings.split.seed,
        near_duplicates=_near_duplicates(data.train, settings),
    )
    validation, calibration = split.validation, split.calibration
    if own_file and data.validation is not None:
        every = np.arange(len(data.validation))
        calibration = _evenly(every, for_score)
        validation = _evenly(np.setdiff1d(every, calibration), wanted)
    return {"train": split.train, "validation": validation, "calibration": calibration}


def _near_duplicates(rows: Rows, settings: Settings) -> NearDuplicates | None:
    """Near twins of rows, by a tf-idf of their own; none where there are no words."""
    if not settings.split.twins or isinstance(rows.vectors, np.ndarray):
        return None

    def near_duplicates(asked: np.ndarray) -> list[np.ndarray]:
        if rows.texts is not None:
            bow = TfIdf.fit_transform(rows.texts, min_df=settings.features.min_df)[1]
        else:
            assert rows.vectors is not None
            bow = sp.csr_matrix(rows.vectors, dtype=np.float32)
        return near_twins(bow, asked, threads=known(settings.run.threads))

    return near_duplicates


def _evenly(rows: np.ndarray, wanted: int) -> np.ndarray:
    """So many of the rows, evenly spaced; all if there are fewer."""
    wanted = min(wanted, len(rows))
    chosen: np.ndarray = rows[np.linspace(0, len(rows) - 1, wanted).astype(np.int64)] if wanted else rows[:0]
    return chosen


def _train(data: Dataset, parts: dict[str, np.ndarray], settings: Settings) -> Rows:
    """The rows to learn from, label texts last."""
    rows = data.train.take(parts["train"])
    wanted = settings.features
    return with_label_texts(rows, data.labels, ids=wanted.label_ids) if wanted.label_texts else rows


def _validation(data: Dataset, parts: dict[str, np.ndarray]) -> Rows:
    return _held_out_of(data).take(parts["validation"])


def _calibration(data: Dataset, parts: dict[str, np.ndarray]) -> Rows:
    return _held_out_of(data).take(parts["calibration"])


def _held_out_of(data: Dataset) -> Rows:
    """Where held-out rows come from: the validation file if there is one."""
    return data.validation if data.validation is not None and len(data.validation) else data.train


def holds_out_training_rows(data: Dataset, prepared: Prepared) -> bool:
    """Whether training on `all_rows` is training on more."""
    return _held_out_of(data) is data.train and len(prepared.validation) + len(prepared.calibration) > 0


def all_rows(data: Dataset, settings: Settings, vectorizer: TfIdf | None) -> tuple[sp.csr_matrix, Rows]:
    """Every row of the training file, held out or not, and label texts: (tf-idf, rows)."""
    wanted = settings.features
    rows = with_label_texts(data.train, data.labels, ids=wanted.label_ids) if wanted.label_texts else data.train
    if vectorizer is not None:
        return vectorizer.transform(rows.texts or []), rows
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
        return HybridEncoder(bag, pretrained, weight=wanted.sentence_weight, seed=settings.run.seed)
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
    words = svd_embeddings(bow, wanted.dim, power=wanted.svd_power, seed=settings.run.seed, threads=threads)
    return BagEncoder(
        torch.from_numpy(words),
        radius=wanted.radius,
        dropout=wanted.dropout,
        threads=threads,
    )
