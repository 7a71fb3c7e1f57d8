"""Counter-based noise on any device: a hash of (key, row, column), not a stream.

Used for dropout and for sampling parents, so that a draw depends only on (seed, stage, epoch, row).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .rng import key

_LOW32 = 0xFFFFFFFF


def mix(x: Tensor) -> Tensor:
    """A 32-bit finalizer (xor-shift-multiply) in int64 arithmetic; only the low 32 bits carry."""
    x = (x ^ (x >> 16)) * 0x7FEB352D & _LOW32
    x = (x ^ (x >> 15)) * 0x846CA68B & _LOW32
    return x ^ (x >> 16)


@dataclass(frozen=True)
class Noise:
    """The noise of one epoch of one stage of one run."""

    key: int

    @classmethod
    def of(cls, seed: int, stage: str, epoch: int) -> Noise:
        return cls(key(seed, stage, epoch, "noise"))

    def uniform(self, rows: Tensor, columns: Tensor) -> Tensor:
        """float32 in [0, 1) for each (row, column), broadcast together."""
        low, high = self.key & _LOW32, (self.key >> 32) & _LOW32
        by_row = mix(mix((rows.long() ^ low) & _LOW32) ^ high)
        mixed = mix(by_row ^ mix((columns.long() * 0x9E3779B9 + high) & _LOW32))
        return (mixed >> 8).to(torch.float32) * (1.0 / (1 << 24))

    def dropout(self, x_BD: Tensor, rows_B: Tensor, rate: float) -> Tensor:
        """Zero each entry with probability `rate`, scale the rest by 1 / (1 - rate)."""
        if rate <= 0.0:
            return x_BD
        columns_D = torch.arange(x_BD.shape[1], device=x_BD.device)
        keep_BD = self.uniform(rows_B[:, None], columns_D[None, :]) >= rate
        return x_BD * keep_BD / (1.0 - rate)
