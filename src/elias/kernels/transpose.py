"""Transposes of sparse rows: from words to labels, common words as dense columns.

Labels are read in ascending order, so the list of a word is in ascending order too. The pair versions transpose two
matrices of the same shape side by side, an entry existing where either matrix has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload


@njit(cache=True, nogil=True)
def labels_of_words(words, n_words):  # type: ignore[no-untyped-def]
    """How many labels have each word."""
    sizes = np.zeros(n_words, dtype=np.int64)
    for word in words:
        sizes[word] += 1
    return sizes


@njit(cache=True, nogil=True)
def transpose(indptr, words, weights, column_of, starts, lists, listed, columns):  # type: ignore[no-untyped-def]
    """Fill the lists (from `starts`, which ends as their ends) and the columns; columns are zero before."""
    for label in range(len(indptr) - 1):
        for place in range(indptr[label], indptr[label + 1]):
            word = words[place]
            if column_of[word] >= 0:
                columns[column_of[word], label] += weights[place]
            else:
                lists[starts[word]], listed[starts[word]] = label, weights[place]
                starts[word] += 1


@njit(cache=True, nogil=True)
def sizes_of_pairs(indptr, words, weights, other_indptr, other_words, other_weights, n_words):  # type: ignore[no-untyped-def]
    """(how many labels have each word in either matrix, the largest weight of each word in each, whatever its sign)."""
    sizes, last = np.zeros(n_words, dtype=np.int64), np.full(n_words, -1, dtype=np.int64)
    largest = np.zeros((n_words, 2), dtype=np.float32)
    for label in range(len(indptr) - 1):
        _count_label(label, 0, indptr, words, weights, sizes, last, largest)
        _count_label(label, 1, other_indptr, other_words, other_weights, sizes, last, largest)
    return sizes, largest


@njit(cache=True, nogil=True)
def _count_label(label, which, indptr, words, weights, sizes, last, largest):  # type: ignore[no-untyped-def]
    for place in range(indptr[label], indptr[label + 1]):
        word = words[place]
        sizes[word] += last[word] != label
        last[word], largest[word, which] = label, max(largest[word, which], abs(weights[place]))


@njit(cache=True, nogil=True)
def transpose_pairs(  # type: ignore[no-untyped-def]
    indptr, words, weights, other_indptr, other_words, other_weights, column_of, steps, starts, codes, labels, pairs
):
    """Fill the rows of common words (`codes`) and the lists of the others (from `starts`, which ends as their ends);
    codes and pairs are zero before.
    """
    last = np.full(len(column_of), -1, dtype=np.int64)
    to = column_of, steps, starts, codes, labels, pairs, last
    for label in range(len(indptr) - 1):
        _transpose_label(label, 0, indptr, words, weights, *to)
        _transpose_label(label, 1, other_indptr, other_words, other_weights, *to)


@njit(cache=True, nogil=True)
def _transpose_label(  # type: ignore[no-untyped-def]
    label, which, indptr, words, weights, column_of, steps, starts, codes, labels, pairs, last
):
    """The row of a label in one of the matrices; `last` is the label that each list ends with."""
    for place in range(indptr[label], indptr[label + 1]):
        word, column = words[place], column_of[words[place]]
        if column >= 0:
            put(codes, label, 2 * column + which, weights[place] / steps[column, which])
            continue
        if last[word] != label:
            last[word], labels[starts[word]] = label, label
            starts[word] += 1
        pairs[starts[word] - 1, which] += weights[place]


def put(codes: Any, label: Any, place: Any, value: Any) -> Any:
    """codes[label, place] += value, a whole number where codes are. Compiled code only."""
    raise NotImplementedError


@overload(put)
def _put(codes, label, place, value):  # type: ignore[no-untyped-def]
    if isinstance(codes.dtype, types.Integer):

        def whole(codes, label, place, value):  # type: ignore[no-untyped-def]
            codes[label, place] += np.int16(np.rint(value))

        return whole

    def plain(codes, label, place, value):  # type: ignore[no-untyped-def]
        codes[label, place] += value

    return plain
