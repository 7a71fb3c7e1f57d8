"""Datasets from Python objects: lists of texts, or arrays. The same rules and notes as for files.

Places in messages are Python's: `labels:3` is row 3, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError
from .assemble import DatasetParts, assemble
from .log import Log
from .npz import finite_float32
from .raw_rows import RawRows, collect, from_label_matrix
from .records import Record, RecordParser
from .settings import DatasetSettings
from .vocabulary import Vocabulary, id_problem

Label: TypeAlias = str | int
RowLabels: TypeAlias = Sequence[Label | tuple[Label, float] | Mapping[str, Any]] | Mapping[Label, float]


@dataclass(frozen=True)
class TextRows:
    """One split as from_lists is given it."""

    texts: Sequence[str] | None
    labels: Sequence[RowLabels] | None
    ids: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    groups: Sequence[str] | None = None


@dataclass(frozen=True)
class VectorRows:
    """One split as from_arrays is given it."""

    vectors: sp.sparray | sp.spmatrix | np.ndarray | None
    labels: Any  # checked: a sparse matrix or None
    ids: Sequence[str] | None = None
    weights: Sequence[float] | np.ndarray | None = None
    groups: Sequence[str] | None = None


def from_lists(
    splits: dict[str, TextRows], label_texts: Mapping[str, str] | None, settings: DatasetSettings
) -> DatasetParts:
    log = Log()
    vocabulary = Vocabulary(log)
    if label_texts is not None:
        _list_labels([str(label) for label in label_texts], list(label_texts.values()), vocabulary)
    raw = {}
    for split, rows in splits.items():
        prefix = "" if split == "train" else f"{split}_"
        if (rows.texts is None) != (rows.labels is None):
            raise InputError(f"{prefix}texts and {prefix}labels come together; one of them is missing")
        if rows.texts is not None and rows.labels is not None:
            columns = {"labels": rows.labels, "ids": rows.ids, "weights": rows.weights, "groups": rows.groups}
            _check_lengths(len(rows.texts), prefix, **columns)
            raw[split] = collect(_records(rows, f"{prefix}labels", settings, vocabulary), f"{prefix}labels", log)
    return assemble(raw, vocabulary, settings, log, layout="lists of texts in memory", name=settings.name)


def _records(rows: TextRows, place: str, settings: DatasetSettings, vocabulary: Vocabulary) -> Iterator[Record]:
    parser = RecordParser(place, settings, vocabulary)
    names = settings
    fields = (names.text_field, names.labels_field, names.id_field, names.group_field, names.weight_field)
    assert rows.texts is not None
    assert rows.labels is not None
    for row, (text, labels) in enumerate(zip(rows.texts, rows.labels, strict=True)):
        values = (
            text,
            _plain(labels),
            None if rows.ids is None else rows.ids[row],
            None if rows.groups is None else rows.groups[row],
            None if rows.weights is None else rows.weights[row],
        )
        yield parser.parse(dict(zip(fields, values, strict=True)), row)


def _plain(labels: object) -> object:
    """Sets, arrays and the like as lists; texts and dicts stay, for the parser to judge."""
    if isinstance(labels, str | bytes | dict | list | tuple) or labels is None:
        return labels
    if isinstance(labels, Mapping):
        return dict(labels)
    if isinstance(labels, set | frozenset):
        return sorted(labels, key=str)  # a set has no order of its own; runs must not differ
    return list(labels) if hasattr(labels, "__iter__") else labels


def from_arrays(
    splits: dict[str, VectorRows],
    label_ids: Sequence[str] | None,
    label_texts: Sequence[str] | None,
    settings: DatasetSettings,
) -> DatasetParts:
    log = Log()
    vocabulary = Vocabulary(log)
    raw: dict[str, RawRows] = {}
    for split, rows in splits.items():
        prefix = "" if split == "train" else f"{split}_"
        if (rows.vectors is None) != (rows.labels is None):
            raise InputError(f"{prefix}vectors and {prefix}labels come together; one of them is missing")
        if rows.vectors is not None:
            raw[split] = _vector_rows(rows, prefix)
    train_labels = splits["train"].labels
    assert train_labels is not None
    widths = {split: (_width(splits[split].vectors), _width(splits[split].labels)) for split in raw}
    if len(set(widths.values())) > 1:
        raise InputError(f"the splits differ in (features, labels): {widths}")
    n_labels = _width(train_labels)
    ids = [str(label) for label in label_ids] if label_ids is not None else [str(n) for n in range(n_labels)]
    for argument, values in (("label_ids", ids), ("label_texts", label_texts)):
        if values is not None and len(values) != n_labels:
            raise InputError(f"{argument} has {len(values)} entries, labels has {n_labels} columns")
    _list_labels(ids, list(label_texts) if label_texts is not None else [""] * n_labels, vocabulary)
    return assemble(raw, vocabulary, settings, log, layout="arrays in memory", name=settings.name)


def _vector_rows(rows: VectorRows, prefix: str) -> RawRows:
    if not sp.issparse(rows.labels):
        raise InputError(f"{prefix}labels must be a scipy sparse matrix, not {type(rows.labels).__name__}")
    labels = sp.csr_matrix(cast("Any", rows.labels))
    is_sparse: bool = sp.issparse(rows.vectors)
    given = cast("Any", rows.vectors)
    vectors: Any = sp.csr_matrix(given) if is_sparse else np.asarray(given)
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiub":
        raise InputError(f"{prefix}vectors must be two-dimensional numbers, not {vectors.dtype} of {vectors.shape}")
    vectors = finite_float32(vectors, f"{prefix}vectors")
    labels = sp.csr_matrix(finite_float32(labels, f"{prefix}labels"))
    if labels.nnz and labels.data.min() < 0:
        raise InputError(f"{prefix}labels has the weight {labels.data.min()}; weights must be 0 or more")
    count = int(labels.shape[0])
    if count == 0:
        raise InputError(f"{prefix}labels has no rows")
    _check_lengths(count, prefix, vectors=vectors, ids=rows.ids, weights=rows.weights, groups=rows.groups)
    weights = None if rows.weights is None else np.asarray(rows.weights, dtype=np.float32)
    if weights is not None and not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError(f"{prefix}weights must be finite numbers above 0")
    return from_label_matrix(
        labels,
        file=f"{prefix}labels",
        vectors=vectors,
        first_line=0,
        ids=None if rows.ids is None else [str(i) for i in rows.ids],
        groups=None if rows.groups is None else [str(g) for g in rows.groups],
        weights=weights,
    )


def _width(matrix: Any) -> int:
    return int(matrix.shape[1])


def _list_labels(ids: Sequence[str], texts: Sequence[str], vocabulary: Vocabulary) -> None:
    for label, text in zip(ids, texts, strict=True):
        problem = "is there twice" if label in vocabulary.numbers else id_problem(label)
        if problem:
            raise InputError(f"label {label!r} {problem}")
        vocabulary.add(label, text)
    vocabulary.close_list()


def _check_lengths(count: int, prefix: str, **columns: Any) -> None:
    for name, values in columns.items():
        if values is not None:
            length = values.shape[0] if hasattr(values, "shape") else len(values)
            if length != count:
                raise InputError(f"{prefix}{name} has {length} entries, there are {count} rows")
