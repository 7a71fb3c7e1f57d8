"""Search of a trained network for the best labels of a text: equations (1), (2), (5), (6) and p.

    encode     phi(x) and the cluster logits W_C phi(x)
    search     p_l = sigmoid(w_l . phi + b_l) * yhat_l of the labels that the beam reaches, the k best of them
    score_labels, rank_candidates    the same score of labels that are given, over ALL clusters with an edge to them

A `Searcher` is made from a network at one moment: edge scores are computed once. It holds no state between calls, so
any number of threads may call it. `search_reference` is the definition, and what a GPU runs; on the CPU `cpu_search`
returns the same in one pass per query.

Shapes: B rows, C clusters, T clusters of the beam, S labels per row, K results per row, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from .. import kernels
from ..core.predictions import PAD, Predictions, stack
from ..core.ragged import Ragged, take_rows
from ..encoders.bag import BagEncoder
from ..index import shortlist as paths
from ..index.cluster_scores import cluster_scores, top_k
from ..index.shortlist import TouchedEdges, shortlist_reference, take
from ..kernels.beam_search import SearchResult
from ..kernels.searcher import QueryWeights, encode_rows
from ..kernels.shortlist import EdgesByLabel
from . import classifiers
from .cpu_search import CpuSearch
from .network import Network

BATCH = 256
ENCODE_BATCH = 1024
FEW_TEXTS = 32  # encoded by one thread


class EncodedQuery(NamedTuple):
    """All that a search needs of some rows; a single text is a batch of one row."""

    phi_BD: Tensor
    logits_BC: Tensor  # W_C phi + b


class PathScores(NamedTuple):
    """The factors of p for given labels [B, S]: the best path to each over all clusters, and sigmoid(z)."""

    cluster: np.ndarray  # of the best path; PAD where there is none, and s_c and e are then 0
    cluster_score: np.ndarray  # s_c
    edge_score: np.ndarray  # e
    classifier: np.ndarray  # sigmoid(w . phi + b)


class Searcher:
    def __init__(self, network: Network, cpu_search: CpuSearch | None = None) -> None:
        self.network = network
        self.index = network.learned_index()
        if cpu_search is not None:
            self.cpu_search = cpu_search  # read from a file that was made when the model was saved

    @cached_property
    def edge_scores(self) -> Tensor:
        """(5) of every edge."""
        return torch.from_numpy(self.index.edge_scores()).to(self.network.device)

    @cached_property
    def all_edges(self) -> TouchedEdges:
        """The edges of all clusters on the device, uploaded once."""
        return TouchedEdges.of(self.index.indptr, self.index.labels, self.edge_scores).to(self.network.device)

    @cached_property
    def edges_by_label(self) -> EdgesByLabel:
        """The edges grouped by label; made for the first labels that are scored by name."""
        indptr, edges = self.index.by_label()
        return EdgesByLabel(indptr, self.index.clusters[edges].astype(np.int32), self.edge_scores.cpu().numpy()[edges])

    @cached_property
    def cpu_search(self) -> CpuSearch:
        """The tables of the kernels; made for the first search."""
        network = self.network
        return CpuSearch.of(self.index, network.classifier_weights, network.classifier_biases, threads=network.threads)

    # -- queries ------------------------------------------------------------------------------------------------------

    def encode(self, prepared: Any, rows: np.ndarray) -> EncodedQuery:
        """phi and W_C phi of some prepared rows."""
        if isinstance(self.network.encoder, BagEncoder) and kernels.serve(self.network.device):
            return self._encode_bags(prepared, rows)
        return self.encode_reference(prepared, rows)

    @torch.no_grad()
    def encode_reference(self, prepared: Any, rows: np.ndarray) -> EncodedQuery:
        """The definition, on any device; `all_beams` uses it, as training itself does."""
        # A thread that has not used torch before would start with OpenMP's number of threads, not ours, and so with
        # other last bits. Reading the number sets it.
        torch.get_num_threads()
        phi_BD = self.network.encoder.encode(prepared, rows)
        return EncodedQuery(phi_BD, self.network.clusters(phi_BD))

    def _encode_bags(self, prepared: sp.csr_matrix, rows: np.ndarray) -> EncodedQuery:
        """`encode` of the bag encoder by its kernel."""
        n_prepared = prepared.shape[0]
        if len(rows) == n_prepared and (n_prepared == 1 or bool((np.diff(rows) == 1).all())):  # all rows, in order
            words, values, indptr = prepared.indices, prepared.data, prepared.indptr.astype(np.int64, copy=False)
        else:
            words, values, indptr = take_rows(prepared, rows)
        n_rows, weights = len(rows), self._query_weights
        phi_BD = np.empty((n_rows, weights.words.shape[1]), dtype=np.float32)
        logits_BC = np.empty((n_rows, len(weights.cluster_bias)), dtype=np.float32)
        # For few texts, waking another thread costs more than it saves.
        threads = 1 if n_rows <= FEW_TEXTS else self.network.threads
        words = words.astype(np.int32, copy=False)
        kernels.run(encode_rows, n_rows, threads, indptr, words, values, weights, phi_BD, logits_BC)
        return EncodedQuery(torch.from_numpy(phi_BD), torch.from_numpy(logits_BC))

    @cached_property
    def _query_weights(self) -> QueryWeights:
        encoder = self.network.encoder
        assert isinstance(encoder, BagEncoder)

        def arrays(layer: nn.Linear) -> tuple[np.ndarray, np.ndarray]:
            return layer.weight.detach().numpy(), layer.bias.detach().numpy()

        words, radius = encoder.words.array(), np.float32(encoder.head.radius)
        return QueryWeights(words, *arrays(encoder.head.residual), *arrays(self.network.clusters), radius)

    @torch.no_grad()
    def beam(self, query: EncodedQuery) -> tuple[Tensor, Tensor]:
        """(1) and (2): the clusters of the beam and their s_c."""
        beam_BT = self.network.beam(query.logits_BC)
        return beam_BT, self.cluster_scores(query).gather(1, beam_BT)

    def all_beams(self, prepared: Any, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The clusters and s_c of the beams of all rows, batch after batch."""
        for start in range(0, n_rows, ENCODE_BATCH):
            rows = np.arange(start, min(start + ENCODE_BATCH, n_rows))
            beam_BT, s_BT = self.beam(self.encode_reference(prepared, rows))
            yield beam_BT.cpu().numpy(), s_BT.cpu().numpy()

    # -- search -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def search(
        self,
        query: EncodedQuery,
        k: int,
        *,
        excluded: Ragged | None = None,
        shortlist_size: int | None = None,
        explain: bool = False,
    ) -> Predictions:
        """The k best labels of each row, without its `excluded` ones. `shortlist_size`: K, default the network's."""
        if not kernels.serve(self.network.device):
            return self.search_reference(query, k, excluded=excluded, shortlist_size=shortlist_size, explain=explain)
        settings = self.network.settings
        if shortlist_size is not None:
            settings = replace(settings, shortlist_size=shortlist_size)
        phi_BD, logits_BC = query.phi_BD.contiguous().numpy(), query.logits_BC.contiguous().numpy()
        return predictions_of(self.cpu_search.search(phi_BD, logits_BC, k, settings, excluded=excluded), explain)

    @torch.no_grad()
    def search_reference(
        self,
        query: EncodedQuery,
        k: int,
        *,
        excluded: Ragged | None = None,
        shortlist_size: int | None = None,
        explain: bool = False,
    ) -> Predictions:
        """`search` in torch, on any device: every path of the beam, the K best labels, all of their classifiers."""
        return _read(self.search_on_device(query, k, excluded=excluded, shortlist_size=shortlist_size), explain)

    def search_on_device(
        self, query: EncodedQuery, k: int, *, excluded: Ragged | None = None, shortlist_size: int | None = None
    ) -> list[Tensor]:
        """The results of `search_reference` [B, K], still on the device: labels, p, and the parts of p.

        A GPU is waited for once, to learn how many labels the batch has.
        """
        network = self.network
        beam_BT, s_BT = self.beam(query)
        size = shortlist_size or network.settings.shortlist_size
        found = shortlist_reference(
            beam_BT, s_BT, self.all_edges, size=size, n_labels=self.index.n_labels, excluded=excluded
        )
        slots_BS = found.slots_BS.clamp(min=0)
        tables = network.classifier_weights, network.classifier_biases
        z_BS = classifiers.scores_reference(query.phi_BD, found.labels_BS, *tables, None)
        parts = (
            beam_BT.gather(1, slots_BS),
            s_BT.gather(1, slots_BS),
            take(self.edge_scores, found.edges_BS),
            sigmoid(z_BS),
        )
        return self.rank(found.labels_BS, parts, k)

    def search_rows(
        self, prepared: Any, rows: np.ndarray, k: int, *, excluded: Ragged | None = None, explain: bool = False
    ) -> Predictions:
        """The k best labels of some prepared rows."""
        return self.search(self.encode(prepared, rows), k, excluded=excluded, explain=explain)

    def search_all(
        self, prepared: Any, n_rows: int, k: int, *, excluded: sp.csr_matrix | None = None, explain: bool = False
    ) -> Predictions:
        """`search_rows` over all prepared rows in batches; `excluded` is a sparse rows x L matrix."""
        pieces = []
        for start in range(0, n_rows, BATCH):
            rows = np.arange(start, min(start + BATCH, n_rows))
            left_out = None if excluded is None else Ragged.from_rows(excluded, rows)[0]
            pieces.append(self.search_rows(prepared, rows, k, excluded=left_out, explain=explain))
        return stack(pieces) if pieces else Predictions.empty(k, explain=explain)

    # -- given labels -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def score_labels(self, query: EncodedQuery, labels_BS: np.ndarray) -> PathScores:
        """The factors of p for given labels (PAD: none), each over ALL clusters with an edge to it."""
        network = self.network
        paths = self.best_paths(self.cluster_scores(query).cpu().numpy(), labels_BS)
        numbers_BS = torch.from_numpy(labels_BS.astype(np.int64)).to(network.device)
        z_BS = classifiers.scores(query.phi_BD, numbers_BS, network.classifier_weights, network.classifier_biases)
        return PathScores(*paths, sigmoid(z_BS).cpu().numpy())

    def rank_candidates(self, query: EncodedQuery, k: int, candidates: Ragged, *, explain: bool = False) -> Predictions:
        """The k best of each row's own candidates, scored by `score_labels`."""
        labels_BS = candidates.padded()
        parts = tuple(torch.from_numpy(values) for values in self.score_labels(query, labels_BS))
        return _read(self.rank(torch.from_numpy(labels_BS.astype(np.int64)), parts, k), explain)

    def best_paths(self, s_BC: np.ndarray, labels_BS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(cluster, s_c, e) of the best path to each label over ALL clusters; PAD, 0, 0 where there is none."""
        return paths.best_paths(s_BC, labels_BS, self.edges_by_label, threads=self.network.threads)

    # -- parts --------------------------------------------------------------------------------------------------------

    def cluster_scores(self, query: EncodedQuery) -> Tensor:
        """(1), rounded once from float64, so that every way of computing it gives the same number."""
        return cluster_scores(query.logits_BC.double(), self.network.settings.alpha).float()

    def rank(self, labels_BS: Tensor, parts: tuple[Tensor, ...], k: int) -> list[Tensor]:
        """Labels, p and parts of the k largest p, the product of the three scores; `parts` are as in `PathScores`."""
        _, s_BS, e_BS, classifier_BS = parts
        p_BS = classifier_BS * (s_BS * e_BS)
        columns_BK = top_k(p_BS, k, labels_BS, threads=self.network.threads)
        missing_BK, columns_BK = columns_BK < 0, columns_BK.clamp(min=0)

        def pick(values_BS: Tensor, absent: float) -> Tensor:
            if values_BS.shape[1] == 0:
                return values_BS.new_full(columns_BK.shape, absent)
            return values_BS.gather(1, columns_BK).masked_fill(missing_BK, absent)

        return [pick(labels_BS, PAD), pick(p_BS, 0.0), pick(parts[0], PAD), *(pick(part, 0.0) for part in parts[1:])]


def _read(ranked: list[Tensor], explain: bool) -> Predictions:
    """What `rank` returned, from the device; the parts if they are to be explained."""
    labels, scores, clusters, *factors = (values.cpu().numpy() for values in (ranked if explain else ranked[:3]))
    parts = dict(zip(PathScores._fields, [clusters.astype(np.int32), *factors], strict=True)) if explain else None
    return Predictions(labels=labels.astype(np.int32), scores=scores, parts=parts)


def sigmoid(z_BS: Tensor) -> Tensor:
    """Rounded once from float64, like `Searcher.cluster_scores`."""
    return torch.sigmoid(z_BS.double()).float()


def predictions_of(found: SearchResult, explain: bool) -> Predictions:
    """What a kernel wrote, as the one result type."""
    parts = None
    if explain:
        values = found.clusters, found.cluster_scores, found.edge_scores, found.classifiers
        parts = dict(zip(PathScores._fields, values, strict=True))
    return Predictions(labels=found.labels, scores=found.scores, parts=parts)
