"""Equations (1), (2) and (4): scores of the clusters, the beam, and the parents that join it in training.

    (1)  s_c = min(1, alpha * softmax(W_C phi)_c)
    (2)  the beam: the b best clusters
    (4)  shortlisted clusters = the beam and, in training, the parents of (3): each positive label's strongest cluster

Equation (3) is `label_index.LabelIndex.parents`, (5) is in `edge_scores`, (6) in `shortlist`.

Shapes: B batch, C clusters, T shortlisted clusters, N columns that are ranked, K of them kept.
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
    """`top_k` by two stable sorts: first by order, then by score, which leaves equal scores in their order."""
    order_BN = order_BN.expand(scores_BN.shape)
    by_order_BN = torch.where(order_BN < 0, torch.iinfo(torch.int64).max, order_BN).argsort(dim=1, stable=True)
    scores_BN = torch.where(order_BN < 0, -torch.inf, scores_BN.detach() + 0.0)  # + 0.0: -0.0 becomes 0.0
    ranked_BN = scores_BN.gather(1, by_order_BN).argsort(dim=1, descending=True, stable=True)
    columns_BK = by_order_BN.gather(1, ranked_BN)[:, :k]
    columns_BK = columns_BK.masked_fill(order_BN.gather(1, columns_BK) < 0, PAD)
    return F.pad(columns_BK, (0, k - columns_BK.shape[1]), value=PAD)


def join_parents(
    beam_BT: Tensor,
    parents: Tensor,
    row_of_parent: Tensor,
    extra: int,
    noise: Noise,
    rows_B: Tensor,
    n_clusters: int,
) -> Tensor:
    """(4): `extra` more slots per row, for parents that are not in its beam.

    Where more parents than slots are missing, a sample drawn afresh from `noise` keeps the slots: one text
    with hundreds of labels must not make its step many times longer.
    """
    n_rows, width = beam_BT.shape
    known = parents >= 0
    keys = torch.unique(row_of_parent[known] * n_clusters + parents[known])  # one number per (row, cluster)
    in_beam = (torch.arange(n_rows, device=beam_BT.device)[:, None] * n_clusters + beam_BT)[beam_BT >= 0]
    keys = keys[~torch.isin(keys, in_beam)]
    rows, clusters = keys // n_clusters, keys % n_clusters
    # Noise is a function of (row, column). Columns below zero are for this draw: dropout uses those from zero up.
    order = noise.uniform(rows_B[rows], -1 - clusters).argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    rows, clusters = rows[order], clusters[order]
    first = torch.searchsorted(rows, torch.arange(n_rows, device=rows.device))
    rank = torch.arange(len(rows), device=rows.device) - first[rows]
    fits = rank < extra
    joined = F.pad(beam_BT, (0, extra), value=PAD)
    joined[rows[fits], width + rank[fits]] = clusters[fits]
    return joined


def fill_free(clusters_BT: Tensor, beam_size: int, noise: Noise, rows_B: Tensor, n_clusters: int) -> Tensor:
    """A random cluster in each slot beyond the beam that no parent took (random negatives); a repeat stays PAD."""
    filled = clusters_BT.clone()
    for slot in range(beam_size, filled.shape[1]):
        draw_B = noise.uniform(rows_B, torch.full_like(rows_B, -1 - n_clusters - slot))  # below the parents' columns
        cluster_B = (draw_B * n_clusters).long().clamp(max=n_clusters - 1)
        free_B = (filled[:, slot] < 0) & ~(filled == cluster_B[:, None]).any(dim=1)
        filled[free_B, slot] = cluster_B[free_B]
    return filled
