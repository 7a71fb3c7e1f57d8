"""Equations (1), (2) and (4): scores of the clusters, the beam, and the parents that join it in training.

    (1)  s_c = min(1, alpha * softmax(W_C phi)_c)
    (2)  the beam: the b best clusters
    (4)  shortlisted clusters = the beam and, in training, the parents of (3): each positive label's strongest cluster

Equation (3) is `label_index.LabelIndex.parents`, (5) is in `edge_scores`, (6) in `shortlist`.

Shapes: B batch, C clusters, T shortlisted clusters, M parents of a row, N columns that are ranked, K of them kept.
Order is total everywhere: higher score first, then lower number. So every way of computing a beam returns the same one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import kernels
from ..core.noise import Noise
from ..core.predictions import PAD
from ..core.ragged import Ragged

LOW, LEAST = (1 << 32) - 1, -(1 << 63)


def cluster_scores(logits_BC: Tensor, alpha: float) -> Tensor:
    """(1) from W_C phi + b."""
    return torch.clamp(alpha * torch.softmax(logits_BC, dim=1), max=1.0)


def log_cluster_scores(logits_BC: Tensor, alpha: float) -> Tensor:
    """log of (1), for the loss: a cluster that trails by any distance still has a gradient."""
    return torch.clamp(math.log(alpha) + torch.log_softmax(logits_BC, dim=1), max=0.0)


def top_k(scores_BN: Tensor, k: int, order_BN: Tensor | None = None, *, threads: int = 1) -> Tensor:
    """Columns of the k best scores of each row; equal scores by lower order (default: lower column).

    Columns whose order is PAD take no part; rows with fewer than k columns are filled up with PAD.
    """
    if order_BN is None:
        order_BN = torch.arange(scores_BN.shape[1], device=scores_BN.device)[None]
    if not kernels.serve(scores_BN.device):
        return top_k_reference(scores_BN, k, order_BN)
    from ..kernels.shortlist import top_k as kernel

    out = np.full((len(scores_BN), k), PAD, dtype=np.int64)
    scores = scores_BN.detach().contiguous().numpy()
    kernels.run(kernel, len(out), threads, scores, order_BN.contiguous().numpy(), out)
    return torch.from_numpy(out)


def top_k_reference(scores_BN: Tensor, k: int, order_BN: Tensor) -> Tensor:
    """`top_k` in torch: score and order are one integer, so that one selection decides both."""
    width = min(k, scores_BN.shape[1])
    keys_BN = ordered_bits(scores_BN.detach()).long().bitwise_left_shift_(32) | (LOW - order_BN)
    keys_BN.masked_fill_(order_BN < 0, LEAST)
    best_BK, columns_BK = keys_BN.topk(width, dim=1)
    return F.pad(columns_BK.masked_fill_(best_BK == LEAST, PAD), (0, k - width), value=PAD)


def ordered_bits(scores: Tensor) -> Tensor:
    """int32 in the order of the float32 scores; -0.0 is 0.0."""
    bits = (scores + 0.0).view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def parents_of_rows(positives: Ragged, parents_L: np.ndarray) -> np.ndarray:
    """int64 [B, M]: the parents of each row's positives, ascending and each once; then PAD. On the host: no GPU waits.

    M is the most parents of a row, or more.
    """
    most = max(1, int(np.diff(positives.indptr).max(initial=0)))
    none = np.iinfo(np.int64).max
    parents_BM = np.full((len(positives), most), none)
    column_P = np.arange(len(positives.labels)) - np.repeat(positives.indptr[:-1], np.diff(positives.indptr))
    parents_P = parents_L[positives.labels].astype(np.int64)
    parents_BM[positives.rows, column_P] = np.where(parents_P < 0, none, parents_P)
    parents_BM.sort(axis=1)
    parents_BM[:, 1:][parents_BM[:, 1:] == parents_BM[:, :-1]] = none
    parents_BM.sort(axis=1)
    return np.where(parents_BM == none, PAD, parents_BM)


def join_parents(
    beam_BT: Tensor, parents_BM: Tensor, extra: int, noise: Noise, rows_B: Tensor, n_clusters: int
) -> Tensor:
    """(4): `extra` more slots per row, for parents (of `parents_of_rows`) that are not in its beam.

    Where more parents than slots are missing, a sample drawn afresh from `noise` keeps the slots: one text
    with hundreds of labels must not make its step many times longer.
    """
    in_beam_BC = torch.zeros((len(beam_BT), n_clusters + 1), dtype=torch.bool, device=beam_BT.device)
    in_beam_BC.scatter_(1, torch.where(beam_BT < 0, n_clusters, beam_BT), True)
    known_BM = parents_BM.clamp(min=0)
    # Noise is a function of (row, column). Columns below zero are for this draw: dropout uses those from zero up.
    draw_BM = noise.uniform(rows_B[:, None], -1 - known_BM)
    draw_BM = draw_BM.masked_fill((parents_BM < 0) | in_beam_BC.gather(1, known_BM), torch.inf)
    draw_BM, order_BM = draw_BM.sort(dim=1, stable=True)  # ties: lower cluster
    joined_BM = parents_BM.gather(1, order_BM).masked_fill(draw_BM == torch.inf, PAD)[:, :extra]
    return F.pad(torch.cat([beam_BT, joined_BM], dim=1), (0, extra - joined_BM.shape[1]), value=PAD)


def fill_free(clusters_BT: Tensor, beam_size: int, noise: Noise, rows_B: Tensor, n_clusters: int) -> Tensor:
    """A random cluster in each slot beyond the beam that no parent took (random negatives); a repeat stays PAD."""
    filled = clusters_BT.clone()
    for slot in range(beam_size, filled.shape[1]):
        draw_B = noise.uniform(rows_B, torch.full_like(rows_B, -1 - n_clusters - slot))  # below the parents' columns
        cluster_B = (draw_B * n_clusters).long().clamp(max=n_clusters - 1)
        free_B = (filled[:, slot] < 0) & ~(filled == cluster_B[:, None]).any(dim=1)
        filled[:, slot] = torch.where(free_B, cluster_B, filled[:, slot])
    return filled
