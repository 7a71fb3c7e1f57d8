"""Classifier rows of a saved model in fewer bytes: read, never trained.

    bfloat16   half the bytes: the upper 16 bits of a float32, rounded to the nearest, ties to even
    int8       a quarter: value = scale * code, scale = max |w| / 127 of the row, code = round(w / scale) in -127..127

The model that was saved IS these rows: search with them is exact for them (docs/explanation/search.md). `compact`
prints what the rounding costs on real rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..core.rounding import as_tensor


class QuantizedRows:
    """rows x width numbers of `precision`; the same `gather` as an `EmbeddingTable`, without gradients."""

    def __init__(self, rows: np.ndarray, scales: np.ndarray | None = None, *, threads: int = 1) -> None:
        assert rows.dtype in (np.uint16, np.int8) and (scales is not None) == (rows.dtype == np.int8)
        self.rows, self.scales, self.threads = rows, scales, threads
        self._uploaded: dict[torch.device, tuple[Tensor, Tensor | None]] = {}

    @classmethod
    def of(cls, weights_LD: np.ndarray, precision: str, *, threads: int = 1) -> QuantizedRows:
        """float32 rows, rounded to "bfloat16" or "int8"."""
        if precision == "bfloat16":
            return cls(to_bfloat16(weights_LD, threads=threads), threads=threads)
        assert precision == "int8"
        return cls(*to_int8(weights_LD, threads=threads), threads=threads)

    @property
    def precision(self) -> str:
        return "int8" if self.scales is not None else "bfloat16"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def gather(self, rows: Tensor) -> Tensor:
        """Some rows as float32, on the device of their numbers."""
        if rows.device.type == "cpu":
            return torch.from_numpy(self.decoded(rows.numpy()))
        if rows.device not in self._uploaded:  # once, for all searches
            scales = None if self.scales is None else torch.from_numpy(self.scales).to(rows.device)
            self._uploaded[rows.device] = as_tensor(self.rows).to(rows.device), scales
        codes, scales = self._uploaded[rows.device]
        values = codes.index_select(0, rows).float()
        return values if scales is None else values * scales.index_select(0, rows)[:, None]

    def decoded(self, places: Any = slice(None)) -> np.ndarray:
        """Some rows, or all of them, as float32."""
        if self.scales is not None:
            return np.asarray(self.rows[places] * self.scales[places][:, None], dtype=np.float32)
        return np.asarray((self.rows[places].astype(np.uint32) << np.uint32(16)).view(np.float32))

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file holds of it."""
        return {"weights": self.rows} if self.scales is None else {"weights": self.rows, "scales": self.scales}

    def flush(self) -> None:
        """Rows that are not trained have no pending decay."""


def to_bfloat16(weights_LD: np.ndarray, *, threads: int = 1) -> np.ndarray:
    """The bits of the nearest bfloat16 of every value, uint16; numpy has no such type."""
    if not kernels.serve():
        return torch.from_numpy(weights_LD).bfloat16().view(torch.int16).numpy().view(np.uint16)
    from ..kernels.quantization import round_to_bfloat16

    bits_LD = np.empty(weights_LD.shape, dtype=np.uint16)
    kernels.run(round_to_bfloat16, len(weights_LD), threads, weights_LD, bits_LD)
    return bits_LD


def to_int8(weights_LD: np.ndarray, *, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(codes, int8 [L, D]; the scale of each row, float32 [L])."""
    if not kernels.serve():
        return to_int8_reference(weights_LD)
    from ..kernels.quantization import encode_rows

    n_rows, codes_LD = len(weights_LD), np.empty(weights_LD.shape, dtype=np.int8)
    scales_L, errors_L = np.empty(n_rows, dtype=np.float32), np.empty(n_rows, dtype=np.float32)
    kernels.run(encode_rows, n_rows, threads, weights_LD, codes_LD, scales_L, errors_L)
    return codes_LD, scales_L


def to_int8_reference(weights_LD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`to_int8` in numpy."""
    largest_L = np.abs(weights_LD).max(axis=1, initial=0.0)
    # Numbers too small to divide by become 0: 1 / scale would overflow.
    scales_L = np.where(largest_L > np.float32(1e-30), largest_L / np.float32(127.0), np.float32(0.0))
    inverse_L = np.divide(np.float32(1.0), scales_L, out=np.zeros_like(scales_L), where=scales_L > 0)
    codes_LD = np.rint(np.clip(weights_LD * inverse_L[:, None], -127.0, 127.0)).astype(np.int8)
    return codes_LD, scales_L
