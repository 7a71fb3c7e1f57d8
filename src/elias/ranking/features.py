"""Candidates of a text and their features: everything the score model knows of a label.

    candidates = best labels of the network, united with the best labels of the inverted index

    cluster_score, edge_score   s_c and e of the strongest path over ALL clusters that have an edge to the label
    classifier                  sigmoid(w_l . phi + b_l)
    margin                      of the linear ranker
    path                        of the label trees
    combined, label_text, centroid    scores of the inverted index: v_l . x, t_l . x, c_l . x
    vote, nearest               k-NN: share of the votes, similarity of the nearest training text with the label
    log_count                   log(1 + n_l)

One array for all of them, `Features.values` [text, feature, candidate]; the list of names is `FEATURES`
(`kernels/features.py`). The definition is `reference_features`: search, unite, then feature by feature. On a CPU one
pass per text computes the same (candidates in another order); several networks (members of an ensemble) that share
their words share that pass.

To add a feature: in `kernels/features.py` its name in FEATURES before log_count (the network's features come first,
the count is the last), its constant below the list, and one line in `word_features` or `network_features`; here its
entry in `features_of`. The score model takes every name of the list. Models must be fitted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..core.scratch import ScratchPool
from ..kernels.features import (
    FEATURES,
    Features,
    WordScratch,
    WordTables,
    network_features,
    select_candidates,
    word_features,
)
from ..network.network import SearchSettings
from ..network.searcher import EncodedQuery, Searcher
from .inverted_index import InvertedIndex
from .knn import KNN
from .label_tree import LabelTree
from .margins import Margins
from .sparse_rows import SparseRows, csr_arrays, new_sums
from .training_texts import TrainingTexts

__all__ = ["FEATURES", "Features"]  # shared with the kernels, where they are defined

WIDER = 4  # times the labels that are kept from the network


class CandidateSizes(NamedTuple):
    """How many candidates a text has from each source."""

    network: int
    words: int

    def search_settings(self, searcher: Searcher) -> SearchSettings:
        """K reduced to WIDER times the labels kept: a larger shortlist changes nothing (docs/experiments)."""
        settings = searcher.network.settings
        if settings.shortlist_size >= searcher.index.n_labels or settings.shortlist_size <= WIDER * self.network:
            return settings
        return _narrowed(settings, WIDER * self.network)


@cache
def _narrowed(settings: SearchSettings, shortlist_size: int) -> SearchSettings:
    return replace(settings, shortlist_size=shortlist_size)


@dataclass(eq=False)
class RankingParts:
    """What the stacked ranker knows of labels by words, trained on the same rows. Holds no state of a query."""

    inverted_index: InvertedIndex
    ranker: SparseRows
    trees: Sequence[LabelTree]
    knn: KNN
    counts: np.ndarray  # n_l
    texts: TrainingTexts | None = None  # excerpts of the texts that vote, for explanations
    threads: int = 1

    @cached_property
    def log_counts(self) -> np.ndarray:
        return np.asarray(np.log1p(self.counts), dtype=np.float32)

    @cached_property
    def margins(self) -> Margins:
        """Of ranker and trees."""
        return Margins(self.ranker, self.trees, self.inverted_index.n_words)

    @cached_property
    def tables(self) -> WordTables:
        """As the kernels read them."""
        margins, index = self.margins.table, self.inverted_index  # what needs most memory is made first
        return WordTables(index.table, margins, index.label_texts.table, index.mixture, self.knn.table, self.log_counts)

    @cached_property
    def scratch(self) -> ScratchPool[WordScratch]:
        # Not `self`: in a circle with its pool, a model would keep its mapped files until the garbage collector runs.
        n_labels, n_words, knn, margins = len(self.counts), self.inverted_index.n_words, self.knn, self.margins
        return ScratchPool(
            lambda size: WordScratch(
                np.zeros(n_labels, dtype=np.int32), new_sums(n_labels), np.zeros(n_words, dtype=np.float32),
                knn.new_scratch(), margins.new_sums(),
            )
        )  # fmt: skip


def candidate_features(
    parts: RankingParts,
    searchers: Sequence[Searcher],
    queries: Sequence[EncodedQuery],
    bow: sp.csr_matrix,
    sizes: CandidateSizes,
    excluded: Ragged | None = None,
) -> list[Features]:
    """The candidates of a batch of texts with their features, for each of the networks that share `parts`."""
    if kernels.serve(searchers[0].network.device):
        found = _fused_features(parts, searchers, queries, bow, sizes, excluded)
    else:
        found = [
            reference_features(parts, searcher, query, bow, sizes, excluded)
            for searcher, query in zip(searchers, queries, strict=True)
        ]
    return found


def reference_features(
    parts: RankingParts,
    searcher: Searcher,
    query: EncodedQuery,
    bow: sp.csr_matrix,
    sizes: CandidateSizes,
    excluded: Ragged | None = None,
) -> Features:
    """The definition, on any device."""
    shortlist_size = sizes.search_settings(searcher).shortlist_size
    by_network = searcher.search(query, sizes.network, excluded=excluded, shortlist_size=shortlist_size)
    by_words, combined = parts.inverted_index.search_and_score(bow, sizes.words, by_network.labels, excluded)
    labels, combined = unite(by_network.labels, by_words.labels, combined, by_words.scores)
    return features_of(parts, searcher, query, bow, labels, combined)


def features_of(
    parts: RankingParts,
    searcher: Searcher,
    query: EncodedQuery,
    bow: sp.csr_matrix,
    labels: np.ndarray,
    combined: np.ndarray | None = None,
) -> Features:
    """The features of given labels [B, m], PAD after the last; pass the combined score where it is known."""
    scores = searcher.score_labels(query, labels)
    margin, path = parts.margins.of(bow, labels, threads=parts.threads)
    by_name = {
        "cluster_score": scores.cluster_score,
        "edge_score": scores.edge_score,
        "classifier": np.where(labels >= 0, scores.classifier, 0),
        "margin": margin,
        "path": path,
        **dict(zip(("combined", "label_text", "centroid"), parts.inverted_index.scores(bow, labels, combined),
                   strict=True)),
        **dict(zip(("vote", "nearest"), parts.knn.votes(bow, labels), strict=True)),
        "log_count": np.where(labels >= 0, parts.log_counts[np.maximum(labels, 0)], 0),
    }  # fmt: skip
    values = np.stack([by_name[name] for name in FEATURES], axis=1).astype(np.float32)
    return Features(np.ascontiguousarray(labels, dtype=np.int32), scores.cluster.astype(np.int32), values)


def _fused_features(
    parts: RankingParts,
    searchers: Sequence[Searcher],
    queries: Sequence[EncodedQuery],
    bow: sp.csr_matrix,
    sizes: CandidateSizes,
    excluded: Ragged | None,
) -> list[Features]:
    """`reference_features` in one pass per text (`kernels/features.py`)."""
    n_rows = len(queries[0].phi_BD)
    excluded = excluded or Ragged.empty(n_rows)
    seen = [(query.phi_BD.contiguous().numpy(), query.logits_BC.contiguous().numpy()) for query in queries]
    results = [
        searcher.cpu_search.search(phi, logits, sizes.network, sizes.search_settings(searcher), excluded=excluded)
        for searcher, (phi, logits) in zip(searchers, seen, strict=True)
    ]
    alone = len(results) == 1
    found = results[0].labels if alone else np.concatenate([result.labels for result in results], axis=1)
    word_labels = np.empty((n_rows, sizes.words), dtype=np.int32)
    shared = empty_features(n_rows, found.shape[1] + sizes.words)
    outs = [shared if alone else empty_features(n_rows, sum(sizes)) for _ in results]
    # Build the tables before the threads start: a thread that waits for a table which needs these threads deadlocks.
    tables, x, masked = parts.tables, csr_arrays(bow), (excluded.indptr, excluded.labels)
    networks = [
        (phi, logits, float(searcher.network.settings.alpha), searcher.cpu_search.classifiers, searcher.edges_by_label)
        for searcher, (phi, logits) in zip(searchers, seen, strict=True)
    ]

    def rows(start: int, stop: int) -> None:
        scratch = parts.scratch.take()
        word_features(start, stop, found, *x, tables, masked, scratch, word_labels, shared)
        for network, result, out in zip(networks, results, outs, strict=True):
            if not alone:
                select_candidates(start, stop, result.labels, word_labels, shared, scratch.place_of, out)
            network_features(start, stop, *network, result, out)
        parts.scratch.give_back(scratch)

    kernels.run(rows, n_rows, parts.threads)
    return outs


def p_of(features: Features) -> np.ndarray:
    """p = sigmoid(z) * yhat of every candidate [B, m]."""
    s, e, sigma = (features.values[:, FEATURES.index(name)] for name in ("cluster_score", "edge_score", "classifier"))
    return np.asarray(sigma * (s * e))


def empty_features(n_rows: int, width: int) -> Features:
    """To be written to."""
    labels, clusters = np.empty((n_rows, width), dtype=np.int32), np.empty((n_rows, width), dtype=np.int32)
    return Features(labels, clusters, np.empty((n_rows, len(FEATURES), width), dtype=np.float32))


def stack(pieces: Sequence[Features]) -> Features:
    """Batches one below the other, padded to the same width."""
    width = max((piece.labels.shape[1] for piece in pieces), default=0)

    def join(arrays: Sequence[np.ndarray], fill: int) -> np.ndarray:
        rest = [(0, 0)] * (arrays[0].ndim - 1)
        return np.concatenate([np.pad(a, (*rest, (0, width - a.shape[-1])), constant_values=fill) for a in arrays])

    labels, clusters, values = zip(*pieces, strict=True)
    return Features(join(labels, PAD), join(clusters, PAD), join(values, 0))


def take(features: Features, rows: np.ndarray) -> Features:
    """Some of the texts."""
    return Features(*(array[rows] for array in features))


def unite(
    first: np.ndarray, second: np.ndarray, first_values: np.ndarray, second_values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(labels of both lists of each row, each once, PAD after the last; their values)."""
    labels = np.concatenate([first, second], axis=1)
    values = np.concatenate([first_values, second_values], axis=1)
    order = np.argsort(-labels, axis=1, kind="stable")  # by descending number, so that PAD comes last
    labels, values = np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
    repeated = np.zeros(labels.shape, dtype=bool)
    repeated[:, 1:] = labels[:, 1:] == labels[:, :-1]
    labels[repeated] = PAD
    order = np.argsort(-labels, axis=1, kind="stable")
    width = max(1, int((labels >= 0).sum(axis=1).max(initial=0)))
    order = order[:, :width]
    labels, values = np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.ascontiguousarray(labels), np.where(labels >= 0, values, 0).astype(np.float32)
