"""Beam search through the index: equations (1) to (5), in torch, on any device. Equation (6) is in `paths`.

    (1)  s_c = min(1, alpha * softmax(W_C phi)_c)
    (2)  the beam: the b best clusters
    (3)  training only: the parents, each positive label's strongest cluster
    (4)  shortlisted clusters = beam and parents
    (5)  e_{c,l} = min(1, beta * softmax_row_c(a)_l)

Shapes: B batch, C clusters, T shortlisted clusters, U touched clusters, F their edges.
Order is total everywhere: higher score first, then lower number. On the CPU `top_k` and `edge_scores` run as
numba kernels that return the same as their twins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import kernels
from ..core.noise import Noise
from .shortlist import PAD, Ragged, Shortlist, shortlist, shortlist_torch, take

__all__ = [
    "PAD",
    "Ragged",
    "Shortlist",
    "cluster_scores",
    "edge_scores",
    "edge_scores_torch",
    "join_parents",
    "shortlist",
    "shortlist_torch",
    "take",
    "top_k",
    "top_k_torch",
]


def cluster_scores(logits_BC: Tensor, alpha: float) -> Tensor:
    """(1) from W_C phi + b."""
    return torch.clamp(alpha * torch.softmax(logits_BC, dim=1), max=1.0)


def top_k(scores_BN: Tensor, k: int, order_BN: Tensor | None = None, *, threads: int = 1) -> Tensor:
    """Columns of the k best scores of each row; equal scores by lower order (default: lower column).

    Columns whose order is PAD take no part; rows with fewer than k columns are filled up with PAD.
    """
    if order_BN is None:
        order_BN = torch.arange(scores_BN.shape[1], device=scores_BN.device)[None]
    if scores_BN.device.type != "cpu":
        return top_k_torch(scores_BN, k, order_BN)
    from ..kernels.paths import top_k as kernel

    out = np.full((len(scores_BN), k), PAD, dtype=np.int64)
    scores = scores_BN.detach().contiguous().numpy()
    kernels.run(kernel, len(out), threads, scores, order_BN.contiguous().numpy(), out)
    return torch.from_numpy(out)


def top_k_torch(scores_BN: Tensor, k: int, order_BN: Tensor) -> Tensor:
    """`top_k` by two stable sorts."""
    order_BN = order_BN.expand(scores_BN.shape)
    by_order_BN = torch.where(order_BN < 0, torch.iinfo(torch.int64).max, order_BN).argsort(dim=1, stable=True)
    scores_BN = torch.where(order_BN < 0, -torch.inf, scores_BN.detach() + 0.0)
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
    # Columns below zero are this draw's own: dropout uses those from zero up.
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


def edge_scores(logits_F: Tensor, indptr_U: np.ndarray, beta: float, *, threads: int = 1) -> Tensor:
    """(5) over ragged rows: softmax within each row, scaled by beta, clamped to 1. No pad, no row of another."""
    if logits_F.device.type != "cpu":
        return edge_scores_torch(logits_F, indptr_U, beta)
    e_F: Tensor = _EdgeScores.apply(logits_F, indptr_U, beta, threads)  # type: ignore[no-untyped-call]
    return e_F


def edge_scores_torch(logits_F: Tensor, indptr_U: np.ndarray, beta: float) -> Tensor:
    """`edge_scores` on any device."""
    lengths_U = torch.from_numpy(indptr_U).to(logits_F.device).diff()
    row_F = torch.repeat_interleave(lengths_U, output_size=len(logits_F)) if len(logits_F) else lengths_U[:0]
    highest_U = logits_F.new_full((len(lengths_U),), -torch.inf).scatter_reduce(0, row_F, logits_F.detach(), "amax")
    raised_F = torch.exp(logits_F - highest_U[row_F])
    total_U = raised_F.new_zeros(len(lengths_U)).index_add(0, row_F, raised_F)
    return torch.clamp(beta * raised_F / total_U[row_F], max=1.0)


class _EdgeScores(torch.autograd.Function):
    """The CPU kernel as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, logits_F: Tensor, indptr_U: np.ndarray, beta: float, threads: int) -> Tensor:
        from ..kernels.edges import forward

        scaled = np.empty(len(logits_F), dtype=np.float32)
        ctx.arguments = (indptr_U, scaled, beta, threads)
        logits = logits_F.detach().contiguous().numpy()
        kernels.run(forward, len(indptr_U) - 1, threads, indptr_U, logits, beta, scaled)
        return torch.from_numpy(np.minimum(scaled, np.float32(1.0)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from ..kernels.edges import backward

        indptr_U, scaled, beta, threads = ctx.arguments
        out, grad = np.empty_like(scaled), grads[0].contiguous().numpy()
        kernels.run(backward, len(indptr_U) - 1, threads, indptr_U, scaled, beta, grad, out)
        return torch.from_numpy(out), None, None, None
