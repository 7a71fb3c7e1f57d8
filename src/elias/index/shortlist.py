"""Equation (6): the best path of every label through the shortlisted clusters, and the K best labels.

    (6)  yhat_l = max over paths of s_c * e_{c,l};  keep the K best labels

Shapes: B batch, T shortlisted clusters, U touched clusters, F their edges, N paths, S shortlisted labels.
Order is total: higher score, then lower label; of equal paths to one label the one through the lower slot.
`shortlist_torch` is the definition, on any device; on the CPU a numba kernel returns the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import kernels

PAD = -1


@dataclass(frozen=True)
class Ragged:
    """Labels per batch row in CSR form, as numpy: positives, or pairs that are excluded."""

    indptr: np.ndarray  # int64 [B + 1]
    labels: np.ndarray  # int32

    @classmethod
    def empty(cls, n_rows: int) -> Ragged:
        return cls(np.zeros(n_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    @classmethod
    def of(cls, lists: list[np.ndarray]) -> Ragged:
        indptr = np.concatenate([[0], np.cumsum([len(item) for item in lists])]).astype(np.int64)
        return cls(indptr, np.concatenate([*lists, np.empty(0, dtype=np.int64)]).astype(np.int32))

    @property
    def rows(self) -> np.ndarray:
        """The batch row of every label."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


@dataclass(frozen=True)
class Shortlist:
    """The K best labels of each row with the place of their winning path, PAD where there are fewer."""

    labels_BS: Tensor  # int64
    slots_BS: Tensor  # which of the T clusters the path goes through
    edges_BS: Tensor  # which of the F edges it takes
    positive_slots: Tensor  # the same for every positive of the batch (flat), PAD where it was not reached
    positive_edges: Tensor
    positive_ranks: Tensor  # the column of labels_BS that holds it, PAD where it is not among the K best


def shortlist(
    clusters_BT: Tensor,
    scores_BT: Tensor,
    indptr_U: np.ndarray,
    labels_F: np.ndarray,
    scores_F: Tensor,
    *,
    size: int,
    n_labels: int,
    positives: Ragged | None = None,
    excluded: Ragged | None = None,
    threads: int = 1,
) -> Shortlist:
    """(6): the best path of every reached label, then the `size` best labels.

    `clusters_BT` counts rows of `indptr_U`, each at most once in a row of the batch, PAD where there is none;
    labels rise within a row of `indptr_U`; scores are not negative. An excluded label is never reached.
    """
    assert size >= 1
    positives = positives or Ragged.empty(len(clusters_BT))
    excluded = excluded or Ragged.empty(len(clusters_BT))
    inputs = (clusters_BT, scores_BT.detach(), indptr_U, labels_F, scores_F.detach(), size, n_labels)
    if clusters_BT.device.type == "cpu":
        return _shortlist_cpu(*inputs, positives, excluded, threads)
    return shortlist_torch(*inputs, positives, excluded)


def _shortlist_cpu(
    clusters_BT: Tensor,
    scores_BT: Tensor,
    indptr_U: np.ndarray,
    labels_F: np.ndarray,
    scores_F: Tensor,
    size: int,
    n_labels: int,
    positives: Ragged,
    excluded: Ragged,
    threads: int,
) -> Shortlist:
    from ..kernels.paths import best_paths

    n_rows = len(clusters_BT)
    labels_BS = np.full((n_rows, min(size, n_labels)), PAD, dtype=np.int64)
    slots_BS, edges_BS = labels_BS.copy(), labels_BS.copy()
    positive_slots = np.full(len(positives.labels), PAD, dtype=np.int64)
    positive_edges, positive_ranks = positive_slots.copy(), positive_slots.copy()
    kernels.run(
        best_paths, n_rows, threads,
        clusters_BT.contiguous().numpy(), scores_BT.contiguous().numpy(),
        indptr_U, labels_F, scores_F.contiguous().numpy(), n_labels,
        positives.indptr, positives.labels, excluded.indptr, excluded.labels,
        labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks,
    )  # fmt: skip
    arrays = (labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks)
    return Shortlist(*map(torch.from_numpy, arrays))


