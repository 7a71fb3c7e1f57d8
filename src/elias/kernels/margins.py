"""Margins of the linear ranker and paths of the label trees on the CPU, of the candidates of one text.

    margin(x, l) = w_l . x + b_l                                  the linear ranker's
    path(x, l)   = mean over the trees of the sum over l and the nodes above it of -max(0, 1 - margin of the tree)^3,
                   at least LOWEST in each tree

All are linear in the same words, so their weights lie side by side and are read once. The weights of common words are
stored by label: one place in memory per label, fetched ahead. Any other word has a list of labels; lists are summed
over all labels, and so are the nodes of the trees.

    sum_margins     the words that are not common, over all labels, and the paths of all nodes
    label_margins   the candidates
    clear_margins   the sums are zero again

Definition: `ranking/margins.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .inverted_index import add_one
from .prefetch import LINE, fetch_one

LOWEST = np.float32(-10.0)  # of a path: what is worse is all the same
AHEAD = 6  # labels whose rows are fetched before they are read


COLUMNS = 4  # the ranker and at most three trees; a constant, so that loops over it are unrolled


class MarginTable(NamedTuple):
    """Ranker (0) and trees (1, 2, 3) of the labels, and the nodes of all trees."""

    column_of: np.ndarray  # int32 [W]: number of a common word, -1 of any other
    codes: np.ndarray  # [L, COLUMNS * common words]: int8, or float32 where nothing may be rounded
    steps: np.ndarray  # float32 [W, COLUMNS]: weight = step * code
    indptr: np.ndarray  # int64 [W + 1]: lists of the others
    labels: np.ndarray  # uint32
    listed: np.ndarray  # [pairs, COLUMNS]: codes, of the same type
    biases: np.ndarray  # float32 [L, COLUMNS]
    nodes: NamedTuple  # Postings: from words to nodes; weights and columns are codes of the same type
    node_steps: np.ndarray  # float32 [W]
    node_biases: np.ndarray  # float32 [nodes]
    leaf_of: np.ndarray  # int32 [L, trees]: the node that a label is in, -1 where it is in none
    parents: np.ndarray  # int32 [nodes]: a later node, or -1


class MarginSums(NamedTuple):
    """What one thread writes while it adds up."""

    sums: np.ndarray  # float32 [L, COLUMNS], zero between texts
    nodes: np.ndarray  # float32 [nodes], any content


@njit(cache=True, nogil=True)
def margin_rows(start, stop, x_indptr, x_words, x_values, table, summed, labels, margin, path):  # type: ignore[no-untyped-def]
    """margin and path of rows start..stop; a row's labels end before its first PAD."""
    for row in range(start, stop):
        count, first, last = 0, x_indptr[row], x_indptr[row + 1]
        while count < labels.shape[1] and labels[row, count] >= 0:
            count += 1
        words, values = x_words[first:last], x_values[first:last]
        sum_margins(words, values, table, summed)
        label_margins(words, values, table, summed, labels[row, :count], margin[row], path[row])
        clear_margins(words, table, summed)


@njit(cache=True, nogil=True)
def sum_margins(x_words, x_values, table, summed):  # type: ignore[no-untyped-def]
    """Sums over the words that are not common, of all labels, and the paths of all nodes."""
    sums, listed = summed.sums, table.listed
    factors = np.empty(COLUMNS, dtype=np.float32)
    for j in range(len(x_words)):
        word, value = x_words[j], x_values[j]
        for which in range(COLUMNS):
            factors[which] = value * table.steps[word, which]
        for place in range(table.indptr[word], table.indptr[word + 1]):
            label = table.labels[place]
            for which in range(COLUMNS):
                sums[label, which] += factors[which] * np.float32(listed[place, which])
    if len(table.parents):
        climb_nodes(x_words, x_values, table, summed.nodes)


