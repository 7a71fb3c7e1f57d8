"""Everything that speaks for the labels of a text, in one pass a text: `Plus.gather` on the CPU.

    1  the best labels of the network                                     `beam_search.py`
    2  the sums of the words over all labels, and the best of them        `postings.py`
    3  both lists as one, each label once
    4  of each label: its strongest path over all clusters, sigmoid(z), the ranker's margin and the path of the label
       tree (`closer.py`), v.x, t.x and c.x, and how the nearest training texts vote for it (`neighbours.py`)

What step 1 knows of a label (sigmoid(z)) and step 2 of all (v.x) is not computed again. Members of an ensemble that
have the same words share what the words say (`word_rows`); the network's part is each one's own (`member_rows`).
Twin: `Plus.gather_stepwise`, which calls the parts one after the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .beam_search import classifier_of, search_rows
from .closer import forget, look_closer, sum_up
from .neighbours import vote_rows
from .postings import add_up, best_labels, clear, product
from .prefetch import fetch, fetch_one
from .shortlist import strongest_path

AHEAD = 8  # labels whose rows are fetched before they are read


class Words(NamedTuple):
    """The tables of ELIAS++ that read tf-idf."""

    postings: NamedTuple  # Postings
    closer: NamedTuple  # Closer: ranker and label tree
    texts: NamedTuple  # Rows
    shares: np.ndarray  # float32 [L, 2]
    neighbours: NamedTuple  # Texts


class Gathered(NamedTuple):
    """The labels of each row and their parts [rows, m]; -1 and 0 after the last."""

    labels: np.ndarray  # int32
    cluster: np.ndarray  # int32
    cluster_score: np.ndarray  # float32, as are all below
    edge_score: np.ndarray
    classifier: np.ndarray
    margin: np.ndarray
    path: np.ndarray
    both: np.ndarray
    text: np.ndarray
    rows: np.ndarray
    vote: np.ndarray
    closest: np.ndarray


@njit(cache=True, nogil=True)
def gather_rows(  # type: ignore[no-untyped-def]
    start, stop, phi_BD, logits_BC, alpha, beam_size, size, edges, classifiers, by_label, x_indptr, x_words, x_values,
    words, excluded_indptr, excluded_labels, search_scratch, sums, x, ballot, summed, found, nearest, out,
):  # fmt: skip
    """Fill `out` for rows start..stop, whatever it holds before. Scratch as in `word_rows`.

    Step by step for all rows: the tables of one step stay near the processor.
    """
    for row in range(start, stop):
        found.labels[row, :] = -1
        nothing(row, out)
    search_rows(
        start, stop, phi_BD, logits_BC, alpha, beam_size, size, edges, classifiers, excluded_indptr, excluded_labels,
        search_scratch, found,
    )  # fmt: skip
    word_rows(
        start, stop, found.labels, x_indptr, x_words, x_values, words, excluded_indptr, excluded_labels,
        search_scratch.place_of, sums, x, ballot, summed, nearest, out,
    )  # fmt: skip
    s_C = np.empty(logits_BC.shape[1], dtype=np.float32)
    for row in range(start, stop):
        known = how_many(found.labels[row])
        out.classifier[row, :known] = found.classifiers[row, :known]
        cluster_scores(logits_BC[row], alpha, s_C)
        network_parts(row, known, phi_BD[row], s_C, classifiers, by_label, out)


@njit(cache=True, nogil=True)
def word_rows(  # type: ignore[no-untyped-def]
    start, stop, asked, x_indptr, x_words, x_values, words, excluded_indptr, excluded_labels, place_of, sums, x,
    ballot, summed, nearest, out,
):  # fmt: skip
    """The best labels by words into `nearest`; those and the labels asked about, each once, into `out` with v.x, t.x,
    c.x, margin, path and votes. `x` is zero, as long as there are words; `sums` as in `postings`, `ballot` as in
    `neighbours`, `summed` as in `closer`; `place_of` [L] has any content.
    """
    scores = np.empty(nearest.shape[1], dtype=np.float32)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        touched = add_up(x_words[first:last], x_values[first:last], words.postings, sums)
        for j in range(excluded_indptr[row], excluded_indptr[row + 1]):
            sums.sums[excluded_labels[j]] = np.float32(0.0)
        count = best_labels(touched, sums, nearest[row], scores)
        nearest[row, count:] = -1
        count = unite(asked[row], nearest[row], place_of, out.labels[row])
        for column in range(count):
            out.both[row, column] = sums.sums[out.labels[row, column]]
        clear(touched, sums)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        own, own_values = x_words[first:last], x_values[first:last]
        labels = out.labels[row, : how_many(out.labels[row])]
        sum_up(own, own_values, words.closer, summed)
        look_closer(own, own_values, words.closer, summed, labels, out.margin[row], out.path[row])
        forget(own, words.closer, summed)
    for row in range(start, stop):
        text_parts(row, x_indptr, x_words, x_values, words, x, out)
    vote_rows(
        start, stop, x_indptr, x_words, x_values, words.neighbours, out.labels, ballot, out.vote, out.closest
    )  # fmt: skip


@njit(cache=True, nogil=True)
def member_rows(  # type: ignore[no-untyped-def]
    start, stop, phi_BD, logits_BC, alpha, classifiers, by_label, found, nearest, shared, place_of, out
):
    """`out` of one member of an ensemble: its own labels and the nearest ones, the word parts of which `shared` has."""
    s_C = np.empty(logits_BC.shape[1], dtype=np.float32)
    for row in range(start, stop):
        nothing(row, out)
        taken = np.zeros(shared.labels.shape[1], dtype=np.bool_)
        for place in range(how_many(shared.labels[row])):
            place_of[shared.labels[row, place]] = place
        count = 0
        for own in (found.labels[row], nearest[row]):
            for column in range(how_many(own)):
                place = place_of[own[column]]
                if taken[place]:
                    continue
                taken[place] = True
                out.labels[row, count], out.both[row, count] = own[column], shared.both[row, place]
                out.margin[row, count], out.path[row, count] = shared.margin[row, place], shared.path[row, place]
                out.text[row, count] = shared.text[row, place]
                out.rows[row, count], out.vote[row, count] = shared.rows[row, place], shared.vote[row, place]
                out.closest[row, count] = shared.closest[row, place]
                count += 1
        known = how_many(found.labels[row])
        out.classifier[row, :known] = found.classifiers[row, :known]
        cluster_scores(logits_BC[row], alpha, s_C)
        network_parts(row, known, phi_BD[row], s_C, classifiers, by_label, out)


@njit(cache=True, nogil=True)
def nothing(row, out):  # type: ignore[no-untyped-def]
    """A row without labels, whatever was there."""
    out.labels[row, :], out.cluster[row, :] = -1, -1
    for part in (out.cluster_score, out.edge_score, out.classifier, out.margin, out.both, out.text, out.rows):
        part[row, :] = np.float32(0.0)
    for part in (out.path, out.vote, out.closest):
        part[row, :] = np.float32(0.0)


@njit(cache=True, nogil=True)
def how_many(labels):  # type: ignore[no-untyped-def]
    """Labels before the first -1."""
    count = 0
    while count < len(labels) and labels[count] >= 0:
        count += 1
    return count


@njit(cache=True, nogil=True)
def unite(first, second, place_of, labels):  # type: ignore[no-untyped-def]
    """Labels of both lists, each once, those of the first in front; returns how many.

    `place_of` has any content: a place is believed only if this label is there.
    """
    count = 0
    for some in (first, second):
        for label in some:
            if label >= 0:
                place = place_of[label]
                if not (0 <= place < count and labels[place] == label):
                    labels[count], place_of[label] = label, count
                    count += 1
    return count


@njit(cache=True, nogil=True)
def cluster_scores(logits_C, alpha, s_C):  # type: ignore[no-untyped-def]
    """(1) of all clusters, rounded once from float64."""
    highest, total = -np.inf, 0.0
    for logit in logits_C:
        highest = max(highest, np.float64(logit))
    raised = np.empty(len(logits_C), dtype=np.float64)
    for cluster in range(len(logits_C)):
        raised[cluster] = math.exp(np.float64(logits_C[cluster]) - highest)
        total += raised[cluster]
    for cluster in range(len(logits_C)):
        s_C[cluster] = min(1.0, alpha * (raised[cluster] / total))


@njit(cache=True, nogil=True)
def network_parts(row, known, phi, s_C, classifiers, by_label, out):  # type: ignore[no-untyped-def]
    """Paths to all labels of a row; sigmoid(z) of those that the network did not find itself."""
    labels, flat, dim = out.labels[row], classifiers.rows.reshape(-1), len(phi)
    count = how_many(labels)
    for column in range(count):
        if column + 2 * AHEAD < count:
            fetch_one(by_label.indptr, np.int64(labels[column + 2 * AHEAD]))
        if column + AHEAD < count:
            ahead = np.int64(labels[column + AHEAD])
            fetch_one(by_label.clusters, by_label.indptr[ahead])
            fetch_one(by_label.scores, by_label.indptr[ahead])
            if column + AHEAD >= known:
                fetch(flat, ahead, dim)
        label = labels[column]
        edge = strongest_path(label, s_C, by_label.indptr, by_label.clusters, by_label.scores)
        if edge >= 0:
            out.cluster[row, column] = by_label.clusters[edge]
            out.cluster_score[row, column] = s_C[by_label.clusters[edge]]
            out.edge_score[row, column] = by_label.scores[edge]
        if column >= known:
            out.classifier[row, column] = classifier_of(label, phi, classifiers)


@njit(cache=True, nogil=True, error_model="numpy")
def text_parts(row, x_indptr, x_words, x_values, words, x, out):  # type: ignore[no-untyped-def]
    """t.x and c.x of the labels of a row, whose v.x is known."""
    for j in range(x_indptr[row], x_indptr[row + 1]):
        x[x_words[j]] += x_values[j]
    texts, shares, count = words.texts, words.shares.reshape(-1), how_many(out.labels[row])
    for column in range(count):
        if column + 2 * AHEAD < count:
            fetch_one(texts.indptr, np.int64(out.labels[row, column + 2 * AHEAD]))
        if column + AHEAD < count:
            ahead = np.int64(out.labels[row, column + AHEAD])
            fetch_one(texts.words, texts.indptr[ahead])
            fetch_one(texts.weights, texts.indptr[ahead])
            fetch_one(shares, 2 * ahead)
        label = out.labels[row, column]
        text = product(texts, label, x)
        of_rows, of_text = shares[2 * label], shares[2 * label + 1]
        out.text[row, column] = text
        out.rows[row, column] = np.float32(0.0)
        if of_rows > 0.0:
            out.rows[row, column] = (out.both[row, column] - of_text * text) / max(of_rows, np.float32(1e-12))
    for j in range(x_indptr[row], x_indptr[row + 1]):
        x[x_words[j]] = np.float32(0.0)