def shortlist_torch(
    clusters_BT: Tensor,
    scores_BT: Tensor,
    indptr_U: np.ndarray,
    labels_F: np.ndarray,
    scores_F: Tensor,
    size: int,
    n_labels: int,
    positives: Ragged,
    excluded: Ragged,
) -> Shortlist:
    """`shortlist` by sorting every path: the first path of a label wins, the first labels of a row are kept."""
    device, n_rows = clusters_BT.device, len(clusters_BT)
    row_N, slot_N, edge_N = _every_path(clusters_BT, torch.from_numpy(indptr_U).to(device))
    label_N = torch.from_numpy(labels_F).to(device).long()[edge_N]
    score_N = scores_BT[row_N, slot_N] * scores_F[edge_N] + 0.0  # -0.0 becomes 0.0
    key_N = row_N * n_labels + label_N
    forbidden = torch.from_numpy(excluded.rows * n_labels + excluded.labels).to(device)

    order = torch.argsort(score_N, descending=True, stable=True)  # ties: lower slot
    order = order[torch.argsort(key_N[order], stable=True)]
    is_best = torch.ones_like(order, dtype=torch.bool)
    is_best[1:] = key_N[order][1:] != key_N[order][:-1]
    best = order[is_best & ~torch.isin(key_N[order], forbidden)]  # one path a label, by row and label

    ranked = torch.argsort(score_N[best], descending=True, stable=True)  # ties: lower label
    ranked = ranked[torch.argsort(row_N[best[ranked]], stable=True)]
    rank = torch.empty_like(best)
    first_B = torch.searchsorted(row_N[best], torch.arange(n_rows, device=device))
    rank[ranked] = torch.arange(len(best), device=device) - first_B[row_N[best[ranked]]]
    listed = best[rank < size]
    shape = (n_rows, min(size, n_labels))

    def lay_out(values_N: Tensor) -> Tensor:
        out_BS = torch.full(shape, PAD, device=device)
        out_BS[row_N[listed], rank[rank < size]] = values_N[listed]
        return out_BS

    wanted = torch.from_numpy(positives.rows * n_labels + positives.labels).to(device)
    padded = torch.cat([key_N[best], key_N.new_full((1,), PAD)])
    at = torch.searchsorted(padded[:-1], wanted)
    reached = padded[at] == wanted

    def look_up(values: Tensor) -> Tensor:
        return torch.where(reached, torch.cat([values, values.new_full((1,), PAD)])[at], PAD)

    return Shortlist(
        *(lay_out(label_N), lay_out(slot_N), lay_out(edge_N)),
        *(look_up(slot_N[best]), look_up(edge_N[best]), look_up(torch.where(rank < size, rank, PAD))),
    )


def _every_path(clusters_BT: Tensor, indptr_U: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(batch row, slot, edge) of every path, in this order."""
    row_M, slot_M = torch.nonzero(clusters_BT >= 0, as_tuple=True)
    cluster_M = clusters_BT[row_M, slot_M]
    start_M, length_M = indptr_U[cluster_M], indptr_U.diff()[cluster_M]
    m_N = torch.repeat_interleave(length_M)
    before_M = torch.cumsum(length_M, 0) - length_M
    edge_N = torch.arange(len(m_N), device=m_N.device) + (start_M - before_M)[m_N]
    return row_M[m_N], slot_M[m_N], edge_N


def take(values: Tensor, places: Tensor) -> Tensor:
    """values[places], where a PAD reads some value that nobody uses."""
    if len(values) == 0:
        return places.to(torch.float32) * 0.0
    return values.index_select(0, places.clamp(min=0).flatten()).view(places.shape)
