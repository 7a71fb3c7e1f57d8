"""Layouts whose labels are a matrix in a file of its own, with texts or features beside it.

    PECOS and the authors' layout        X.trn.npz  Y.trn.npz  X.tst.npz  Y.tst.npz, texts X.trn.txt or raw/trn_X.txt
    Extreme Classification Repository    trn_X_Xf.txt  trn_X_Y.txt  tst_X_Xf.txt  tst_X_Y.txt

Rows and labels are numbers. Where both texts and features exist, the texts are read. Matrices are .npz files of scipy,
.npy files of numpy, or sparse text (`sparse_text`). Nothing is ever unpickled.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core.arrays import LARGEST, LARGEST_WEIGHT, sparse_matrix
from ..core.errors import DataError, InputError
from .defects import ReadLog
from .files import Folder, file_errors, numbered_lines, one_line
from .labels import LabelSetBuilder, read_column_labels
from .records import DatasetRecords, SplitRecords, from_label_matrix
from .rows import TextColumn
from .sparse_text import FIRST_ROW_LINE, check_widths, read_sparse_matrix

SHORT_NAMES = {"train": "trn", "validation": "val", "test": "tst"}
# What numpy, scipy and zipfile raise on files that are cut off, damaged, pickled or of another kind.
BROKEN_FILE = (
    *(ValueError, KeyError, EOFError, OverflowError, MemoryError, NotImplementedError, SyntaxError, TypeError),
    *(IndexError, AttributeError, RuntimeError, UnicodeError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def load_matrices(folder: Folder, log: ReadLog) -> DatasetRecords | None:
    """Labels from Y.trn.npz or trn_X_Y.txt."""
    if not folder.has("Y.trn.npz", "trn_X_Y.txt"):
        return None
    splits: dict[str, SplitRecords] = {}
    widths: dict[str, tuple[int, int]] = {}
    for split in SHORT_NAMES:
        try:
            rows = _read_split(folder, split, log)
        except DataError as error:
            log.defect(error)
            continue
        if rows is not None:
            splits[split], widths[split] = rows
    if "train" not in splits:
        return None if not log.defects else DatasetRecords("", LabelSetBuilder(log), splits)
    check_widths(widths, folder.path)
    what = "texts" if splits["train"].texts is not None else "features"
    origin = "PECOS" if folder.has("Y.trn.npz") else "Extreme Classification Repository"
    labels = read_column_labels(folder, widths["train"][1], log)
    return DatasetRecords(f"{origin}, {what} with a label matrix", labels, splits)


def _read_split(folder: Folder, split: str, log: ReadLog) -> tuple[SplitRecords, tuple[int, int]] | None:
    short = SHORT_NAMES[split]
    label_file = folder.find(f"Y.{short}.npz", f"{short}_X_Y.txt")
    if label_file is None:
        return None
    labels = _read_matrix(label_file, "label", log)
    _check_weights(labels, label_file)
    text_names = (f"X.{short}.txt", f"{short}_X.txt")
    texts_file = folder.find(*(f"{where}{name}" for where in ("", "raw/", "raw_data/") for name in text_names))
    vectors_file = None if texts_file else folder.find(f"X.{short}.npz", f"X.{short}.npy", f"{short}_X_Xf.txt")
    texts, vectors, n_features = None, None, 0
    if texts_file is not None:
        texts = TextColumn(text for _, text in numbered_lines(texts_file))
        count = len(texts)
    elif vectors_file is not None:
        is_text = vectors_file.name.removesuffix(".gz").endswith(".txt")
        vectors = _read_matrix(vectors_file, "feature", log) if is_text else read_vectors(vectors_file)
        count, n_features = (int(size) for size in vectors.shape)
    else:
        message = f"{label_file.name} has no texts or features beside it: X.{short}.txt or X.{short}.npz"
        raise DataError(message, file=folder.path)
    if count != labels.shape[0]:
        source = texts_file or vectors_file
        message = f"{count:,} rows, but {label_file.name} has {labels.shape[0]:,}; they must belong together row by row"
        raise DataError(message, file=source)
    is_text = label_file.name.removesuffix(".gz").endswith(".txt")
    first = FIRST_ROW_LINE if is_text and texts_file is None else 1
    rows = from_label_matrix(labels, file=texts_file or label_file, texts=texts, vectors=vectors, first_line=first)
    return rows, (n_features, int(labels.shape[1]))


def _read_matrix(file: Path, what: str, log: ReadLog) -> sp.csr_matrix:
    return read_sparse(file) if file.suffix == ".npz" else read_sparse_matrix(file, what, log)


def _check_weights(labels: sp.csr_matrix, file: Path) -> None:
    wrong = np.flatnonzero((labels.data < 0) | (labels.data > LARGEST_WEIGHT))
    if len(wrong):
        row = int(np.searchsorted(labels.indptr, wrong[0], side="right")) - 1
        value, column = labels.data[wrong[0]], labels.indices[wrong[0]]
        limit = "below 0" if value < 0 else f"above {LARGEST_WEIGHT:g}"
        raise DataError(f"row {row}, label {column}: weight {value} is {limit} (counted from 0)", file=file)


def read_sparse(file: Path) -> sp.csr_matrix:
    """A checked scipy matrix (scipy.sparse.save_npz) as CSR."""
    try:
        with file_errors(file), file.open("rb") as stream:
            found = sp.load_npz(stream)  # loads with allow_pickle=False
        if not all(isinstance(size, int | np.integer) for size in found.shape):
            raise TypeError(f"its shape {found.shape} is not of whole numbers")
        matrix = sparse_matrix(found, "the matrix")
    except (*BROKEN_FILE, InputError) as error:
        raise DataError(f"not a matrix of scipy.sparse.save_npz: {one_line(error)[:200]}", file=file) from None
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
    """A float32 copy. Values that are not finite, or too large to be squared, are errors that name row and column."""
    with np.errstate(over="ignore"):  # what overflows float32 becomes infinite, an error below
        copy = matrix.astype(np.float32)
    wrong = ~(np.abs(copy if isinstance(copy, np.ndarray) else copy.data) <= LARGEST)
    if not wrong.any():
        return copy
    if isinstance(matrix, np.ndarray):
        row, column = (int(i[0]) for i in np.nonzero(wrong))
        value = matrix[row, column]
    else:
        at = int(np.flatnonzero(wrong)[0])
        row, column = int(np.searchsorted(matrix.indptr, at, side="right")) - 1, int(matrix.indices[at])
        value = matrix.data[at]
    fits = abs(value) <= np.finfo(np.float32).max
    what = f"at most {LARGEST:g}: scale the numbers" if fits else "a finite 32-bit number"
    raise DataError(f"row {row}, column {column}: {value} is not {what} (counted from 0)", file=file)
