"""One-versus-all: the same encoder and classifiers, trained on every label of every text. No index, no sampling.

    p_l = sigmoid(w_l . phi(x) + b_l)
    L   = - sum over batch x L of   y log p + (1 - y) log(1 - p),   divided by batch x min(L, K)

The yardstick for the index: the paper's table 2. It is the network with one cluster that holds all labels, so that
yhat = 1 everywhere, and it is saved and searched as that: prediction with K = L is exact. Only the loss is computed
otherwise, as dense products over blocks of labels. Labels without a training row are in no cluster and in no sum.
(7) would divide by batch x L; with the K of
training a label's gradient has the size it has in ELIAS, and AdamW's epsilon means the same.

Shapes: B batch, L labels of the cluster, N labels of a range, D dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import kernels
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.ragged import Ragged
from ..encoders.encoder import TrainingContext
from .network import Batch, Network

RANGE = 2048  # labels of one product; fixed, so that sums do not depend on the number of threads
BLOCK = 8 * RANGE  # labels whose gradients are held at once


class OneVersusAll(Network):
    """A network in training; once saved it is a `Network` like any other."""

    def loss(
        self, prepared: Any, batch: Batch, parents: np.ndarray, context: TrainingContext, lambda_: float
    ) -> Tensor:
        """L over all labels; there is no path to learn, so `parents` and `lambda_` are not used."""
        phi_BD = self.phi(prepared, batch, context)
        labels, rows_L = self._labels
        size = min(len(labels), self.settings.training_shortlist_size or self.settings.shortlist_size)
        scale_B = upload(batch.weights, self.device) / max(1, len(batch.rows) * size)
        pairs = (
            _Pairs.of(batch.positives, batch.positive_weights, labels, self.device),
            _Pairs.of(batch.excluded, None, labels, self.device),
        )
        tables = self.trained_weights, self.classifier_biases
        value: Tensor = _AllLabels.apply(phi_BD, scale_B, *pairs, rows_L, *tables, context.buffer)  # type: ignore[no-untyped-call]
        return value

    @cached_property
    def _labels(self) -> tuple[np.ndarray, Tensor]:
        """The labels that are trained, here and on the device."""
        labels = self.index.labels.astype(np.int64)
        return labels, upload(labels, self.device)


@dataclass(frozen=True)
class _Pairs:
    """(row, label) pairs of a batch by ascending label, with weights; a label is its place among the labels trained."""

    places: np.ndarray
    rows_P: Tensor
    places_P: Tensor
    weights_P: Tensor

    @classmethod
    def of(cls, lists: Ragged, weights: np.ndarray | None, labels: np.ndarray, device: torch.device) -> _Pairs:
        order = np.argsort(lists.labels, kind="stable")
        order = order[np.isin(lists.labels[order], labels)]
        places = np.searchsorted(labels, lists.labels[order])
        weights = np.ones(len(order), dtype=np.float32) if weights is None else weights[order]
        rows_P, places_P, weights_P = (upload(a, device) for a in (lists.rows[order], places, weights))
        return cls(places, rows_P, places_P, weights_P)

    def between(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns from 0, and weights of the pairs whose labels are in a range."""
        part = slice(*np.searchsorted(self.places, [start, stop]).tolist())
        return self.rows_P[part], self.places_P[part] - start, self.weights_P[part]


class _Pass(NamedTuple):
    """A batch in the forward pass; `scale_B` is the factor of a row's terms in the loss."""

    phi_BD: Tensor
    scale_B: Tensor
    positives: _Pairs
    excluded: _Pairs
    torch_threads: int  # of the thread that asks: the order of sums depends on it


class _Labels(NamedTuple):
    """The labels that are trained (rows of the tables), and the tables."""

    rows_L: Tensor
    weights: Tensor
    biases: Tensor


class _Gradients(NamedTuple):
    """Where gradients are written: weights of a block of labels, of which `first` is the first, and all biases."""

    weights_ND: Tensor
    biases_L1: Tensor
    first: int


