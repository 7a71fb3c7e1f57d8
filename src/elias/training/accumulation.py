"""Gradients summed over several batches before one step (`stageN.accumulate`, k in the paper).

    g = g_1 + ... + g_k,     one AdamW step on g

The paper does this to W_L, whose step is the most expensive part of a batch on a GPU; the authors' program does it to
W_L, A and W_C (`stageN.accumulated`). A batch touches some rows of a table, k batches touch many: the sum is one dense
array, as large as the table, so that its size does not grow with k.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.embedding_table import ROWS_AT_ONCE, EmbeddingTable


class GradientSum:
    """The gradient of one table over several batches."""

    def __init__(self, table: EmbeddingTable) -> None:
        self.table = table
        self.sum_RD: Tensor | None = None  # made by the first gradient
        self.touched_R = torch.zeros(0, dtype=torch.bool)

    def add(self, rows: Tensor, gradients: Tensor) -> None:
        """One more batch: of row numbers, which may repeat, or of one bool per row of the table and all gradients."""
        if self.sum_RD is None:
            shape, device = self.table.values.shape, self.table.values.device
            self.sum_RD = torch.zeros(shape, device=device)
            self.touched_R = torch.zeros(shape[0], dtype=torch.bool, device=device)
        if rows.dtype == torch.bool:
            self.sum_RD += gradients * rows[:, None]
            self.touched_R |= rows
            return
        self.sum_RD.index_add_(0, rows, gradients)
        self.touched_R[rows] = True

    def step(self, rate: float) -> None:
        """One step of the table on the sum, which is zero afterwards."""
        if self.sum_RD is None:
            return
        touched = torch.nonzero(self.touched_R)[:, 0]
        self.table.begin_step(rate)
        for rows in torch.split(touched, ROWS_AT_ONCE):  # a copy of all rows may not fit
            self.table.step_rows(rows, self.sum_RD[rows], rate)
            self.sum_RD[rows] = 0.0
        self.touched_R.zero_()
