"""One text divided between two threads: what `Quick` calls for many rows, for one row.

               the leader alone: tf-idf of the text
    finding    the sums of the words and the best labels | phi and the best labels of the network | what ranker and
               label tree say of all labels | the nearest texts
               the leader alone: both lists as one
    looking    the network's paths and classifiers | ranker and label tree | the labels' own texts, and ranks by c.x |
               the votes, and ranks by them and by v.x
               the leader alone: the final score, the best first

Each is one task. Tables of one task are not those of another, and two processors wait for memory in less time than one.
Who takes which task is settled on a board (`board.py`). Same results to the last bit.
Twin: `embed_rows`, `gather_rows`, `learned_scores` and `rank_rows`, which `Quick` calls for more texts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .board import cross_off, open_phase, take, wait_for
from .closer import forget, look_closer, sum_up
from .embed import embed_rows
from .find import find_rows
from .fuse import RANKS, own_log_ranks, rank_rows, scores_of_row, show_rows
from .gather import cluster_scores, how_many, network_parts, nothing, text_parts, unite
from .linger import wait_at
from .neighbours import neighbours_of, votes_of
from .postings import add_up, best_labels, clear
from .weigh import weigh

FINDING, LOOKING = 0, 1  # phases
BY_WORDS, BY_NETWORK, SUMS, BY_TEXTS, FINDERS = 0, 1, 2, 3, 4  # tasks of the first, the longest first; how many
NETWORK, CLOSER, TEXT, VOTE, LOOKERS = 0, 1, 2, 3, 4  # of the second
BY_BOTH, BY_ROWS, BY_VOTE = RANKS, RANKS + 1, RANKS + 2  # columns of the final score: ranks by v.x, c.x and votes


class Tables(NamedTuple):
    """What a query reads."""

    scale: Any  # Scale
    embedding: Any  # Embedding
    edges: Any  # Edges
    classifiers: Any  # Classifiers
    by_label: Any  # ByLabel
    words: Any  # Words
    weights: Any  # of the final score
    log_counts: np.ndarray  # float32 [L]: log(1 + n_l)
    best: np.ndarray  # of an `evidence.Field` of nobody else
    curve: Any  # of probabilities


class Room(NamedTuple):
    """What the two write; any content to begin with, but for scratch that is zero between queries."""

    indptr: np.ndarray  # int64 [2], as those of a row of tf-idf
    words: np.ndarray  # int32, of the text; room for as many as it has
    values: np.ndarray  # float32
    search: Any  # Scratch of the search
    sums: Any  # Sums
    x: np.ndarray
    ballot: Any  # Ballot
    summed: Any  # PairSums
    phi_BD: np.ndarray  # [1, D]
    logits_BC: np.ndarray  # [1, C]
    found: Any  # Found
    nearest: np.ndarray  # int32 [1, by words]
    texts: np.ndarray  # int32: the nearest training texts
    likeness: np.ndarray  # float32: theirs
    counts: np.ndarray  # int64 [2]: labels touched by the sums of words, nearest texts
    out: Any  # Gathered
    log_counts: np.ndarray  # float32 [1, m]
    columns: np.ndarray  # float32 [N_COLUMNS, m], of the final score
    scores: np.ndarray  # float32 [1, m]: the final ones
    post: np.ndarray  # where a helper lingers


@njit(cache=True, nogil=True)
def lead(  # type: ignore[no-untyped-def]
    board, numbers, tables, room, alpha, beam_size, size, out_of, left_out, best, values
):
    """The best labels of one text and their scores into `best` [1, k] and `values`; `numbers` are those of its words.

    left_out[out_of[0] : out_of[1]] are labels that may not be found. `tables` and `room` are packs.
    """
    table, own = tables.inside, room.inside
    own.indptr[0], own.indptr[1] = 0, weigh(numbers, table.scale, own.words, own.values)
    nothing(0, own.out)
    open_phase(board, FINDING, FINDERS, 1)
    if not do_finding(board, table, own, alpha, beam_size, size, out_of, left_out):
        return
    labels = own.out.labels[0]
    count = unite(own.found.labels[0], own.nearest[0], own.search.place_of, labels)
    for column in range(count):
        own.out.both[0, column] = own.sums.sums[labels[column]]
    open_phase(board, LOOKING, LOOKERS, 1)
    if not do_looking(board, table, own, alpha):
        return
    for column in range(len(labels)):
        own.log_counts[0, column] = table.log_counts[max(0, labels[column])]
    scores_of_row(0, own.out, own.log_counts, table.weights, table.best, own.columns, own.scores[0])
    places = np.empty(best.shape, dtype=np.int64)
    rank_rows(0, 1, own.out.labels, own.scores, places)
    show_rows(0, 1, own.out.labels, own.scores, places, table.curve, best, values)


@njit(cache=True, nogil=True)
def lend_a_hand(  # type: ignore[no-untyped-def]
    board, numbers, tables, room, alpha, beam_size, size, out_of, left_out, best, values
):
    """What the helper does meanwhile; called with what the leader is called with."""
    table, own = tables.inside, room.inside
    if do_finding(board, table, own, alpha, beam_size, size, out_of, left_out):
        do_looking(board, table, own, alpha)


@njit(cache=True, nogil=True)
def stay(  # type: ignore[no-untyped-def]
    board, numbers, tables, room, alpha, beam_size, size, out_of, left_out, best, values
):
    """`lend_a_hand`, and again for each query that is posted to the room; none of them may leave out labels."""
    lend_a_hand(board, numbers, tables, room, alpha, beam_size, size, out_of, left_out, best, values)
    while wait_at(room.inside.post):
        lend_a_hand(board, numbers, tables, room, alpha, beam_size, size, out_of, left_out, best, values)


@njit(cache=True, nogil=True)
def text_of(own):  # type: ignore[no-untyped-def]
    """The text as a row of tf-idf: (indptr, words, values); it is there once a phase is open."""
    return own.indptr, own.words[: own.indptr[1]], own.values[: own.indptr[1]]


@njit(cache=True, nogil=True)
def do_finding(board, table, own, alpha, beam_size, size, out_of, left_out):  # type: ignore[no-untyped-def]
    words = table.words
    task = take(board, FINDING, 1)
    while task >= 0:
        indptr, numbers, values = text_of(own)
        if task == BY_NETWORK:
            own.found.labels[0, :] = -1
            embed_rows(0, 1, indptr, numbers, values, table.embedding, own.phi_BD, own.logits_BC)
            find_rows(
                0, 1, own.phi_BD, own.logits_BC, alpha, beam_size, size, table.edges, table.classifiers, out_of,
                left_out, own.search, own.found,
            )  # fmt: skip
        elif task == BY_WORDS:
            touched = add_up(numbers, values, words.postings, own.sums)
            for label in left_out[out_of[0] : out_of[1]]:
                own.sums.sums[label] = np.float32(0.0)
            likeness = np.empty(own.nearest.shape[1], dtype=np.float32)
            count = best_labels(touched, own.sums, own.nearest[0], likeness)
            own.nearest[0, count:] = -1
            own.counts[0] = touched
        elif task == SUMS:
            sum_up(numbers, values, words.closer, own.summed)
        else:
            own.counts[1] = neighbours_of(numbers, values, words.neighbours, own.ballot.sums, own.texts, own.likeness)
        cross_off(board, FINDING)
        task = take(board, FINDING, 1)
    return wait_for(board, FINDING)


@njit(cache=True, nogil=True)
def do_looking(board, table, own, alpha):  # type: ignore[no-untyped-def]
    words, out = table.words, own.out
    task = take(board, LOOKING, 1)
    while task >= 0:
        indptr, numbers, values = text_of(own)
        labels = out.labels[0, : how_many(out.labels[0])]
        if task == CLOSER:
            look_closer(numbers, values, words.closer, own.summed, labels, out.margin[0], out.path[0])
            forget(numbers, words.closer, own.summed)
        elif task == NETWORK:
            known = how_many(own.found.labels[0])
            out.classifier[0, :known] = own.found.classifiers[0, :known]
            s_C = np.empty(own.logits_BC.shape[1], dtype=np.float32)
            cluster_scores(own.logits_BC[0], alpha, s_C)
            network_parts(0, known, own.phi_BD[0], s_C, table.classifiers, table.by_label, out)
        elif task == VOTE:
            near = own.texts[: own.counts[1]]
            votes_of(near, own.likeness, words.neighbours, out.labels[0], own.ballot, out.vote[0], out.closest[0])
            keys = np.empty(len(out.labels[0]), dtype=np.uint64)
            own_log_ranks(out.labels[0], out.vote[0], keys, own.columns[BY_VOTE])
            own_log_ranks(out.labels[0], out.both[0], keys, own.columns[BY_BOTH])
            clear(own.counts[0], own.sums)
        else:
            text_parts(0, indptr, numbers, values, words, own.x, out)
            keys = np.empty(len(out.labels[0]), dtype=np.uint64)
            own_log_ranks(out.labels[0], out.rows[0], keys, own.columns[BY_ROWS])
        cross_off(board, LOOKING)
        task = take(board, LOOKING, 1)
    return wait_for(board, LOOKING)
