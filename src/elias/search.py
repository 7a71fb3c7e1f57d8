"""Beam search through the index: equations (1) to (6), in torch, on any device. This is the definition.

    (1)  s_c = min(1, alpha * softmax(W_C phi)_c)
    (2)  the beam: the b best clusters
    (3)  training only: the parents, each positive label's strongest cluster
    (4)  shortlisted clusters = beam and parents
    (5)  e_{c,l} = min(1, beta * softmax_row_c(a)_l)
    (6)  yhat_l = max over paths of s_c * e_{c,l};  keep the K best labels

Shapes: B batch, C clusters, T shortlisted clusters, F edges of the touched clusters, S shortlisted labels.
Order is total everywhere: higher score first, then lower number. On the CPU `shortlist` and `top_k` run as
numba kernels that return the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import kernels
from .noise import Noise

PAD = -1


@dataclass(frozen=True)
class Ragged:
    """Labels per batch row in CSR form, as numpy: positives, or pairs that are excluded."""

    indptr: np.ndarray  # int64 [B + 1]
    labels: np.ndarray  # int32

    @classmethod
    def empty(cls, n_rows: int) -> Ragged:
        return cls(np.zeros(n_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32))

    @property
    def rows(self) -> np.ndarray:
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


def cluster_scores(logits_BC: Tensor, alpha: float) -> Tensor:
    """(1) from W_C phi + b."""
    return torch.clamp(alpha * torch.softmax(logits_BC, dim=1), max=1.0)


def top_k(scores_BN: Tensor, k: int, order_BN: Tensor | None = None, *, threads: int = 1) -> Tensor:
    """Columns of the k best scores of each row; equal scores by lower order (default: lower column).

    Columns whose order is PAD take no part; rows with fewer than k columns are filled up with PAD.
    """
    if order_BN is None:
        order_BN = torch.arange(scores_BN.shape[1], device=scores_BN.device).expand_as(scores_BN)
    if scores_BN.device.type == "cpu":
        from .kernels.paths import top_k as kernel

        out = np.full((scores_BN.shape[0], k), PAD, dtype=np.int64)
        kernels.run(kernel, len(out), threads, scores_BN.numpy(), order_BN.numpy(), out)
        return torch.from_numpy(out)
    return top_k_torch(scores_BN, k, order_BN)


def top_k_torch(scores_BN: Tensor, k: int, order_BN: Tensor) -> Tensor:
    """`top_k` by two stable sorts."""
    by_order_BN = torch.where(order_BN < 0, torch.iinfo(torch.int64).max, order_BN).argsort(dim=1, stable=True)
    scores_BN = torch.where(order_BN < 0, -torch.inf, scores_BN + 0.0)
    ranked_BN = scores_BN.gather(1, by_order_BN).argsort(dim=1, descending=True, stable=True)
    columns_BK = by_order_BN.gather(1, ranked_BN)[:, :k]
    columns_BK = columns_BK.masked_fill(order_BN.gather(1, columns_BK) < 0, PAD)
    return torch.nn.functional.pad(columns_BK, (0, k - columns_BK.shape[1]), value=PAD)


def join_parents(beam_BT: Tensor, parents: Tensor, row_of_parent: Tensor, extra: int, noise: Noise, rows_B: Tensor,
                 n_clusters: int) -> Tensor:
    """(4): `extra` more slots a row, for parents that are not in its beam.

    Where more parents than slots are missing, a sample drawn afresh from `noise` keeps the slots: one text
    with hundreds of labels must not make its step many times longer.
    """
    n_rows, width = beam_BT.shape
    known = parents >= 0
    keys = torch.unique(row_of_parent[known] * n_clusters + parents[known])
    in_beam = (torch.arange(n_rows, device=beam_BT.device)[:, None] * n_clusters + beam_BT)[beam_BT >= 0]
    keys = keys[~torch.isin(keys, in_beam)]
    rows, clusters = keys // n_clusters, keys % n_clusters
    order = noise.uniform(rows_B[rows], clusters).argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    rows, clusters = rows[order], clusters[order]
    first = torch.searchsorted(rows, torch.arange(n_rows, device=rows.device))
    rank = torch.arange(len(rows), device=rows.device) - first[rows]
    fits = rank < extra
    joined = torch.nn.functional.pad(beam_BT, (0, extra), value=PAD)
    joined[rows[fits], width + rank[fits]] = clusters[fits]
    return joined


def edge_scores(logits_F: Tensor, indptr_U: Tensor, beta: float) -> Tensor:
    """(5) over ragged rows: softmax within each row, scaled by beta, clamped to 1. No pad, no row of another."""
    lengths_U = indptr_U.diff()
    row_F = torch.repeat_interleave(lengths_U, output_size=len(logits_F)) if len(logits_F) else lengths_U[:0]
    highest_U = logits_F.new_full((len(lengths_U),), -torch.inf).scatter_reduce(0, row_F, logits_F.detach(), "amax")
    raised_F = torch.exp(logits_F - highest_U[row_F])
    total_U = raised_F.new_zeros(len(lengths_U)).index_add(0, row_F, raised_F)
    return torch.clamp(beta * raised_F / total_U[row_F], max=1.0)


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
    """(6): the best path of every reached label, then the `size` best labels. `clusters_BT` counts rows of indptr_U."""
    positives = positives or Ragged.empty(len(clusters_BT))
    excluded = excluded or Ragged.empty(len(clusters_BT))
    if clusters_BT.device.type != "cpu":
        return shortlist_torch(clusters_BT, scores_BT, indptr_U, labels_F, scores_F, size, n_labels, positives, excluded)
    from .kernels.paths import best_paths

    n_rows = len(clusters_BT)
    size = min(size, n_labels)
    labels_BS = np.full((n_rows, size), PAD, dtype=np.int64)
    slots_BS, edges_BS = labels_BS.copy(), labels_BS.copy()
    found_BS = np.zeros((n_rows, size), dtype=np.float32)
    positive_slots = np.full(len(positives.labels), PAD, dtype=np.int64)
    positive_edges, positive_ranks = positive_slots.copy(), positive_slots.copy()
    kernels.run(
        best_paths, n_rows, threads,
        clusters_BT.numpy(), scores_BT.detach().numpy(), indptr_U, labels_F, scores_F.detach().numpy(), n_labels,
        positives.indptr, positives.labels, excluded.indptr, excluded.labels,
        labels_BS, slots_BS, edges_BS, found_BS, positive_slots, positive_edges, positive_ranks,
    )  # fmt: skip
    arrays = (labels_BS, slots_BS, edges_BS, positive_slots, positive_edges, positive_ranks)
    return Shortlist(*map(torch.from_numpy, arrays))


def take(values: Tensor, places: Tensor) -> Tensor:
    """values[places], where a PAD reads some value that nobody uses."""
    if len(values) == 0:
        return places.to(torch.float32) * 0.0
    return values.index_select(0, places.clamp(min=0).flatten()).view(places.shape)


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
    """`shortlist` by sorting every path: by score, then label, then slot; the first path of a label wins."""
    device = clusters_BT.device
    indptr, labels = torch.from_numpy(indptr_U).to(device), torch.from_numpy(labels_F).to(device).long()
    n_rows, n_slots = clusters_BT.shape
    widest = int(indptr.diff().max()) if len(indptr) > 1 else 0
    start_BT = indptr[clusters_BT.clamp(min=0)]
    stop_BT = torch.where(clusters_BT < 0, start_BT, indptr[clusters_BT.clamp(min=0) + 1])
    edges_BP = start_BT[:, :, None] + torch.arange(widest, device=device)
    exists_BP = (edges_BP < stop_BT[:, :, None]).reshape(n_rows, -1)
    edges_BP = edges_BP.reshape(n_rows, -1).masked_fill(~exists_BP, 0)
    slots_BP = torch.arange(n_slots, device=device)[:, None].expand(n_slots, widest).reshape(-1).expand_as(edges_BP)
    row_B1 = torch.arange(n_rows, device=device)[:, None]
    if len(labels) == 0:
        exists_BP = exists_BP[:, :0]
        edges_BP, slots_BP = edges_BP[:, :0], slots_BP[:, :0]
    labels_BP = labels[edges_BP] if len(labels) else edges_BP
    forbidden = torch.from_numpy(excluded.rows * (n_labels + 1) + excluded.labels).to(device)
    exists_BP = exists_BP & ~torch.isin(row_B1 * (n_labels + 1) + labels_BP, forbidden)
    labels_BP = labels_BP.masked_fill(~exists_BP, n_labels)
    scores_BP = (scores_BT.detach().gather(1, slots_BP) * scores_F.detach()[edges_BP]).masked_fill(~exists_BP, -1.0)

    order_BP = labels_BP.argsort(dim=1, stable=True)
    order_BP = order_BP.gather(1, scores_BP.gather(1, order_BP).argsort(dim=1, descending=True, stable=True))
    ranked_BP = labels_BP.gather(1, order_BP)
    grouped_BP, place_BP = ranked_BP.sort(dim=1, stable=True)
    is_first_BP = torch.ones_like(grouped_BP, dtype=torch.bool)
    is_first_BP[:, 1:] = grouped_BP[:, 1:] != grouped_BP[:, :-1]
    is_first_BP &= grouped_BP < n_labels

    size = min(size, n_labels)
    key_BP = torch.where(is_first_BP, place_BP, ranked_BP.shape[1])
    key_BS = torch.nn.functional.pad(key_BP.sort(dim=1).values[:, :size], (0, max(0, size - key_BP.shape[1])), value=ranked_BP.shape[1])
    real_BS = key_BS < ranked_BP.shape[1]
    chosen_BS = torch.nn.functional.pad(order_BP, (0, 1)).gather(1, key_BS)

    def pick(values_BP: Tensor) -> Tensor:
        return torch.nn.functional.pad(values_BP, (0, 1)).gather(1, chosen_BS).masked_fill(~real_BS, PAD)

    best_keys = (row_B1 * (n_labels + 1) + grouped_BP)[is_first_BP]
    best_path_BP = order_BP.gather(1, place_BP)
    wanted = torch.from_numpy(positives.rows * (n_labels + 1) + positives.labels).to(device)
    at = torch.searchsorted(best_keys, wanted).clamp(max=max(0, len(best_keys) - 1))
    reached = best_keys[at] == wanted if len(best_keys) else torch.zeros_like(wanted, dtype=torch.bool)
    slot = slots_BP.gather(1, best_path_BP)[is_first_BP]
    edge = edges_BP.gather(1, best_path_BP)[is_first_BP]
    none = torch.full_like(wanted, PAD)
    slots = torch.where(reached, slot[at], none) if len(best_keys) else none
    edges = torch.where(reached, edge[at], none) if len(best_keys) else none
    labels_BS = pick(labels_BP)
    return Shortlist(labels_BS, pick(slots_BP), pick(edges_BP), slots, edges, _ranks(labels_BS, wanted, n_labels))


def _ranks(labels_BS: Tensor, wanted: Tensor, n_labels: int) -> Tensor:
    """The column of each wanted (row, label) key in the shortlist, or PAD."""
    keys_BS = torch.arange(len(labels_BS), device=wanted.device)[:, None] * (n_labels + 1) + labels_BS
    keys_BS = torch.where(labels_BS < 0, torch.iinfo(torch.int64).max, keys_BS)
    keys, place = keys_BS.flatten().sort()
    if len(keys) == 0:
        return torch.full_like(wanted, PAD)
    at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[at] == wanted, place[at] % labels_BS.shape[1], PAD)
