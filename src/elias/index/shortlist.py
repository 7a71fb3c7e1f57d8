"""Equation (6): the best path of every label through the shortlisted clusters, and the K best labels.

    (6)  yhat_l = max over paths of s_c * e_{c,l};  keep the K best labels

`shortlist` searches through the shortlisted clusters; `best_paths` computes yhat of labels that are given, over all
clusters. Each has its definition beside it, in torch or numpy; on the CPU numba kernels return the same.

Shapes: B batch, C clusters, T shortlisted clusters, U touched clusters, F their edges, N paths, S shortlisted labels.
Order is total: higher score, then lower label; of equal paths to one label the one through the lower slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..core.predictions import PAD
from ..core.ragged import Ragged

if TYPE_CHECKING:
    from ..kernels.shortlist import EdgesByLabel


class TouchedEdges(NamedTuple):
    """The edges of the clusters that a batch touches, row after row; labels rise within a row."""

    indptr_U: np.ndarray  # int64 [U + 1]
    labels_F: np.ndarray  # int32
    scores_F: Tensor  # (5), without gradients


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
    edges: TouchedEdges,
    *,
    size: int,
    n_labels: int,
    positives: Ragged | None = None,
    excluded: Ragged | None = None,
    threads: int = 1,
) -> Shortlist:
    """(6): the best path of every reached label, then the `size` best labels.

    `clusters_BT` counts rows of `edges`, each at most once in a row of the batch, PAD where there is none; scores are
    not negative. An excluded label is never reached.
    """
    assert size >= 1
    if not kernels.serve(clusters_BT.device):
        return shortlist_reference(
            clusters_BT, scores_BT, edges, size=size, n_labels=n_labels, positives=positives, excluded=excluded
        )
    from ..kernels.shortlist import shortlist_rows

    n_rows = len(clusters_BT)
    positives, excluded = positives or Ragged.empty(n_rows), excluded or Ragged.empty(n_rows)
    labels_BS = np.full((n_rows, min(size, n_labels)), PAD, dtype=np.int64)
    slots_BS, edges_BS = labels_BS.copy(), labels_BS.copy()
    positive_slots = np.full(len(positives.labels), PAD, dtype=np.int64)
    positive_edges, positive_ranks = positive_slots.copy(), positive_slots.copy()
    kernels.run(
        shortlist_rows, n_rows, threads,
        clusters_BT.contiguous().numpy(), scores_BT.detach().contiguous().numpy(),
        edges.indptr_U, edges.labels_F, edges.scores_F.detach().contiguous().numpy(), n_labels,
        positives.indptr, positives.labels, excluded.indptr, excluded.labels,
        labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks,
    )  # fmt: skip
    arrays = (labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks)
    return Shortlist(*map(torch.from_numpy, arrays))


def shortlist_reference(
    clusters_BT: Tensor,
    scores_BT: Tensor,
    edges: TouchedEdges,
    *,
    size: int,
    n_labels: int,
    positives: Ragged | None = None,
    excluded: Ragged | None = None,
) -> Shortlist:
    """`shortlist` by sorting every path: the first path of a label wins, the first labels of a row are kept."""
    device, n_rows = clusters_BT.device, len(clusters_BT)
    positives, excluded = positives or Ragged.empty(n_rows), excluded or Ragged.empty(n_rows)
    row_N, slot_N, edge_N = _every_path(clusters_BT, torch.from_numpy(edges.indptr_U).to(device))
    label_N = torch.from_numpy(edges.labels_F).to(device).long()[edge_N]
    score_N = scores_BT.detach()[row_N, slot_N] * edges.scores_F.detach()[edge_N] + 0.0  # -0.0 becomes 0.0
    key_N = row_N * n_labels + label_N  # one number per (row, label)
    forbidden = torch.from_numpy(excluded.rows * n_labels + excluded.labels).to(device)

    order = torch.argsort(score_N, descending=True, stable=True)  # ties: lower slot
    order = order[torch.argsort(key_N[order], stable=True)]
    is_best = torch.ones_like(order, dtype=torch.bool)
    is_best[1:] = key_N[order][1:] != key_N[order][:-1]
    best = order[is_best & ~torch.isin(key_N[order], forbidden)]  # one path per label, by row and label

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

    def of_positives(values: Tensor) -> Tensor:
        return torch.where(reached, torch.cat([values, values.new_full((1,), PAD)])[at], PAD)

    return Shortlist(
        *(lay_out(label_N), lay_out(slot_N), lay_out(edge_N)),
        *(of_positives(slot_N[best]), of_positives(edge_N[best]), of_positives(torch.where(rank < size, rank, PAD))),
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
    """values[places], where a PAD reads some value that is not used."""
    if len(values) == 0:
        return places.to(torch.float32) * 0.0
    return values.index_select(0, places.clamp(min=0).flatten()).view(places.shape)


def best_paths(
    s_BC: np.ndarray, labels_BS: np.ndarray, edges: EdgesByLabel, *, threads: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(cluster, s_c, e) of the best path to each given label over ALL clusters; PAD, 0, 0 where there is none."""
    if not kernels.serve():
        return best_paths_reference(s_BC, labels_BS, edges)
    from ..kernels.shortlist import paths_to_labels

    cluster_BS, s_BS, e_BS = _no_paths(labels_BS)
    kernels.run(paths_to_labels, len(labels_BS), threads, s_BC, labels_BS, *edges, cluster_BS, s_BS, e_BS)
    return cluster_BS, s_BS, e_BS


def best_paths_reference(
    s_BC: np.ndarray, labels_BS: np.ndarray, edges: EdgesByLabel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`best_paths` in numpy, one label after another."""
    cluster_BS, s_BS, e_BS = _no_paths(labels_BS)
    for row, column in np.argwhere(labels_BS >= 0).tolist():
        mine = slice(*edges.indptr[labels_BS[row, column] : labels_BS[row, column] + 2])
        clusters, scores = edges.clusters[mine], edges.scores[mine]
        if len(clusters):
            best = int(np.argmax(s_BC[row, clusters] * scores))  # the first of equal ones: the lower cluster
            cluster_BS[row, column] = clusters[best]
            s_BS[row, column], e_BS[row, column] = s_BC[row, clusters[best]], scores[best]
    return cluster_BS, s_BS, e_BS


def _no_paths(labels_BS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = labels_BS.shape
    return np.full(shape, PAD, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
