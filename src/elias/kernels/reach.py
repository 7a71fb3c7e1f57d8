"""The labels that a query's beam reaches: the b best clusters, then at least the K best labels by their best path.

`collect` looks for a bar that about K paths pass (a binary search in each cluster's sorted edges), takes the paths
above it and lowers it until K different labels are found. Paths below the last bar are never touched, and since a
label's best path is above the bar whenever any of its paths is, the result is exact: equations (1), (2), (5), (6).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .exponent import sum_of_exp

LIKELY = int(np.float32(2.0**-10).view(np.uint32))  # bits of the score where the search for a bar begins
NEARLY = 16  # a bar is good enough when one path in so many is too many


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
def paths_above(bar, clusters_T, scores_T, indptr, edge_scores, least_T, most_T, ends_T):  # type: ignore[no-untyped-def]
    """How many paths have at least the score `bar`; `ends_T` says where they end, between least_T and most_T."""
    total = 0
    for slot in range(clusters_T.size):
        low, high = least_T[slot], most_T[slot]
        while low < high:
            middle = (low + high) >> 1
            if scores_T[slot] * edge_scores[middle] >= bar:
                low = middle + 1
            else:
                high = middle
        ends_T[slot] = low
        total += low - indptr[clusters_T[slot]]
    return total


@njit(cache=True, nogil=True)
def bar_for(wanted, below, clusters_T, scores_T, indptr, edge_scores, least_T, ends_T):  # type: ignore[no-untyped-def]
    """A score under `below` (in bits) that at least `wanted` paths pass, and not many more; 0 if there are fewer.

    Positive floats order as their bits do, so the search halves an interval of bits. Paths that pass `below` end at
    least_T, those that pass the answer at ends_T; the closer the bar, the shorter what is left to search.
    """
    low, high = np.int64(0), np.int64(below)
    least_T, middle_T = least_T.copy(), np.empty_like(least_T)
    for slot in range(clusters_T.size):
        ends_T[slot] = indptr[clusters_T[slot] + 1]
    middle = min(high - 1, np.int64(LIKELY))
    while high - low > 1:
        bar = np.uint32(middle).view(np.float32)
        count = paths_above(bar, clusters_T, scores_T, indptr, edge_scores, least_T, ends_T, middle_T)
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
    count, bar = first, np.int64(np.float32(1.0).view(np.uint32)) + 1
    paths = wanted + first + (wanted >> 3)
    while True:
        bar = np.int64(0) if paths >= reachable else bar_for(
            paths, bar, clusters_T, scores_T, edges.indptr, edges.scores, at_T, ends_T
        )  # fmt: skip
        if bar == 0:
            for slot in range(width):
                ends_T[slot] = edges.indptr[clusters_T[slot] + 1]
        for slot in range(width):
            cluster_score = scores_T[slot]
            for i in range(at_T[slot], ends_T[slot]):
                score = cluster_score * edges.scores[i]
                label = edges.labels[i]
                place = place_of[label]
                if not (0 <= place < count and label_at[place] == label):
                    place = count
                    count += 1
                    label_at[place], place_of[label] = label, place
                elif not score > yhat_at[place]:
                    continue
                yhat_at[place], slot_at[place], edge_at[place] = score, slot, edges.scores[i]
            at_T[slot] = ends_T[slot]
        if bar == 0 or count - first >= wanted:
            return count
        paths += paths >> 1
