"""`dataset_from`: a dataset from what a Python program holds, by the rules of files.

    a path                               as `load_dataset` reads it
    rows in a table                      pandas or polars DataFrame, pyarrow Table, Hugging Face Dataset
    rows as dicts, columns as a dict     [{"text": ..., "labels": [...]}, ...], {"text": [...], "labels": [...]}
    texts with labels                    two sequences, or pairs (text, labels); arrays, Series and generators too
    vectors with labels                  a two-dimensional array of numbers, dense or sparse

Labels are a sequence of single labels, of lists or of cells, or an indicator matrix (rows x labels, dense or sparse;
the columns of a DataFrame name its labels). Splits come as `test` and `validation`, or as a dict of splits
(DatasetDict). pandas, polars, pyarrow and datasets are recognized by their methods and never imported. Places in
messages count rows from 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import LARGEST_WEIGHT, check_size, sparse_matrix
from ..core.errors import InputError
from .dataset import Dataset, assemble, plain_labels
from .defects import ReadLog
from .fields import Fields
from .files import SPLIT_WORDS
from .labels import LabelSetBuilder
from .layouts import load_with_fields
from .record_files import file_kind, read_rows
from .record_parser import RecordReader, RowSource
from .records import DatasetRecords, SplitRecords
from .settings import DatasetSettings

KINDS = "a path, a DataFrame, rows as dicts, columns as a dict, or texts and labels"
NO_FIELDS = Fields()  # all recognized
LABELS_FIELD = "labels"  # of labels that come apart from the rows


def dataset_from(
    data: Any,
    labels: Any = None,
    *,
    fields: Fields = NO_FIELDS,
    test: Any = None,
    validation: Any = None,
) -> Dataset:
    """A dataset from a path or from Python objects.

    Parameters
    ----------
    data
        Training rows with their labels, or texts or vectors whose labels are `labels`; a dict of splits brings test and
        validation rows with it.
    labels
        The labels of `data`, one entry or one row of an indicator matrix per row; or the name of the field.
    fields
        Names of fields and the separator; what is None is recognized. `Fields(separator="")`: a text is one label.
    test, validation
        Rows of the same kinds; a pair (texts, labels) where labels come apart.

    Raises
    ------
    InputError, DataError
        For data of another kind, and for rows that cannot be read, with the row.
    """
    if isinstance(labels, str):
        fields, labels = replace(fields, labels=labels), None
    splits: dict[str, tuple[Any, Any]] = {}
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping) and labels is None and (found := _splits_of(data)):
        splits = {split: _pair(rows, None) for split, rows in found.items()}
    else:
        splits["train"] = _pair(data, labels)
    for split, rows in (("validation", validation), ("test", test)):
        if rows is not None:
            splits[split] = _pair(rows, None)
    first, only_labels = splits["train"]
    if len(splits) == 1 and isinstance(first, str | os.PathLike) and only_labels is None:
        return load_with_fields(first, fields)
    if _is_vectors(first):
        return _from_vectors(splits, fields)
    log = ReadLog()
    reader = RecordReader(fields, DatasetSettings(), LabelSetBuilder(log))
    records = DatasetRecords(f"{_kind(first)} in memory", reader.label_set)
    for split, (rows, own_labels) in splits.items():
        reader.given = replace(fields, labels=LABELS_FIELD) if own_labels is not None else fields
        records.splits[split] = reader.read(_source(rows, own_labels, "data" if split == "train" else split))
    records.layout += f": {reader.description(records.splits['train'])}"
    records.fields = reader.fields or fields
    return assemble(records, DatasetSettings(), log, name="in memory")


def _splits_of(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The splits of a dict of splits; empty for columns."""
    names = {word: split for split, words in SPLIT_WORDS.items() for word in words}
    if "train" not in data or not all(name in names for name in data):
        return {}
    found = {names[name]: rows for name, rows in data.items()}
    return {split: found[split] for split in SPLIT_WORDS if split in found}


def _pair(data: Any, labels: Any) -> tuple[Any, Any]:
    """Rows, and their labels where they come apart."""
    if labels is None and isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str | tuple):
        data, labels = data
    if isinstance(data, Iterator):
        data = list(data)
    if isinstance(labels, Iterator):
        labels = list(labels)
    is_pairs = isinstance(data, Sequence) and not isinstance(data, str | bytes) and len(data) > 0
    if labels is None and is_pairs and all(isinstance(pair, tuple) and len(pair) == 2 for pair in data):
        return [pair[0] for pair in data], [pair[1] for pair in data]
    return data, labels


