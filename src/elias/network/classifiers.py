"""Label classifiers over a shortlist: z = w_l . phi + b_l, and the loss (7) of p = sigmoid(z) * yhat.

Nothing here holds batch x K x d floats: the CPU kernels group pairs by label and read each classifier once a batch;
the torch definitions multiply phi with the union of the labels of a batch, block by block, and pick the pairs.

Shapes: B batch, S shortlist, D dimension, U labels of the batch, N labels of a block of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.predictions import PAD
from ..core.row_optimizers import STATE
from . import losses as equations
from .quantization import QuantizedRows

# Floats that the definition holds at once, on a GPU and on a CPU (where classifiers are to stay in the cache).
SCORES_AT_ONCE = 1 << 26, 1 << 22  # batch x labels
WEIGHTS_AT_ONCE = 1 << 25, 1 << 19  # labels x D
PAIRS_PER_RANGE = 1 << 14
MOST_RANGES = 16


def scores(
    phi_BD: Tensor, labels_BS: Tensor, weights: EmbeddingTable | QuantizedRows, biases: EmbeddingTable
) -> Tensor:
    """z of every shortlisted label, without gradients; 0 at PAD."""
    if not kernels.serve(phi_BD.device) or not isinstance(weights, EmbeddingTable):
        return scores_reference(phi_BD, labels_BS, weights, biases, None)
    from ..kernels.classifiers import forward

    pairs = _Pairs(phi_BD, labels_BS, weights, biases)
    z = np.zeros(labels_BS.numel(), dtype=np.float32)
    arrays = (*pairs.groups, pairs.width, pairs.phi, weights.array(), pairs.pending_decay, pairs.biases, z)
    kernels.run_ranges(forward, pairs.cuts, weights.threads, *arrays)
    return torch.from_numpy(z).view(labels_BS.shape)


def loss(
    phi_BD: Tensor, log_yhat_BS: Tensor, labels_BS: Tensor, y_BS: Tensor, weight_B: Tensor,
    weights: EmbeddingTable, biases: EmbeddingTable, buffer: GradientBuffer,
) -> Tensor:  # fmt: skip
    """(7) of a shortlist; classifiers get their gradients through the buffer.

    The mean is over every pair that is not PAD; pairs with another negative label are summed elsewhere.
    """
    if not kernels.serve(phi_BD.device):
        return loss_reference(phi_BD, log_yhat_BS, labels_BS, y_BS, weight_B, weights, biases, buffer)
    value: Tensor = _Loss.apply(phi_BD, log_yhat_BS, labels_BS, y_BS, weight_B, weights, biases, buffer)  # type: ignore[no-untyped-call]
    return value


def loss_reference(
    phi_BD: Tensor, log_yhat_BS: Tensor, labels_BS: Tensor, y_BS: Tensor, weight_B: Tensor,
    weights: EmbeddingTable, biases: EmbeddingTable, buffer: GradientBuffer,
) -> Tensor:  # fmt: skip
    """The definition, on any device."""
    z_BS = scores_reference(phi_BD, labels_BS, weights, biases, buffer)
    return equations.classification_loss(z_BS, log_yhat_BS, y_BS, labels_BS != PAD, weight_B, labels_BS >= 0)


def scores_reference(
    phi_BD: Tensor,
    labels_BS: Tensor,
    weights: EmbeddingTable | QuantizedRows,
    biases: EmbeddingTable,
    buffer: GradientBuffer | None,
) -> Tensor:
    """The definition, on any device, differentiable through the buffer; one product for all labels of the batch."""
    z_BS: Tensor = _UnionScores.apply(phi_BD, labels_BS, weights, biases, buffer)  # type: ignore[no-untyped-call]
    return z_BS


class _UnionScores(torch.autograd.Function):
    """z of the pairs of a shortlist from dense products phi W_U^T, U the labels of the batch, each once.

    Classifiers are read from their table a block at a time, multiplied and forgotten, and read again in the backward
    pass. There they step at once if they may; if not, their gradient is the one thing that is held of size U x D.
    """

    @staticmethod
    def forward(
        ctx: Any, phi_BD: Tensor, labels_BS: Tensor, weights: EmbeddingTable | QuantizedRows, biases: EmbeddingTable,
        buffer: GradientBuffer | None,
    ) -> Tensor:  # fmt: skip
        union = _Union.of(labels_BS, weights, biases)
        ctx.save_for_backward(phi_BD)
        ctx.union, ctx.tables, ctx.buffer = union, (weights, biases), buffer
        z_BS = torch.zeros(labels_BS.shape, dtype=phi_BD.dtype, device=phi_BD.device)
        for block in union.blocks(len(phi_BD)):
            z_NB = phi_BD.new_empty((block.stop - block.start, len(phi_BD)))
            for part, rows in union.parts(block):
                z = z_NB[part.start - block.start : part.stop - block.start]
                torch.mm(union.weights(rows), phi_BD.T, out=z)
                z.mul_(union.pending_U1[part]).add_(union.bias_U1[part])
            inside_BS, cell_BS = union.cells(block)
            z_BS = torch.where(inside_BS, z_NB.view(-1)[cell_BS], z_BS)
        return z_BS

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (phi_BD,), union, (weights, biases), buffer = ctx.saved_tensors, ctx.union, ctx.tables, ctx.buffer
        rate, n_labels, grad_UD = buffer.rates.get(weights), len(union.rows_U), None
        if rate is None:
            grad_UD = phi_BD.new_empty((n_labels, phi_BD.shape[1]))
        else:
            weights.begin_step(rate)
        grad_phi_BD, grad_U1 = torch.zeros_like(phi_BD), phi_BD.new_empty((n_labels, 1))
        for block in union.blocks(len(phi_BD)):
            inside_BS, cell_BS = union.cells(block)
            size = (block.stop - block.start) * len(phi_BD)
            cells = phi_BD.new_zeros(size + 1)  # the last: pairs of other blocks
            cells[torch.where(inside_BS, cell_BS, size)] = grads[0]
            grad_NB = cells[:size].view(-1, len(phi_BD))
            torch.sum(grad_NB, dim=1, keepdim=True, out=grad_U1[block])
            for part, rows in union.parts(block):
                grad = grad_NB[part.start - block.start : part.stop - block.start]
                grad_rows = grad @ phi_BD if grad_UD is None else torch.mm(grad, phi_BD, out=grad_UD[part])
                grad_phi_BD.addmm_((grad * union.pending_U1[part]).T, union.weights(rows))
                if rate is not None:
                    weights.step_rows(rows, grad_rows, rate)
        buffer.push(biases, union.rows_U, grad_U1)
        if grad_UD is not None:
            buffer.push(weights, union.rows_U, grad_UD)
        return grad_phi_BD, None, None, None, None


class _Union(NamedTuple):
    """The labels of a batch, each once, and where each pair of the shortlist finds its label among them."""

    rows_U: Tensor
    place_BS: Tensor  # U at PAD
    table: EmbeddingTable | QuantizedRows
    pending_U1: Tensor  # of the decay: a classifier is pending * its row
    bias_U1: Tensor

    @classmethod
    def of(cls, labels_BS: Tensor, weights: EmbeddingTable | QuantizedRows, biases: EmbeddingTable) -> _Union:
        n_labels = len(biases)
        column_BS = torch.where(labels_BS < 0, n_labels, labels_BS)
        is_listed = torch.zeros(n_labels + 1, dtype=torch.bool, device=labels_BS.device)
        is_listed[column_BS] = True
        is_listed[n_labels] = False
        rows_U = torch.nonzero(is_listed)[:, 0]  # its size: the one thing in a step that a GPU is waited for
        place_L = torch.cumsum(is_listed, 0).sub_(1)
        place_L[n_labels] = len(rows_U)
        pending_U = weights.pending_decay(rows_U) if isinstance(weights, EmbeddingTable) else None
        bias_U1 = biases.gather(rows_U)
        pending_U1 = torch.ones_like(bias_U1) if pending_U is None else pending_U[:, None]
        return cls(rows_U, place_L[column_BS], weights, pending_U1, bias_U1)

    def weights(self, rows: Tensor) -> Tensor:
        """Rows of the table as float32, their decay pending."""
        if isinstance(self.table, EmbeddingTable):
            return self.table.values.index_select(0, rows).float()
        return self.table.gather(rows)

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Blocks of labels whose scores for the batch are held at once."""
        return _ranges(0, len(self.rows_U), self._most(SCORES_AT_ONCE) // max(1, n_rows))

    def parts(self, block: slice) -> Iterator[tuple[slice, Tensor]]:
        """Parts of a block whose classifiers are held at once, and their rows of the table."""
        for part in _ranges(block.start, block.stop, self._most(WEIGHTS_AT_ONCE) // max(1, self.table.width)):
            yield part, self.rows_U[part]

    def cells(self, block: slice) -> tuple[Tensor, Tensor]:
        """Which pairs are in a block, and their cells in its labels x batch scores; any cell for the others."""
        n_rows = len(self.place_BS)
        row_B1 = torch.arange(n_rows, device=self.place_BS.device)[:, None]
        inside_BS = (self.place_BS >= block.start) & (self.place_BS < block.stop)
        cell_BS = (self.place_BS - block.start).mul_(n_rows).add_(row_B1)
        return inside_BS, cell_BS.masked_fill_(~inside_BS, 0)

    def _most(self, floats: tuple[int, int]) -> int:
        return floats[self.rows_U.device.type == "cpu"]


def _ranges(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, max(1, size)):
        yield slice(first, min(first + max(1, size), stop))


def fixed_ranges(starts: np.ndarray) -> list[int]:
    """Cuts between labels into ranges of about PAIRS_PER_RANGE pairs.

    The sums of `backward`, and so its rounding, depend on the shortlist and not on the number of threads.
    """
    n_ranges = int(np.clip(starts[-1] // PAIRS_PER_RANGE, 1, MOST_RANGES))
    inner = np.searchsorted(starts, [starts[-1] * i // n_ranges for i in range(1, n_ranges)])
    return [0, *inner.tolist(), len(starts) - 1]


class _Pairs:
    """A shortlist grouped by label, and what the kernels need of the tables."""

    def __init__(self, phi_BD: Tensor, labels_BS: Tensor, weights: EmbeddingTable, biases: EmbeddingTable) -> None:
        from ..kernels.classifiers import group_by_label

        self.groups = group_by_label(labels_BS.contiguous().numpy(), np.empty(len(weights), dtype=np.int32))
        self.width = max(1, labels_BS.shape[1])
        self.phi = phi_BD.detach().contiguous().numpy()
        self.cuts = fixed_ranges(self.groups[1])
        self.rows = torch.from_numpy(self.groups[0])
        pending_decay = weights.pending_decay(self.rows)
        self.pending_decay = (
            np.ones(len(self.rows), dtype=np.float32) if pending_decay is None else pending_decay.numpy()
        )
        self.biases = biases.gather(self.rows).numpy()[:, 0]


class _Loss(torch.autograd.Function):
    """The CPU kernel as a differentiable function of phi and log yhat; the gradients are made with the loss."""

    @staticmethod
    def forward(
        ctx: Any, phi_BD: Tensor, log_yhat_BS: Tensor, labels_BS: Tensor, y_BS: Tensor, weight_B: Tensor,
        weights: EmbeddingTable, biases: EmbeddingTable, buffer: GradientBuffer,
    ) -> Tensor:  # fmt: skip
        pairs = _Pairs(phi_BD, labels_BS, weights, biases)
        scale_B = (-weight_B.double() / equations.mean_over(labels_BS != PAD)).numpy()
        grad_log_yhat = np.zeros(labels_BS.shape, dtype=np.float32)
        grad_bias_U = np.empty(len(pairs.rows), dtype=np.float32)
        arrays = (
            *pairs.groups, pairs.width, pairs.phi, log_yhat_BS.detach().contiguous().numpy().ravel(),
            y_BS.contiguous().numpy().ravel(), scale_B,
            weights.array(), pairs.pending_decay, pairs.biases, grad_log_yhat.ravel(), grad_bias_U,
        )  # fmt: skip
        shares, grad_UD = _run_loss(pairs, weights, buffer, arrays)
        grad_phi = shares[0][1]
        for _, share in shares[1:]:
            grad_phi += share
        ctx.gradients = (grad_phi, grad_log_yhat, grad_bias_U[:, None], grad_UD)
        ctx.rows, ctx.weights, ctx.biases, ctx.buffer = pairs.rows, weights, biases, buffer
        return torch.tensor(sum(total for total, _ in shares), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = float(grads[0])
        made = [torch.from_numpy(gradient) for gradient in ctx.gradients if gradient is not None]
        phi, log_yhat, biases, *weights = made if factor == 1.0 else [gradient * factor for gradient in made]
        assert weights or factor == 1.0, "classifiers have stepped with the loss as it was"
        ctx.buffer.push(ctx.biases, ctx.rows, biases)
        if weights:
            ctx.buffer.push(ctx.weights, ctx.rows, weights[0])
        return phi, log_yhat, None, None, None, None, None, None


def _run_loss(
    pairs: _Pairs, weights: EmbeddingTable, buffer: GradientBuffer, arrays: Any
) -> tuple[list[Any], np.ndarray | None]:
    """(loss and gradient of phi by range, gradients of the classifiers); no gradients where they have stepped."""
    rate, constants = buffer.rates.get(weights), weights.optimizer
    if rate is None or constants.kind != "rowwise":
        grad_UD = np.empty((len(pairs.rows), pairs.phi.shape[1]), dtype=np.float32)
        return kernels.run_ranges(equations.loss_and_gradients, pairs.cuts, weights.threads, *arrays, grad_UD), grad_UD
    weights.begin_step(rate)
    state = [weights.state[name].numpy() for name in STATE["rowwise"]]
    numbers = (weights.decay_sum, rate, constants.beta2, constants.epsilon, weights.noise)
    return kernels.run_ranges(equations.loss_and_step, pairs.cuts, weights.threads, *arrays, *state, *numbers), None
