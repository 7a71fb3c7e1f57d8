"""Classifier rows of a saved model in fewer bytes: read, never trained.

    bfloat16   half the bytes; the upper 16 bits of a float32, rounded to the nearest
    int8       a quarter; value = scale of the row * code, code in -127..127

The model that was saved IS these rows: search with them is exact for them (docs/search.md). `compact` prints what
the rounding costs on real rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import kernels


class QuantizedRows:
    """rows x width numbers of `precision`; the same `gather` as a `EmbeddingTable`, without gradients."""

    def __init__(self, rows: np.ndarray, scales: np.ndarray | None = None, *, threads: int = 1) -> None:
        assert rows.dtype in (np.uint16, np.int8) and (scales is not None) == (rows.dtype == np.int8)
        self.rows, self.scales, self.threads = rows, scales, threads

    @classmethod
    def of(cls, weights_LD: np.ndarray, precision: str, *, threads: int = 1) -> QuantizedRows:
        """float32 rows, rounded."""
        from ..kernels.quantization import encode_rows, round_to_bfloat16

        n_rows = len(weights_LD)
        if precision == "bfloat16":
            rows = np.empty(weights_LD.shape, dtype=np.uint16)
            kernels.run(round_to_bfloat16, n_rows, threads, weights_LD, rows)
            return cls(rows, threads=threads)
        assert precision == "int8"
        codes = np.empty(weights_LD.shape, dtype=np.int8)
        scales, errors = np.empty(n_rows, dtype=np.float32), np.empty(n_rows, dtype=np.float32)
        kernels.run(encode_rows, n_rows, threads, weights_LD, codes, scales, errors)
        return cls(codes, scales, threads=threads)

    @property
    def precision(self) -> str:
        return "int8" if self.scales is not None else "bfloat16"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def gather(self, rows: Tensor) -> Tensor:
        """Some rows as float32."""
        return torch.from_numpy(self.decoded(rows.numpy()))

    def decoded(self, places: Any = slice(None)) -> np.ndarray:
        """Some rows, or all of them, as float32."""
        if self.scales is not None:
            return np.asarray(self.rows[places] * self.scales[places][:, None], dtype=np.float32)
        return np.asarray((self.rows[places].astype(np.uint32) << np.uint32(16)).view(np.float32))

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file holds of it."""
        return {"weights": self.rows} if self.scales is None else {"weights": self.rows, "scales": self.scales}

    def flush(self) -> None:
        """Nothing is owed: these rows are not trained."""
