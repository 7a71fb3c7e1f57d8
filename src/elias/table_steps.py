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


def adamw_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: TableOptimiser,
    *,
    noise: int = 0,
) -> None:
    """The step of `adamw` on any device; the definition of the kernel."""
    keep, count = _decay_and_count(state, decay_sum, rows)
    m = constants.beta1 * state["first"][rows] + (1 - constants.beta1) * gradients
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients * gradients
    state["first"][rows], state["second"][rows] = m, v
    size = (rate / (1 - constants.beta1**count)).float()[:, None]
    root = (1 / torch.sqrt(1 - constants.beta2**count)).float()[:, None]
    values[rows] = stored(
        keep[:, None] * values[rows] - size * m / (v.sqrt() * root + constants.epsilon), values, rows, noise
    )


def rowwise_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: TableOptimiser,
    *,
    noise: int = 0,
) -> None:
    """The step of `rowwise` on any device; the definition of the kernel."""
    keep, count = _decay_and_count(state, decay_sum, rows)
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients.square().mean(dim=1)
    state["second"][rows] = v
    size = (rate / (torch.sqrt(v / (1 - constants.beta2**count)) + constants.epsilon)).float()
    values[rows] = stored(keep[:, None] * values[rows] - size[:, None] * gradients, values, rows, noise)


def _decay_and_count(state: dict[str, Tensor], decay_sum: float, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of decay that `rows` are owed, and their step counts with this step; both are noted."""
    state["steps"][rows] += 1
    keep = torch.exp(decay_sum - state["decayed"][rows]).float()
    state["decayed"][rows] = decay_sum
    return keep, state["steps"][rows].double()


def sgd_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: TableOptimiser,
    *,
    clock: int,
    pull: Tensor,
    noise: int = 0,
) -> None:
    """The step of `sgd` on any device; with gradients of 0 and a rate of 0 it is what rows have missed."""
    since = state["touched"][rows].long()
    keep = torch.exp(decay_sum - state["decayed"][rows]).float()[:, None]
    way = pull.to(values.device)[since].float()[:, None]
    left = (constants.momentum ** (clock - since).double()).float()[:, None]
    m = state["first"][rows].float()
    values[rows] = stored(keep * values[rows] - way * m - rate * gradients, values, rows, noise)
    state["first"][rows] = stored(left * m + gradients, state["first"], rows, noise)
    state["touched"][rows], state["decayed"][rows] = clock, decay_sum


def next_pull(pull: Tensor, rate: float, constants: TableOptimiser) -> Tensor:
    """`pull` one step later; its length is the number of the step, plus one."""
    ages = torch.arange(len(pull), 0, -1, dtype=torch.float64)
    grown = pull * (1 - rate * constants.decay) + rate * constants.momentum**ages
    return torch.cat([grown, grown.new_zeros(1)])


def stored(rows_RD: Tensor, table: Tensor, rows: Tensor, noise: int) -> Tensor:
    """float32 rows as the table keeps them."""
    return rounded_torch(rows_RD, rows, noise) if table.dtype == torch.bfloat16 else rows_RD
