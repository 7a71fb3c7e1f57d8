"""Equation (5): how strongly a cluster leads to each of its labels.

    (5)  e_{c,l} = min(1, beta * softmax_row_c(a)_l)      over the edges that exist, and its logarithm

An edge gets positive feedback only while its softmax is below 1 / beta: where (5) is clamped, its gradient is 0. This
keeps clusters balanced. Search and inspection read (5) of every edge at once from `LabelIndex.edge_scores`.

Shapes: U clusters that a batch touches, F their edges, row after row in CSR form.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels


class EdgeScores(NamedTuple):
    """(5) of some edges."""

    e_F: Tensor  # orders the paths; without gradients
    log_F: Tensor  # log e: through it the edges learn, also where e itself has no digits left


def edge_scores(logits_F: Tensor, indptr_U: np.ndarray, beta: float, *, threads: int = 1) -> EdgeScores:
    """(5) over ragged rows, so there is no padding that could take a share of the softmax."""
    if not kernels.serve(logits_F.device):
        return edge_scores_reference(logits_F, indptr_U, beta)
    return EdgeScores(*_EdgeScores.apply(logits_F, indptr_U, beta, threads))  # type: ignore[no-untyped-call]


def edge_scores_reference(logits_F: Tensor, indptr_U: np.ndarray, beta: float) -> EdgeScores:
    """`edge_scores` on any device, differentiated by torch."""
    lengths_U = torch.from_numpy(indptr_U).to(logits_F.device).diff()
    row_F = torch.repeat_interleave(lengths_U, output_size=len(logits_F)) if len(logits_F) else lengths_U[:0]
    highest_U = logits_F.new_full((len(lengths_U),), -torch.inf).scatter_reduce(0, row_F, logits_F.detach(), "amax")
    shifted_F = logits_F - highest_U[row_F]
    total_U = shifted_F.new_zeros(len(lengths_U)).index_add(0, row_F, torch.exp(shifted_F))
    log_F = torch.clamp(math.log(beta) + shifted_F - torch.log(total_U)[row_F], max=0.0)
    return EdgeScores(torch.exp(log_F.detach()), log_F)


class _EdgeScores(torch.autograd.Function):
    """The CPU kernels as a differentiable function: (e, log e)."""

    @staticmethod
    def forward(ctx: Any, logits_F: Tensor, indptr_U: np.ndarray, beta: float, threads: int) -> tuple[Tensor, Tensor]:
        from ..kernels.edge_scores import forward

        # Both are kept unclamped: the gradient needs to know which edges the clamp has cut off.
        scaled, logs = np.empty(len(logits_F), dtype=np.float32), np.empty(len(logits_F), dtype=np.float32)
        ctx.arguments = (indptr_U, scaled, logs, beta, threads)
        logits = logits_F.detach().contiguous().numpy()
        kernels.run(forward, len(indptr_U) - 1, threads, indptr_U, logits, beta, scaled, logs)
        e_F = torch.from_numpy(np.minimum(scaled, np.float32(1.0)))
        ctx.mark_non_differentiable(e_F)
        return e_F, torch.from_numpy(np.minimum(logs, np.float32(0.0)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from ..kernels.edge_scores import backward

        indptr_U, scaled, logs, beta, threads = ctx.arguments
        out, grad = np.empty_like(logs), grads[1].contiguous().numpy()
        kernels.run(backward, len(indptr_U) - 1, threads, indptr_U, scaled, logs, beta, grad, out)
        return torch.from_numpy(out), None, None, None
