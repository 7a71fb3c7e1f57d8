"""The numbers of a dataset that settings, propensities and estimates follow from."""

from __future__ import annotations

import numpy as np

from .config import DataSize
from .dataset import Dataset
from .dataset.rows import KIND_TEXT


def size_of(data: Dataset) -> DataSize:
    """The numbers that settings follow from."""
    labels = data.train.labels
    return DataSize(
        rows=len(data.train),
        labels=int(np.count_nonzero(np.bincount(labels.indices, minlength=labels.shape[1]))),
        pairs=int(labels.nnz),
        has_texts=data.train.texts is not None,
    )


def training_counts(data: Dataset) -> tuple[np.ndarray, int]:
    """(n_l, N): training rows of each label and in all; rows made of label texts do not count."""
    rows = np.flatnonzero(data.train.kinds == KIND_TEXT)
    labels = data.train.labels[rows]
    return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64), len(rows)
