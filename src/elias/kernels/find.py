"""Prediction on the CPU in one pass a query: beam, best paths, shortlist, classifiers, the k best labels.

    1  the beam and its s_c                                                      (1), (2)
    2  the K best labels by yhat, from edges sorted by falling e in each cluster (5), (6)
    3  a first look at their classifiers through int8 codes, with a bound on how far it can be off
    4  the exact score of the labels that can still be among the k best; nothing else reads a full row

Steps 1 and 2 are in `reach.py`, step 3 in `first_look.py`. A label whose upper bound is below the k-th largest lower
bound cannot be among the k best.

Twins: `elias.network.searcher.Searcher.find_torch` for all of it. Order is total: higher score, then lower label.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .first_look import AHEAD, first_look
from .numbers import as_float
from .paths import LOW32, key_of, select_largest
from .prefetch import fetch
from .reach import beam_of, collect
from .steps import FAST


class Edges(NamedTuple):
    """Edges of cluster c are indptr[c] .. indptr[c+1], scores falling, equal scores by label."""

    indptr: np.ndarray  # int64 [C + 1]
    labels: np.ndarray  # int32
    scores: np.ndarray  # float32


class Classifiers(NamedTuple):
    """Rows as they are (float32, bfloat16 as uint16, or int8 codes) and what the first look reads."""

    rows: np.ndarray  # [L, D]
    row_scales: np.ndarray  # float32 [L], or [0] where rows need none
    biases: np.ndarray  # float32 [L]
    codes: np.ndarray  # int8 [L, D]
    facts: np.ndarray  # float32 [L, 4]: scale of the codes, bias, error bound, and a place to make them 16 bytes


class Scratch(NamedTuple):
    """What one thread writes while it works; any content to begin with."""

    place_of: np.ndarray  # int32 [L]
    label_at: np.ndarray  # int32 [room]
    yhat_at: np.ndarray  # float32 [room]
    edge_at: np.ndarray  # float32 [room]
    slot_at: np.ndarray  # int32 [room]
    low_at: np.ndarray  # float32 [room]
    high_at: np.ndarray  # float32 [room]
    keys: np.ndarray  # uint64 [room]


class Found(NamedTuple):
    """The answer; -1 and 0 where there are fewer than k."""

    labels: np.ndarray  # int32 [B, k]
    scores: np.ndarray  # float32 [B, k]
    clusters: np.ndarray  # int32 [B, k]
    cluster_scores: np.ndarray  # float32 [B, k]
    edge_scores: np.ndarray  # float32 [B, k]
    classifiers: np.ndarray  # float32 [B, k]


@register_jitable
def move(scratch, source, target):  # type: ignore[no-untyped-def]
    """The candidate at `source` goes to `target`."""
    scratch.label_at[target], scratch.yhat_at[target] = scratch.label_at[source], scratch.yhat_at[source]
    scratch.edge_at[target], scratch.slot_at[target] = scratch.edge_at[source], scratch.slot_at[source]
    scratch.low_at[target], scratch.high_at[target] = scratch.low_at[source], scratch.high_at[source]


@njit(cache=True, nogil=True)
def keep_largest(first, count, wanted, values, scratch):  # type: ignore[no-untyped-def]
    """Shrink the candidates first..count to the `wanted` with the largest values, ties to the lower label."""
    label_at, keys = scratch.label_at, scratch.keys
    for i in range(first, count):
        keys[i - first] = key_of(values[i], label_at[i])
    select_largest(keys, count - first, wanted)
    lowest = keys[:wanted].min()
    at = first
    for i in range(first, count):
        if key_of(values[i], label_at[i]) >= lowest:
            move(scratch, i, at)
            at += 1
    return at


@register_jitable(fastmath=FAST)
def dot(row, phi):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for d in range(phi.size):
        total += as_float(row[d]) * phi[d]
    return total


@njit(cache=True, nogil=True)
def length_of(phi):  # type: ignore[no-untyped-def]
    """|phi|, not below what it is."""
    square = 0.0
    for value in phi:
        square += np.float64(value) * np.float64(value)
    return np.float32(np.sqrt(square) * (1.0 + 1e-6))


@njit(cache=True, nogil=True)
def keep_possible(first, count, k, scratch):  # type: ignore[no-untyped-def]
    """Shrink the candidates first..count to those whose upper bound reaches the k-th largest lower bound."""
    keys = scratch.keys
    for i in range(first, count):
        keys[i - first] = np.uint64(
            np.float32(scratch.low_at[i]).view(np.uint32)
        )  # not negative: bits order as numbers do
    select_largest(keys, count - first, k)
    bar = np.uint32(keys[:k].min()).view(np.float32)
    at = first
    for i in range(first, count):
        if scratch.high_at[i] >= bar:
            move(scratch, i, at)
            at += 1
    return at


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def classifier_of(label, phi, classifiers):  # type: ignore[no-untyped-def]
    """sigmoid(z) of one label."""
    z = dot(classifiers.rows[label], phi)
    if classifiers.row_scales.size:
        z *= classifiers.row_scales[label]
    z += classifiers.biases[label]
    return np.float32(1.0 / (1.0 + math.exp(-np.float64(z))))  # rounded once, as the definition's


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def exact_scores(first, count, phi, classifiers, scratch):  # type: ignore[no-untyped-def]
    """p of the candidates first..count into `low_at`, sigmoid(z) into `high_at`."""
    label_at = scratch.label_at
    flat, dim = classifiers.rows.reshape(-1), phi.size
    for i in range(first, count):
        if i + AHEAD < count:
            fetch(flat, np.int64(label_at[i + AHEAD]), dim)
        sigma = classifier_of(label_at[i], phi, classifiers)
        scratch.high_at[i] = sigma
        scratch.low_at[i] = sigma * scratch.yhat_at[i]


@njit(cache=True, nogil=True)
def write_best(first, count, row, clusters_T, scores_T, scratch, found):  # type: ignore[no-untyped-def]
    """Write the candidates first..count, best first, as one row of the answer."""
    kept = count - first
    for i in range(first, count):
        scratch.keys[i - first] = key_of(scratch.low_at[i], scratch.label_at[i])
        scratch.place_of[scratch.label_at[i]] = i
    ordered = np.sort(scratch.keys[:kept])
    for j in range(kept):
        label = np.int64(LOW32 - (ordered[kept - 1 - j] & LOW32))
        place = scratch.place_of[label]
        slot = scratch.slot_at[place]
        found.labels[row, j], found.scores[row, j] = label, scratch.low_at[place]
        found.clusters[row, j], found.cluster_scores[row, j] = clusters_T[slot], scores_T[slot]
        found.edge_scores[row, j], found.classifiers[row, j] = scratch.edge_at[place], scratch.high_at[place]
    for j in range(kept, found.labels.shape[1]):
        found.labels[row, j], found.clusters[row, j] = -1, -1
        found.scores[row, j], found.cluster_scores[row, j] = 0.0, 0.0
        found.edge_scores[row, j], found.classifiers[row, j] = 0.0, 0.0


@njit(cache=True, nogil=True)
def leave_out(labels, scratch):  # type: ignore[no-untyped-def]
    """Labels left out are candidates that no path can improve, before all others; returns how many."""
    for i in range(len(labels)):
        scratch.label_at[i], scratch.yhat_at[i], scratch.place_of[labels[i]] = labels[i], np.inf, i
    return len(labels)


@njit(cache=True, nogil=True)
def shortlist_of(left_out, size, clusters_T, scores_T, edges, scratch):  # type: ignore[no-untyped-def]
    """The `size` best labels that the beam reaches, as candidates from len(left_out) on; returns where they end."""
    first = leave_out(left_out, scratch)
    count = collect(first, size, clusters_T, scores_T, edges, scratch)
    return count if count - first <= size else keep_largest(first, count, size, scratch.yhat_at, scratch)


@njit(cache=True, nogil=True)
def find_rows(  # type: ignore[no-untyped-def]
    start, stop, phi_BD, logits_BC, alpha, beam_size, size,
    edges, classifiers, excluded_indptr, excluded_labels, scratch, found,
):  # fmt: skip
    """The k best labels of rows start..stop."""
    clusters_T = np.empty(min(beam_size, logits_BC.shape[1]), dtype=np.int64)
    scores_T = np.empty(clusters_T.size, dtype=np.float32)
    k = found.labels.shape[1]
    for row in range(start, stop):
        phi, left_out = phi_BD[row], excluded_labels[excluded_indptr[row] : excluded_indptr[row + 1]]
        beam_of(logits_BC[row], alpha, clusters_T, scores_T)
        first, count = len(left_out), shortlist_of(left_out, size, clusters_T, scores_T, edges, scratch)
        if count - first > k:
            first_look(first, count, phi, length_of(phi), classifiers, scratch)
            count = keep_possible(first, count, k, scratch)
        exact_scores(first, count, phi, classifiers, scratch)
        if count - first > k:
            count = keep_largest(first, count, k, scratch.low_at, scratch)
        write_best(first, count, row, clusters_T, scores_T, scratch, found)
