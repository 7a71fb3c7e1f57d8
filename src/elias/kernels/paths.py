"""Equation (6) on the CPU: the best path of every label, then the K best labels of every row.

One pass over the edges of a row's shortlisted clusters with scratch arrays of size L that are stamped, not
cleared. A score and a label make one 64-bit key, score bits first and the label inverted below them, so
that one unsigned comparison means "higher score, then lower label". Twin: `elias.search.shortlist`.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def select_largest(keys, count, wanted):  # type: ignore[no-untyped-def]
    """Move the `wanted` largest of keys[:count] to the front (quickselect)."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) >> 1
        a, b, c = keys[low], keys[middle], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if wanted - 1 <= j:
            high = j
        elif wanted - 1 >= i:
            low = i
        else:
            return


@njit(cache=True, nogil=True)
def best_paths(
    start,
    stop,
    clusters_BT,
    cluster_scores_BT,
    indptr,
    edge_labels,
    edge_scores,
    n_labels,
    positive_indptr,
    positive_labels,
    excluded_indptr,
    excluded_labels,
    labels_BS,
    slots_BS,
    edges_BS,
    scores_BS,
    positive_slots,
    positive_edges,
    positive_ranks,
):  # type: ignore[no-untyped-def]
    """Fill the shortlist of rows start..stop; pads stay -1. All clusters of a row are different."""
    size = labels_BS.shape[1]
    stamp = np.full(n_labels, -1, dtype=np.int32)
    best = np.empty(n_labels, dtype=np.float32)
    slot_of = np.empty(n_labels, dtype=np.int32)
    edge_of = np.empty(n_labels, dtype=np.int64)
    rank_of = np.empty(n_labels, dtype=np.int32)
    touched = np.empty(n_labels, dtype=np.uint64)
    bits = np.empty(1, dtype=np.float32)
    bits_view = bits.view(np.uint32)
    for row in range(start, stop):
        for j in range(excluded_indptr[row], excluded_indptr[row + 1]):
            stamp[excluded_labels[j]] = row
            best[excluded_labels[j]] = np.inf
            edge_of[excluded_labels[j]] = -1
        count = 0
        for slot in range(clusters_BT.shape[1]):
            cluster = clusters_BT[row, slot]
            if cluster < 0:
                continue
            cluster_score = cluster_scores_BT[row, slot]
            for edge in range(indptr[cluster], indptr[cluster + 1]):
                label = edge_labels[edge]
                score = cluster_score * edge_scores[edge]
                if stamp[label] != row:
                    stamp[label] = row
                    touched[count] = label
                    count += 1
                    rank_of[label] = -1
                elif not score > best[label]:
                    continue
                best[label] = score
                slot_of[label] = slot
                edge_of[label] = edge
        for j in range(count):
            label = touched[j]
            bits[0] = best[label]
            touched[j] = (np.uint64(bits_view[0]) << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - label)
        kept = min(size, count)
        if count > kept:
            select_largest(touched, count, kept)
        ordered = np.sort(touched[:kept])[::-1]
        for j in range(kept):
            label = np.int64(np.uint64(0xFFFFFFFF) - (ordered[j] & np.uint64(0xFFFFFFFF)))
            labels_BS[row, j] = label
            slots_BS[row, j] = slot_of[label]
            edges_BS[row, j] = edge_of[label]
            scores_BS[row, j] = best[label]
            rank_of[label] = j
        for j in range(positive_indptr[row], positive_indptr[row + 1]):
            label = positive_labels[j]
            if stamp[label] == row and edge_of[label] >= 0:
                positive_slots[j] = slot_of[label]
                positive_edges[j] = edge_of[label]
                positive_ranks[j] = rank_of[label]


@njit(cache=True, nogil=True)
def top_k(start, stop, scores_BN, order_BN, out_BK):  # type: ignore[no-untyped-def]
    """Columns of the k largest scores of each row, ties by lower `order`; NaN-free, any sign; -1 pads skipped.

    A column whose order is negative takes no part. Columns come best first; rows with fewer leave -1.
    """
    n_columns = scores_BN.shape[1]
    keys = np.empty(n_columns, dtype=np.uint64)
    bits = np.empty(1, dtype=np.float32)
    bits_view = bits.view(np.uint32)
    column_of = np.empty(n_columns, dtype=np.int64)
    for row in range(start, stop):
        count = 0
        for column in range(n_columns):
            order = order_BN[row, column]
            if order < 0:
                continue
            bits[0] = scores_BN[row, column] + np.float32(0.0)  # -0.0 becomes 0.0
            raw = bits_view[0]
            raw = ~raw if raw >> np.uint32(31) else raw | np.uint32(0x80000000)
            keys[count] = (np.uint64(raw) << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - np.uint64(order))
            count += 1
        kept = min(out_BK.shape[1], count)
        if kept == 0:
            continue
        if count > kept:
            select_largest(keys, count, kept)
        chosen = np.sort(keys[:kept])[::-1]
        # Back from key to column: sort the columns' own keys once would cost more than this scan.
        floor = chosen[kept - 1]
        found = 0
        for column in range(n_columns):
            order = order_BN[row, column]
            if order < 0:
                continue
            bits[0] = scores_BN[row, column] + np.float32(0.0)
            raw = bits_view[0]
            raw = ~raw if raw >> np.uint32(31) else raw | np.uint32(0x80000000)
            value = (np.uint64(raw) << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - np.uint64(order))
            if value >= floor:
                keys[found] = value
                column_of[found] = column
                found += 1
        ranks = np.argsort(keys[:found])[::-1]
        for j in range(kept):
            out_BK[row, j] = column_of[ranks[j]]
