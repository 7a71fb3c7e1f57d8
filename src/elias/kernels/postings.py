"""Labels whose words a text shares, best first: an inverted index from words to (label, weight).

    score_l = sum over the words of x of x_word * v_{l,word}

Sums live in scratch as long as the number of labels, which is zero before and after each row, so a row costs time in
proportion to the postings it reads. Twin: `tests/test_lexical.py` multiplies the dense matrices.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BINS = 512


@njit(cache=True, nogil=True)
def find_labels(  # type: ignore[no-untyped-def]
    start, stop, x_indptr, x_words, x_values, indptr, labels, weights, out_of, left_out, sums, seen, touched,
    found_labels, found_scores, asked, answers,
):  # fmt: skip
    """The best labels of rows start .. stop with a score above 0; ties to the lower label.

    The labels left_out[out_of[row] : out_of[row + 1]] are not among them. `sums` and `seen` are all zero, `touched`
    is as long as they are. `answers` gets the scores of the labels asked about, 0 for nobody (-1).
    """
    for row in range(start, stop):
        words, values = x_words[x_indptr[row] : x_indptr[row + 1]], x_values[x_indptr[row] : x_indptr[row + 1]]
        length = 0
        for word in words:
            length += indptr[word + 1] - indptr[word]
        few = length < len(sums) // 4  # otherwise to look through all labels is quicker than to note each one
        if few:
            count = _add_and_note(words, values, indptr, labels, weights, sums, seen, touched)
        else:
            _add(words, values, indptr, labels, weights, sums)
        for column in range(asked.shape[1]):
            if asked[row, column] >= 0:
                answers[row, column] = sums[asked[row, column]]
        for j in range(out_of[row], out_of[row + 1]):
            sums[left_out[j]] = np.float32(0.0)
        if not few:
            count = _positive(sums, touched)
        _keep_best(touched[:count], sums, found_labels[row], found_scores[row])
        if few:
            for j in range(count):
                sums[touched[j]], seen[touched[j]] = np.float32(0.0), False
        else:
            sums[:] = np.float32(0.0)


@njit(cache=True, nogil=True)
def _add_and_note(words, values, indptr, labels, weights, sums, seen, touched):  # type: ignore[no-untyped-def]
    """Sums of the labels that the words name, and these labels; returns how many."""
    count = 0
    for j in range(len(words)):
        for place in range(indptr[words[j]], indptr[words[j] + 1]):
            label = labels[place]
            if not seen[label]:
                seen[label] = True
                touched[count] = label
                count += 1
            sums[label] += values[j] * weights[place]
    return count


@njit(cache=True, nogil=True)
def _add(words, values, indptr, labels, weights, sums):  # type: ignore[no-untyped-def]
    """The sums alone."""
    for j in range(len(words)):
        value = values[j]
        for place in range(indptr[words[j]], indptr[words[j] + 1]):
            sums[labels[place]] += value * weights[place]


@njit(cache=True, nogil=True)
def _positive(sums, touched):  # type: ignore[no-untyped-def]
    """The labels with a sum above 0; returns how many."""
    count = 0
    for label in range(len(sums)):
        if sums[label] > 0.0:
            touched[count] = label
            count += 1
    return count


@njit(cache=True, nogil=True)
def _above_bar(touched, sums, room):  # type: ignore[no-untyped-def]
    """The touched labels without most of those that cannot be among the best: a histogram says where these begin."""
    most = np.float32(0.0)
    for label in touched:
        most = max(most, sums[label])
    if most <= 0.0:
        return touched[:0]
    counts, scale = np.zeros(BINS + 1, dtype=np.int64), np.float32(BINS) / most
    for label in touched:
        if sums[label] > 0.0:
            counts[min(BINS, int(sums[label] * scale))] += 1
    bar, above = BINS, counts[BINS]
    while bar > 0 and above < room:
        bar -= 1
        above += counts[bar]
    kept, count = np.empty(above, dtype=touched.dtype), 0
    for label in touched:
        if sums[label] > 0.0 and min(BINS, int(sums[label] * scale)) >= bar:
            kept[count] = label
            count += 1
    return kept[:count]


@njit(cache=True, nogil=True)
def _keep_best(touched, sums, labels, scores):  # type: ignore[no-untyped-def]
    """The touched labels with the largest sums above 0, by falling sum, then rising label."""
    room = len(labels)
    if len(touched) > 4 * room:
        touched = _above_bar(touched, sums, room)
    values = np.empty(len(touched), dtype=np.float32)
    for j in range(len(touched)):
        values[j] = sums[touched[j]]
    cut = np.float32(0.0)
    if len(touched) > room:
        cut = np.partition(values, len(values) - room)[len(values) - room]
    above, level = np.empty(room, dtype=np.int64), np.empty(len(touched), dtype=np.int64)
    n_above = n_level = 0
    for j in range(len(touched)):
        if values[j] > max(cut, np.float32(0.0)):
            above[n_above] = touched[j]
            n_above += 1
        elif values[j] == cut and cut > 0.0:
            level[n_level] = touched[j]
            n_level += 1
    lowest = np.sort(level[:n_level])[: room - n_above]
    chosen = np.sort(np.concatenate((above[:n_above], lowest)))
    order = np.argsort(-sums[chosen], kind="mergesort")
    for place in range(len(chosen)):
        labels[place], scores[place] = chosen[order[place]], sums[chosen[order[place]]]


@njit(cache=True, nogil=True)
def products(  # type: ignore[no-untyped-def]
    start, stop, labels, x_indptr, x_words, x_values, indptr, words, weights, biases, x, out
):
    """out[row, column] = w_l . x + b_l of label labels[row, column]; nobody (-1) gets 0. `x` is zero scratch."""
    for row in range(start, stop):
        for j in range(x_indptr[row], x_indptr[row + 1]):
            x[x_words[j]] += x_values[j]
        for column in range(labels.shape[1]):
            label = labels[row, column]
            total = np.float32(0.0)
            if label >= 0:
                for j in range(indptr[label], indptr[label + 1]):
                    total += weights[j] * x[words[j]]
                total += biases[label]
            out[row, column] = total
        for j in range(x_indptr[row], x_indptr[row + 1]):
            x[x_words[j]] = np.float32(0.0)