def _kind(data: Any) -> str:
    if isinstance(data, str | os.PathLike):
        return Path(data).name
    return "rows" if isinstance(data, list | dict) else type(data).__name__


def _source(data: Any, labels: Any, place: str) -> RowSource:
    """The rows of one split."""
    if isinstance(data, str | os.PathLike):
        if labels is not None:
            raise InputError(f"{place} is a path, so its labels are in the file; leave the labels out")
        file = Path(data)
        return RowSource(read_rows(file, ReadLog()), file, is_table=file_kind(file) in (".csv", ".tsv"))
    rows = _rows(data, place, has_labels=labels is not None)
    if labels is None:
        return RowSource(enumerate(rows), place)
    own = label_lists(labels, place)
    count = len(rows)
    if len(own) != count:
        raise InputError(f"{len(own):,} entries of labels for {count:,} rows of {place}")
    joined = ({**row, LABELS_FIELD: entry} for row, entry in zip(rows, own, strict=True))
    return RowSource(enumerate(joined), place)


def _rows(data: Any, place: str, *, has_labels: bool) -> list[Mapping[str, object]]:
    """Rows as dicts of plain values."""
    if hasattr(data, "iter_rows") and hasattr(data, "columns"):  # polars
        found: Iterable[Any] = data.iter_rows(named=True)
    elif hasattr(data, "to_pylist") and hasattr(data, "column_names"):  # pyarrow
        found = data.to_pylist()
    elif hasattr(data, "column_names"):  # datasets
        found = _with_class_names(data)
    elif hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas
        names = [str(name) for name in data.columns]
        if len(set(names)) < len(names):
            raise InputError(f"{place} has two columns of the same name; rename one")
        found = (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None))
    elif isinstance(data, Mapping):
        found = _rows_of_columns(data, place)
    else:
        return _rows_of_sequence(data, place, has_labels=has_labels)
    return [{str(name): plain_labels(value) for name, value in row.items()} for row in found]


