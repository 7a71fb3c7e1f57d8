"""What the rest of ELIAS knows about an encoder phi: x -> R^d.

An encoder prepares inputs once (texts become arrays that can be memory-mapped) and then encodes batches of
prepared rows. Its small parameters are ordinary torch parameters; a large one is a `RowTable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..noise import Noise
from ..tables import RowTable, Tape


@dataclass
class Learning:
    """What a forward pass needs in training and not in prediction."""

    tape: Tape
    noise: Noise
    rows_B: Tensor  # numbers of the training rows, which key the noise


class Encoder(Protocol):
    """phi. `kind` is its name in settings and files, `dim` is d."""

    kind: str
    dim: int

    def prepare(self, inputs: Sequence[str] | Any, folder: Path | None = None) -> Any:
        """Inputs (texts, or a matrix) as arrays that `encode` takes rows of; kept in `folder` if it is given."""
        ...

    def encode(self, prepared: Any, rows: np.ndarray, learning: Learning | None = None) -> Tensor:
        """phi of the given prepared rows, float32 [B, dim]."""
        ...

    def module(self) -> torch.nn.Module:
        """The parameters that are learned densely."""
        ...

    def tables(self) -> dict[str, RowTable]:
        """The parameters that are learned by row."""
        ...

    def save(self, folder: Path) -> None:
        """Everything `load` needs, as safetensors and JSON."""
        ...
