"""Search in the inverted index on the CPU: the labels with the largest sums over the words of a text.

    score_l = sum over the words of x of x_word * v_{l,word}

A word of few labels is a list of (label, weight). A word of many labels is a column: one small integer per label, which
SIMD instructions add sixteen at a time, because most of what a text adds up comes from common words. A column holds
weight = step * code, the step a power of two; codes have 16 bits, or 8 where there are many labels (adding columns is
then bound by memory, and the figures do not change: docs/experiments).

Sums live in scratch memory of one float per label, zero before and after each text. A text without a common word costs
time in proportion to the postings it reads, not to the number of labels. Definition: `InvertedIndex.search`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .shortlist import LOW32, key_of, select_largest
from .steps import FAST

BLOCK = 4096  # labels whose sums stay in the nearest cache while the columns are added
ALL = -1  # every label may have a sum
CHUNK = 64  # labels that are skipped together where none passes the bar
SAMPLE, MORE = 32, 8  # one sum in SAMPLE is sampled to guess a bar; MORE sampled sums than needed must be above it


class Postings(NamedTuple):
    """Word w names labels[indptr[w] : indptr[w + 1]], or is column column_of[w]."""

    indptr: np.ndarray  # int64 [W + 1]
    labels: np.ndarray  # uint32: unsigned, so that numba need not handle negative indices
    weights: np.ndarray  # float32
    column_of: np.ndarray  # int32 [W], -1 where the word has none
    codes: np.ndarray  # [columns, L]: int8 or int16, or float32 where nothing may be rounded
    steps: np.ndarray  # float32 [columns]


class Sums(NamedTuple):
    """What one thread writes while it works."""

    sums: np.ndarray  # float32 [L], zero between rows
    seen: np.ndarray  # bool [L], False between rows
    touched: np.ndarray  # int32 [L], any content


@njit(cache=True, nogil=True)
def fill_columns(start, stop, words, postings):  # type: ignore[no-untyped-def]
    """Codes and steps of the columns start..stop, which belong to these words; codes are zero before."""
    most = 2.0 ** (8 * postings.codes.itemsize - 1) - 1.0
    for column in range(start, stop):
        first, last = postings.indptr[words[column]], postings.indptr[words[column] + 1]
        largest = total = 0.0
        for place in range(first, last):
            largest = max(largest, abs(np.float64(postings.weights[place])))
            total += postings.weights[place]
        if not math.isfinite(total):  # of a damaged file: noticed by the answer
            postings.steps[column] = math.nan
            continue
        if largest == 0.0:
            continue
        step = 2.0 ** math.ceil(math.log2(largest / most))
        postings.steps[column] = step
        for place in range(first, last):
            code = np.rint(postings.weights[place] / step)
            if code == 0.0 and postings.weights[place] != 0.0:
                code = math.copysign(1.0, postings.weights[place])  # a label that has the word keeps a trace of it
            postings.codes[column, postings.labels[place]] = code


@njit(cache=True, nogil=True)
def search_rows(  # type: ignore[no-untyped-def]
    start, stop, x_indptr, x_words, x_values, postings, excluded_indptr, excluded_labels, scratch, labels, scores,
    asked, answers,
):  # fmt: skip
    """The best labels of rows start .. stop with a score above 0; ties to the lower label.

    Excluded labels are not among them. `answers` gets the scores of the labels `asked` for, 0 at PAD.
    """
    for row in range(start, stop):
        words, values = x_words[x_indptr[row] : x_indptr[row + 1]], x_values[x_indptr[row] : x_indptr[row + 1]]
        count = accumulate(words, values, postings, scratch)
        for column in range(asked.shape[1]):
            if asked[row, column] >= 0:
                answers[row, column] = scratch.sums[asked[row, column]]
        for j in range(excluded_indptr[row], excluded_indptr[row + 1]):
            scratch.sums[excluded_labels[j]] = np.float32(0.0)
        best_labels(count, scratch, labels[row], scores[row])
        clear(count, scratch)


@njit(cache=True, nogil=True)
def accumulate(words, values, postings, scratch):  # type: ignore[no-untyped-def]
    """The sums of one text. Returns how many labels it touched, noted in `touched`, or ALL: too many to note."""
    length, n_columns = 0, 0
    for word in words:
        if postings.column_of[word] >= 0:
            n_columns += 1
        else:
            length += postings.indptr[word + 1] - postings.indptr[word]
    if n_columns == 0 and length < len(scratch.sums) // 4:
        return _add_and_note(words, values, postings, scratch)
    room = (n_columns + 7) // 8 * 8  # filled up with the last one, counted for nothing
    columns, factors = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.float32)
    at = 0
    for j in range(len(words)):
        column = postings.column_of[words[j]]
        if column >= 0:
            columns[at], factors[at] = column, values[j] * postings.steps[column]
            at += 1
        else:
            for place in range(postings.indptr[words[j]], postings.indptr[words[j] + 1]):
                scratch.sums[postings.labels[place]] += values[j] * postings.weights[place]
    if at:
        columns[at:] = columns[at - 1]
        _add_columns(columns, factors, postings.codes, scratch.sums)
    return ALL


@njit(cache=True, nogil=True)
def _add_and_note(words, values, postings, scratch):  # type: ignore[no-untyped-def]
    """The sums of the labels that the words name, and these labels; returns how many."""
    sums, seen, touched = scratch.sums, scratch.seen, scratch.touched
    count = 0
    for j in range(len(words)):
        for place in range(postings.indptr[words[j]], postings.indptr[words[j] + 1]):
            label = postings.labels[place]
            if not seen[label]:
                seen[label] = True
                touched[count] = label
                count += 1
            sums[label] += values[j] * postings.weights[place]
    return count


@njit(cache=True, nogil=True)
def _add_columns(columns, factors, codes, sums):  # type: ignore[no-untyped-def]
    """Sums of some columns, a multiple of eight."""
    for start in range(0, len(sums), BLOCK):
        block, j = sums[start : start + BLOCK], 0
        part = codes[:, start : start + BLOCK]
        while j < len(columns):
            _add_eight(block, part, columns[j : j + 8], factors[j : j + 8])
            j += 8


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_eight(sums, codes, columns, factors):  # type: ignore[no-untyped-def]
    """Eight columns at a time, so that sums are read and written once for all of them."""
    a, b, c, d = codes[columns[0]], codes[columns[1]], codes[columns[2]], codes[columns[3]]
    e, f, g, h = codes[columns[4]], codes[columns[5]], codes[columns[6]], codes[columns[7]]
    by_a, by_b, by_c, by_d = factors[0], factors[1], factors[2], factors[3]
    by_e, by_f, by_g, by_h = factors[4], factors[5], factors[6], factors[7]
    for i in range(len(sums)):
        more = by_a * np.float32(a[i]) + by_b * np.float32(b[i]) + by_c * np.float32(c[i]) + by_d * np.float32(d[i])
        more += by_e * np.float32(e[i]) + by_f * np.float32(f[i]) + by_g * np.float32(g[i]) + by_h * np.float32(h[i])
        sums[i] += more


@njit(cache=True, nogil=True, fastmath=FAST)
def add_one(sums, codes, factor):  # type: ignore[no-untyped-def]
    for i in range(len(sums)):
        sums[i] += factor * np.float32(codes[i])


@njit(cache=True, nogil=True)
def best_labels(count, scratch, labels, scores):  # type: ignore[no-untyped-def]
    """The labels with the largest sums above 0, by descending sum, then ascending label; returns how many."""
    room = len(labels)
    keys = np.empty(max(256, 4 * room), dtype=np.uint64)
    if count == ALL:
        held = keys_of_all(scratch.sums, room, keys)
    else:
        held = _keys_of(scratch.touched[:count], scratch.sums, room, keys)
    ordered = np.sort(keys[:held])
    for place in range(held):
        label = np.int64(LOW32 - (ordered[held - 1 - place] & LOW32))
        labels[place], scores[place] = label, scratch.sums[label]
    return held


@njit(cache=True, nogil=True)
def keys_of_all(sums, room, keys):  # type: ignore[no-untyped-def]
    """The best of all labels as keys in any order; returns how many, at most `room`.

    A sample of the sums tells where the bar probably is. Should too few pass it, all sums above 0 are compared.
    """
    bar = likely_bar(sums, room)
    held = _keys_above(sums, bar, room, keys)
    if held < room and bar > 0.0:
        held = _keys_above(sums, np.float32(0.0), room, keys)
    return held


@njit(cache=True, nogil=True)
def likely_bar(sums, room):  # type: ignore[no-untyped-def]
    """A sum that probably some more than `room` of the sums are above; 0 where a sample cannot tell."""
    wanted = 2 * room // SAMPLE + MORE
    keys = np.empty(len(sums) // SAMPLE + 1, dtype=np.uint64)
    held = 0
    for label in range(0, len(sums), SAMPLE):
        keys[held] = np.uint64(np.float32(sums[label]).view(np.uint32))  # not negative: bits order as numbers do
        held += sums[label] > 0.0
    if held <= wanted:
        return np.float32(0.0)
    select_largest(keys, held, wanted)
    return np.uint32(keys[:wanted].min()).view(np.float32)


@njit(cache=True, nogil=True)
def _keys_above(sums, bar, room, keys):  # type: ignore[no-untyped-def]
    """The best labels above a bar; labels come in ascending order, so an equal one that comes later loses."""
    held, whole = 0, len(sums) - len(sums) % CHUNK
    for first in range(0, whole, CHUNK):
        if how_many_above(sums[first : first + CHUNK], bar):
            held, bar = _keep_above(first, first + CHUNK, sums, bar, room, keys, held)
    held, bar = _keep_above(whole, len(sums), sums, bar, room, keys, held)
    if held > room:
        select_largest(keys, held, room)
        held = room
    return held


@njit(cache=True, nogil=True)
def how_many_above(values, bar):  # type: ignore[no-untyped-def]
    """Of CHUNK values: the fixed length lets the compiler use SIMD comparisons."""
    count = np.int32(0)
    for i in range(CHUNK):
        count += np.int32(values[i] > bar)
    return count


@njit(cache=True, nogil=True)
def _keep_above(first, last, sums, bar, room, keys, held):  # type: ignore[no-untyped-def]
    """Those of at most CHUNK labels that pass the bar, behind the keys held; (how many are held, the bar)."""
    passed, count = np.empty(CHUNK, dtype=np.int32), 0
    for label in range(first, last):  # without a branch: the processor could not predict it
        passed[count] = label
        count += sums[label] > bar
    if held + count > len(keys):
        select_largest(keys, held, room)
        held, bar = room, sums[np.int64(LOW32 - (keys[:room].min() & LOW32))]
    for label in passed[:count]:
        if sums[label] > bar:
            keys[held] = key_of(sums[label], label)
            held += 1
    return held, bar


@njit(cache=True, nogil=True)
def _keys_of(touched, sums, room, keys):  # type: ignore[no-untyped-def]
    """The best of the labels that were touched."""
    held, bar = 0, key_of(np.float32(0.0), 0)
    for label in touched:
        key = key_of(sums[label], label)
        if key > bar and sums[label] > 0.0:
            keys[held] = key
            held += 1
            if held == len(keys):
                select_largest(keys, held, room)
                bar, held = keys[:room].min(), room
    if held > room:
        select_largest(keys, held, room)
        held = room
    return held


@njit(cache=True, nogil=True)
def clear(count, scratch):  # type: ignore[no-untyped-def]
    """Zero again what one text has written."""
    if count == ALL:
        scratch.sums[:] = np.float32(0.0)
        return
    for j in range(count):
        scratch.sums[scratch.touched[j]], scratch.seen[scratch.touched[j]] = np.float32(0.0), False


class Rows(NamedTuple):
    """Label l has words[indptr[l] : indptr[l + 1]], their weights and a bias."""

    indptr: np.ndarray  # int64 [L + 1]
    words: np.ndarray  # int32
    weights: np.ndarray  # float32
    biases: np.ndarray  # float32 [L]


@njit(cache=True, nogil=True, fastmath=FAST)
def product(rows, label, x):  # type: ignore[no-untyped-def]
    """w_l . x + b_l of a dense x."""
    total = np.float32(0.0)
    for j in range(rows.indptr[label], rows.indptr[label + 1]):
        total += rows.weights[j] * x[rows.words[j]]
    return total + rows.biases[label]


@njit(cache=True, nogil=True)
def products(start, stop, labels, x_indptr, x_words, x_values, rows, x, out):  # type: ignore[no-untyped-def]
    """out[row, column] = w_l . x + b_l of label labels[row, column], 0 at PAD. `x` is zero scratch."""
    for row in range(start, stop):
        for j in range(x_indptr[row], x_indptr[row + 1]):
            x[x_words[j]] += x_values[j]
        for column in range(labels.shape[1]):
            label = labels[row, column]
            out[row, column] = product(rows, label, x) if label >= 0 else np.float32(0.0)
        for j in range(x_indptr[row], x_indptr[row + 1]):
            x[x_words[j]] = np.float32(0.0)
