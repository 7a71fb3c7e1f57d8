"""Sparse matrices on disk, opened as memory maps: one folder per matrix.

data.npy, indices.npy, indptr.npy    the arrays of a CSR matrix
csr.json                             its shape; written last, so a folder without it is incomplete
"""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError

import numpy as np
import scipy.sparse as sp

from .errors import ModelError
from .files import check_regular, read_object, write_array, write_json

FORMAT_VERSION = 1


def write_csr(folder: str | Path, matrix: sp.csr_matrix) -> None:
    """Store a matrix so that `open_csr` can map it: data.npy, indices.npy, indptr.npy, and csr.json when complete."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "csr.json").unlink(missing_ok=True)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    for name, array in (("data", matrix.data), ("indices", matrix.indices), ("indptr", matrix.indptr)):
        write_array(folder / f"{name}.npy", array)
    write_json(folder / "csr.json", {"format_version": FORMAT_VERSION, "kind": "csr", "shape": list(matrix.shape)})


def open_csr(folder: str | Path) -> sp.csr_matrix:
    """The stored matrix, read-only and mapped from disk: nothing is read until it is used."""
    folder = Path(folder)
    content = read_object(folder / "csr.json")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise ModelError(f"{folder / 'csr.json'}: format_version {version!r}; this program reads {FORMAT_VERSION}")
    data, indices, indptr = (open_vector(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    try:
        n_rows, n_columns = (int(size) for size in content["shape"])
        whole = len(indptr) == n_rows + 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
    except (KeyError, TypeError, ValueError, IndexError):
        whole = False
    if not whole:
        raise ModelError(f"{folder}: the parts of the stored matrix do not fit together; write it again")
    matrix = sp.csr_matrix((data, indices, indptr), shape=(n_rows, n_columns))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def open_vector(path: Path, dtype: type[np.generic] | None = None) -> np.ndarray:
    """A one-dimensional .npy file as a memory map, of the given type."""
    check_regular(path)
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError, OverflowError, MemoryError, TokenError) as error:
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"{path}: cannot be read ({said}); write it again") from None
    if not isinstance(array, np.ndarray):
        raise ModelError(f"{path}: not an array of numpy.save; write it again")
    if array.ndim != 1 or (dtype is not None and array.dtype != dtype):
        raise ModelError(f"{path}: holds a {array.ndim}-d array of {array.dtype}; write it again")
    return array
