"""Matrices written by scipy or numpy: X.trn.npz, Y.trn.npz, X.trn.npy. Nothing is ever unpickled."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core.errors import DataError
from .lines import file_errors, one_line

# What numpy, scipy and zipfile raise on files that are cut off, damaged, pickled or of another kind.
BROKEN_FILE = (
    *(ValueError, KeyError, EOFError, OverflowError, MemoryError, NotImplementedError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def read_sparse(file: Path) -> sp.csr_matrix:
    """A checked scipy matrix (scipy.sparse.save_npz) as CSR."""
    try:
        with file_errors(file), file.open("rb") as stream:
            found = sp.load_npz(stream)  # loads with allow_pickle=False
        matrix = sp.csr_matrix(found)
        matrix.check_format(full_check=True)
    except BROKEN_FILE as error:
        raise DataError(f"not a matrix of scipy.sparse.save_npz: {one_line(error)}", file=file) from None
    return sp.csr_matrix(finite_float32(matrix, file))


def read_vectors(file: Path) -> sp.csr_matrix | np.ndarray:
    """Features: sparse (.npz) or dense (.npy), float32."""
    if file.suffix == ".npz":
        return read_sparse(file)
    try:
        with file_errors(file), file.open("rb") as stream:
            dense = np.load(stream, allow_pickle=False)
    except BROKEN_FILE as error:
        raise DataError(f"not an array of numpy.save: {one_line(error)}", file=file) from None
    if not isinstance(dense, np.ndarray) or dense.ndim != 2 or dense.dtype.kind not in "fiub":
        raise DataError("not a two-dimensional array of numbers", file=file)
    return finite_float32(dense, file)


def finite_float32(matrix: sp.csr_matrix | np.ndarray, file: Path | str) -> sp.csr_matrix | np.ndarray:
    """A float32 copy. NaN and infinite values are errors; names the first row and column."""
    with np.errstate(over="ignore"):  # what overflows float32 is infinite, and said so below
        copy = matrix.astype(np.float32)
    wrong = ~np.isfinite(copy if isinstance(copy, np.ndarray) else copy.data)
    if not wrong.any():
        return copy
    if isinstance(matrix, np.ndarray):
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        value = matrix[row, column]
    else:
        at = int(np.flatnonzero(wrong)[0])
        row, column = int(np.searchsorted(matrix.indptr, at, side="right")) - 1, int(matrix.indices[at])
        value = matrix.data[at]
    raise DataError(f"row {row}, column {column}: {value} is not a finite 32-bit number (counted from 0)", file=file)
