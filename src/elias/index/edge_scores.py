"""Equation (5): how strongly a cluster leads to each of its labels.

    (5)  e_{c,l} = min(1, beta * softmax_row_c(a)_l)      over the edges that exist, and its logarithm

An edge gets positive feedback only while its softmax is below 1 / beta: where (5) is clamped, its gradient is 0. This
keeps clusters balanced. Search and inspection read (5) of every edge at once from `LabelIndex.edge_scores`.

`edge_scores` is (5) of the clusters that a batch touches, which kernels collect. `LearnedEdges` is (5) of all clusters,
for a GPU: which ones are touched stays on the device and is not waited for. `edge_scores_reference` defines both.

Shapes: U clusters that a batch touches, F their edges, row after row in CSR form; C all clusters, E all edges, M edges
of the longest row, N places (of pairs of a shortlist) that are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable, GradientBuffer

EDGES_AT_ONCE = 1 << 24, 1 << 16  # on a GPU and on a CPU (its cache)


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


class AllScores(NamedTuple):
    """(5) of all edges at one step."""

    logits_E: Tensor
    log_total_C: Tensor  # logsumexp of the row of each cluster
    e_E: Tensor


class LearnedEdges:
    """The table of the edge logits as a graph on its device, uploaded once."""

    def __init__(self, table: EmbeddingTable, indptr: np.ndarray, beta: float) -> None:
        lengths_C, device = np.diff(indptr), table.values.device
        self.table, self.indptr, self.log_beta = table, indptr, math.log(beta)
        self.longest = int(lengths_C.max(initial=0))
        self.indptr_C = upload(indptr, device)
        self.cluster_E = upload(np.repeat(np.arange(len(lengths_C), dtype=np.int32), lengths_C), device)

    @torch.no_grad()
    def scores(self) -> AllScores:
        """(5) with the logits as they are now."""
        logits_E = torch.empty(len(self.table), device=self.cluster_E.device)
        found = AllScores(logits_E, logits_E.new_empty(len(self.indptr) - 1), torch.empty_like(logits_E))
        place_M = torch.arange(self.longest, device=logits_E.device)
        for clusters, edges in self.blocks():
            logits = logits_E[edges].copy_(self.table.values[edges, 0])
            pending_decay = self.table.pending_decay(edges)
            if pending_decay is not None:
                logits.mul_(pending_decay)
            bounds = self.indptr_C[clusters.start : clusters.stop + 1] - edges.start
            place_CM = bounds[:-1, None] + place_M
            absent_CM = place_CM >= bounds[1:, None]
            rows_CM = logits[place_CM.masked_fill_(absent_CM, 0)].masked_fill_(absent_CM, -torch.inf)
            torch.logsumexp(rows_CM, dim=1, out=found.log_total_C[clusters])
            torch.exp(self.log_scores(found, edges).clamp_(max=0.0), out=found.e_E[edges])
        return found

    def log_scores(self, found: AllScores, edges: slice) -> Tensor:
        """log e, not yet clamped."""
        total = found.log_total_C.index_select(0, self.cluster_E[edges])
        return (found.logits_E[edges] + self.log_beta).sub_(total)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """(clusters, their edges), as many at once as are to be held."""
        most, first, n_clusters = EDGES_AT_ONCE[self.cluster_E.device.type == "cpu"], 0, len(self.indptr) - 1
        clusters = max(1, most // max(1, self.longest))  # `scores` pads each to the longest, which may be far longer
        while first < n_clusters:
            last = int(np.searchsorted(self.indptr, self.indptr[first] + most, side="right")) - 1
            last = min(max(last, first + 1), first + clusters, n_clusters)
            edges = slice(int(self.indptr[first]), int(self.indptr[last]))
            if edges.stop > edges.start:
                yield slice(first, last), edges
            first = last

    def log_of(self, places_N: Tensor, found: AllScores, clusters: Tensor, buffer: GradientBuffer) -> Tensor:
        """log e of some edges (PAD: a value that is not used), differentiable through the buffer.

        All edges of `clusters` (PAD: none) step, as they would if these alone had been collected.
        """
        anchor = torch.zeros((), device=places_N.device, requires_grad=True)  # the table is no tensor of the graph
        touched_C = torch.zeros(len(self.indptr), dtype=torch.bool, device=places_N.device)  # the last: PAD
        touched_C[clusters.flatten()] = True
        log_N: Tensor = _LogOf.apply(anchor, places_N.clamp(min=0), self, found, touched_C, buffer)  # type: ignore[no-untyped-call]
        return log_N


class _LogOf(torch.autograd.Function):
    """log e of some edges; the gradient of a row of the softmax is made for all rows, block by block."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, places_N: Tensor, edges: LearnedEdges, found: AllScores, touched_C: Tensor,
        buffer: GradientBuffer,
    ) -> Tensor:  # fmt: skip
        cluster_N = edges.cluster_E.index_select(0, places_N)
        log_N = found.logits_E.index_select(0, places_N) + edges.log_beta - found.log_total_C.index_select(0, cluster_N)
        ctx.given = places_N, cluster_N, log_N <= 0.0, edges, found, touched_C, buffer
        return log_N.clamp(max=0.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        places_N, cluster_N, free_N, edges, found, touched_C, buffer = ctx.given
        table, rate = edges.table, buffer.rates.get(edges.table)
        grad_N = grads[0] * free_N
        grad_E = torch.zeros_like(found.logits_E).index_add_(0, places_N, grad_N)
        grad_C = torch.zeros_like(found.log_total_C).index_add_(0, cluster_N, grad_N)
        touched_E = None if rate is not None else torch.empty_like(grad_E, dtype=torch.bool)
        if rate is not None:
            table.begin_step(rate)
        for _, part in edges.blocks():
            cluster = edges.cluster_E[part]
            softmax = edges.log_scores(found, part).sub_(edges.log_beta).exp_()
            gradient = grad_E[part].sub_(softmax.mul_(grad_C.index_select(0, cluster)))
            touched = touched_C.index_select(0, cluster)
            if touched_E is None:
                table.step_range(part, gradient[:, None], rate, touched)
            else:
                touched_E[part] = touched
        if touched_E is not None:
            buffer.push(table, touched_E, grad_E[:, None])
        return torch.zeros_like(grads[0][:0].sum()), None, None, None, None, None
