"""A dataset: labels, up to three splits of rows, settings, and what was noticed while reading.

`Dataset` is what every reader and every constructor ends in. Its rows keep three promises: label weights are above
0, a pair is never both positive and excluded, and all splits share one label set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import in_memory
from .labels import LabelSet
from .log import Note
from .rows import Rows
from .settings import DatasetSettings


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Dataset:
    """Rows to learn from and to measure on, with one label set."""

    name: str
    train: Rows
    test: Rows | None = None
    validation: Rows | None = None
    labels: LabelSet
    settings: DatasetSettings = field(default_factory=DatasetSettings)
    layout: str = "in memory"  # what was recognised, in words
    notes: list[Note] = field(default_factory=list)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        return f"Dataset({self.name!r}: {sizes} rows, {len(self.labels):,} labels; {self.layout})"

    @property
    def splits(self) -> dict[str, Rows]:
        """The splits that exist, in the order train, validation, test."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in found.items() if rows is not None}

    def fingerprint(self) -> str:
        """blake2b over everything a model could learn from; equal content has an equal fingerprint."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self._content():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def _content(self) -> Iterator[bytes | memoryview]:
        settings = {key: value for key, value in asdict(self.settings).items() if key != "name"}
        yield json.dumps(settings, sort_keys=True).encode()
        for strings in (self.labels.ids, self.labels.texts, self.labels.alternatives):
            yield json.dumps(strings).encode()
        for name, rows in self.splits.items():
            yield name.encode()
            yield from _rows_content(rows)

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Sequence[in_memory.RowLabels],
        *,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        groups: Sequence[str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        test_texts: Sequence[str] | None = None,
        test_labels: Sequence[in_memory.RowLabels] | None = None,
        test_ids: Sequence[str] | None = None,
        validation_texts: Sequence[str] | None = None,
        validation_labels: Sequence[in_memory.RowLabels] | None = None,
        validation_ids: Sequence[str] | None = None,
        name: str = "in memory",
        exclude_own_id: bool = False,
        propensity_a: float = 0.55,
        propensity_b: float = 1.5,
    ) -> Dataset:
        """Texts and their labels. A row's labels: ids or names, (label, weight) pairs, or a dict of weights."""
        settings = DatasetSettings(
            name=name, exclude_own_id=exclude_own_id, propensity_a=propensity_a, propensity_b=propensity_b
        )
        splits = {
            "train": in_memory.TextRows(texts, labels, ids, weights, groups),
            "validation": in_memory.TextRows(validation_texts, validation_labels, validation_ids),
            "test": in_memory.TextRows(test_texts, test_labels, test_ids),
        }
        return cls(**in_memory.from_lists(splits, label_texts, settings))

    @classmethod
    def from_arrays(
        cls,
        vectors: sp.sparray | sp.spmatrix | np.ndarray,
        labels: sp.sparray | sp.spmatrix,
        *,
        label_ids: Sequence[str] | None = None,
        label_texts: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
        groups: Sequence[str] | None = None,
        test_vectors: sp.sparray | sp.spmatrix | np.ndarray | None = None,
        test_labels: sp.sparray | sp.spmatrix | None = None,
        test_ids: Sequence[str] | None = None,
        name: str = "in memory",
        exclude_own_id: bool = False,
        propensity_a: float = 0.55,
        propensity_b: float = 1.5,
    ) -> Dataset:
        """Vectors (rows x features, sparse or dense) and labels (rows x labels, sparse; values are weights)."""
        settings = DatasetSettings(
            name=name, exclude_own_id=exclude_own_id, propensity_a=propensity_a, propensity_b=propensity_b
        )
        splits = {
            "train": in_memory.VectorRows(vectors, labels, ids, weights, groups),
            "test": in_memory.VectorRows(test_vectors, test_labels, test_ids),
        }
        return cls(**in_memory.from_arrays(splits, label_ids, label_texts, settings))


def _rows_content(rows: Rows) -> Iterator[bytes | memoryview]:
    if rows.texts is not None:
        yield from rows.texts.content()
    arrays: list[Any] = [rows.weights, rows.kinds]
    for matrix in (rows.vectors, rows.labels, rows.excluded):
        if isinstance(matrix, np.ndarray):
            arrays.append(matrix)
        elif matrix is not None:
            arrays += [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data]
    for numbers in arrays:
        yield f"{numbers.dtype} {numbers.shape}".encode()
        yield np.ascontiguousarray(numbers).tobytes()
    for names in (rows.ids, rows.groups):
        yield json.dumps(names).encode()
