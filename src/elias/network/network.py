"""The network: phi, W_C, W_L and the index with its edge logits A, trained and searched as one.

    p_l = sigmoid(w_l . phi(x) + b_l) * yhat_l        yhat from the search through the index

Stage 1 and stage 2 are this one class with two different index objects. Shapes: B batch, C clusters,
T shortlisted clusters, U touched clusters, F their edges, S shortlisted labels, D dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .. import kernels
from ..core.devices import upload
from ..core.distributed import ALONE, Ranks
from ..core.embedding_table import EmbeddingTable
from ..core.linear import linear
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..encoders.encoder import Encoder, TrainingContext
from ..index.cluster_scores import fill_free, join_parents, log_cluster_scores, parents_of_rows, top_k
from ..index.edge_scores import EdgeScores, LearnedEdges, edge_scores
from ..index.label_index import LabelIndex
from ..index.shortlist import TouchedEdges, shortlist, take
from . import classifiers
from . import losses as loss
from .quantization import QuantizedRows
from .sharding import ScoredPairs, gathered


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How wide the search is."""

    alpha: float = 10.0
    beam_size: int = 20
    shortlist_size: int = 2000
    training_shortlist_size: int | None = None  # in training; None: the same
    parent_slots: int = 5  # clusters beyond the beam that a training row may add for its parents
    random_clusters: bool = False  # fill the slots that no parent took with random clusters


@dataclass(frozen=True)
class Batch:
    """Training rows: numbers, labels with weights, pairs left out, row weights."""

    rows: np.ndarray
    positives: Ragged
    positive_weights: np.ndarray
    excluded: Ragged
    weights: np.ndarray
    inputs: Any = None  # the prepared inputs of these rows alone, if they were read ahead


class EdgesOfBatch(NamedTuple):
    """(5) as a batch needs it."""

    place_BT: Tensor  # the row of `touched` of each shortlisted cluster
    touched: TouchedEdges
    log_of: Callable[..., list[Tensor]]  # log e at some places among the touched edges, for several tensors of places


