"""What the rest of ELIAS knows about an encoder phi: x -> R^d.

An encoder prepares inputs once (they become arrays that can be memory-mapped) and then encodes batches of
prepared rows. Its small parameters are ordinary torch parameters; a large one is a `EmbeddingTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.noise import Noise


@dataclass(frozen=True)
class Inputs:
    """What a user gave: texts with their tf-idf rows, or vectors (sparse ones stand in the place of tf-idf)."""

    texts: Sequence[str] | None = None
    bow: sp.csr_matrix | None = None
    vectors: np.ndarray | None = None

    def __len__(self) -> int:
        given = self.texts if self.texts is not None else self.vectors
        return len(given) if given is not None else int(self.bow.shape[0]) if self.bow is not None else 0

    def bow_rows(self, rows: np.ndarray) -> sp.csr_matrix:
        """tf-idf, or sparse vectors, of some rows in ascending order."""
        assert self.bow is not None
        return self.bow if len(rows) == self.bow.shape[0] else sp.csr_matrix(self.bow[rows])


@dataclass
class TrainingContext:
    """What a forward pass needs in training and not in prediction."""

    buffer: GradientBuffer
    noise: Noise
    rows_B: Tensor  # numbers of the training rows, which key the noise
    rows: np.ndarray | None = None  # the same on the host: a GPU is not waited for to read them back


def silent(done: int, total: int) -> None:
    """A progress callback that does nothing."""


class Encoder(Protocol):
    """phi. `kind` is its name in settings and files, `dim` is d."""

    kind: str
    dim: int

    def prepare(self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent) -> Any:
        """Inputs as arrays that `encode` takes rows of; large ones are written to `folder` and memory-mapped."""
        ...

    def encode(self, prepared: Any, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        """phi of the given prepared rows, float32 [B, dim]."""
        ...

    def take(self, prepared: Any, rows: np.ndarray) -> Any:
        """The given rows as prepared inputs of their own, in memory: row i of it is row rows[i]."""
        ...

    def module(self) -> torch.nn.Module:
        """The parameters that are learned densely."""
        ...

    def tables(self) -> dict[str, EmbeddingTable]:
        """The parameters that are learned by row."""
        ...

    def to(self, device: torch.device) -> None:
        """Move every parameter."""
        ...

    def save(self, folder: Path) -> None:
        """encoder.json and encoder.safetensors: everything the class's `load(folder)` needs."""
        ...
