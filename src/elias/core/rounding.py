"""bfloat16 tables: stochastic rounding on any device, and bfloat16 tensors as numpy arrays and back.

numpy has no bfloat16; an array holds its 16 bits (uint16), as files do. The definition of `kernels.rounding`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .noise import mix

AT_ONCE = 1 << 14  # rows of a large table
_LOW32, _GOLDEN = 0xFFFFFFFF, 0x9E3779B9


def rounded_reference(values_RD: Tensor, rows_R: Tensor, noise: int) -> Tensor:
    """float32 rows as bfloat16, each value up or down at random, keyed by (noise, row, column)."""
    by_row = mix(mix(rows_R.long() & _LOW32) ^ noise)
    columns = torch.arange(values_RD.shape[1], device=values_RD.device) * _GOLDEN & _LOW32
    drawn = mix((by_row[:, None] + columns[None, :]) & _LOW32) & 0xFFFF
    bits = values_RD.float().contiguous().view(torch.int32).long() & _LOW32
    upper = (bits + drawn) >> 16
    return torch.where(upper >= 1 << 15, upper - (1 << 16), upper).to(torch.int16).view(torch.bfloat16)


def average_rounded(mean: Tensor, values: Tensor, weight: float, noise: int, *, threads: int = 1) -> None:
    """mean += weight * (values - mean), all bfloat16, in place."""
    if kernels.serve(mean.device):
        from ..kernels.rounding import average_rows

        kernels.run(average_rows, len(mean), threads, as_array(mean), as_array(values), weight, noise)
        return
    for rows in torch.split(torch.arange(len(mean), device=mean.device), AT_ONCE):
        old, new = mean[rows].float(), values[rows].float()
        mean[rows] = rounded_reference(old + weight * (new - old), rows, noise)


def as_array(values: Tensor) -> np.ndarray:
    """A tensor's memory as numpy; bfloat16 as uint16."""
    values = values.detach().cpu()
    return values.view(torch.int16).numpy().view(np.uint16) if values.dtype == torch.bfloat16 else values.numpy()


def as_tensor(array: np.ndarray) -> Tensor:
    """The inverse of `as_array`."""
    bits = array.dtype == np.uint16
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if bits else torch.from_numpy(array)