@njit(cache=True, nogil=True)
def climb_nodes(x_words, x_values, table, nodes):  # type: ignore[no-untyped-def]
    """The path of every node, from the top down."""
    postings = table.nodes
    nodes[:] = table.node_biases
    for j in range(len(x_words)):
        word = x_words[j]
        column, value = postings.column_of[word], x_values[j] * table.node_steps[word]
        if column >= 0:
            add_one(nodes, postings.codes[column], value)
        for place in range(postings.indptr[word], postings.indptr[word + 1]):
            nodes[postings.labels[place]] += value * np.float32(postings.weights[place])
    for node in range(len(nodes) - 1, -1, -1):  # parents come after their children
        nodes[node] = below(table.parents[node], nodes, nodes[node])


@njit(cache=True, nogil=True)
def below(parent, nodes, margin):  # type: ignore[no-untyped-def]
    """The path of a label or node with this margin below its parent; PAD: it has none."""
    short = max(np.float32(0.0), np.float32(1.0) - margin)
    above = nodes[parent] if parent >= 0 else np.float32(0.0)
    return above - short * short * short


@njit(cache=True, nogil=True)
def label_margins(x_words, x_values, table, summed, labels, margin, path):  # type: ignore[no-untyped-def]
    """margin and path of some labels of a text that was summed up; path is 0 where there is no tree."""
    at, factors, lines = common_words(x_words, x_values, table)
    sums, biases, trees = summed.sums.reshape(-1), table.biases.reshape(-1), table.leaf_of.shape[1]
    flat, width = table.codes.reshape(-1), table.codes.shape[1]
    own = np.empty(COLUMNS, dtype=np.float32)
    for column in range(len(labels)):
        if column + AHEAD < len(labels):
            ahead = np.int64(labels[column + AHEAD])
            fetch_one(sums, COLUMNS * ahead)
            fetch_one(biases, COLUMNS * ahead)
            for line in lines:
                fetch_one(flat, ahead * width + line)
        label = np.int64(labels[column])
        codes = table.codes[label]
        for which in range(COLUMNS):
            own[which] = sums[COLUMNS * label + which]
        for i in range(len(at)):
            for which in range(COLUMNS):
                own[which] += factors[i, which] * np.float32(codes[at[i] + which])
        margin[column] = own[0] + biases[COLUMNS * label]
        total = np.float32(0.0)
        for tree in range(trees):
            leaf = table.leaf_of[label, tree]
            total += max(below(leaf, summed.nodes, own[1 + tree] + biases[COLUMNS * label + 1 + tree]), LOWEST)
        path[column] = total / np.float32(max(1, trees))


@njit(cache=True, nogil=True)
def common_words(x_words, x_values, table):  # type: ignore[no-untyped-def]
    """(where the common words of a text are in a label's row, their factors of ranker and trees, one place a line)."""
    at, lines = np.empty(len(x_words), dtype=np.int64), np.empty(len(x_words), dtype=np.int64)
    factors = np.empty((len(at), COLUMNS), dtype=np.float32)
    count, n_lines, last, per_line = 0, 0, -1, LINE // table.codes.itemsize
    for j in range(len(x_words)):
        column = table.column_of[x_words[j]]
        if column >= 0:
            at[count] = COLUMNS * column
            for which in range(COLUMNS):
                factors[count, which] = x_values[j] * table.steps[x_words[j], which]
            if at[count] // per_line != last:
                last, lines[n_lines] = at[count] // per_line, at[count]
                n_lines += 1
            count += 1
    return at[:count], factors[:count], lines[:n_lines]


@njit(cache=True, nogil=True)
def clear_margins(x_words, table, summed):  # type: ignore[no-untyped-def]
    """Zero the sums of a text."""
    length = 0
    for word in x_words:
        length += table.indptr[word + 1] - table.indptr[word]
    if length > len(summed.sums) // 8:
        summed.sums[:] = np.float32(0.0)
        return
    for word in x_words:
        for label in table.labels[table.indptr[word] : table.indptr[word + 1]]:
            for which in range(COLUMNS):
                summed.sums[label, which] = np.float32(0.0)