class Network:
    def __init__(
        self,
        encoder: Encoder,
        clusters: nn.Linear,
        index: LabelIndex,
        classifier_weights: EmbeddingTable | QuantizedRows,
        classifier_biases: EmbeddingTable,
        settings: SearchSettings,
        *,
        threads: int = 1,
    ) -> None:
        self.encoder, self.clusters, self.index = encoder, clusters, index
        self.settings, self.threads = settings, threads
        self.classifier_weights, self.classifier_biases = classifier_weights, classifier_biases
        self.ranks: Ranks = ALONE  # those that share the label classifiers; the tables hold the rows of this one
        self.edges: EmbeddingTable | None = None
        if index.logits is not None:
            self.edges = EmbeddingTable(torch.from_numpy(index.logits)[:, None].to(self.device), threads=threads)

    @property
    def device(self) -> torch.device:
        return self.classifier_biases.values.device

    def tables(self) -> dict[str, EmbeddingTable]:
        """Every large table by name."""
        own = {"classifier_weights": self.trained_weights, "classifier_biases": self.classifier_biases}
        if self.edges is not None:
            own["edges"] = self.edges
        return own | {f"encoder.{name}": table for name, table in self.encoder.tables().items()}

    @property
    def trained_weights(self) -> EmbeddingTable:
        """W_L as a table that can learn; rows stored in fewer bytes cannot."""
        assert isinstance(self.classifier_weights, EmbeddingTable)
        return self.classifier_weights

    def dense_modules(self) -> dict[str, nn.Module]:
        """What is trained and not in a table, by name."""
        return {"encoder": self.encoder.module(), "clusters": self.clusters}

    def learned_index(self) -> LabelIndex:
        """The index with the logits as they are now."""
        if self.edges is None:
            return self.index
        self.edges.flush()
        logits = self.edges.values[:, 0].cpu().numpy()
        return replace(self.index, logits=logits.copy() if self.edges.state else logits)

    def loss(
        self, prepared: Any, batch: Batch, parents: np.ndarray, context: TrainingContext, lambda_: float
    ) -> Tensor:
        """Equations (1) to (8) for one batch; of several ranks each has its own rows and its part of the sum."""
        phi_BD = self.phi(prepared, batch, context)
        logits_BC = linear(self.clusters, phi_BD, self.threads)
        clusters_BT = self._shortlisted_clusters(logits_BC.detach(), batch, parents, context)
        log_s_BT = log_cluster_scores(logits_BC, self.settings.alpha).gather(1, clusters_BT.clamp(min=0))
        edges = self._touched_edges(clusters_BT, context)
        found = shortlist(
            edges.place_BT, torch.exp(log_s_BT.detach()), edges.touched,
            size=self.settings.training_shortlist_size or self.settings.shortlist_size,
            n_labels=self.index.n_labels,
            positives=batch.positives, excluded=batch.excluded, threads=self.threads,
        )  # fmt: skip
        # The gradient flows through the winning path only.
        log_e_BS, log_e_P = edges.log_of(found.edges_BS, found.positive_edges)
        log_yhat_BS = log_s_BT.gather(1, found.slots_BS.clamp(min=0)) + log_e_BS
        tables = self.trained_weights, self.classifier_biases
        row_P = upload(batch.positives.rows, self.device)
        weight_P, weight_B = upload(batch.positive_weights, self.device), upload(batch.weights, self.device)
        n_rows, width = log_yhat_BS.shape
        y_BS = log_yhat_BS.new_zeros((n_rows, width + 1))  # the last column: positives that are not in the shortlist
        y_BS[row_P, torch.where(found.positive_ranks < 0, width, found.positive_ranks)] = weight_P
        y_BS = y_BS[:, :width]
        most_positives = int(np.diff(batch.positives.indptr).max(initial=0))
        counts, most = zip(*self.ranks.numbers(n_rows, most_positives), strict=True)
        pairs = gathered(ScoredPairs(phi_BD, log_yhat_BS, found.labels_BS, y_BS, weight_B), counts, self.ranks)
        total = classifiers.loss(*pairs, *tables, context.buffer)
        if lambda_ > 0:
            log_yhat_P = log_s_BT[row_P, found.positive_slots.clamp(min=0)] + log_e_P
            log_yhat_P = torch.where(found.positive_slots < 0, 0.0, log_yhat_P)  # not reached: adds 0
            size = sum(counts), max(most)
            total = total + lambda_ * loss.shortlist_loss(log_yhat_P, weight_P * weight_B[row_P], *size)
        return total

    def phi(self, prepared: Any, batch: Batch, context: TrainingContext) -> Tensor:
        """phi of the rows of a batch."""
        if batch.inputs is None:
            return self.encoder.encode(prepared, batch.rows, context)
        return self.encoder.encode(batch.inputs, np.arange(len(batch.rows)), context)

    def _shortlisted_clusters(
        self, logits_BC: Tensor, batch: Batch, parents: np.ndarray, context: TrainingContext
    ) -> Tensor:
        """(2) to (4): beam, parents, and random clusters where the setting is on."""
        beam_BT = self.beam(logits_BC)
        draw = context.noise, context.rows_B, self.index.n_clusters
        clusters_BT = join_parents(
            beam_BT,
            upload(parents_of_rows(batch.positives, parents), self.device),
            self.settings.parent_slots,
            *draw,
        )
        return fill_free(clusters_BT, beam_BT.shape[1], *draw) if self.settings.random_clusters else clusters_BT

    def _touched_edges(self, clusters_BT: Tensor, context: TrainingContext) -> EdgesOfBatch:
        """(5) for the clusters a batch touches."""
        if not kernels.serve(self.device):
            return self._edges_on_device(clusters_BT, context)
        touched_U = torch.unique(clusters_BT[clusters_BT >= 0])
        place_BT = torch.searchsorted(touched_U, clusters_BT.clamp(min=0)).masked_fill(clusters_BT < 0, PAD)
        indptr_U, positions_F = self.index.positions_of(touched_U.cpu().numpy())
        if self.edges is None:
            scores = EdgeScores(torch.ones(1).expand(len(positions_F)), torch.zeros(1).expand(len(positions_F)))
        else:
            logits_F = context.buffer.gather(self.edges, torch.from_numpy(positions_F))[:, 0]
            scores = edge_scores(logits_F, indptr_U, self.index.beta, threads=self.threads)
        touched = TouchedEdges.of(indptr_U, self.index.labels[positions_F], scores.e_F)
        return EdgesOfBatch(place_BT, touched, lambda *places: [take(scores.log_F, some) for some in places])

    def _edges_on_device(self, clusters_BT: Tensor, context: TrainingContext) -> EdgesOfBatch:
        """The same with all clusters in the place of the touched ones, whose number a GPU would be waited for."""
        all_edges, learned = self._uploaded
        if learned is None:
            return EdgesOfBatch(clusters_BT, all_edges, lambda *places: [(some * 0).float() for some in places])
        scores = learned.scores()

        def log_of(*places: Tensor) -> list[Tensor]:
            sizes, shapes = [some.numel() for some in places], [some.shape for some in places]
            log_N = learned.log_of(torch.cat([some.flatten() for some in places]), scores, clusters_BT, context.buffer)
            return [part.view(shape) for part, shape in zip(torch.split(log_N, sizes), shapes, strict=True)]

        return EdgesOfBatch(clusters_BT, all_edges._replace(scores_F=scores.e_E), log_of)

    @cached_property
    def _uploaded(self) -> tuple[TouchedEdges, LearnedEdges | None]:
        """The graph on the device. Its edges stay the same as long as this network lives."""
        ones = torch.ones(1).expand(self.index.n_edges)
        learned = LearnedEdges(self.edges, self.index.indptr, self.index.beta) if self.edges is not None else None
        return TouchedEdges.of(self.index.indptr, self.index.labels, ones).to(self.device), learned

    def beam(self, logits_BC: Tensor) -> Tensor:
        """(2): by logit, which orders clusters as s_c does and also tells clamped ones apart."""
        width = min(self.settings.beam_size, self.index.n_clusters)
        return top_k(logits_BC, width, threads=self.threads)
