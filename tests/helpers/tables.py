"""Small tables and random optimizer steps."""

from __future__ import annotations

import numpy as np
import torch

from elias.core.embedding_table import EmbeddingTable
from elias.core.row_optimizers import RowOptimizer, step_reference

KINDS = ["adamw", "rowwise"]


SHAPE = (12, 5)


def table_of(kind: str, seed: int = 0, threads: int = 1, **constants: float) -> EmbeddingTable:
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return EmbeddingTable(values, RowOptimizer(kind=kind, **constants), threads=threads)


def random_steps(seed: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
    """Some rows, their gradients and a rate, `count` times."""
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(count):
        rows = rng.permutation(SHAPE[0])[: rng.integers(0, SHAPE[0] + 1)].copy()
        gradients = rng.normal(size=(len(rows), SHAPE[1])) * rng.choice([0.0, 1e-4, 1.0, 1e3], (len(rows), 1))
        rate = float(rng.choice([0.0, 1e-3, 0.1]))
        steps.append((torch.from_numpy(rows), torch.from_numpy(gradients.astype(np.float32)), rate))
    return steps


def reference_step(table: EmbeddingTable, rows: torch.Tensor, gradients: torch.Tensor, rate: float) -> None:
    step_reference(table.step_of(rows, gradients, rate))
