"""Features of candidate labels on the CPU, text by text: the fast version of `ranking.features.reference_features`.

    word_features       candidates of the networks united with those of the inverted index, and what the words say of
                        each: combined, label-text and centroid score, margin, path, votes, count
    network_features    s_c and e of the strongest path over ALL clusters, and sigmoid(z)
    select_candidates   one network's share of the candidates of several (members of an ensemble read the words once)

What a search already knows (sigmoid(z) of the labels a network found, the combined score of all labels) is not
computed again. Rows are worked through step by step: the tables of one step stay in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .beam_search import classifier_of
from .exponent import exp, sum_of_exp
from .inverted_index import accumulate, best_labels, clear, product
from .knn import vote_rows
from .margins import clear_margins, label_margins, sum_margins
from .prefetch import fetch, fetch_one
from .shortlist import strongest_path

# One list for the whole package: the second axis of `Features.values`. How to add one: `ranking/features.py`.
FEATURES = (
    "cluster_score",  # s_c of the strongest path
    "edge_score",  # e of the strongest path
    "classifier",  # sigmoid(w_l . phi + b_l)
    "margin",  # of the linear ranker
    "path",  # of the label tree: log of the product of its q
    "combined",  # v_l . x, inverted index: label text and texts of the label
    "label_text",  # t_l . x
    "centroid",  # c_l . x
    "vote",  # share of the k-NN votes
    "nearest",  # similarity of the nearest training text that has the label
    "log_count",  # log(1 + n_l)
)
CLUSTER_SCORE, EDGE_SCORE, CLASSIFIER, MARGIN, PATH, COMBINED, LABEL_TEXT, CENTROID, VOTE, NEAREST, LOG_COUNT = range(
    len(FEATURES)
)
AHEAD = 8  # labels whose rows are fetched before they are read


class Features(NamedTuple):
    """Candidates of a batch of texts, the features of one candidate in one column; PAD and 0 after the last."""

    labels: np.ndarray  # int32 [B, m]
    clusters: np.ndarray  # int32 [B, m]: of the strongest path, PAD where there is none
    values: np.ndarray  # float32 [B, len(FEATURES), m]: a feature of all candidates lies side by side


class WordTables(NamedTuple):
    """The tables that the words of a text index."""

    postings: NamedTuple  # Postings: from words to combined scores
    margins: NamedTuple  # MarginTable: linear ranker and label tree
    label_texts: NamedTuple  # Rows
    mixture: np.ndarray  # float32 [L, 2]: combined = mixture[:, 0] centroid + mixture[:, 1] label text
    texts: NamedTuple  # TrainingTexts: k-NN
    log_counts: np.ndarray  # float32 [L]


class WordScratch(NamedTuple):
    """What one thread writes while it works; zero between texts, except `place_of`, `sums.touched`, `margins.nodes`."""

    place_of: np.ndarray  # int32 [L], any content
    sums: NamedTuple  # Sums of the inverted index
    dense: np.ndarray  # float32 [words]
    votes: NamedTuple  # VoteScratch
    margins: NamedTuple  # MarginSums


@njit(cache=True, nogil=True)
def word_features(start, stop, found, x_indptr, x_words, x_values, tables, excluded, scratch, word_labels, out):  # type: ignore[no-untyped-def]
    """Candidates of rows start..stop and the features that depend on words alone.

    `found` [B, n]: labels that networks found, PAD for none. `excluded`: (indptr, labels). The labels of the inverted
    index go to `word_labels` [B, n'] too. `out` is filled, whatever it holds.
    """
    excluded_indptr, excluded_labels = excluded
    scores = np.empty(word_labels.shape[1], dtype=np.float32)
    for row in range(start, stop):
        out.labels[row, :], out.clusters[row, :] = -1, -1
        out.values[row, :, :] = np.float32(0.0)
        first, last = x_indptr[row], x_indptr[row + 1]
        touched = accumulate(x_words[first:last], x_values[first:last], tables.postings, scratch.sums)
        for j in range(excluded_indptr[row], excluded_indptr[row + 1]):
            scratch.sums.sums[excluded_labels[j]] = np.float32(0.0)
        count = best_labels(touched, scratch.sums, word_labels[row], scores)
        word_labels[row, count:] = -1
        count = unite(found[row], word_labels[row], scratch.place_of, out.labels[row])
        for column in range(count):
            label = out.labels[row, column]
            out.values[row, COMBINED, column] = scratch.sums.sums[label]
            out.values[row, LOG_COUNT, column] = tables.log_counts[label]
        clear(touched, scratch.sums)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        words, values = x_words[first:last], x_values[first:last]
        labels = out.labels[row, : count_of(out.labels[row])]
        sum_margins(words, values, tables.margins, scratch.margins)
        label_margins(
            words, values, tables.margins, scratch.margins, labels, out.values[row, MARGIN], out.values[row, PATH]
        )
        clear_margins(words, tables.margins, scratch.margins)
    for row in range(start, stop):
        first, last = x_indptr[row], x_indptr[row + 1]
        text_scores(x_words[first:last], x_values[first:last], tables, scratch.dense, out.labels[row], out.values[row])
    vote_rows(
        start, stop, x_indptr, x_words, x_values, tables.texts, out.labels, scratch.votes,
        out.values[:, VOTE], out.values[:, NEAREST],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def select_candidates(start, stop, found, word_labels, shared, place_of, out):  # type: ignore[no-untyped-def]
    """Rows start..stop of `shared` as one network has them: the labels it found itself and those of the words."""
    for row in range(start, stop):
        out.labels[row, :], out.clusters[row, :] = -1, -1
        out.values[row, :, :] = np.float32(0.0)
        taken = np.zeros(shared.labels.shape[1], dtype=np.bool_)
        for place in range(count_of(shared.labels[row])):
            place_of[shared.labels[row, place]] = place
        count = 0
        for own in (found[row], word_labels[row]):
            for column in range(count_of(own)):
                place = place_of[own[column]]
                if taken[place]:
                    continue
                taken[place] = True
                out.labels[row, count] = own[column]
                for feature in range(MARGIN, len(FEATURES)):
                    out.values[row, feature, count] = shared.values[row, feature, place]
                count += 1


@njit(cache=True, nogil=True)
def network_features(start, stop, phi_BD, logits_BC, alpha, classifiers, edges, found, out):  # type: ignore[no-untyped-def]
    """The network's features of all candidates of rows start..stop.

    `edges`: EdgesByLabel. `found`: the SearchResult of the network, whose labels are the first candidates.
    """
    s_C = np.empty(logits_BC.shape[1], dtype=np.float32)
    flat, dim = classifiers.rows.reshape(-1), phi_BD.shape[1]
    for row in range(start, stop):
        cluster_scores(logits_BC[row], alpha, s_C)
        labels, values, clusters = out.labels[row], out.values[row], out.clusters[row]
        count = count_of(labels)
        known = count_of(found.labels[row])
        for column in range(known):
            values[CLASSIFIER, column] = found.classifiers[row, column]
        for column in range(count):
            # Edges and classifier rows stand at random places: ask for them before they are needed.
            if column + 2 * AHEAD < count:
                fetch_one(edges.indptr, np.int64(labels[column + 2 * AHEAD]))
            if column + AHEAD < count:
                ahead = np.int64(labels[column + AHEAD])
                fetch_one(edges.clusters, edges.indptr[ahead])
                fetch_one(edges.scores, edges.indptr[ahead])
                if column + AHEAD >= known:
                    fetch(flat, ahead, dim)
            edge = strongest_path(labels[column], s_C, edges.indptr, edges.clusters, edges.scores)
            if edge >= 0:
                clusters[column] = edges.clusters[edge]
                values[CLUSTER_SCORE, column] = s_C[edges.clusters[edge]]
                values[EDGE_SCORE, column] = edges.scores[edge]
            if column >= known:
                values[CLASSIFIER, column] = classifier_of(labels[column], phi_BD[row], classifiers)


@njit(cache=True, nogil=True)
def count_of(labels):  # type: ignore[no-untyped-def]
    """Labels before the first PAD."""
    count = 0
    while count < len(labels) and labels[count] >= 0:
        count += 1
    return count


@njit(cache=True, nogil=True)
def unite(first, second, place_of, labels):  # type: ignore[no-untyped-def]
    """Labels of both lists, each once, those of the first in front; returns how many.

    `place_of` needs no clearing: a place counts only if this label stands there.
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
    """(1) of all clusters, rounded once from float64, as everywhere else."""
    highest = -np.inf
    for logit in logits_C:
        highest = max(highest, np.float64(logit))
    total = sum_of_exp(logits_C, highest)
    for cluster in range(len(logits_C)):
        s_C[cluster] = min(1.0, alpha * (exp(np.float64(logits_C[cluster]) - highest) / total))


@njit(cache=True, nogil=True, error_model="numpy")
def text_scores(words, x_values, tables, dense, labels, values):  # type: ignore[no-untyped-def]
    """Label-text and centroid score of the candidates of one text, whose combined score is known.

    The centroids themselves are not stored: combined = a centroid + b label_text is solved for the centroid score.
    """
    for j in range(len(words)):
        dense[words[j]] += x_values[j]
    texts, mixture, count = tables.label_texts, tables.mixture.reshape(-1), count_of(labels)
    for column in range(count):
        if column + 2 * AHEAD < count:
            fetch_one(texts.indptr, np.int64(labels[column + 2 * AHEAD]))
        if column + AHEAD < count:
            ahead = np.int64(labels[column + AHEAD])
            fetch_one(texts.words, texts.indptr[ahead])
            fetch_one(texts.weights, texts.indptr[ahead])
            fetch_one(mixture, 2 * ahead)
        label = labels[column]
        text = product(texts, label, dense)
        of_centroid, of_text = mixture[2 * label], mixture[2 * label + 1]
        values[LABEL_TEXT, column] = text
        if of_centroid > 0.0:
            rest = values[COMBINED, column] - of_text * text
            values[CENTROID, column] = rest / max(of_centroid, np.float32(1e-12))
    for word in words:
        dense[word] = np.float32(0.0)