def _rows_of_columns(data: Mapping[Any, Any], place: str) -> Iterator[dict[Any, Any]]:
    columns = {name: _listed(values) for name, values in data.items()}
    if not columns or any(values is None for values in columns.values()):
        raise InputError(f"{place} is a dict, but not of columns: each value must be a list; {KINDS} can be read")
    lengths = {name: len(values or ()) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the columns of {place} differ in length: {lengths}")
    rows = zip(*(values or [] for values in columns.values()), strict=True)
    return (dict(zip(columns, row, strict=True)) for row in rows)


def _rows_of_sequence(data: Any, place: str, *, has_labels: bool) -> list[Mapping[str, object]]:
    """Dicts, or texts whose labels come apart."""
    values = _listed(data)
    if values is None:
        raise InputError(f"{place} is {_article(data)}; {KINDS} can be read")
    if values and all(isinstance(value, Mapping) for value in values):
        return [{str(name): plain_labels(value) for name, value in row.items()} for row in values]
    if values and not any(isinstance(value, str) for value in values):
        raise InputError(f"{place} has entries like {_article(values[0])}; {KINDS} can be read")
    if not has_labels:
        raise InputError(f"{place} has texts but no labels; pass the labels of each text beside them")
    return [{"text": value} for value in values]


def _listed(values: Any) -> list[Any] | None:
    """A sequence, an array or a Series as a list; None for anything else, a single text included."""
    if isinstance(values, str | bytes | Mapping):
        return None
    if isinstance(values, np.ndarray) and values.ndim != 1:
        return None
    if hasattr(values, "tolist") and hasattr(values, "__len__"):
        found: list[Any] = values.tolist()
        return found
    return list(values) if isinstance(values, Iterable) and not sp.issparse(values) else None


def _with_class_names(data: Any) -> Iterator[dict[str, Any]]:
    """Rows of a Hugging Face dataset, with the names of its ClassLabel features in place of their numbers."""
    features = getattr(data, "features", None) or {}
    names_of = {}
    for column, feature in features.items():
        inner = feature if hasattr(feature, "names") else getattr(feature, "feature", None)
        if (names := getattr(inner, "names", None)) is not None:
            names_of[column] = names
    for row in data:
        yield {column: _class_names(value, names_of.get(column)) for column, value in row.items()}


def _class_names(value: Any, names: Sequence[str] | None) -> Any:
    if names is None:
        return value
    if isinstance(value, list | tuple):
        return [names[number] for number in value if number >= 0]
    return names[value] if isinstance(value, int) and value >= 0 else None  # -1: no label


# Labels apart from rows


def label_lists(labels: Any, place: str) -> list[Any]:
    """The labels of each row: entries of a sequence, or the names of the columns that are not 0 in a matrix."""
    if sp.issparse(labels) or (hasattr(labels, "shape") and len(labels.shape) == 2):
        return _indicated(labels, place)
    found = _listed(labels)
    if found is None:
        raise InputError(f"the labels of {place} are {_article(labels)}; give one entry per row, or a matrix")
    return [plain_labels(entry) for entry in found]


def _indicated(labels: Any, place: str) -> list[Any]:
    names = [str(name) for name in labels.columns] if hasattr(labels, "columns") else None
    if names is not None and len(names) == 1 and not _is_numeric(labels.to_numpy()):
        return label_lists(labels[labels.columns[0]], place)  # a DataFrame of one column of labels
    values: Any = (
        labels if sp.issparse(labels) else labels.to_numpy() if hasattr(labels, "to_numpy") else np.asarray(labels)
    )
    if names is not None and not _is_numeric(values):  # columns of different types, such as 0/1 and True/False
        with suppress(TypeError, ValueError):
            values = values.astype(np.float64)
    if not sp.issparse(values) and not _is_numeric(values):
        raise InputError(f"the labels of {place} are a matrix of {values.dtype}; an indicator matrix has numbers")
    name = f"the label matrix of {place}"
    matrix = sparse_matrix(values if sp.issparse(values) else sp.csr_matrix(values), name).copy()
    matrix.eliminate_zeros()
    check_size(matrix, name, LARGEST_WEIGHT)
    if matrix.nnz and matrix.data.min() < 0:
        raise InputError(f"the label matrix of {place} has values below 0 or not finite; they are weights")
    ids = names or [str(number) for number in range(matrix.shape[1])]
    graded = not bool(np.all(matrix.data == 1))
    rows = []
    for row in range(matrix.shape[0]):
        inside = slice(matrix.indptr[row], matrix.indptr[row + 1])
        chosen = [ids[number] for number in matrix.indices[inside].tolist()]
        rows.append(list(zip(chosen, matrix.data[inside].tolist(), strict=True)) if graded else chosen)
    return rows


def _is_numeric(values: np.ndarray) -> bool:
    return values.dtype.kind in "fiub"


# Vectors


def _is_vectors(data: Any) -> bool:
    return bool(sp.issparse(data)) or (isinstance(data, np.ndarray) and data.ndim == 2 and _is_numeric(data))


def _from_vectors(splits: Mapping[str, tuple[Any, Any]], fields: Fields) -> Dataset:
    if "validation" in splits:
        raise InputError("vectors take no validation rows; leave them out, and some training rows are held out")
    given = Fields(text=("text",), labels=LABELS_FIELD, separator=fields.separator)
    reader = RecordReader(given, DatasetSettings(), LabelSetBuilder(ReadLog()))
    read: dict[str, SplitRecords] = {}
    for split, (vectors, labels) in splits.items():
        place = "data" if split == "train" else split
        if not _is_vectors(vectors):
            raise InputError(f"{place} is {_article(vectors)}, but the training rows are vectors")
        if labels is None:
            raise InputError(f"{place} has vectors but no labels; pass a label matrix or the labels of each row")
        own = label_lists(labels, place)
        if len(own) != vectors.shape[0]:
            raise InputError(f"{len(own):,} entries of labels for {vectors.shape[0]:,} rows of {place}")
        rows = ((number, {"text": "", LABELS_FIELD: entry}) for number, entry in enumerate(own))
        read[split] = reader.read(RowSource(rows, place))
    n_labels = len(reader.label_set)
    matrices = {
        split: sp.csr_matrix(
            (np.ones(len(one.numbers)) if one.grades is None else one.grades, one.numbers, one.starts),
            shape=(len(one), n_labels),
        )
        for split, one in read.items()
    }
    return Dataset.from_arrays(
        splits["train"][0],
        matrices["train"],
        label_ids=reader.label_set.ids,
        test_vectors=splits["test"][0] if "test" in splits else None,
        test_labels=matrices.get("test"),
    )


def _article(value: Any) -> str:
    name = type(value).__name__
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{shape}"
