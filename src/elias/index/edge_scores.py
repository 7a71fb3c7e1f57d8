"""Equation (5): how strongly a cluster leads to each of its labels.

    (5)  e_{c,l} = min(1, beta * softmax_row_c(a)_l)      over the edges that exist

An edge gets positive feedback only while its softmax is below 1 / beta: where (5) is clamped, its gradient is 0. This
keeps clusters balanced. Search and inspection read (5) of every edge at once from `LabelIndex.edge_scores`.

Shapes: U clusters that a batch touches, F their edges, row after row in CSR form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels


def edge_scores(logits_F: Tensor, indptr_U: np.ndarray, beta: float, *, threads: int = 1) -> Tensor:
    """(5) over ragged rows, so there is no padding that could take a share of the softmax."""
    if not kernels.serve(logits_F.device):
        return edge_scores_reference(logits_F, indptr_U, beta)
    e_F: Tensor = _EdgeScores.apply(logits_F, indptr_U, beta, threads)  # type: ignore[no-untyped-call]
    return e_F


def edge_scores_reference(logits_F: Tensor, indptr_U: np.ndarray, beta: float) -> Tensor:
    """`edge_scores` on any device, differentiated by torch."""
    lengths_U = torch.from_numpy(indptr_U).to(logits_F.device).diff()
    row_F = torch.repeat_interleave(lengths_U, output_size=len(logits_F)) if len(logits_F) else lengths_U[:0]
    highest_U = logits_F.new_full((len(lengths_U),), -torch.inf).scatter_reduce(0, row_F, logits_F.detach(), "amax")
    raised_F = torch.exp(logits_F - highest_U[row_F])
    total_U = raised_F.new_zeros(len(lengths_U)).index_add(0, row_F, raised_F)
    return torch.clamp(beta * raised_F / total_U[row_F], max=1.0)


class _EdgeScores(torch.autograd.Function):
    """The CPU kernels as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, logits_F: Tensor, indptr_U: np.ndarray, beta: float, threads: int) -> Tensor:
        from ..kernels.edge_scores import forward

        # beta * softmax is kept unclamped: the gradient needs to know which edges the clamp has cut off.
        scaled = np.empty(len(logits_F), dtype=np.float32)
        ctx.arguments = (indptr_U, scaled, beta, threads)
        logits = logits_F.detach().contiguous().numpy()
        kernels.run(forward, len(indptr_U) - 1, threads, indptr_U, logits, beta, scaled)
        return torch.from_numpy(np.minimum(scaled, np.float32(1.0)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from ..kernels.edge_scores import backward

        indptr_U, scaled, beta, threads = ctx.arguments
        out, grad = np.empty_like(scaled), grads[0].contiguous().numpy()
        kernels.run(backward, len(indptr_U) - 1, threads, indptr_U, scaled, beta, grad, out)
        return torch.from_numpy(out), None, None, None
