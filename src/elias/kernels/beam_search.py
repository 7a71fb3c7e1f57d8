"""Search on the CPU in one pass per query: beam, best paths, shortlist, classifiers, the k best labels.

    1  the beam and its s_c                                                        (1), (2)   beam_of
    2  the K best labels by yhat, from edges sorted by descending e in each cluster   (5), (6)   collect
    3  bounds of their p from int8 codes of the classifiers                                   bounds.py
    4  the exact p of the labels that can still be among the k best; nothing else reads a full row

Step 2 never touches most edges. `collect` searches for a threshold that about K paths pass (a binary search in each
cluster's sorted edges), takes the paths above it, and lowers it until K different labels are found. A label's best path
is above the threshold whenever any of its paths is, so the result is exact.

Step 4: a label whose upper bound is below the k-th largest lower bound cannot be among the k best.

In: phi, cluster logits, tables of the index and of the classifiers. Out: `SearchResult`. Order is total: higher score,
then lower label. Definition: `elias.network.searcher.Searcher.search_reference`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .bounds import AHEAD, bound_scores
from .exponent import sum_of_exp
from .numbers import as_float
from .prefetch import fetch
from .shortlist import LOW32, key_of, select_largest
from .steps import FAST

LIKELY = int(np.float32(2.0**-10).view(np.uint32))  # bits of the score where the search for a threshold begins
NEARLY = 16  # a threshold is good enough when at most one path in NEARLY is superfluous


class Edges(NamedTuple):
    """Edges of cluster c are indptr[c] .. indptr[c+1], scores descending, equal scores by label."""

    indptr: np.ndarray  # int64 [C + 1]
    labels: np.ndarray  # int32
    scores: np.ndarray  # float32


class Classifiers(NamedTuple):
    """Rows as they are (float32, bfloat16 as uint16, or int8 codes) and what the bounds are computed from."""

    rows: np.ndarray  # [L, D]
    row_scales: np.ndarray  # float32 [L], or [0] where rows need none
    biases: np.ndarray  # float32 [L]
    codes: np.ndarray  # int8 [L, D]
    facts: np.ndarray  # float32 [L, 4]: scale of the codes, bias, error bound, and a 0 so that a row is 16 bytes


class Scratch(NamedTuple):
    """What one thread writes while it works; any content to begin with.

    The candidate at place i has label_at[i] and the other arrays' entries i. `place_of` is a sparse set that is never
    cleared (`kernels/shortlist.py`).
    """

    place_of: np.ndarray  # int32 [L]
    label_at: np.ndarray  # int32 [room]
    yhat_at: np.ndarray  # float32 [room]
    edge_at: np.ndarray  # float32 [room]
    slot_at: np.ndarray  # int32 [room]
    low_at: np.ndarray  # float32 [room]
    high_at: np.ndarray  # float32 [room]
    keys: np.ndarray  # uint64 [room]


class SearchResult(NamedTuple):
    """The k best labels of each row and the factors of their scores; -1 (PAD) and 0 where there are fewer."""

    labels: np.ndarray  # int32 [B, k]
    scores: np.ndarray  # float32 [B, k]
    clusters: np.ndarray  # int32 [B, k]
    cluster_scores: np.ndarray  # float32 [B, k]
    edge_scores: np.ndarray  # float32 [B, k]
    classifiers: np.ndarray  # float32 [B, k]


# -- tables -----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def sort_edges(start, stop, indptr, labels, scores, sorted_labels, sorted_scores):  # type: ignore[no-untyped-def]
    """The edges of clusters start..stop by descending score, equal scores by label."""
    for cluster in range(start, stop):
        first, count = indptr[cluster], indptr[cluster + 1] - indptr[cluster]
        keys = np.empty(count, dtype=np.uint64)
        for i in range(count):
            keys[i] = key_of(scores[first + i], labels[first + i])
        keys.sort()
        for i in range(count):
            key = keys[count - 1 - i]
            sorted_labels[first + i] = np.int32(LOW32 - (key & LOW32))
            # Scores are not negative, so the upper half is the score's bits with the sign bit set.
            sorted_scores[first + i] = np.uint32((key >> np.uint64(32)) & np.uint64(0x7FFFFFFF)).view(np.float32)


# -- beam and best paths ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def beam_of(logits_C, alpha, clusters_T, scores_T):  # type: ignore[no-untyped-def]
    """(1) and (2) of one row: the best clusters by logit, ties to the lower, and their s_c."""
    width = clusters_T.size
    count = 0
    for cluster in range(logits_C.size):
        logit = logits_C[cluster]
        if count == width and not logit > scores_T[width - 1]:
            continue
        at = count if count < width else width - 1
        while at > 0 and logit > scores_T[at - 1]:
            clusters_T[at], scores_T[at] = clusters_T[at - 1], scores_T[at - 1]
            at -= 1
        clusters_T[at], scores_T[at] = cluster, logit
        count = min(count + 1, width)
    highest = np.float64(scores_T[0])
    total = sum_of_exp(logits_C, highest)
    for slot in range(width):
        scores_T[slot] = min(1.0, alpha * (math.exp(np.float64(scores_T[slot]) - highest) / total))


@njit(cache=True, nogil=True)
def paths_above(threshold, clusters_T, scores_T, indptr, edge_scores, least_T, most_T, ends_T):  # type: ignore[no-untyped-def]
    """How many paths have at least the score `threshold`; `ends_T` says where they end, between least_T and most_T."""
    total = 0
    for slot in range(clusters_T.size):
        low, high = least_T[slot], most_T[slot]
        while low < high:
            middle = (low + high) >> 1
            if scores_T[slot] * edge_scores[middle] >= threshold:
                low = middle + 1
            else:
                high = middle
        ends_T[slot] = low
        total += low - indptr[clusters_T[slot]]
    return total


@njit(cache=True, nogil=True)
def threshold_for(wanted, below, clusters_T, scores_T, indptr, edge_scores, least_T, ends_T):  # type: ignore[no-untyped-def]
    """A score under `below` (in bits) that at least `wanted` paths pass, and not many more; 0 if there are fewer.

    Positive floats order as their bits do, so the search halves an interval of bits. Paths that pass `below` end at
    least_T, those that pass the answer at ends_T; so every step of the search leaves shorter ranges to the next.
    """
    low, high = np.int64(0), np.int64(below)
    least_T, middle_T = least_T.copy(), np.empty_like(least_T)
    for slot in range(clusters_T.size):
        ends_T[slot] = indptr[clusters_T[slot] + 1]
    middle = min(high - 1, np.int64(LIKELY))
    while high - low > 1:
        threshold = np.uint32(middle).view(np.float32)
        count = paths_above(threshold, clusters_T, scores_T, indptr, edge_scores, least_T, ends_T, middle_T)
        if count >= wanted:
            low = middle
            ends_T[:] = middle_T
            if NEARLY * (count - wanted) <= wanted:
                break
        else:
            high = middle
            least_T[:] = middle_T
        middle = (low + high) >> 1
    return low


@njit(cache=True, nogil=True)
def collect(first, wanted, clusters_T, scores_T, edges, scratch):  # type: ignore[no-untyped-def]
    """Candidates first.. : at least the `wanted` best labels that paths reach, each with its best path."""
    place_of, label_at, yhat_at = scratch.place_of, scratch.label_at, scratch.yhat_at
    edge_at, slot_at = scratch.edge_at, scratch.slot_at
    width = clusters_T.size
    at_T, ends_T = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    reachable = 0
    for slot in range(width):
        at_T[slot] = edges.indptr[clusters_T[slot]]
        reachable += edges.indptr[clusters_T[slot] + 1] - at_T[slot]
    count, threshold = first, np.int64(np.float32(1.0).view(np.uint32)) + 1
    # Some labels are reached twice, and excluded ones do not count: begin with an eighth more paths than labels.
    paths = wanted + first + (wanted >> 3)
    while True:
        threshold = np.int64(0) if paths >= reachable else threshold_for(
            paths, threshold, clusters_T, scores_T, edges.indptr, edges.scores, at_T, ends_T
        )  # fmt: skip
        if threshold == 0:
            for slot in range(width):
                ends_T[slot] = edges.indptr[clusters_T[slot] + 1]
        for slot in range(width):
            cluster_score = scores_T[slot]
            for i in range(at_T[slot], ends_T[slot]):
                score = cluster_score * edges.scores[i]
                label = edges.labels[i]
                place = place_of[label]
                if not (0 <= place < count and label_at[place] == label):  # not a candidate yet
                    place = count
                    count += 1
                    label_at[place], place_of[label] = label, place
                elif not score > yhat_at[place]:
                    continue
                yhat_at[place], slot_at[place], edge_at[place] = score, slot, edges.scores[i]
            at_T[slot] = ends_T[slot]
        if threshold == 0 or count - first >= wanted:
            return count
        paths += paths >> 1


# -- classifiers and the k best ---------------------------------------------------------------------------------------


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
def length_bound(phi):  # type: ignore[no-untyped-def]
    """|phi|, rounded up: bounds may be wider than needed, never narrower."""
    square = 0.0
    for value in phi:
        square += np.float64(value) * np.float64(value)
    return np.float32(np.sqrt(square) * (1.0 + 1e-6))


@njit(cache=True, nogil=True)
def keep_possible(first, count, k, scratch):  # type: ignore[no-untyped-def]
    """Shrink the candidates first..count to those whose upper bound reaches the k-th largest lower bound."""
    keys = scratch.keys
    for i in range(first, count):
        # Bounds are not negative, so that their bits order as they do.
        keys[i - first] = np.uint64(np.float32(scratch.low_at[i]).view(np.uint32))
    select_largest(keys, count - first, k)
    threshold = np.uint32(keys[:k].min()).view(np.float32)
    at = first
    for i in range(first, count):
        if scratch.high_at[i] >= threshold:
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
def write_best(first, count, row, clusters_T, scores_T, scratch, result):  # type: ignore[no-untyped-def]
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
        result.labels[row, j], result.scores[row, j] = label, scratch.low_at[place]
        result.clusters[row, j], result.cluster_scores[row, j] = clusters_T[slot], scores_T[slot]
        result.edge_scores[row, j], result.classifiers[row, j] = scratch.edge_at[place], scratch.high_at[place]
    for j in range(kept, result.labels.shape[1]):
        result.labels[row, j], result.clusters[row, j] = -1, -1
        result.scores[row, j], result.cluster_scores[row, j] = 0.0, 0.0
        result.edge_scores[row, j], result.classifiers[row, j] = 0.0, 0.0


@njit(cache=True, nogil=True)
def exclude(labels, scratch):  # type: ignore[no-untyped-def]
    """Excluded labels become candidates of infinite score, which no path improves; returns how many."""
    for i in range(len(labels)):
        scratch.label_at[i], scratch.yhat_at[i], scratch.place_of[labels[i]] = labels[i], np.inf, i
    return len(labels)


@njit(cache=True, nogil=True)
def shortlist_of(excluded, size, clusters_T, scores_T, edges, scratch):  # type: ignore[no-untyped-def]
    """The `size` best labels that the beam reaches, as candidates from len(excluded) on; returns where they end."""
    first = exclude(excluded, scratch)
    count = collect(first, size, clusters_T, scores_T, edges, scratch)
    return count if count - first <= size else keep_largest(first, count, size, scratch.yhat_at, scratch)


@njit(cache=True, nogil=True)
def search_rows(  # type: ignore[no-untyped-def]
    start, stop, phi_BD, logits_BC, alpha, beam_size, size,
    edges, classifiers, excluded_indptr, excluded_labels, scratch, result,
):  # fmt: skip
    """The k best labels of rows start..stop."""
    clusters_T = np.empty(min(beam_size, logits_BC.shape[1]), dtype=np.int64)
    scores_T = np.empty(clusters_T.size, dtype=np.float32)
    k = result.labels.shape[1]
    for row in range(start, stop):
        phi, excluded = phi_BD[row], excluded_labels[excluded_indptr[row] : excluded_indptr[row + 1]]
        beam_of(logits_BC[row], alpha, clusters_T, scores_T)
        first, count = len(excluded), shortlist_of(excluded, size, clusters_T, scores_T, edges, scratch)
        if count - first > k:
            bound_scores(first, count, phi, length_bound(phi), classifiers, scratch)
            count = keep_possible(first, count, k, scratch)
        exact_scores(first, count, phi, classifiers, scratch)
        if count - first > k:
            count = keep_largest(first, count, k, scratch.low_at, scratch)
        write_best(first, count, row, clusters_T, scores_T, scratch, result)
