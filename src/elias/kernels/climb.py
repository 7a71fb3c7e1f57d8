"""The ranker's margins and the paths of the label tree, for the labels of one text, seen from the words.

A text has few words, a label many weights: reading what each word says of all labels is less than reading the labels.
Twins: `SparseRows.products` for margins; `tests/test_label_tree.py` climbs label by label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

LOWEST = np.float32(-10.0)  # of a path: what is worse is all the same


class Tree(NamedTuple):
    """A `LabelTree`; without rows there is none."""

    weights: NamedTuple  # Postings: from words to rows, labels first
    biases: np.ndarray  # float32 [L + nodes]
    parents: np.ndarray  # int32 [L + nodes]: a row after the own one, or -1


class Climb(NamedTuple):
    """What one thread writes while it climbs."""

    sums: np.ndarray  # float32 [L + nodes], zero between rows
    place_of: np.ndarray  # int32 [L + nodes], any content


@njit(cache=True, nogil=True)
def margins(x_words, x_values, table, biases, sums, rows, out):  # type: ignore[no-untyped-def]
    """w . x + b of some rows of a table. `sums` is zero before and after."""
    length = 0
    for column in range(len(rows)):
        out[column] = biases[rows[column]]
    for j in range(len(x_words)):
        word, value = x_words[j], x_values[j]
        number = table.column_of[word]
        if number >= 0:
            codes, factor = table.codes[number], value * table.steps[number]
            for column in range(len(rows)):
                out[column] += factor * np.float32(codes[rows[column]])
        else:
            length += table.indptr[word + 1] - table.indptr[word]
            for place in range(table.indptr[word], table.indptr[word + 1]):
                sums[table.labels[place]] += value * table.weights[place]
    for column in range(len(rows)):
        out[column] += sums[rows[column]]
    if length > len(sums) // 8:
        sums[:] = np.float32(0.0)
        return
    for word in x_words:
        if table.column_of[word] < 0:
            for place in range(table.indptr[word], table.indptr[word + 1]):
                sums[table.labels[place]] = np.float32(0.0)


@njit(cache=True, nogil=True)
def climb_rows(start, stop, x_indptr, x_words, x_values, tree, climb, labels, out):  # type: ignore[no-untyped-def]
    """`climb_paths` of rows start..stop; a row's labels end before its first -1."""
    for row in range(start, stop):
        count, first, last = 0, x_indptr[row], x_indptr[row + 1]
        while count < labels.shape[1] and labels[row, count] >= 0:
            count += 1
        climb_paths(x_words[first:last], x_values[first:last], tree, climb, labels[row, :count], out[row])


@njit(cache=True, nogil=True)
def climb_paths(x_words, x_values, tree, climb, labels, out):  # type: ignore[no-untyped-def]
    """path(x, l) of some labels; 0 where there is no tree."""
    if len(tree.parents) == 0:
        out[: len(labels)] = np.float32(0.0)
        return
    rows = and_above(labels, tree.parents, climb.place_of)
    values = np.empty(len(rows), dtype=np.float32)
    margins(x_words, x_values, tree.weights, tree.biases, climb.sums, rows, values)
    for place in range(len(rows) - 1, -1, -1):  # parents come after their children
        short = max(np.float32(0.0), np.float32(1.0) - values[place])
        parent = tree.parents[rows[place]]
        above = values[climb.place_of[parent]] if parent >= 0 else np.float32(0.0)
        values[place] = above - short * short * short
    for column in range(len(labels)):
        out[column] = max(values[column], LOWEST)


@njit(cache=True, nogil=True)
def and_above(labels, parents, place_of):  # type: ignore[no-untyped-def]
    """The labels, then all that stand above them, each once and after its children; `place_of` says where.

    `place_of` has any content: a place is believed only if this row is there.
    """
    rows = np.empty(2 * len(labels) + 16, dtype=np.int32)
    rows[: len(labels)] = labels
    count, place = len(labels), 0
    while place < count:
        parent = parents[rows[place]]
        if parent >= 0 and not (0 <= place_of[parent] < count and rows[place_of[parent]] == parent):
            if count == len(rows):
                more = np.empty(2 * count, dtype=np.int32)
                more[:count] = rows
                rows = more
            rows[count], place_of[parent] = parent, count
            count += 1
        place += 1
    return rows[:count]
