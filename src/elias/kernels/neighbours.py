"""What the training texts nearest to a text say of labels.

    words      the strongest words of x, by falling weight, while their lists together are no longer than the budget
    N(x)       the texts with the largest sums over these words, s_i
    vote_l     sum of s_i^2 over the texts of N(x) that have label l, divided by the sum of s_i^2 over all of N(x)
    closest_l  the largest s_i among them

A text costs time in proportion to the budget, however many texts there are and however common its words.
Twin: `tests/test_neighbours.py` adds up dense rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .postings import add_up, best_labels, clear


class Texts(NamedTuple):
    """Training texts by their words, and the labels of each."""

    postings: NamedTuple  # Postings without columns; its "labels" are texts
    indptr: np.ndarray  # int64 [texts + 1]
    labels: np.ndarray  # int32
    budget: int
    most: int  # neighbours


class Ballot(NamedTuple):
    """What one thread writes while it counts votes; zero between rows."""

    sums: NamedTuple  # Sums, of texts
    votes: np.ndarray  # float32 [L]
    closest: np.ndarray  # float32 [L]


@njit(cache=True, nogil=True)
def strongest_words(words, values, indptr, budget):  # type: ignore[no-untyped-def]
    """Places of the words by falling value, as many as the budget allows; the first one always."""
    order = np.argsort(-values, kind="mergesort")
    count, length = 0, 0
    while count < len(order):
        word = words[order[count]]
        length += indptr[word + 1] - indptr[word]
        if count and length > budget:
            break
        count += 1
    return order[:count]


@njit(cache=True, nogil=True)
def neighbours_of(words, values, texts, sums, found, scores):  # type: ignore[no-untyped-def]
    """The nearest texts of one text with their sums; returns how many."""
    chosen = strongest_words(words, values, texts.postings.indptr, texts.budget)
    touched = add_up(words[chosen], values[chosen], texts.postings, sums)
    count = best_labels(touched, sums, found, scores)
    clear(touched, sums)
    return count


@njit(cache=True, nogil=True)
def vote_rows(start, stop, x_indptr, x_words, x_values, texts, labels, ballot, vote, closest):  # type: ignore[no-untyped-def]
    """vote and closest of the labels at each place of rows start..stop; nobody (-1) gets 0."""
    found, scores = np.empty(texts.most, dtype=np.int32), np.empty(texts.most, dtype=np.float32)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        count = neighbours_of(x_words[first:last], x_values[first:last], texts, ballot.sums, found, scores)
        votes_of(found[:count], scores, texts, labels[row], ballot, vote[row], closest[row])


@njit(cache=True, nogil=True)
def votes_of(found, scores, texts, labels, ballot, vote, closest):  # type: ignore[no-untyped-def]
    """vote and closest of the labels of one row, from its nearest texts and their sums."""
    total = np.float32(0.0)
    for j in range(len(found)):
        square = scores[j] * scores[j]
        total += square
        for label in texts.labels[texts.indptr[found[j]] : texts.indptr[found[j] + 1]]:
            ballot.votes[label] += square
            ballot.closest[label] = max(ballot.closest[label], scores[j])
    for column in range(len(labels)):
        label = labels[column]
        there = label >= 0 and total > 0.0
        vote[column] = ballot.votes[label] / total if there else np.float32(0.0)
        closest[column] = ballot.closest[label] if there else np.float32(0.0)
    for text in found:
        for label in texts.labels[texts.indptr[text] : texts.indptr[text + 1]]:
            ballot.votes[label], ballot.closest[label] = np.float32(0.0), np.float32(0.0)
