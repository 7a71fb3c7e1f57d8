"""One query divided between two threads: what `find_rows` does for one row, with the same result to the last bit.

    W_C phi         a stretch of clusters a task
    first look      a stretch of candidates a task, begun while the leader is still collecting them
    bounds          likewise, once the K best are known
    exact scores    of those that can still be among the k best

Beam, best paths and the cuts between are the leader's. Reading rows at random places is most of a query, and two
processors wait for memory in half the time of one. Who takes which task is settled on a board (`board.py`).
Twin: `logits_of` and `find_rows`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .board import cross_off, length_of, open_phase, take, wait_for
from .find import exact_scores, keep_largest, keep_possible, leave_out, write_best
from .find import length_of as norm_of
from .first_look import bounds_of, in_steps, look_at
from .logits import logits_of
from .reach import beam_of, collect

LOGITS, LOOK, BOUNDS, EXACT = 0, 1, 2, 3
CLUSTERS, LOOKED, BOUNDED, READ = 128, 128, 256, 24  # things of a task


class Tables(NamedTuple):
    """What a query reads."""

    weights_CD: np.ndarray
    biases_C: np.ndarray
    edges: Any  # Edges
    classifiers: Any  # Classifiers


class Room(NamedTuple):
    """What the two write, beside the answer; any content to begin with."""

    scratch: Any  # Scratch
    logits_C: np.ndarray  # float32


@njit(cache=True, nogil=True)
def lead(  # type: ignore[no-untyped-def]
    board, phi_C, phi, tables, alpha, beam_size, size, left_out, room, found
):
    """The k best labels of one query into row 0 of `found`. `phi_C` is phi as the clusters see it, `phi` as labels do.

    `tables` and `room` are packs. On a closed board it ends early, and the answer is none.
    """
    table, scratch, logits_C = tables.inside, room.inside.scratch, room.inside.logits_C
    edges, classifiers, k = table.edges, table.classifiers, found.labels.shape[1]
    open_phase(board, LOGITS, len(table.biases_C), CLUSTERS)
    if not do_logits(board, phi_C, table.weights_CD, table.biases_C, logits_C):
        return
    clusters_T = np.empty(min(beam_size, len(logits_C)), dtype=np.int64)
    scores_T = np.empty(clusters_T.size, dtype=np.float32)
    beam_of(logits_C, alpha, clusters_T, scores_T)
    first = leave_out(left_out, scratch)
    count = collect(first, size, clusters_T, scores_T, edges, scratch, board, LOOK)
    open_phase(board, LOOK, count - first, LOOKED)
    if not do_look(board, first, phi, classifiers, scratch):
        return
    if count - first > size:
        count = keep_largest(first, count, size, scratch.yhat_at, scratch)
    open_phase(board, BOUNDS, count - first, BOUNDED)
    if not do_bounds(board, first, scratch):
        return
    if count - first > k:
        count = keep_possible(first, count, k, scratch)
    open_phase(board, EXACT, count - first, READ)
    if not do_exact(board, first, phi, classifiers, scratch):
        return
    if count - first > k:
        count = keep_largest(first, count, k, scratch.low_at, scratch)
    write_best(first, count, 0, clusters_T, scores_T, scratch, found)


@njit(cache=True, nogil=True)
def lend_a_hand(  # type: ignore[no-untyped-def]
    board, phi_C, phi, tables, alpha, beam_size, size, left_out, room, found
):
    """What the helper does meanwhile; called with what the leader is called with."""
    table, scratch = tables.inside, room.inside.scratch
    first, classifiers = len(left_out), table.classifiers
    if not do_logits(board, phi_C, table.weights_CD, table.biases_C, room.inside.logits_C):
        return
    if do_look(board, first, phi, classifiers, scratch) and do_bounds(board, first, scratch):
        do_exact(board, first, phi, classifiers, scratch)


@njit(cache=True, nogil=True)
def do_logits(board, phi_C, weights_CD, biases_C, logits_C):  # type: ignore[no-untyped-def]
    task = take(board, LOGITS, CLUSTERS)
    while task >= 0:
        stop = min((task + 1) * CLUSTERS, length_of(board, LOGITS))
        logits_of(task * CLUSTERS, stop, phi_C, weights_CD, biases_C, logits_C)
        cross_off(board, LOGITS)
        task = take(board, LOGITS, CLUSTERS)
    return wait_for(board, LOGITS)


@njit(cache=True, nogil=True)
def do_look(board, first, phi, classifiers, scratch):  # type: ignore[no-untyped-def]
    whole, step, left = in_steps(phi)
    norm = norm_of(phi)
    task = take(board, LOOK, LOOKED)
    while task >= 0:
        start, stop = task * LOOKED, min((task + 1) * LOOKED, length_of(board, LOOK))
        look_at(first + start, first + stop, whole, step, left, norm, classifiers, scratch)
        cross_off(board, LOOK)
        task = take(board, LOOK, LOOKED)
    return wait_for(board, LOOK)


@njit(cache=True, nogil=True)
def do_bounds(board, first, scratch):  # type: ignore[no-untyped-def]
    task = take(board, BOUNDS, BOUNDED)
    while task >= 0:
        start, stop = task * BOUNDED, min((task + 1) * BOUNDED, length_of(board, BOUNDS))
        bounds_of(first + start, first + stop, scratch.yhat_at, scratch.low_at, scratch.high_at)
        cross_off(board, BOUNDS)
        task = take(board, BOUNDS, BOUNDED)
    return wait_for(board, BOUNDS)


@njit(cache=True, nogil=True)
def do_exact(board, first, phi, classifiers, scratch):  # type: ignore[no-untyped-def]
    task = take(board, EXACT, READ)
    while task >= 0:
        start, stop = task * READ, min((task + 1) * READ, length_of(board, EXACT))
        exact_scores(first + start, first + stop, phi, classifiers, scratch)
        cross_off(board, EXACT)
        task = take(board, EXACT, READ)
    return wait_for(board, EXACT)