class _AllLabels(torch.autograd.Function):
    """The loss as a differentiable function of phi; the gradients are made with it, block by block.

    Where the classifiers may step at once, they do, and no gradient of L x D is ever held. Every row of `rows_L`
    steps in every step, so no decay is pending and their `values` are up to date.
    """

    @staticmethod
    def forward(
        ctx: Any, phi_BD: Tensor, scale_B: Tensor, positives: _Pairs, excluded: _Pairs, rows_L: Tensor,
        weights: EmbeddingTable, biases: EmbeddingTable, buffer: GradientBuffer,
    ) -> Tensor:  # fmt: skip
        phi_BD = phi_BD.detach().contiguous()
        rate, n_labels = buffer.rates.get(weights), len(rows_L)
        grad_bias_L1, kept = phi_BD.new_empty((n_labels, 1)), []
        total, grad_phi_BD = phi_BD.new_zeros((), dtype=torch.float64), torch.zeros_like(phi_BD)
        given = _Pass(phi_BD, scale_B, positives, excluded, torch.get_num_threads())
        labels = _Labels(rows_L, weights.values, biases.values)
        threads = weights.threads if kernels.serve(phi_BD.device) else 1
        if rate is not None:
            weights.begin_step(rate)
        for first in range(0, n_labels, BLOCK):
            last = min(first + BLOCK, n_labels)
            grad_ND = torch.empty((last - first, phi_BD.shape[1]), device=phi_BD.device)
            cuts = [*range(first, last, RANGE), last]
            arguments = given, labels, _Gradients(grad_ND, grad_bias_L1, first)
            for loss, share_BD in kernels.run_ranges(_range, cuts, threads, *arguments):
                total += loss
                grad_phi_BD += share_BD
            if rate is not None:
                weights.step_rows(rows_L[first:last], grad_ND, rate)
            else:
                kept.append(grad_ND)
        ctx.gradients = grad_phi_BD, grad_bias_L1, kept
        ctx.tables, ctx.rows_L, ctx.buffer = (weights, biases), rows_L, buffer
        return total.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = grads[0]  # stays on its device, so it is checked where that costs nothing
        (weights, biases), (phi_BD, bias_L1, kept) = ctx.tables, ctx.gradients
        assert kept or factor.device.type != "cpu" or factor == 1.0, "classifiers have stepped with the loss as it was"
        ctx.buffer.push(biases, ctx.rows_L, bias_L1 * factor)
        if kept:
            ctx.buffer.push(weights, ctx.rows_L, torch.cat(kept) * factor)
        return phi_BD * factor, None, None, None, None, None, None, None


def _range(start: int, stop: int, batch: _Pass, labels: _Labels, out: _Gradients) -> tuple[Tensor, Tensor]:
    """Loss and gradient of phi from the labels of a range; the gradients of the classifiers are written to `out`."""
    if torch.get_num_threads() != batch.torch_threads:  # every thread has a number of its own, from its first use
        torch.set_num_threads(batch.torch_threads)
    rows_N = labels.rows_L[start:stop]
    weights_ND = labels.weights[rows_N].float()
    z_BN = torch.addmm(labels.biases[rows_N, 0], batch.phi_BD, weights_ND.T)
    terms_BN, grad_BN = F.softplus(z_BN), torch.sigmoid(z_BN)
    rows_P, columns_P, y_P = batch.positives.between(start, stop)
    z_P = z_BN[rows_P, columns_P]
    terms_BN[rows_P, columns_P] = y_P * F.softplus(-z_P)
    grad_BN[rows_P, columns_P] = -y_P * torch.sigmoid(-z_P)
    rows_X, columns_X, _ = batch.excluded.between(start, stop)
    terms_BN[rows_X, columns_X] = 0.0
    grad_BN[rows_X, columns_X] = 0.0
    grad_BN *= batch.scale_B[:, None]
    torch.mm(grad_BN.T, batch.phi_BD, out=out.weights_ND[start - out.first : stop - out.first])
    out.biases_L1[start:stop, 0] = grad_BN.sum(dim=0)
    return (terms_BN.sum(dim=1) * batch.scale_B).sum(), grad_BN @ weights_ND
