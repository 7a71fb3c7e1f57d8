"""Equation (6): the best path of every label through the shortlisted clusters, and the K best labels.

    (6)  yhat_l = max over paths of s_c * e_{c,l};  keep the K best labels

`shortlist` searches through the shortlisted clusters; `best_paths` computes yhat of labels that are given, over all
clusters. Each has its definition beside it, in torch or numpy; on the CPU numba kernels return the same.

Shapes: B batch, R some of its rows, C clusters, T shortlisted clusters, U touched clusters, F their edges, N paths of a
row, S shortlisted labels, P positives.
Order is total: higher score, then lower label; of equal paths to one label the one through the lower slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import kernels
from ..core.devices import upload
from ..core.predictions import PAD
from ..core.ragged import Ragged

if TYPE_CHECKING:
    from ..kernels.shortlist import EdgesByLabel

HALF, LOW = 32, (1 << 32) - 1
CELLS = 1 << 25, 1 << 19  # labels or paths of some rows that torch holds at once, on a GPU and on a CPU (its cache)


class TouchedEdges(NamedTuple):
    """The edges of some clusters, row after row; labels ascend within a row. Kernels read arrays, torch reads both."""

    indptr_U: np.ndarray | Tensor  # int64 [U + 1]
    labels_F: np.ndarray | Tensor  # int32
    scores_F: Tensor  # (5), without gradients
    longest: int  # edges of the cluster that has the most

    @classmethod
    def of(cls, indptr_U: np.ndarray, labels_F: np.ndarray, scores_F: Tensor) -> TouchedEdges:
        return cls(indptr_U, labels_F, scores_F, int(np.diff(indptr_U).max(initial=0)))

    def to(self, device: torch.device) -> TouchedEdges:
        """Everything as tensors on a device, uploaded once for all searches."""
        return TouchedEdges(
            _on(self.indptr_U, device), _on(self.labels_F, device), self.scores_F.to(device), self.longest
        )


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
        np.asarray(edges.indptr_U), np.asarray(edges.labels_F), edges.scores_F.detach().contiguous().numpy(), n_labels,
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
    """`shortlist` in torch, some rows at a time: a scatter-max finds the best path of every label, then the top K.

    Shapes depend on the arguments and never on what is found, so a GPU is not waited for.
    """
    device, (n_rows, n_slots) = clusters_BT.device, clusters_BT.shape
    positives, excluded = positives or Ragged.empty(n_rows), excluded or Ragged.empty(n_rows)
    edges = edges.to(device)
    step = max(1, CELLS[device.type == "cpu"] // max(n_labels, n_slots * edges.longest, 1))
    best_RL = torch.empty((min(step, n_rows), n_labels + 1), dtype=torch.int64, device=device)  # the last: no label
    pieces = []
    for start in range(0, max(1, n_rows), step):
        rows = slice(start, min(start + step, n_rows))
        wanted, forbidden = _some_rows(positives, rows, device), _some_rows(excluded, rows, device)
        part = clusters_BT[rows], scores_BT[rows].detach(), edges
        pieces.append(_shortlist_rows(*part, wanted, forbidden, size, best_RL[: rows.stop - rows.start].zero_()))
    return Shortlist(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))


def _shortlist_rows(
    clusters_RT: Tensor, scores_RT: Tensor, edges: TouchedEdges, positives: tuple[Tensor, Tensor],
    excluded: tuple[Tensor, Tensor], size: int, best_RL: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The tensors of `Shortlist` for some rows; N = T x longest places for the paths of a row.

    A path is one integer, so that one maximum decides score and ties: its score as bits (those of floats that are not
    negative are ordered as the floats are) in the upper half, and in the lower half its place, reversed. 0 is no path.
    """
    (n_rows, n_slots), longest, device = clusters_RT.shape, max(1, edges.longest), clusters_RT.device
    indptr_U, labels_F = _on(edges.indptr_U, device), _on(edges.labels_F, device)
    n_labels = best_RL.shape[1] - 1
    wanted = min(size, n_labels)
    if len(labels_F) == 0 or n_slots == 0:
        nothing_RS = torch.full((n_rows, wanted), PAD, device=device)
        nothing_P = torch.full_like(positives[0], PAD)
        return (nothing_RS,) * 3 + (nothing_P,) * 3
    known_RT = clusters_RT.clamp(min=0)
    first_RT, length_RT = indptr_U[known_RT], indptr_U.diff()[known_RT].masked_fill(clusters_RT < 0, 0)
    place_M = torch.arange(longest, device=device)
    absent_RN = (place_M >= length_RT[:, :, None]).view(n_rows, n_slots * longest)
    edge_RN = (first_RT[:, :, None] + place_M).view(n_rows, n_slots * longest).masked_fill_(absent_RN, 0)
    label_RN = labels_F.index_select(0, edge_RN.view(-1)).long().view_as(edge_RN).masked_fill_(absent_RN, n_labels)
    score_RTM = edges.scores_F.detach().index_select(0, edge_RN.view(-1)).view(n_rows, n_slots, longest)
    score_RTM.mul_(scores_RT[:, :, None]).add_(0.0)  # no -0.0
    path_RN = score_RTM.view(torch.int32).view_as(edge_RN).long().add_(1).bitwise_left_shift_(HALF)
    path_RN += LOW - torch.arange(n_slots * longest, device=device)
    best_RL.scatter_reduce_(1, label_RN, path_RN, "amax")
    best_RL[excluded] = 0
    loses_RN = (best_RL.gather(1, label_RN) != path_RN).logical_or_(absent_RN)
    # Now the label takes the lower half: ties go to the lower label.
    path_RN.bitwise_and_(~LOW).add_(LOW).sub_(label_RN).masked_fill_(loses_RN, 0)
    width = min(wanted, path_RN.shape[1])
    top_RS, column_RS = path_RN.topk(width, dim=1)
    missing_RS = top_RS == 0
    listed = [label_RN.gather(1, column_RS), column_RS // longest, edge_RN.gather(1, column_RS)]
    labels_RS, slots_RS, edges_RS = (
        F.pad(values.masked_fill_(missing_RS, PAD), (0, wanted - width), value=PAD) for values in listed
    )
    best_P = best_RL[positives]
    unreached_P, place_P = best_P == 0, LOW - (best_P & LOW)
    place_P = place_P.masked_fill(unreached_P, 0)
    found_P = [place_P // longest, edge_RN[positives[0], place_P]]
    # The rank of a positive is read from where it was written: the cell of its label.
    best_RL[positives] = 0
    rank_S = torch.arange(1, wanted + 1, device=device).expand(n_rows, -1)
    best_RL.scatter_(1, torch.where(labels_RS < 0, n_labels, labels_RS), rank_S)
    rank_P = best_RL[positives] - 1
    return labels_RS, slots_RS, edges_RS, *(values.masked_fill(unreached_P, PAD) for values in found_P), rank_P


def _some_rows(ragged: Ragged, rows: slice, device: torch.device) -> tuple[Tensor, Tensor]:
    """(row from 0, label) of the entries of some rows."""
    cut = slice(ragged.indptr[rows.start], ragged.indptr[rows.stop])
    numbers = ragged.rows[cut] - rows.start, ragged.labels[cut].astype(np.int64)
    return _on(numbers[0], device), _on(numbers[1], device)


def _on(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    return array.to(device) if isinstance(array, Tensor) else upload(array, device)


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
