"""The steps of a `RowTable` on any device: the definition of what `kernels.steps` does on the CPU.

    adamw     m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2         one m and one v for every value
              w = w (1 - rate*decay) - rate * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
    rowwise   v = b2 v + (1-b2) mean(g^2)                          one v for every row: a table without copies
              w = w (1 - rate*decay) - rate * g / (sqrt(v/(1-b2^t)) + eps)
    sgd       m = momentum m + g,   w = w (1 - rate*decay) - rate * m      one m for every value

adamw and rowwise touch the rows that have a gradient, with the row's own step count t. With sgd momentum goes on where
there is no gradient, so an untouched row is owed decay and the way of its momentum. With m and w of step s and no
gradient since, step t has

    m_t = momentum^(t-s) m_s        w_t = (decay of the steps s+1 .. t) w_s - pull_t[s] m_s
    pull_t[s] = (1 - rate_t*decay) pull_{t-1}[s] + rate_t momentum^(t-s),        pull_s[s] = 0

and `pull` is one number a step, the same for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .rounding import rounded_torch

STATE = {
    "adamw": ("first", "second", "steps", "decayed"),
    "rowwise": ("second", "steps", "decayed"),
    "sgd": ("first", "touched", "decayed"),
}


@dataclass(frozen=True, kw_only=True)
class TableOptimiser:
    """Which optimiser a table has, and its constants."""

    kind: str = "adamw"  # or "rowwise", "sgd"
    decay: float = 0.01
    beta1: float = 0.9  # adamw only
    beta2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.9  # sgd only

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
    constants: TableOptimiser
    noise: int  # key of the rounding
    clock: int  # number of the step
    pull: Tensor

    def write(self, values_RD: Tensor) -> None:
        self.values[self.rows] = stored(values_RD, self.values, self.rows, self.noise)


@torch.no_grad()
def step_torch(step: Step) -> None:
    """The step on any device; the definition of the kernels."""
    {"adamw": _adamw, "rowwise": _rowwise, "sgd": _sgd}[step.constants.kind](step)


@torch.no_grad()
def catch_up_torch(step: Step) -> None:
    """What rows with momentum have missed, whoever makes the next step; gradients and rate are 0."""
    _sgd(step)


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
    """The factor of decay that the rows are owed, as a column, and their step counts with this step; both are noted."""
    state, rows = step.state, step.rows
    state["steps"][rows] += 1
    keep = torch.exp(step.decay_sum - state["decayed"][rows]).float()
    state["decayed"][rows] = step.decay_sum
    return keep[:, None], state["steps"][rows].double()


def _sgd(step: Step) -> None:
    state, rows = step.state, step.rows
    since = state["touched"][rows].long()
    keep = torch.exp(step.decay_sum - state["decayed"][rows]).float()[:, None]
    way = step.pull.to(step.values.device)[since].float()[:, None]
    left = (step.constants.momentum ** (step.clock - since).double()).float()[:, None]
    m = state["first"][rows].float()
    step.write(keep * step.values[rows] - way * m - step.rate * step.gradients)
    state["first"][rows] = stored(left * m + step.gradients, state["first"], rows, step.noise)
    state["touched"][rows], state["decayed"][rows] = step.clock, step.decay_sum


def next_pull(pull: Tensor, rate: float, constants: TableOptimiser) -> Tensor:
    """`pull` one step later; its length is the number of the step, plus one."""
    ages = torch.arange(len(pull), 0, -1, dtype=torch.float64)
    grown = pull * (1 - rate * constants.decay) + rate * constants.momentum**ages
    return torch.cat([grown, grown.new_zeros(1)])


def stored(rows_RD: Tensor, table: Tensor, rows: Tensor, noise: int) -> Tensor:
    """float32 rows as the table keeps them."""
    return rounded_torch(rows_RD, rows, noise) if table.dtype == torch.bfloat16 else rows_RD
