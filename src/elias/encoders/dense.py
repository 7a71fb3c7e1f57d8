"""`dense`: the user's own vectors, through the head.

    h = x,     phi = head(h)

Vectors may be memory-mapped and of any float type; a batch of them becomes float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..core import model_schema
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.schema import check_arrays, check_object
from .encoder import Inputs, TrainingContext, silent
from .head import Head


class DenseEncoder:
    kind = "dense"

    def __init__(self, dim: int, *, radius: float, dropout: float, threads: int = 1) -> None:
        self.dim = dim
        self.head = Head(dim, radius=radius, dropout=dropout, threads=threads)

    def prepare(
        self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent
    ) -> np.ndarray:
        if inputs.vectors is None:
            raise InputError(f"this model reads vectors of {self.dim} numbers, and was given something else")
        if inputs.vectors.ndim != 2 or inputs.vectors.shape[1] != self.dim:
            raise InputError(f"vectors of shape {inputs.vectors.shape}; this model reads rows of {self.dim} numbers")
        return inputs.vectors

    def encode(self, prepared: np.ndarray, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        device = self.head.residual.weight.device
        h_BD = upload(self.take(prepared, rows), device)
        phi_BD: Tensor = self.head(h_BD, context)
        return phi_BD

    def take(self, prepared: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.asarray(prepared[rows], dtype=np.float32)

    def module(self) -> nn.Module:
        return self.head

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}

    def to(self, device: torch.device) -> None:
        self.head.to(device)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "encoder.json", {"kind": self.kind, "dim": self.dim, **self.head.options()})
        write_tensors(folder / "encoder.safetensors", self.head.arrays())

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> DenseEncoder:
        path = folder / "encoder.json"
        about = check_object(path, read_json(path), model_schema.HEAD_OPTIONS)
        path = folder / "encoder.safetensors"
        arrays = check_arrays(path, read_tensors(path)[0], model_schema.HEAD, {"dim": about["dim"]})
        encoder = cls(about["dim"], radius=about["radius"], dropout=about["dropout"], threads=threads)
        encoder.head.take_arrays(arrays)
        return encoder
