"""Prediction: the network as it stands, searched for the best labels. Equations (1), (2), (5), (6) and p.

A `Finder` is made from a network at one moment: edge scores are computed once. It holds no state between
calls, so any number of threads may call it. `find_torch` is the definition, and what a GPU runs; on the CPU
`cpu_search` gives the same answer in one pass a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import kernels
from ..core.predictions import PAD, Predictions, stack
from ..index import cluster_scores as search
from ..index.cluster_scores import Ragged
from ..kernels.find import Found
from ..kernels.paths import ByLabel
from . import classifiers
from .cpu_search import CpuSearch
from .network import Network, ragged

BATCH = 256
ENCODE_BATCH = 1024


class Look(NamedTuple):
    """Rows as the search sees them."""

    phi_BD: Tensor
    logits_BC: Tensor


class Parts(NamedTuple):
    """Of labels at places [rows, m]: the best path to each over all clusters, and sigmoid(z)."""

    cluster: np.ndarray
    cluster_score: np.ndarray
    edge_score: np.ndarray
    classifier: np.ndarray


class Finder:
    def __init__(self, network: Network, cpu_search: CpuSearch | None = None) -> None:
        self.network = network
        self.index = network.learned_index()
        self.labels_F = self.index.labels
        if cpu_search is not None:
            self.cpu_search = cpu_search  # read from a file that was made when the model was saved

    @cached_property
    def edge_scores(self) -> Tensor:
        """(5) of every edge."""
        return torch.from_numpy(self.index.edge_scores()).to(self.network.device)

    @torch.no_grad()
    def beams(self, prepared: Any, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """phi, the beam's clusters and their s_c for some rows: (1) and (2)."""
        look = self.look(prepared, rows)
        return look.phi_BD, *self._beam(look)

    def all_beams(self, prepared: Any, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The clusters and s_c of the beams of all rows, batch after batch."""
        for start in range(0, n_rows, ENCODE_BATCH):
            _, beam_BT, s_BT = self.beams(prepared, np.arange(start, min(start + ENCODE_BATCH, n_rows)))
            yield beam_BT.cpu().numpy(), s_BT.cpu().numpy()

    def _beam(self, look: Look) -> tuple[Tensor, Tensor]:
        beam_BT = self.network.beam(look.logits_BC)
        return beam_BT, self._cluster_scores(look.logits_BC).gather(1, beam_BT)

    @torch.no_grad()
    def look(self, prepared: Any, rows: np.ndarray) -> Look:
        """phi and W_C phi of some prepared rows: all that a search needs to know of them."""
        return self._look_torch(self._phi(prepared, rows))

    def _look_torch(self, phi_BD: Tensor) -> Look:
        return Look(phi_BD, self.network.clusters(phi_BD))

    @torch.no_grad()
    def find(
        self, prepared: Any, rows: np.ndarray, k: int, *, excluded: Ragged | None = None, explain: bool = False
    ) -> Predictions:
        """The k best labels of some prepared rows."""
        return self.find_from(self.look(prepared, rows), k, excluded=excluded, explain=explain)

    @torch.no_grad()
    def find_from(
        self, look: Look, k: int, *, excluded: Ragged | None = None, explain: bool = False, size: int | None = None
    ) -> Predictions:
        """The k best labels of rows that have been looked at. `size`: K, where it is not the network's own."""
        network, settings = self.network, self.network.settings
        if network.device.type != "cpu":
            return self._find_torch(look, k, excluded, explain, size)
        found = self.cpu_search.find(
            look.phi_BD.contiguous().numpy(), look.logits_BC.numpy(), k,
            alpha=settings.alpha, beam_size=settings.beam_size, size=size or settings.shortlist_size,
            excluded=excluded,
        )  # fmt: skip
        return predictions_of(found, explain)

    @cached_property
    def cpu_search(self) -> CpuSearch:
        """What the CPU reads; made when it is first asked for."""
        network = self.network
        return CpuSearch.of(self.index, network.classifier_weights, network.classifier_biases, threads=network.threads)

    @torch.no_grad()
    def find_torch(
        self, prepared: Any, rows: np.ndarray, k: int, *, excluded: Ragged | None = None, explain: bool = False
    ) -> Predictions:
        """`find` in torch, on any device."""
        return self._find_torch(self._look_torch(self._phi(prepared, rows)), k, excluded, explain)

    def _find_torch(
        self, look: Look, k: int, excluded: Ragged | None, explain: bool, size: int | None = None
    ) -> Predictions:
        network, phi_BD, n_rows = self.network, look.phi_BD, len(look.phi_BD)
        beam_BT, s_BT = self._beam(look)
        found = search.shortlist_torch(
            beam_BT, s_BT, self.index.indptr, self.labels_F, self.edge_scores,
            size or network.settings.shortlist_size, self.index.n_labels, Ragged.empty(n_rows),
            excluded or Ragged.empty(n_rows),
        )  # fmt: skip
        labels_BS, slots_BS = found.labels_BS, found.slots_BS.clamp(min=0)
        cluster_score_BS = s_BT.gather(1, slots_BS)
        edge_score_BS = search.take(self.edge_scores, found.edges_BS)
        cluster_BS = beam_BT.gather(1, slots_BS)
        tables = network.classifier_weights, network.classifier_biases
        z_BS = classifiers.scores_torch(phi_BD, labels_BS, *tables, None)
        return self._rank(z_BS, labels_BS, cluster_BS, cluster_score_BS, edge_score_BS, k, explain)

    @torch.no_grad()
    def score(
        self, prepared: Any, rows: np.ndarray, k: int, candidates: Ragged, *, explain: bool = False
    ) -> Predictions:
        """The k best of each row's own candidates, each scored over ALL clusters it has an edge from."""
        network, device = self.network, self.network.device
        phi_BD, logits_BC = self.look(prepared, rows)
        s = self._cluster_scores(logits_BC).cpu().numpy()
        shape = (len(rows), max(1, int(np.diff(candidates.indptr).max(initial=1))))
        labels = np.full(shape, PAD, dtype=np.int32)
        for row in range(len(rows)):
            wanted = candidates.labels[candidates.indptr[row] : candidates.indptr[row + 1]]
            labels[row, : len(wanted)] = wanted
        paths = self.paths_of(s, labels)
        labels_BS = torch.from_numpy(labels.astype(np.int64)).to(device)
        cluster_BS, s_BS, e_BS = (torch.from_numpy(array).to(device) for array in paths)
        z_BS = classifiers.scores(phi_BD, labels_BS, network.classifier_weights, network.classifier_biases)
        return self._rank(z_BS, labels_BS, cluster_BS, s_BS, e_BS, k, explain)

    @torch.no_grad()
    def parts_of(self, look: Look, labels: np.ndarray) -> Parts:
        """What the network says of given labels [rows, m], each over ALL clusters it has an edge from."""
        network = self.network
        paths = self.paths_of(self._cluster_scores(look.logits_BC).cpu().numpy(), labels)
        labels_BS = torch.from_numpy(labels.astype(np.int64)).to(network.device)
        z_BS = classifiers.scores(look.phi_BD, labels_BS, network.classifier_weights, network.classifier_biases)
        return Parts(*paths, torch.sigmoid(z_BS.double()).float().cpu().numpy())

    def paths_of(self, s_BC: np.ndarray, labels_BS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(cluster, s_c, e) of the best path to each label over ALL clusters; -1, 0, 0 where there is none."""
        from ..kernels.paths import paths_to_labels

        cluster_BS = np.full(labels_BS.shape, PAD, dtype=np.int32)
        s_BS, e_BS = np.zeros(labels_BS.shape, dtype=np.float32), np.zeros(labels_BS.shape, dtype=np.float32)
        view = self.by_label
        arrays = (view.indptr, view.clusters, view.scores, cluster_BS, s_BS, e_BS)
        kernels.run(paths_to_labels, len(labels_BS), self.network.threads, s_BC, labels_BS, *arrays)
        return cluster_BS, s_BS, e_BS

    def _phi(self, prepared: Any, rows: np.ndarray) -> Tensor:
        # A thread that has not used torch before would start with OpenMP's number of threads, not ours, and so with
        # other last bits. Asking for the number puts it right.
        torch.get_num_threads()
        return self.network.encoder.encode(prepared, rows)

    def _cluster_scores(self, logits_BC: Tensor) -> Tensor:
        """(1), rounded once from float64, so that every way of computing it gives the same number."""
        return search.cluster_scores(logits_BC.double(), self.network.settings.alpha).float()

    @cached_property
    def by_label(self) -> ByLabel:
        """The graph seen from the labels; made when candidates are first asked for."""
        indptr, edges = self.index.by_label()
        return ByLabel(indptr, self.index.clusters[edges].astype(np.int32), self.edge_scores.cpu().numpy()[edges])

    def _rank(
        self, z_BS: Tensor, labels_BS: Tensor, cluster_BS: Tensor, s_BS: Tensor, e_BS: Tensor, k: int, explain: bool
    ) -> Predictions:
        """p = sigmoid(z) * yhat, then the k best."""
        network = self.network
        classifier_BS = torch.sigmoid(z_BS.double()).float()  # rounded once, as in `_cluster_scores`
        p_BS = classifier_BS * (s_BS * e_BS)
        columns_BK = search.top_k(p_BS, k, labels_BS, threads=network.threads)
        missing_BK = columns_BK < 0
        columns_BK = columns_BK.clamp(min=0)

        def pick(values_BS: Tensor, nothing: float) -> np.ndarray:
            if values_BS.shape[1] == 0:
                return np.full(tuple(columns_BK.shape), nothing, dtype=values_BS.cpu().numpy().dtype)
            return values_BS.gather(1, columns_BK).masked_fill(missing_BK, nothing).cpu().numpy()

        parts = None
        if explain:
            parts = {
                "cluster": pick(cluster_BS, PAD).astype(np.int32),
                "cluster_score": pick(s_BS, 0.0),
                "edge_score": pick(e_BS, 0.0),
                "classifier": pick(classifier_BS, 0.0),
            }
        return Predictions(labels=pick(labels_BS, PAD).astype(np.int32), scores=pick(p_BS, 0.0), parts=parts)

    def find_all(
        self, prepared: Any, n_rows: int, k: int, *, excluded: sp.csr_matrix | None = None, explain: bool = False
    ) -> Predictions:
        """`find` over all prepared rows in batches; `excluded` is a sparse rows x L matrix."""
        pieces = []
        for start in range(0, n_rows, BATCH):
            rows = np.arange(start, min(start + BATCH, n_rows))
            left_out = None if excluded is None else ragged(excluded, rows)[0]
            pieces.append(self.find(prepared, rows, k, excluded=left_out, explain=explain))
        return stack(pieces) if pieces else Predictions.empty(k, explain=explain)


def predictions_of(found: Found, explain: bool) -> Predictions:
    parts = None
    if explain:
        parts = {
            "cluster": found.clusters,
            "cluster_score": found.cluster_scores,
            "edge_score": found.edge_scores,
            "classifier": found.classifiers,
        }
    return Predictions(labels=found.labels, scores=found.scores, parts=parts)
