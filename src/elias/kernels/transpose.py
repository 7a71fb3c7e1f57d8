"""Transposes of sparse rows: from words to labels, common words as dense columns.

Labels are read in ascending order, so the list of a word is in ascending order too. `..._side_by_side` transposes
several matrices of the same shape together, an entry existing where any of them has one; each is (indptr, words,
weights, steps), its weights count in steps of their row.
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
def sizes_side_by_side(matrices, n_words, columns):  # type: ignore[no-untyped-def]
    """(how many labels have each word in any matrix, the largest weight of each word in each, whatever its sign)."""
    sizes, last = np.zeros(n_words, dtype=np.int64), np.full(n_words, -1, dtype=np.int64)
    largest = np.zeros((n_words, columns), dtype=np.float32)
    for label in range(len(matrices[0][0]) - 1):
        for which in range(len(matrices)):
            indptr, words, weights, row_steps = matrices[which]
            for place in range(indptr[label], indptr[label + 1]):
                word, value = words[place], row_steps[label] * np.float32(weights[place])
                sizes[word] += last[word] != label
                last[word], largest[word, which] = label, max(largest[word, which], abs(value))
    return sizes, largest


@njit(cache=True, nogil=True)
def transpose_side_by_side(matrices, column_of, steps, starts, codes, labels, listed):  # type: ignore[no-untyped-def]
    """Fill the rows of common words (`codes`) and the lists of the others (from `starts`, which ends as their ends);
    codes and lists are zero before.
    """
    last = np.full(len(column_of), -1, dtype=np.int64)  # the label that each list ends with
    columns = steps.shape[1]
    for label in range(len(matrices[0][0]) - 1):
        for which in range(len(matrices)):
            indptr, words, weights, row_steps = matrices[which]
            for place in range(indptr[label], indptr[label + 1]):
                word = words[place]
                value = row_steps[label] * np.float32(weights[place]) / steps[word, which]
                if column_of[word] >= 0:
                    put(codes, label, columns * column_of[word] + which, value)
                    continue
                if last[word] != label:
                    last[word], labels[starts[word]] = label, label
                    starts[word] += 1
                put(listed, starts[word] - 1, which, value)


def put(codes: Any, label: Any, place: Any, value: Any) -> Any:
    """codes[label, place] += value, a whole number where codes are. Compiled code only."""
    raise NotImplementedError


@overload(put)
def _put(codes, label, place, value):  # type: ignore[no-untyped-def]
    if isinstance(codes.dtype, types.Integer):
        integer = np.int8 if codes.dtype == types.int8 else np.int16

        def whole(codes, label, place, value):  # type: ignore[no-untyped-def]
            codes[label, place] += integer(np.rint(value))

        return whole

    def plain(codes, label, place, value):  # type: ignore[no-untyped-def]
        codes[label, place] += value

    return plain
