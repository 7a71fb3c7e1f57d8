"""Label classifiers over a shortlist: z = w_l . phi + b_l, and the loss (7) of p = sigmoid(z) * yhat.

Nothing here holds batch x K x d floats: the CPU kernels group pairs by label and read each classifier once a batch;
the torch definitions multiply phi with the union of the labels of a batch, block by block, and pick the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.predictions import PAD
from ..core.row_optimizers import STATE
from . import losses as equations
from .quantization import QuantizedRows

UNION_FLOATS = 1 << 22  # of batch x labels that the definition holds at once
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
    """(7) of a shortlist; classifiers get their gradients through the buffer."""
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
    return equations.classification_loss(z_BS, log_yhat_BS, y_BS, labels_BS >= 0, weight_B)


def scores_reference(
    phi_BD: Tensor,
    labels_BS: Tensor,
    weights: EmbeddingTable | QuantizedRows,
    biases: EmbeddingTable,
    buffer: GradientBuffer | None,
) -> Tensor:
    """The definition, on any device, differentiable through the buffer; one product for all labels of the batch."""
    real_BS = labels_BS >= 0
    rows_U, inverse = torch.unique(labels_BS[real_BS], return_inverse=True)
    if buffer is None:
        weights_UD, biases_U1 = weights.gather(rows_U), biases.gather(rows_U)
    else:
        assert isinstance(weights, EmbeddingTable)
        weights_UD, biases_U1 = buffer.gather(weights, rows_U), buffer.gather(biases, rows_U)
    if len(rows_U) == 0:
        return torch.zeros_like(labels_BS, dtype=phi_BD.dtype)
    place_BS = torch.full_like(labels_BS, PAD).masked_scatter_(real_BS, inverse)
    z_BS: Tensor = _UnionScores.apply(phi_BD, weights_UD, biases_U1[:, 0], place_BS)  # type: ignore[no-untyped-call]
    return z_BS


class _UnionScores(torch.autograd.Function):
    """z of the pairs of a shortlist from dense products phi W_U^T, U the labels of the batch, each once.

    A product is made for a block of labels and forgotten: nothing larger than batch x block is held, and the backward
    pass scatters the gradients of z into blocks of the same size.
    """

    @staticmethod
    def forward(ctx: Any, phi_BD: Tensor, weights_UD: Tensor, biases_U: Tensor, place_BS: Tensor) -> Tensor:
        ctx.save_for_backward(phi_BD, weights_UD, place_BS)
        z_BS = torch.zeros(place_BS.shape, dtype=phi_BD.dtype, device=phi_BD.device)
        for block, inside_BS, column_BS in _blocks(place_BS, len(weights_UD)):
            product_BN = torch.addmm(biases_U[block], phi_BD, weights_UD[block].T)
            z_BS = torch.where(inside_BS, product_BN.gather(1, column_BS), z_BS)
        return z_BS

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        phi_BD, weights_UD, place_BS = ctx.saved_tensors
        grad_phi_BD, grad_UD = torch.zeros_like(phi_BD), torch.empty_like(weights_UD)
        grad_U = torch.empty_like(weights_UD[:, 0])
        for block, inside_BS, column_BS in _blocks(place_BS, len(weights_UD)):
            by_label_BN = phi_BD.new_zeros((len(phi_BD), block.stop - block.start))
            by_label_BN.scatter_add_(1, column_BS, grads[0].masked_fill(~inside_BS, 0.0))
            grad_phi_BD.addmm_(by_label_BN, weights_UD[block])
            torch.mm(by_label_BN.T, phi_BD, out=grad_UD[block])
            grad_U[block] = by_label_BN.sum(dim=0)
        return grad_phi_BD, grad_UD, grad_U, None


def _blocks(place_BS: Tensor, n_labels: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(block of labels, which pairs are in it, their columns in it; any column for the others)."""
    step = max(1, UNION_FLOATS // max(1, len(place_BS)))
    for start in range(0, n_labels, step):
        stop = min(start + step, n_labels)
        inside_BS = (place_BS >= start) & (place_BS < stop)
        yield slice(start, stop), inside_BS, (place_BS - start).clamp(0, stop - start - 1)


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
        scale_B = (-weight_B.double() / equations.mean_over(labels_BS >= 0)).numpy()
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
