"""A dense layer in training, its products shared by threads: y = x W^T + b and the gradients of all three.

Torch itself computes on one thread (`devices.pick_threads`). Blocks of rows have a fixed size, so results do not depend
on the number of threads. Twin: the layer itself.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from .. import kernels

BLOCK = 128  # rows of a product that one thread makes


def linear(layer: nn.Linear, x_BD: Tensor, threads: int) -> Tensor:
    """layer(x); on the CPU, where gradients are wanted, by several threads."""
    shared = kernels.serve(x_BD.device) and torch.is_grad_enabled()
    y_BE: Tensor = _Linear.apply(x_BD, layer.weight, layer.bias, threads) if shared else layer(x_BD)  # type: ignore[no-untyped-call]
    return y_BE


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, weight_ED: Tensor, bias_E: Tensor, threads: int) -> Tensor:
        x, weight, bias = x_BD.detach(), weight_ED.detach(), bias_E.detach()
        ctx.save_for_backward(x, weight)
        ctx.threads = threads
        y = x.new_empty((len(x), len(weight)))
        _in_blocks(lambda rows: torch.addmm(bias, x[rows], weight.t(), out=y[rows]), len(x), threads)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, (x, weight) = grads[0].contiguous(), ctx.saved_tensors
        grad_weight, grad_x = torch.empty_like(weight), None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            _in_blocks(lambda rows: torch.mm(grad[rows], weight, out=grad_x[rows]), len(x), ctx.threads)
        _in_blocks(lambda rows: torch.mm(grad[:, rows].t(), x, out=grad_weight[rows]), len(weight), ctx.threads)
        return grad_x, grad_weight, grad.sum(dim=0), None


def _in_blocks(product: Callable[[slice], Any], n_rows: int, threads: int) -> None:
    caller = get_ident()

    def one_block(start: int, stop: int) -> None:
        if get_ident() != caller and torch.get_num_threads() != 1:  # every thread has its own number of them
            torch.set_num_threads(1)
        product(slice(start, stop))

    kernels.run_ranges(one_block, [*range(0, n_rows, BLOCK), n_rows], threads)
