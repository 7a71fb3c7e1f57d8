"""The training pairs of ranker and label tree, by label, without a sparse matrix of all of them in between.

Twins: `tests/test_ranker.py` and `tests/test_label_tree.py` collect the same pairs in sets.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pairs_by_label(  # type: ignore[no-untyped-def]
    found, indptr, labels, values, out_indptr, out_labels, out_values, last, places, rows, signs, write
):
    """Count (places[l] += 1) or write every pair once: positives, then found labels neither positive nor excluded.

    Writing, places[l] is where the next pair of label l goes. `last` [L] is all -1: the row that met a label last.
    """
    for row in range(len(indptr) - 1):
        for j in range(indptr[row], indptr[row + 1]):
            label = labels[j]
            if values[j] > 0 and last[label] != row:
                last[label] = row
                if write:
                    rows[places[label]], signs[places[label]] = row, np.int8(1)
                places[label] += 1
        if row >= len(found):
            continue
        for j in range(out_indptr[row], out_indptr[row + 1]):
            if out_values[j] > 0:
                last[out_labels[j]] = row
        for j in range(found.shape[1]):
            label = found[row, j]
            if label >= 0 and last[label] != row:
                last[label] = row
                if write:
                    rows[places[label]], signs[places[label]] = row, np.int8(-1)
                places[label] += 1


@njit(cache=True, nogil=True)
def pairs_of_siblings(  # type: ignore[no-untyped-def]
    start, stop, first, group, indptr, own, above_indptr, above, out_indptr, left_out, starts, ends, rows, signs
):
    """The texts of the parents of nodes first + start .. first + stop, with the sign of each node; none left out.

    All lists of texts rise. Node first + i writes from starts[i] on and says in ends[i] where it stopped.
    """
    for i in range(start, stop):
        node, at = first + i, starts[i]
        ends[i] = at
        if group[node] < 0:
            continue
        mine, out = indptr[node], out_indptr[node]
        for j in range(above_indptr[group[node]], above_indptr[group[node] + 1]):
            row = above[j]
            while out < out_indptr[node + 1] and left_out[out] < row:
                out += 1
            is_mine = mine < indptr[node + 1] and own[mine] == row
            if is_mine:
                mine += 1
            elif out < out_indptr[node + 1] and left_out[out] == row:
                continue
            rows[at], signs[at] = row, np.int8(1) if is_mine else np.int8(-1)
            at += 1
        ends[i] = at
