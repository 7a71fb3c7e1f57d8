"""The numbers of a dataset that settings, propensities and estimates follow from, and the settings in words."""

from __future__ import annotations

import numpy as np

from ..core.defaults import DataSize
from ..core.settings import ONE_VERSUS_ALL, Settings
from . import Dataset
from .label_texts import count_label_texts
from .rows import KIND_TEXT


def size_of(data: Dataset) -> DataSize:
    """The numbers that settings follow from."""
    labels = data.train.labels
    return DataSize(
        rows=len(data.train),
        labels=int(np.count_nonzero(np.bincount(labels.indices, minlength=labels.shape[1]))),
        pairs=int(labels.nnz),
        has_texts=data.train.texts is not None,
        has_words=not isinstance(data.train.vectors, np.ndarray),
        own_validation=0 if data.validation is None else len(data.validation),
        label_texts=count_label_texts(data.train, data.labels),
    )


def training_counts(data: Dataset) -> tuple[np.ndarray, int]:
    """(n_l, N): training rows of each label and in all; rows made of label texts do not count."""
    rows = np.flatnonzero(data.train.kinds == KIND_TEXT)
    labels = data.train.labels[rows]
    return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64), len(rows)


def describe(settings: Settings, data: Dataset) -> str:
    """The chosen settings, in a few lines, before training starts."""
    s, size = settings, size_of(data)
    validation = "its own file" if data.validation is not None else f"{s.split.validation_rows} rows held out"
    lines = [
        f"{data.name}: {size.rows:,} training rows, {size.labels:,} labels with training rows, {size.pairs:,} pairs"
        + (f", {size.label_texts:,} label texts" if size.label_texts and s.features.label_texts else ""),
        f"  encoder {s.encoder.kind}{_dimension(settings, data)}; {_index(settings)}",
        f"  stage 1 {s.stage1.epochs} epochs, stage 2 {s.stage2.epochs} epochs, batch {s.stage2.batch_size}; "
        f"validation: {validation}{_calibration(settings)}; seed {s.run.seed}, {s.run.device}, {s.run.threads} threads",
    ]
    return "\n".join(lines)


def _index(s: Settings) -> str:
    if s.model.kind == ONE_VERSUS_ALL:
        return "one-versus-all: no index, every label trained on every text"
    return (
        f"C={s.clustering.clusters} clusters, kappa={s.index.kappa} edges each; "
        f"alpha={s.index.alpha:g}, beta={s.index.beta:g}; "
        f"beam b={s.index.beam_size}, shortlist K={s.index.shortlist_size}"
    )


def _calibration(settings: Settings) -> str:
    """What the final score is learned from, where there is one."""
    if not settings.ranker.enabled or not settings.split.calibration_rows:
        return ""
    draws = f"{settings.fusion.draws} x " if settings.fusion.draws else ""
    return f"; final score: {draws}{settings.split.calibration_rows} rows"


def _dimension(settings: Settings, data: Dataset) -> str:
    """d, where it is known before the encoder is made."""
    if isinstance(data.train.vectors, np.ndarray):
        return f", d={data.train.vectors.shape[1]}"
    return "" if settings.encoder.kind == "transformer" else f", d={settings.encoder.dim}"
