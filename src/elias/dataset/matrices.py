"""Layouts whose labels are a matrix: rows and labels are numbers, texts or features sit beside them.

PECOS and the authors' layout     X.trn.npz  Y.trn.npz  X.tst.npz  Y.tst.npz, texts X.trn.txt or raw/trn_X.txt
Extreme Classification Repository trn_X_Xf.txt  trn_X_Y.txt  tst_X_Xf.txt  tst_X_Y.txt, or train.txt and test.txt

Where both texts and features are there, the texts are read. Label names come from labels.tsv (in column order) or
Y.txt (one text a line); without them a label's id is its number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core.errors import DataError
from .folder import Folder, Recognised
from .lines import first_line, numbered_lines
from .log import Log
from .npz import read_sparse, read_vectors
from .raw_rows import RawRows, from_label_matrix
from .rows import TextColumn
from .sparse_text import FIRST_ROW_LINE, read_features_and_labels, read_header, read_sparse_matrix
from .vocabulary import Vocabulary, read_label_file

SHORT_NAMES = {"train": "trn", "validation": "val", "test": "tst"}
LABEL_TEXT_FILES = ("Y.txt", "raw/Y.txt", "raw_data/Y.txt", "output-items.txt", "lbl_X.txt", "raw/lbl_X.txt")


def load_matrices(folder: Folder, log: Log) -> Recognised | None:
    """Labels from Y.trn.npz or trn_X_Y.txt."""
    if not folder.has("Y.trn.npz", "trn_X_Y.txt"):
        return None
    splits: dict[str, RawRows] = {}
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
        return None if not log.defects else Recognised("", Vocabulary(log), splits)
    _check_widths(widths, folder.path)
    what = "texts" if splits["train"].texts is not None else "features"
    origin = "PECOS" if folder.has("Y.trn.npz") else "Extreme Classification Repository"
    return Recognised(f"{origin}, {what} with a label matrix", _vocabulary(folder, widths["train"][1], log), splits)


def load_sparse_text(folder: Folder, log: Log) -> Recognised | None:
    """train.txt (or name_train.txt) with an `N F L` header, and the test file beside it."""
    names = [n for n in folder.names if n.removesuffix(".gz").lower().endswith("train.txt") and "filter" not in n]
    if len(names) != 1 or not is_sparse_text(folder.path / names[0]):
        return None
    stem = names[0].removesuffix(".gz")
    word, prefix = stem[-len("train.txt") : -len(".txt")], stem[: -len("train.txt")]
    splits: dict[str, RawRows] = {}
    widths: dict[str, tuple[int, int]] = {}
    for split in SHORT_NAMES:
        file = folder.find(f"{prefix}{split if word.islower() else split.title()}.txt")
        if file is None:
            continue
        try:
            splits[split], widths[split] = read_sparse_text(file, log)
        except DataError as error:
            log.defect(error)
    if "train" not in splits:
        return Recognised("", Vocabulary(log), splits)
    _check_widths(widths, folder.path)
    words = f"Extreme Classification Repository, sparse features ({names[0]})"
    return Recognised(words, _vocabulary(folder, widths["train"][1], log), splits)


def is_sparse_text(file: Path) -> bool:
    return read_header(first_line(file), 3) is not None


def read_sparse_text(file: Path, log: Log) -> tuple[RawRows, tuple[int, int]]:
    """One `N F L` file and its (features, labels)."""
    features, labels = read_features_and_labels(file, log)
    rows = from_label_matrix(labels, file=file, vectors=features, first_line=FIRST_ROW_LINE)
    return rows, (int(features.shape[1]), int(labels.shape[1]))


def _read_split(folder: Folder, split: str, log: Log) -> tuple[RawRows, tuple[int, int]] | None:
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


def _read_matrix(file: Path, what: str, log: Log) -> sp.csr_matrix:
    return read_sparse(file) if file.suffix == ".npz" else read_sparse_matrix(file, what, log)


def _check_weights(labels: sp.csr_matrix, file: Path) -> None:
    wrong = np.flatnonzero(np.asarray(labels.data) < 0)
    if len(wrong):
        row = int(np.searchsorted(labels.indptr, wrong[0], side="right")) - 1
        value, column = labels.data[wrong[0]], labels.indices[wrong[0]]
        raise DataError(f"row {row}, label {column}: weight {value} is below 0 (counted from 0)", file=file)


def _check_widths(widths: dict[str, tuple[int, int]], path: Path) -> None:
    for split, (features, labels) in widths.items():
        for what, here, there in (("features", features, widths["train"][0]), ("labels", labels, widths["train"][1])):
            if here != there:
                raise DataError(f"{split} has {here:,} {what}, train has {there:,}; the numbers must agree", file=path)


def _vocabulary(folder: Folder, n_labels: int, log: Log) -> Vocabulary:
    vocabulary = Vocabulary(log)
    label_file = folder.find("labels.tsv")
    text_file = None if label_file else folder.find(*LABEL_TEXT_FILES)
    if label_file is not None:
        read_label_file(label_file, vocabulary)
    elif text_file is not None:
        texts = [text for _, text in numbered_lines(text_file)]
        if len(texts) == n_labels:
            vocabulary.list_numbers(n_labels, texts)
        else:
            raise DataError(f"{len(texts):,} lines, the label matrix has {n_labels:,} columns", file=text_file)
    else:
        vocabulary.list_numbers(n_labels)
    if len(vocabulary) != n_labels:
        raise DataError(f"{len(vocabulary):,} labels, the label matrix has {n_labels:,} columns", file=label_file)
    return vocabulary
