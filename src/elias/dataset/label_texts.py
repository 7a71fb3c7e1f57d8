"""Texts of labels as training rows: the text of a label, and a training text whose id is the label.

Rows of this kind have KIND_LABEL_TEXT: they do not count in N, n_l or propensities, are never held out, and have no
id, so no pair of theirs is excluded. Only labels with a training row get one: a label without any would be learned
from its name alone. With `inverted_index.unseen_labels` such a label is found by the words of its text.
A training text whose id is a label (where the dataset excludes own ids) is a positive of that label in training; such
a pair does not count either and is never an answer.
`ids`: the label's id is put before its text unless it is the text or a URI; ids can be names that occur in other texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from .labels import LabelSet
from .rows import KIND_LABEL_TEXT, Rows, TextColumn


def with_label_texts(rows: Rows, labels: LabelSet, *, ids: bool = False) -> Rows:
    """`rows`, then one row for every label that has a text and a row among them. Rows of vectors stay as they are."""
    numbers = labels_with_text(rows, labels)
    count = len(numbers)
    if count == 0:
        return rows
    own = (np.ones(count, dtype=np.float32), numbers, np.arange(count + 1))
    pairs = sp.csr_matrix(own, shape=(count, len(labels)))
    nothing = sp.csr_matrix((count, len(labels)), dtype=rows.excluded.dtype)
    return replace(
        rows,
        texts=TextColumn(_chain(rows, labels, numbers, ids)),
        labels=_stack(rows.labels, pairs),
        excluded=_stack(rows.excluded, nothing),
        ids=None,
        groups=None,
        weights=np.concatenate([rows.weights, np.ones(count, dtype=np.float32)]),
        kinds=np.concatenate([rows.kinds, np.full(count, KIND_LABEL_TEXT, dtype=np.uint8)]),
    )


def with_own_ids(rows: Rows, labels: LabelSet) -> Rows:
    """`rows` in which a text whose id is a label that is excluded for it is a positive of that label.

    Such a pair is never an answer, but the text describes the label as its label text does. A label whose only row
    would be its own gets none.
    """
    if rows.ids is None:
        return rows
    numbers = np.array([labels.number_of.get(row_id, -1) for row_id in rows.ids], dtype=np.int64)
    used = np.bincount(rows.labels.indices, minlength=len(labels)) > 0
    pairs = rows.excluded.tocoo()
    own = (numbers[pairs.row] == pairs.col) & used[pairs.col]

    def matrix(chosen: np.ndarray, dtype: np.dtype) -> sp.csr_matrix:
        values = np.ones(np.count_nonzero(chosen), dtype=dtype)
        return sp.csr_matrix((values, (pairs.row[chosen], pairs.col[chosen])), shape=rows.labels.shape)

    positives = sp.csr_matrix(rows.labels.maximum(matrix(own, rows.labels.dtype)))
    positives.sort_indices()
    return replace(rows, labels=positives, excluded=matrix(~own, rows.excluded.dtype))


def count_label_texts(rows: Rows, labels: LabelSet) -> int:
    """The number of rows that `with_label_texts` adds."""
    return len(labels_with_text(rows, labels))


def labels_with_text(rows: Rows, labels: LabelSet) -> np.ndarray:
    """Numbers of the labels that have a text and a row; none where rows are vectors."""
    if rows.texts is None or not labels.has_texts:
        return np.empty(0, dtype=np.int64)
    return _that_have_text(np.bincount(rows.labels.indices, minlength=len(labels)) > 0, labels)


def unseen_labels(matrix: sp.csr_matrix, labels: LabelSet) -> np.ndarray:
    """Numbers of the labels that have a text and no row; `matrix` is rows x L."""
    return _that_have_text(np.bincount(matrix.indices, minlength=len(labels)) == 0, labels)


def _that_have_text(chosen: np.ndarray, labels: LabelSet) -> np.ndarray:
    """Numbers of the chosen labels (a mask over all) that have a text."""
    numbers = np.flatnonzero(chosen).tolist()
    return np.array([number for number in numbers if labels.texts[number]], dtype=np.int64)


def _chain(rows: Rows, labels: LabelSet, numbers: np.ndarray, ids: bool) -> Iterator[str]:
    yield from rows.texts or ()
    yield from texts_of(labels, numbers, ids=ids)


def texts_of(labels: LabelSet, numbers: np.ndarray, *, ids: bool = False) -> Iterator[str]:
    """The training texts of some labels: id where it is a name, text, alternative names."""
    for number in numbers.tolist():
        name, text = labels.ids[number], labels.texts[number]
        is_name = name not in (text, labels.uri(number)) and any(map(str.isalpha, name))
        before = f"{name} " if ids and is_name else ""
        yield f"{before}{text} {labels.alternatives[number]}".strip()


def _stack(upper: sp.csr_matrix, lower: sp.csr_matrix) -> sp.csr_matrix:
    stacked: sp.csr_matrix = sp.csr_matrix(sp.vstack([upper, lower], format="csr"), dtype=upper.dtype)
    return stacked
