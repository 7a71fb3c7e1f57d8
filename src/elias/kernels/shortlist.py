"""Equation (6) on the CPU: the best path of every label, then the K best labels of every row; and `top_k`.

    yhat_l = max over paths of s_c * e_{c,l}

Order. A score and a label make one 64-bit key: the score's bits above, the inverted label below. One unsigned
comparison of keys then means "higher score, then lower label", and the K best are K numbers to select.

Threshold. `shortlist_rows` holds a few times K candidates. When they are full, and after the best cluster, the K best
stay and the K-th score becomes a threshold that only rises: a path below it cannot enter the shortlist, and costs one
comparison.

Sparse set. Candidates are found by label through `place_of[label]`, an array of L places that is never cleared. An
entry counts only if it points at a candidate that exists AND that candidate has this very label; whatever an earlier
row left behind fails one of the two. So a row costs what it touches, however many labels there are.

Definitions: `elias.index.shortlist.shortlist_reference`, `best_paths_reference`, and
`elias.index.cluster_scores.top_k_reference`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

LOW32 = np.uint64(0xFFFFFFFF)
ROOM = 3  # candidates held per place of the shortlist


class EdgesByLabel(NamedTuple):
    """The edges of label l come from clusters[indptr[l] : indptr[l + 1]], ascending, with these scores."""

    indptr: np.ndarray
    clusters: np.ndarray
    scores: np.ndarray


@njit(cache=True, nogil=True)
def key_of(score, number):  # type: ignore[no-untyped-def]
    """Larger for a higher score (any sign, -0.0 equals 0.0), then for a lower number."""
    # Bits of floats order as their numbers do, but for the sign: negative ones order backwards and above all others.
    # Inverting negative bits, and setting the sign bit of the others, puts all of them in order. Adding 0.0 makes
    # -0.0 into 0.0.
    bits = np.float32(score + np.float32(0.0)).view(np.uint32)
    if bits >> np.uint32(31):
        raised = np.uint64(np.uint32(~bits))
    else:
        raised = np.uint64(bits) | np.uint64(0x80000000)
    return (raised << np.uint64(32)) | (LOW32 - np.uint64(number))


@njit(cache=True, nogil=True)
def select_largest(keys, count, wanted):  # type: ignore[no-untyped-def]
    """Move the `wanted` largest of keys[:count] to the front: quickselect.

    The inner loop swaps always and counts the comparison as 0 or 1. A branch on a comparison of random keys is
    predicted wrongly half of the time, which costs more than the swap.
    """
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) >> 1
        a, b, c = keys[low], keys[middle], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))  # the median of three
        at = high if pivot == c else middle if pivot == b else low
        keys[at], keys[high] = keys[high], pivot
        larger = low  # keys[low:larger] > pivot >= keys[larger:i]
        for i in range(low, high):
            x = keys[i]
            keys[i] = keys[larger]
            keys[larger] = x
            larger += x > pivot
        keys[high] = keys[larger]
        keys[larger] = pivot
        if larger == wanted - 1 or larger == wanted:
            return
        if larger < wanted:
            low = larger + 1
        else:
            high = larger - 1


@njit(cache=True, nogil=True)
def keep_best(first, count, wanted, label_at, score_at, slot_at, edge_at, place_of, keys):  # type: ignore[no-untyped-def]
    """Shrink the candidates first..count to the `wanted` best; returns the new count and the lowest score."""
    for i in range(first, count):
        keys[i - first] = key_of(score_at[i], label_at[i])
    select_largest(keys, count - first, wanted)
    lowest = keys[:wanted].min()
    at = first
    for i in range(first, count):
        if key_of(score_at[i], label_at[i]) >= lowest:
            label_at[at], score_at[at], slot_at[at], edge_at[at] = label_at[i], score_at[i], slot_at[i], edge_at[i]
            place_of[label_at[at]] = at
            at += 1
    return at, score_at[first:at].min()


@njit(cache=True, nogil=True)
def write_best_first(  # type: ignore[no-untyped-def]
    first, count, label_at, score_at, slot_at, edge_at, place_of, keys, labels_S, slots_S, edges_S
):
    """Write the candidates first..count as one row of the shortlist; then `slot_at` holds their ranks."""
    kept = count - first
    for j in range(kept):
        keys[j] = key_of(score_at[first + j], label_at[first + j])
    ordered = np.sort(keys[:kept])
    for j in range(kept):
        label = np.int64(LOW32 - (ordered[kept - 1 - j] & LOW32))
        place = place_of[label]
        labels_S[j], slots_S[j], edges_S[j] = label, slot_at[place], edge_at[place]
        slot_at[place] = j


@njit(cache=True, nogil=True)
def best_path_to(label, clusters_T, cluster_scores_T, indptr, edge_labels, edge_scores):  # type: ignore[no-untyped-def]
    """Slot and edge of the best path to one label, or -1 and -1. Labels rise within a cluster."""
    best, best_slot, best_edge = np.float32(-1.0), -1, -1
    for slot in range(clusters_T.size):
        cluster = clusters_T[slot]
        if cluster < 0:
            continue
        low, high = indptr[cluster], indptr[cluster + 1]
        while low < high:
            middle = (low + high) >> 1
            if edge_labels[middle] < label:
                low = middle + 1
            else:
                high = middle
        if low < indptr[cluster + 1] and edge_labels[low] == label:
            score = cluster_scores_T[slot] * edge_scores[low]
            if score > best:
                best, best_slot, best_edge = score, slot, low
    return best_slot, best_edge


@njit(cache=True, nogil=True)
def not_below(factor, scores, threshold, chosen):  # type: ignore[no-untyped-def]
    """Where factor * score is not below the threshold; returns how many. No branch: it would be mispredicted."""
    count = 0
    for i in range(scores.size):
        chosen[count] = i
        count += not factor * scores[i] < threshold
    return count


@njit(cache=True, nogil=True)
def shortlist_rows(  # type: ignore[no-untyped-def]
    start, stop, clusters_BT, cluster_scores_BT, indptr, edge_labels, edge_scores, n_labels,
    positive_indptr, positive_labels, excluded_indptr, excluded_labels,
    labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks,
):  # fmt: skip
    """Fill the shortlist of rows start..stop; pads stay -1. Clusters of a row differ, labels of a cluster rise."""
    size = labels_BS.shape[1]
    most_excluded = 0
    for row in range(start, stop):
        most_excluded = max(most_excluded, excluded_indptr[row + 1] - excluded_indptr[row])
    room = most_excluded + min(n_labels, ROOM * size) + 1
    place_of = np.empty(n_labels, dtype=np.int32)
    label_at = np.empty(room, dtype=np.int32)
    score_at = np.empty(room, dtype=np.float32)
    slot_at = np.empty(room, dtype=np.int32)
    edge_at = np.empty(room, dtype=np.int64)
    longest = 0
    for cluster in range(indptr.size - 1):
        longest = max(longest, indptr[cluster + 1] - indptr[cluster])
    keys, chosen = np.empty(room, dtype=np.uint64), np.empty(longest, dtype=np.int32)
    for row in range(start, stop):
        # Excluded labels are candidates of infinite score, before all others: no path can improve them, and what is
        # written begins behind them.
        first = 0
        for j in range(excluded_indptr[row], excluded_indptr[row + 1]):
            label_at[first], score_at[first], place_of[excluded_labels[j]] = excluded_labels[j], np.inf, first
            first += 1
        count, threshold = first, np.float32(-1.0)
        for slot in range(clusters_BT.shape[1]):
            cluster = clusters_BT[row, slot]
            if cluster < 0:
                continue
            cluster_score, first_edge = cluster_scores_BT[row, slot], indptr[cluster]
            scores = edge_scores[first_edge : indptr[cluster + 1]]
            labels = edge_labels[first_edge : indptr[cluster + 1]]
            for j in range(not_below(cluster_score, scores, threshold, chosen)):
                i = chosen[j]
                score, label = cluster_score * scores[i], labels[i]
                if score < threshold:  # it has risen since `not_below`
                    continue
                place = place_of[label]
                if not (0 <= place < count and label_at[place] == label):
                    if count == room:
                        count, threshold = keep_best(
                            first, count, size, label_at, score_at, slot_at, edge_at, place_of, keys
                        )
                    place = count
                    count += 1
                    label_at[place], place_of[label] = label, place
                elif not score > score_at[place]:
                    continue
                score_at[place], slot_at[place], edge_at[place] = score, slot, first_edge + i
            if slot == 0 and count - first > size:  # few edges of the other clusters reach the K-th label of the best
                count, threshold = keep_best(first, count, size, label_at, score_at, slot_at, edge_at, place_of, keys)
        if count - first > size:
            count, threshold = keep_best(first, count, size, label_at, score_at, slot_at, edge_at, place_of, keys)
        write_best_first(
            first, count, label_at, score_at, slot_at, edge_at, place_of, keys,
            labels_BS[row], slots_BS[row], edges_BS[row],
        )  # fmt: skip
        for j in range(positive_indptr[row], positive_indptr[row + 1]):
            label = positive_labels[j]
            place = place_of[label]
            known = 0 <= place < count and label_at[place] == label
            if known and place < first:
                continue
            if known:
                positive_ranks[j] = slot_at[place]
            positive_slots[j], positive_edges[j] = best_path_to(
                label, clusters_BT[row], cluster_scores_BT[row], indptr, edge_labels, edge_scores
            )


@njit(cache=True, nogil=True)
def top_k(start, stop, scores_BN, order_BN, out_BK):  # type: ignore[no-untyped-def]
    """Columns of the k largest scores of each row, ties by lower `order`, best first; missing ones stay -1.

    `order_BN` has one row for every row of scores or one for all; a column whose order is negative takes no part.
    """
    n_columns = scores_BN.shape[1]
    keys = np.empty(n_columns, dtype=np.uint64)
    column_of = np.empty(n_columns, dtype=np.int64)
    for row in range(start, stop):
        order_N = order_BN[row if order_BN.shape[0] > 1 else 0]
        count = 0
        for column in range(n_columns):
            if order_N[column] >= 0:
                keys[count] = key_of(scores_BN[row, column], order_N[column])
                count += 1
        kept = min(out_BK.shape[1], count)
        if kept == 0:
            continue
        select_largest(keys, count, kept)
        lowest = keys[:kept].min()
        # A key holds the order, not the column: collect the columns of the selected keys, then sort those.
        found = 0
        for column in range(n_columns):
            if order_N[column] >= 0:
                key = key_of(scores_BN[row, column], order_N[column])
                if key >= lowest:
                    keys[found], column_of[found] = key, column
                    found += 1
        ranks = np.argsort(~keys[:found], kind="mergesort")
        for j in range(kept):
            out_BK[row, j] = column_of[ranks[j]]


@njit(cache=True, nogil=True)
def strongest_path(label, s_C, indptr, clusters, scores):  # type: ignore[no-untyped-def]
    """The edge of the strongest path s_c * e to a label over all of its clusters, ties to the lower cluster, or -1."""
    best, best_edge = np.float32(-1.0), -1
    for edge in range(indptr[label], indptr[label + 1]):
        path = s_C[clusters[edge]] * scores[edge]
        if path > best:
            best, best_edge = path, edge
    return best_edge


@njit(cache=True, nogil=True)
def paths_to_labels(start, stop, s_BC, labels_BS, indptr, clusters, scores, cluster_BS, s_BS, e_BS):  # type: ignore[no-untyped-def]
    """The strongest path to each label; a pad (-1) has none."""
    for row in range(start, stop):
        for column in range(labels_BS.shape[1]):
            label = labels_BS[row, column]
            if label < 0:
                continue
            edge = strongest_path(label, s_BC[row], indptr, clusters, scores)
            if edge >= 0:
                cluster_BS[row, column], e_BS[row, column] = clusters[edge], scores[edge]
                s_BS[row, column] = s_BC[row, clusters[edge]]
