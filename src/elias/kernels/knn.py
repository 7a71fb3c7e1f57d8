"""k-NN votes on the CPU: the training texts nearest to a text, and their votes for labels.

    words      the strongest words of x, by descending weight, while their postings together stay within the budget
    N(x)       the texts with the largest sums over these words, s_i
    vote_l     sum of s_i^2 over the texts of N(x) that have label l, divided by the sum of s_i^2 over all of N(x)
    nearest_l  the largest s_i among them

A text costs time in proportion to the budget, however many texts there are and however common its words.
Definition: `KNN._votes_reference` in `ranking/knn.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .inverted_index import accumulate, best_labels, clear


class TrainingTexts(NamedTuple):
    """Training texts by their words, and the labels of each."""

    postings: NamedTuple  # Postings without columns; its "labels" are texts
    indptr: np.ndarray  # int64 [texts + 1]
    labels: np.ndarray  # int32
    budget: int
    most: int  # neighbors


class VoteScratch(NamedTuple):
    """What one thread writes while it counts votes; zero between rows."""

    sums: NamedTuple  # Sums, of texts
    votes: np.ndarray  # float32 [L]
    nearest: np.ndarray  # float32 [L]


@njit(cache=True, nogil=True)
def strongest_words(words, values, indptr, budget):  # type: ignore[no-untyped-def]
    """Places of the words by descending value, as many as the budget allows; the first one always."""
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
def nearest_texts(words, values, texts, sums, found, scores):  # type: ignore[no-untyped-def]
    """The nearest texts of one text with their sums; returns how many."""
    chosen = strongest_words(words, values, texts.postings.indptr, texts.budget)
    touched = accumulate(words[chosen], values[chosen], texts.postings, sums)
    count = best_labels(touched, sums, found, scores)
    clear(touched, sums)
    return count


@njit(cache=True, nogil=True)
def vote_rows(start, stop, x_indptr, x_words, x_values, texts, labels, scratch, vote, nearest):  # type: ignore[no-untyped-def]
    """vote and nearest of the labels at each place of rows start..stop, 0 at PAD."""
    found, scores = np.empty(texts.most, dtype=np.int32), np.empty(texts.most, dtype=np.float32)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        count = nearest_texts(x_words[first:last], x_values[first:last], texts, scratch.sums, found, scores)
        votes_of(found[:count], scores, texts, labels[row], scratch, vote[row], nearest[row])


@njit(cache=True, nogil=True)
def neighbor_rows(start, stop, x_indptr, x_words, x_values, texts, scratch, found, scores):  # type: ignore[no-untyped-def]
    """The nearest texts of rows start..stop by falling sum, and their sums; PAD and 0 after the last."""
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        words, values = x_words[first:last], x_values[first:last]
        count = nearest_texts(words, values, texts, scratch.sums, found[row], scores[row])
        found[row, count:], scores[row, count:] = -1, np.float32(0.0)


@njit(cache=True, nogil=True)
def votes_of(found, scores, texts, labels, scratch, vote, nearest):  # type: ignore[no-untyped-def]
    """vote and nearest of the labels of one row, from its nearest texts and their sums."""
    total = np.float32(0.0)
    for j in range(len(found)):
        square = scores[j] * scores[j]
        total += square
        for label in texts.labels[texts.indptr[found[j]] : texts.indptr[found[j] + 1]]:
            scratch.votes[label] += square
            scratch.nearest[label] = max(scratch.nearest[label], scores[j])
    for column in range(len(labels)):
        label = labels[column]
        there = label >= 0 and total > 0.0
        vote[column] = scratch.votes[label] / total if there else np.float32(0.0)
        nearest[column] = scratch.nearest[label] if there else np.float32(0.0)
    for text in found:
        for label in texts.labels[texts.indptr[text] : texts.indptr[text + 1]]:
            scratch.votes[label], scratch.nearest[label] = np.float32(0.0), np.float32(0.0)
