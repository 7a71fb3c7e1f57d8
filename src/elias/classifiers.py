"""Label classifiers over a shortlist: z = w_l . phi + b_l, the linear part of the final score.

`scores` never holds batch x K x d floats: the CPU kernel groups pairs by label and reads each classifier
once a batch; the torch twin works through the shortlist in chunks of columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import kernels
from .stored_rows import StoredRows
from .tables import RowTable, Tape

CHUNK_FLOATS = 1 << 24  # of batch x columns x d that the torch twin holds at once
PAIRS_PER_RANGE = 1 << 14
MOST_RANGES = 16


def scores(
    phi_BD: Tensor, labels_BS: Tensor, weights: RowTable | StoredRows, biases: RowTable, tape: Tape | None = None
) -> Tensor:
    """z of every shortlisted label; at PAD it is 0 and has no gradient."""
    if phi_BD.device.type == "cpu" and isinstance(weights, RowTable):
        z_BS: Tensor = _Scores.apply(phi_BD, labels_BS, weights, biases, tape)  # type: ignore[no-untyped-call]
        return z_BS
    return scores_torch(phi_BD, labels_BS, weights, biases, tape)


def scores_torch(
    phi_BD: Tensor, labels_BS: Tensor, weights: RowTable | StoredRows, biases: RowTable, tape: Tape | None
) -> Tensor:
    """The definition, on any device, differentiable through the tape."""
    real_BS = labels_BS >= 0
    rows_U, inverse = torch.unique(labels_BS[real_BS], return_inverse=True)
    if tape is None:
        weights_UD, biases_U1 = weights.gather(rows_U), biases.gather(rows_U)
    else:
        assert isinstance(weights, RowTable)
        weights_UD, biases_U1 = tape.gather(weights, rows_U), tape.gather(biases, rows_U)
    place_BS = torch.zeros_like(labels_BS)
    place_BS[real_BS] = inverse
    if len(rows_U) == 0:
        return torch.zeros_like(labels_BS, dtype=phi_BD.dtype)
    columns = max(1, CHUNK_FLOATS // max(1, phi_BD.numel()))
    pieces = [
        torch.einsum("bd,bsd->bs", phi_BD, weights_UD[place]) + biases_U1[place, 0]
        for place in torch.split(place_BS, columns, dim=1)
    ]
    return torch.cat(pieces, dim=1).masked_fill(~real_BS, 0.0)


def fixed_ranges(starts: np.ndarray) -> list[int]:
    """Cuts between labels into ranges of about PAIRS_PER_RANGE pairs.

    The sums of `backward`, and so its rounding, depend on the shortlist and not on the number of threads.
    """
    n_ranges = int(np.clip(starts[-1] // PAIRS_PER_RANGE, 1, MOST_RANGES))
    inner = np.searchsorted(starts, [starts[-1] * i // n_ranges for i in range(1, n_ranges)])
    return [0, *inner.tolist(), len(starts) - 1]


class _Scores(torch.autograd.Function):
    """The CPU kernel as a differentiable function; classifier gradients go to the tape, not through autograd."""

    @staticmethod
    def forward(
        ctx: Any, phi_BD: Tensor, labels_BS: Tensor, weights: RowTable, biases: RowTable, tape: Tape | None
    ) -> Tensor:
        from .kernels.classifiers import forward, group_by_label

        groups = group_by_label(labels_BS.contiguous().numpy(), np.empty(len(weights), dtype=np.int32))
        z = np.zeros(labels_BS.numel(), dtype=np.float32)
        phi, width, cuts = phi_BD.detach().contiguous().numpy(), max(1, labels_BS.shape[1]), fixed_ranges(groups[1])
        rows = torch.from_numpy(groups[0])
        owed = weights.owed(rows)
        owed_U = np.ones(len(rows), dtype=np.float32) if owed is None else owed.numpy()
        biases_U = biases.gather(rows).numpy()[:, 0]
        shared = (*groups, width, phi, weights.values.numpy(), owed_U)
        kernels.run_ranges(forward, cuts, weights.threads, *shared, biases_U, z)
        ctx.shared, ctx.cuts, ctx.rows, ctx.phi = shared, cuts, rows, phi
        ctx.weights, ctx.biases, ctx.tape = weights, biases, tape
        return torch.from_numpy(z).view(labels_BS.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from .kernels.classifiers import backward

        grad_z = grads[0].contiguous().numpy().ravel()
        grad_UD = np.empty((len(ctx.rows), ctx.phi.shape[1]), dtype=np.float32)
        grad_bias_U = np.empty(len(ctx.rows), dtype=np.float32)
        results = (grad_z, grad_UD, grad_bias_U)
        shares = kernels.run_ranges(backward, ctx.cuts, ctx.weights.threads, *ctx.shared, *results)
        grad_phi = shares[0]
        for share in shares[1:]:
            grad_phi += share
        if ctx.tape is not None:
            ctx.tape.push(ctx.weights, ctx.rows, torch.from_numpy(grad_UD))
            ctx.tape.push(ctx.biases, ctx.rows, torch.from_numpy(grad_bias_U)[:, None])
        return torch.from_numpy(grad_phi), None, None, None, None
