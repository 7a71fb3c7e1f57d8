"""The last step of every encoder: a residual layer, length normalisation, dropout.

    phi = dropout( radius * u / |u| ),   u = h + gelu(R h + r),   R and r start at 0

An input without words has h = 0; its u = 0 stays 0, so it has no opinion and biases decide.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .protocol import Learning


class Head(nn.Module):
    def __init__(self, dim: int, *, radius: float, dropout: float) -> None:
        super().__init__()
        self.residual = nn.Linear(dim, dim)
        nn.init.zeros_(self.residual.weight)
        nn.init.zeros_(self.residual.bias)
        self.radius, self.dropout = radius, dropout

    def forward(self, h_BD: Tensor, learning: Learning | None = None) -> Tensor:
        u_BD = F.normalize(h_BD, dim=1)
        u_BD = u_BD + F.gelu(self.residual(u_BD))
        phi_BD = self.radius * F.normalize(u_BD, dim=1)
        if learning is None:
            return phi_BD
        return learning.noise.dropout(phi_BD, learning.rows_B, self.dropout)
