"""The last step of every encoder: a residual layer, length normalization, dropout; or dropout alone.

    residual   phi = dropout( radius * u / |u| ),   u = n + gelu(R n + r),   n = h / |h|,   R and r start at 0
    none       phi = dropout( h )                   the paper: phi is the transformer's own vector, of any length

With `residual`, an input without words has h = 0 and gets phi = 0, whatever r has learned: it has no opinion and biases
decide.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.linear import linear
from .encoder import TrainingContext


class Head(nn.Module):
    """`residual`."""

    def __init__(self, dim: int, *, radius: float, dropout: float, threads: int = 1) -> None:
        super().__init__()
        self.residual = nn.Linear(dim, dim)
        nn.init.zeros_(self.residual.weight)
        nn.init.zeros_(self.residual.bias)
        self.radius, self.dropout, self.threads = radius, dropout, threads

    def forward(self, h_BD: Tensor, context: TrainingContext | None = None) -> Tensor:
        n_BD = F.normalize(h_BD, dim=1)
        u_BD = n_BD + F.gelu(linear(self.residual, n_BD, self.threads))
        something_B1 = (h_BD != 0).any(dim=1, keepdim=True)
        phi_BD = self.radius * F.normalize(u_BD, dim=1) * something_B1
        if context is None:
            return phi_BD
        return context.noise.dropout(phi_BD, context.rows_B, self.dropout)

    def options(self) -> dict[str, float]:
        return {"radius": self.radius, "dropout": self.dropout}

    def arrays(self) -> dict[str, np.ndarray]:
        """Parameters by name, for a file."""
        return {f"head.{name}": tensor.detach().cpu().numpy() for name, tensor in self.named_parameters()}

    def take_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Parameters back from a file."""
        own = {name.removeprefix("head."): array for name, array in arrays.items() if name.startswith("head.")}
        self.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})


class NoHead(nn.Module):
    """`none`: nothing to learn."""

    def __init__(self, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, h_BD: Tensor, context: TrainingContext | None = None) -> Tensor:
        return h_BD if context is None else context.noise.dropout(h_BD, context.rows_B, self.dropout)

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def take_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Nothing to take."""
