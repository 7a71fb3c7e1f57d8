"""What users pass to `predict`, as a list of texts or a matrix. Anything that is neither is one clear error.

texts      a text; a list, tuple, array, Series, generator of texts; a table with the fields that the model was
           trained on
vectors    a dense or sparse matrix with one row per input, or nested lists
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from ..core.arrays import check_size, dense_matrix, sparse_matrix
from ..core.errors import InputError
from ..dataset.fields import Fields, is_missing
from ..dataset.record_parser import row_text

WANTED_TEXTS = "pass a text, or a list, array, Series or generator of texts"
WANTED_VECTORS = "this model was trained on vectors; pass a matrix with one row per input"
MOST_COLUMNS = 12  # of a table, named in an error


def as_texts(given: Any, fields: Fields) -> Sequence[str]:
    """The texts, each checked to be one. `fields`: those that the model was trained on, for tables."""
    if isinstance(given, str):
        return [str(given)]
    texts: Sequence[Any] = given if isinstance(given, list | tuple) else _listed(given, fields)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"input {number} is {_kind(text)}, not a text{_remedy(text)}")
    return texts


def _listed(given: Any, fields: Fields) -> Sequence[Any]:
    """A list of what should be texts."""
    if is_table(given):
        return _table_texts(given, fields)
    if sp.issparse(given) or (isinstance(given, np.ndarray) and given.dtype.kind in "fiubc"):
        raise InputError("this model was trained on texts, not on vectors; pass a list of strings")
    if isinstance(given, np.ndarray):
        if given.ndim > 1 and given.size != len(given):  # one column is a list of texts, too
            raise InputError(f"an array of shape {given.shape} is not a list of texts; pass one of its columns")
        texts: list[Any] = given.reshape(-1).tolist()
        return texts
    if isinstance(given, bytes | bytearray | memoryview):
        raise InputError("bytes are not a text; decode them first: data.decode('utf-8')")
    if isinstance(given, Mapping | set | frozenset):
        raise InputError(
            f"a {type(given).__name__} is not a list of texts: its order is not that of rows; {WANTED_TEXTS}"
        )
    if isinstance(given, os.PathLike):
        raise InputError(
            f"{os.fspath(given)!s}: a path is not a text; `elias predict MODEL FILE` reads files, in Python "
            f"{WANTED_TEXTS}"
        )
    if isinstance(given, Sequence):
        return given
    try:
        return list(given)
    except TypeError:
        raise InputError(f"{_kind(given)} is not a list of texts; {WANTED_TEXTS}") from None


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    shown = f"{value!r}".replace("\n", " ")
    return f"{type(value).__name__} ({shown if len(shown) <= 60 else shown[:57] + '...'})"


def _remedy(value: Any) -> str:
    """What to do about an item that is no text."""
    if is_missing(value):
        return ': a missing value; leave it out, or put "" in its place'
    if isinstance(value, bytes):
        return "; decode it first: data.decode('utf-8')"
    return f"; {WANTED_TEXTS}"


# -- tables -----------------------------------------------------------------------------------------------------------


def is_table(given: Any) -> bool:
    """A pandas or polars DataFrame, a Hugging Face dataset, a pyarrow table: columns with names."""
    return hasattr(given, "__getitem__") and (hasattr(given, "columns") or hasattr(given, "column_names"))


def column_names(table: Any) -> list[str]:
    return [str(name) for name in getattr(table, "column_names", None) or table.columns]


def _table_texts(table: Any, fields: Fields) -> list[str]:
    """The fields of the text, joined by a space."""
    names = column_names(table)
    shown = ", ".join(f'"{name}"' for name in names[:MOST_COLUMNS]) + (" ..." if len(names) > MOST_COLUMNS else "")
    kind = type(table).__name__
    if fields.text is None:
        raise InputError(f"a {kind} is not a list of texts; pass its column of texts; it has {shown or 'no columns'}")
    missing = [name for name in fields.text if name not in names]
    if missing:
        wanted = ", ".join(f'"{name}"' for name in missing)
        raise InputError(
            f"this {kind} has no column {wanted}, which the model reads its text from; it has {shown}; rename a "
            "column, or pass the column of texts"
        )
    columns = [list(table[name]) for name in fields.text]
    rows = (dict(zip(fields.text, cells, strict=True)) for cells in zip(*columns, strict=True))
    return [row_text(row, fields, kind, number) for number, row in enumerate(rows)]


def table_ids(table: Any, fields: Fields) -> list[str] | None:
    """The ids of the rows, where the table has the field of the ids that the model was trained on."""
    if fields.id is None or not is_table(table) or fields.id not in column_names(table):
        return None
    return [str(value) for value in table[fields.id]]


# -- vectors ----------------------------------------------------------------------------------------------------------


def as_matrix(given: Any, width: int, *, sparse: bool) -> sp.csr_matrix | np.ndarray:
    """A matrix of finite numbers with `width` columns. `sparse`: what no rows become."""
    if isinstance(given, list | tuple) and given and isinstance(given[0], str):
        raise InputError("this model was trained on vectors, not on texts; pass a matrix with one row per input")
    matrix: Any
    if sp.issparse(given):
        with np.errstate(over="ignore"):
            matrix = sparse_matrix(given, "vectors").astype(np.float32)
    else:
        if given is None or isinstance(given, str | bytes | Mapping | set | frozenset | os.PathLike):
            raise InputError(f"{_kind(given)} is not a matrix; {WANTED_VECTORS}")
        try:
            matrix = dense_matrix(given, "vectors", dtype=np.float32)
        except InputError as problem:
            raise InputError(f"{problem}; {WANTED_VECTORS}") from None
        if matrix.size == 0 and matrix.shape[0:1] in ((), (0,)):
            matrix = matrix.reshape(0, width)
        matrix = np.atleast_2d(matrix)
        if sparse and not len(matrix):
            matrix = sp.csr_matrix(matrix)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise InputError(f"vectors of shape {matrix.shape}; the model was trained on rows of {width} columns")
    check_size(matrix, "vectors")
    return cast("sp.csr_matrix | np.ndarray", matrix)
