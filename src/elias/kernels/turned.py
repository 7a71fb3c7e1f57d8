"""Rows of words seen from the words: a transposed sparse matrix whose common words are columns.

A label's words come by rising number and labels are read by rising number, so the lists of a word are by rising label.
Twin: `tests/test_gathering.py` puts both together to the dense matrix.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def labels_of_words(words, n_words):  # type: ignore[no-untyped-def]
    """How many labels have each word."""
    sizes = np.zeros(n_words, dtype=np.int64)
    for word in words:
        sizes[word] += 1
    return sizes


@njit(cache=True, nogil=True)
def turn(indptr, words, weights, column_of, starts, lists, listed, columns):  # type: ignore[no-untyped-def]
    """Fill the lists (from `starts`, which ends as their ends) and the columns; columns are zero before."""
    for label in range(len(indptr) - 1):
        for place in range(indptr[label], indptr[label + 1]):
            word = words[place]
            if column_of[word] >= 0:
                columns[column_of[word], label] += weights[place]
            else:
                lists[starts[word]], listed[starts[word]] = label, weights[place]
                starts[word] += 1
