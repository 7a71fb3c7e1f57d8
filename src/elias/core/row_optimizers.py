"""The steps of a `EmbeddingTable` on any device: the definition of what `kernels.steps` does on the CPU.

    adamw     m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2         one m and one v for every value
              w = w (1 - rate*decay) - rate * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
    rowwise   v = b2 v + (1-b2) mean(g^2)                          one v for every row: a table without copies
              w = w (1 - rate*decay) - rate * g / (sqrt(v/(1-b2^t)) + eps)

Both touch the rows that have a gradient, with the row's own step count t.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .rounding import rounded_reference

STATE = {
    "adamw": ("first", "second", "steps", "decayed"),
    "rowwise": ("second", "steps", "decayed"),
}


@dataclass(frozen=True, kw_only=True)
class RowOptimizer:
    """Which optimizer a table has, and its constants."""

    kind: str = "adamw"  # or "rowwise"
    decay: float = 0.01
    beta1: float = 0.9  # adamw only
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        assert self.kind in STATE, f"{self.kind!r} is none of {', '.join(STATE)}"


@dataclass(frozen=True)
class Step:
    """One step of some rows of a table."""

    values: Tensor
    state: dict[str, Tensor]
    decay_sum: float
    rows: Tensor
    gradients: Tensor
    rate: float
    constants: RowOptimizer
    noise: int  # key of the rounding

    def write(self, values_RD: Tensor) -> None:
        self.values[self.rows] = stored(values_RD, self.values, self.rows, self.noise)


@torch.no_grad()
def step_reference(step: Step) -> None:
    """The step on any device; the definition of the kernels."""
    {"adamw": _adamw, "rowwise": _rowwise}[step.constants.kind](step)


def _adamw(step: Step) -> None:
    state, rows, constants, gradients = step.state, step.rows, step.constants, step.gradients
    keep, count = _decay_and_count(step)
    m = constants.beta1 * state["first"][rows] + (1 - constants.beta1) * gradients
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients * gradients
    state["first"][rows], state["second"][rows] = m, v
    size = (step.rate / (1 - constants.beta1**count)).float()[:, None]
    root = (1 / torch.sqrt(1 - constants.beta2**count)).float()[:, None]
    step.write(keep * step.values[rows] - size * m / (v.sqrt() * root + constants.epsilon))


def _rowwise(step: Step) -> None:
    state, rows, constants = step.state, step.rows, step.constants
    keep, count = _decay_and_count(step)
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * step.gradients.square().mean(dim=1)
    state["second"][rows] = v
    size = (step.rate / (torch.sqrt(v / (1 - constants.beta2**count)) + constants.epsilon)).float()
    step.write(keep * step.values[rows] - size[:, None] * step.gradients)


def _decay_and_count(step: Step) -> tuple[Tensor, Tensor]:
    """Pending decay of the rows (a factor, as a column) and their step counts with this step; both are stored."""
    state, rows = step.state, step.rows
    state["steps"][rows] += 1
    keep = torch.exp(step.decay_sum - state["decayed"][rows]).float()
    state["decayed"][rows] = step.decay_sum
    return keep[:, None], state["steps"][rows].double()


def stored(rows_RD: Tensor, table: Tensor, rows: Tensor, noise: int) -> Tensor:
    """float32 rows as the table keeps them."""
    return rounded_reference(rows_RD, rows, noise) if table.dtype == torch.bfloat16 else rows_RD
