"""Arrays as a program passes them, checked before a kernel indexes memory by them.

scipy's constructors trust the arrays of a sparse matrix; its `check_format(full_check=True)` does not, and neither does
anything here. Numbers must be finite and at most `LARGEST`, so that sums of their squares are finite in 32 bits too.
"""

from __future__ import annotations

import numbers
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from .errors import InputError

LARGEST = 1e12  # of a feature: with 10^10 of them the sum of squares still fits into 32 bits
LARGEST_WEIGHT = 1e6  # of a row or a label
SMALLEST_WEIGHT = 1e-6


def sparse_matrix(given: Any, name: str) -> sp.csr_matrix:
    """A scipy sparse matrix of any format as CSR with sorted indices, each once; a copy wherever it had to change."""
    try:
        if given.format == "coo":
            given.tocoo()._check()
        elif given.format in ("csr", "csc", "bsr"):
            given.check_format(full_check=True)
            if (np.diff(given.indptr) < 0).any():  # scipy does not look at the pointers of a matrix that ends at 0
                raise ValueError("its row pointers fall")
        made = cast("Any", given.tocsr())
        # Flags such as has_sorted_indices may be those of arrays that were changed since: a new matrix has none.
        matrix = sp.csr_matrix((made.data, made.indices, made.indptr), shape=made.shape, copy=False)
        matrix.check_format(full_check=True)
    except (AttributeError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as problem:
        said = " ".join(str(problem).split())[:150]
        raise InputError(f"{name}: not a whole sparse matrix ({said}); build it again") from None
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {matrix.dtype}; pass real numbers")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def dense_matrix(given: Any, name: str, *, dtype: Any = None) -> np.ndarray:
    """An array of real numbers of whatever shape, from an array or nested lists."""
    if np.ma.is_masked(given):
        raise InputError(f"{name} has masked values; fill them first: array.filled(0)")
    try:
        with np.errstate(over="ignore"):  # what overflows becomes infinite, which is refused with its place
            array = np.asarray(given)
            if array.dtype == object:
                array = array.astype(np.float64)
            kind = array.dtype.kind
            array = array if dtype is None or kind not in "fiub" else array.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: not an array of numbers, with as many in each row") from None
    if kind not in "fiub":
        raise InputError(f"{name} must be numbers, not {array.dtype} of {array.shape}")
    return array


def check_size(matrix: sp.csr_matrix | np.ndarray, name: str, largest: float = LARGEST) -> None:
    """Refuse numbers that are not finite, or too large; the first is named by row and column."""
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    if not values.size or (values.dtype.kind != "f" and abs(int(values.max())) <= largest):
        return
    least, most = float(values.min()), float(values.max())
    if -largest <= least and most <= largest:  # false for NaN too
        return
    wrong = ~(np.abs(values) <= largest)
    if isinstance(matrix, np.ndarray):
        place = [int(i[0]) for i in np.nonzero(wrong)]
        value = matrix[tuple(place)]
    else:
        at = int(np.flatnonzero(wrong)[0])
        place = [int(np.searchsorted(matrix.indptr, at, side="right")) - 1, int(matrix.indices[at])]
        value = matrix.data[at]
    where = ", ".join(f"{what} {number}" for what, number in zip(("row", "column"), place, strict=False))
    if not np.isfinite(value):
        raise InputError(f"{name}: NaN or infinite values are no numbers to learn from: {where} is {value}")
    raise InputError(f"{name}: {where} is {value:g}, more than {largest:g}; scale the numbers")


def row_weights(given: Any, name: str, count: int) -> np.ndarray:
    """One weight per row, float32, within what training can bear."""
    array = dense_matrix(given, name)
    if array.ndim != 1 or len(array) != count:
        raise InputError(f"{name} has the shape {array.shape}, there are {count} rows; pass one number per row")
    if not ((array >= SMALLEST_WEIGHT) & (array <= LARGEST_WEIGHT)).all():
        row = int(np.flatnonzero(~((array >= SMALLEST_WEIGHT) & (array <= LARGEST_WEIGHT)))[0])
        raise InputError(
            f"{name}: row {row} has the weight {array[row]}; weights must be finite numbers above 0, from "
            f"{SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
        )
    return array.astype(np.float32)


def length_of(values: Any, name: str) -> int:
    """How many rows a list, an array or a matrix has."""
    if isinstance(values, str | bytes) or not (hasattr(values, "shape") or hasattr(values, "__len__")):
        raise InputError(f"{name} is {type(values).__name__}; pass a list with one entry per row")
    if hasattr(values, "shape"):
        if not values.shape:
            raise InputError(f"{name} is a single value; pass a list with one entry per row")
        return int(values.shape[0])
    return len(values)


def whole_number(value: Any, name: str) -> int:
    """An argument that counts something."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{name}={str(value)[:40]}: must be a whole number")
    if abs(int(value)) >= 2**62:
        raise InputError(f"{name}: a number of so many digits is too large")
    return int(value)


def real_number(value: Any, name: str) -> float:
    """An argument that is a number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name}={str(value)[:40]}: must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{name}: a number of so many digits is too large") from None
