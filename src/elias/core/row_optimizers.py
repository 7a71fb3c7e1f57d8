"""Optimizer steps of an `EmbeddingTable` in torch, on any device: the definition of `kernels.steps`.

    adamw     m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2         one m and one v per value
              w = w (1 - rate*decay) - rate * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
    rowwise   v = b2 v + (1-b2) mean(g^2)                          one v per row: no copy of the table
              w = w (1 - rate*decay) - rate * g / (sqrt(v/(1-b2^t)) + eps)

Both touch the rows that have a gradient, with the row's own step count t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .rounding import rounded_reference

STATE = {
    "adamw": ("first", "second", "steps", "decayed"),
    "rowwise": ("second", "steps", "decayed"),
}
FLOATS_AT_ONCE = 1 << 25, 1 << 18  # of a table that a step works on, on a GPU and on a CPU (its cache)


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
    rows: Tensor | slice  # numbers, each once, or a range of rows
    gradients: Tensor
    rate: float
    constants: RowOptimizer
    noise: int  # key of the rounding
    touched: Tensor | None = None  # bool, one for each of `rows`: the others stay as they are

    def read(self, name: str) -> Tensor:
        """A copy of the state of the rows."""
        tensor = self.state[name] if name != "values" else self.values
        return tensor[self.rows].clone() if isinstance(self.rows, slice) else tensor.index_select(0, self.rows)

    def write(self, name: str, new: Tensor) -> None:
        """The state of the rows, in place."""
        tensor = self.state[name] if name != "values" else self.values
        if not isinstance(self.rows, slice):
            tensor.index_copy_(0, self.rows, new)
            return
        old = tensor[self.rows]
        touched = None if self.touched is None else self.touched.view(-1, *(1,) * (new.dim() - 1))
        old.copy_(new if touched is None else torch.where(touched, new, old))

    @property
    def numbers(self) -> Tensor:
        if not isinstance(self.rows, slice):
            return self.rows
        return torch.arange(self.rows.start, self.rows.stop, device=self.values.device)


@torch.no_grad()
def step_reference(step: Step) -> None:
    """The step on any device; the definition of the kernels. A few rows at a time: all that it makes stays small."""
    at_once = max(1, FLOATS_AT_ONCE[step.values.device.type == "cpu"] // step.values.shape[1])
    for first in range(0, len(step.gradients), at_once):
        part = slice(first, first + at_once)
        if isinstance(step.rows, slice):
            begin = step.rows.start + first
            rows: Tensor | slice = slice(begin, min(begin + at_once, step.rows.stop))
        else:
            rows = step.rows[part]
        touched = None if step.touched is None else step.touched[part]
        one = replace(step, rows=rows, gradients=step.gradients[part], touched=touched)
        {"adamw": _adamw, "rowwise": _rowwise}[step.constants.kind](one)


def _adamw(step: Step) -> None:
    constants, gradients = step.constants, step.gradients
    keep, count = _decay_and_count(step)
    m = step.read("first").mul_(constants.beta1).add_(gradients, alpha=1 - constants.beta1)
    step.write("first", m)
    v = step.read("second").mul_(constants.beta2).addcmul_(gradients, gradients, value=1 - constants.beta2)
    step.write("second", v)
    size = (step.rate / (1 - constants.beta1**count)).float()[:, None]
    root = (1 / torch.sqrt(1 - constants.beta2**count)).float()[:, None]
    change = m.mul_(size).div_(v.sqrt_().mul_(root).add_(constants.epsilon))
    _write_values(step, _values(step).mul_(keep).sub_(change))


def _rowwise(step: Step) -> None:
    constants = step.constants
    keep, count = _decay_and_count(step)
    # Not the mean of a square: that would be one more copy of the gradients.
    mean = torch.linalg.vector_norm(step.gradients, dim=1).square_().div_(step.gradients.shape[1])
    v = step.read("second").mul_(constants.beta2).add_(mean, alpha=1 - constants.beta2)
    step.write("second", v)
    size = (step.rate / (torch.sqrt(v / (1 - constants.beta2**count)) + constants.epsilon)).float()
    _write_values(step, _values(step).mul_(keep).addcmul_(step.gradients, size[:, None], value=-1.0))


def _decay_and_count(step: Step) -> tuple[Tensor, Tensor]:
    """Pending decay of the rows (a factor, as a column) and their step counts with this step; both are stored."""
    count, decayed = step.read("steps").add_(1), step.read("decayed")
    step.write("steps", count)
    keep = torch.exp(step.decay_sum - decayed).float()
    step.write("decayed", decayed.fill_(step.decay_sum))
    return keep[:, None], count.double()


def _values(step: Step) -> Tensor:
    return step.read("values").float()


def _write_values(step: Step, rows_RD: Tensor) -> None:
    rounds = step.values.dtype == torch.bfloat16
    step.write("values", rounded_reference(rows_RD, step.numbers, step.noise) if rounds else rows_RD)


def stored(rows_RD: Tensor, table: Tensor, rows: Tensor, noise: int) -> Tensor:
    """float32 rows as the table keeps them."""
    return rounded_reference(rows_RD, rows, noise) if table.dtype == torch.bfloat16 else rows_RD
