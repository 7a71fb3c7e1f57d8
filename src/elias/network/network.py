"""The network: phi, W_C, W_L and the index with its edge logits A, trained and searched as one.

    p_l = sigmoid(w_l . phi(x) + b_l) * yhat_l        yhat from the search through the index

Stage 1 and stage 2 are this one class with two different index objects. Shapes: B batch, C clusters,
T shortlisted clusters, U touched clusters, F their edges, S shortlisted labels, D dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.embedding_table import EmbeddingTable
from ..core.linear import linear
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..encoders.encoder import Encoder, TrainingContext
from ..index.cluster_scores import fill_free, join_parents, log_cluster_scores, top_k
from ..index.edge_scores import EdgeScores, edge_scores
from ..index.label_index import LabelIndex
from ..index.shortlist import TouchedEdges, shortlist, take
from . import classifiers
from . import losses as loss
from .quantization import QuantizedRows


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
        """Equations (1) to (8) for one batch."""
        phi_BD = self.encoder.encode(prepared, batch.rows, context)
        logits_BC = linear(self.clusters, phi_BD, self.threads)
        clusters_BT = self._shortlisted_clusters(logits_BC.detach(), batch, parents, context)
        log_s_BT = log_cluster_scores(logits_BC, self.settings.alpha).gather(1, clusters_BT.clamp(min=0))
        place_BT, edges, log_e_F = self._touched_edges(clusters_BT, context)
        found = shortlist(
            place_BT, torch.exp(log_s_BT.detach()), edges,
            size=self.settings.training_shortlist_size or self.settings.shortlist_size,
            n_labels=self.index.n_labels,
            positives=batch.positives, excluded=batch.excluded, threads=self.threads,
        )  # fmt: skip
        # The gradient flows through the winning path only.
        log_yhat_BS = log_s_BT.gather(1, found.slots_BS.clamp(min=0)) + take(log_e_F, found.edges_BS)
        tables = self.trained_weights, self.classifier_biases
        row_P = torch.from_numpy(batch.positives.rows).to(self.device)
        weight_P = torch.from_numpy(batch.positive_weights).to(self.device)
        weight_B = torch.from_numpy(batch.weights).to(self.device)
        listed_P = found.positive_ranks >= 0
        y_BS = torch.zeros_like(log_yhat_BS)
        y_BS[row_P[listed_P], found.positive_ranks[listed_P]] = weight_P[listed_P]
        total = classifiers.loss(phi_BD, log_yhat_BS, found.labels_BS, y_BS, weight_B, *tables, context.buffer)
        if lambda_ > 0:
            reached_P = found.positive_slots >= 0
            log_yhat_P = (
                log_s_BT[row_P[reached_P], found.positive_slots[reached_P]] + log_e_F[found.positive_edges[reached_P]]
            )
            most = int(np.diff(batch.positives.indptr).max(initial=0))
            weights = weight_P[reached_P] * weight_B[row_P[reached_P]]
            total = total + lambda_ * loss.shortlist_loss(log_yhat_P, weights, len(batch.rows), most)
        return total

    def _shortlisted_clusters(
        self, logits_BC: Tensor, batch: Batch, parents: np.ndarray, context: TrainingContext
    ) -> Tensor:
        """(2) to (4): beam, parents, and random clusters where the setting is on."""
        beam_BT = self.beam(logits_BC)
        draw = context.noise, context.rows_B, self.index.n_clusters
        clusters_BT = join_parents(
            beam_BT,
            torch.from_numpy(parents[batch.positives.labels]).long().to(self.device),
            torch.from_numpy(batch.positives.rows).to(self.device),
            self.settings.parent_slots,
            *draw,
        )
        return fill_free(clusters_BT, beam_BT.shape[1], *draw) if self.settings.random_clusters else clusters_BT

    def _touched_edges(self, clusters_BT: Tensor, context: TrainingContext) -> tuple[Tensor, TouchedEdges, Tensor]:
        """(5) for the clusters a batch touches: where each cluster is among them, their CSR rows with e, and log e."""
        touched_U = torch.unique(clusters_BT[clusters_BT >= 0])
        place_BT = torch.searchsorted(touched_U, clusters_BT.clamp(min=0)).masked_fill(clusters_BT < 0, PAD)
        indptr_U, positions_F = self.index.positions_of(touched_U.cpu().numpy())
        if self.edges is None:
            scores = EdgeScores(*torch.tensor([[1.0], [0.0]], device=self.device).expand(2, len(positions_F)))
        else:
            logits_F = context.buffer.gather(self.edges, torch.from_numpy(positions_F).to(self.device))[:, 0]
            scores = edge_scores(logits_F, indptr_U, self.index.beta, threads=self.threads)
        return place_BT, TouchedEdges.of(indptr_U, self.index.labels[positions_F], scores.e_F), scores.log_F

    def beam(self, logits_BC: Tensor) -> Tensor:
        """(2): by logit, which orders clusters as s_c does and also tells clamped ones apart."""
        width = min(self.settings.beam_size, self.index.n_clusters)
        return top_k(logits_BC, width, threads=self.threads)
