"""Gradients of what every rank holds (encoder, W_C, A), summed over the ranks: data parallelism.

    dense parameters   one all-reduce of all of them
    rows of a table    all-gather of the rows that each rank touched, added in the order of the ranks; where that is
                       more than the table has rows, an all-reduce of the whole gradient

Every rank then makes the same step on the same numbers, so copies stay equal without being sent. Label classifiers
are not here: each has one owner, which has its whole gradient (`network/sharding.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..core.distributed import Ranks
from ..core.embedding_table import EmbeddingTable

Part = tuple[Tensor, Tensor]  # rows of a table, and their gradients


def sum_dense(parameters: Sequence[torch.nn.Parameter], ranks: Ranks) -> None:
    """The gradients of the parameters that have one on some rank, summed in place."""
    if ranks.size == 1 or not parameters:
        return
    learns = ranks.any(torch.tensor([parameter.grad is not None for parameter in parameters])).tolist()
    learned = [parameter for parameter, does in zip(parameters, learns, strict=True) if does]
    for parameter in learned:
        if parameter.grad is None:  # a rank without rows in this batch
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in learned if parameter.grad is not None]
    if not gradients:
        return
    flat = ranks.sum(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, total in zip(gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def sum_rows(table: EmbeddingTable, parts: list[Part], ranks: Ranks) -> list[Part]:
    """The gradient of a table over all ranks: one part, or none where no rank has touched a row.

    `parts`: at most one, of row numbers that differ, or of one bool per row of the table.
    """
    if ranks.size == 1:
        return parts
    device, n_rows = table.values.device, len(table)
    nothing = torch.empty(0, dtype=torch.int64, device=device), torch.empty((0, table.width), device=device)
    rows, gradients = parts[0] if parts else nothing
    is_mask = rows.dtype == torch.bool
    counts, masks = zip(*ranks.numbers(0 if is_mask else len(rows), int(is_mask)), strict=True)
    if any(masks) or sum(counts) > n_rows:
        if not is_mask:
            rows, gradients = _mask(rows, n_rows), _whole(rows, gradients, n_rows)
        touched, total = ranks.any(rows), ranks.sum(gradients)
        if any(masks):
            return [(touched, total)]
        union = _numbers(touched)
        return [(union, total.view(-1).index_select(0, union)[:, None] if table.width == 1 else total[union])]
    gathered, shares = ranks.gather(rows.int(), counts).long(), ranks.gather(gradients, counts)
    if not len(gathered):
        return []
    union = _numbers(_mask(gathered, n_rows))
    place = torch.empty(n_rows, dtype=torch.int64, device=device)
    place[union] = torch.arange(len(union), device=device)
    total = torch.zeros((len(union), table.width), device=device)
    for own, share in zip(torch.split(gathered, list(counts)), torch.split(shares, list(counts)), strict=True):
        total.index_add_(0, place[own], share)  # each row once: the order of the sum is that of the ranks
    return [(union, total)]


def _mask(rows: Tensor, n_rows: int) -> Tensor:
    """One bool per row of a table."""
    return torch.zeros(n_rows, dtype=torch.bool, device=rows.device).index_fill_(0, rows, True)


def _numbers(touched: Tensor) -> Tensor:
    """The rows that are true. On a CPU by numpy, which needs a quarter of the time."""
    if touched.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(touched.numpy()))
    return torch.nonzero(touched)[:, 0]


def _whole(rows: Tensor, gradients: Tensor, n_rows: int) -> Tensor:
    """A gradient of every row; a scatter of single numbers is faster than a copy of rows of one number."""
    width = gradients.shape[1]
    whole = gradients.new_zeros(n_rows * width)
    if width == 1:
        return whole.scatter_(0, rows, gradients[:, 0])[:, None]
    return whole.view(n_rows, width).index_copy_(0, rows, gradients)
