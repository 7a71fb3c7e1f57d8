"""Large tables: label classifiers, word embeddings, edge logits.

A table is touched through two calls only, `gather(rows)` and `apply(rows, gradients, rate)`, and keeps its
optimiser state by row: rows that no batch touched cost nothing. That is all another process would need to
own a share of the rows. A `Tape` remembers what a forward pass gathered, so that after `backward` every
gradient finds its table.

Two optimisers, both by row, with the row's own step count t in the bias corrections:

    adamw     m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2         one m and one v for every value
              w = w (1 - rate*decay) - rate * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
    rowwise   v = b2 v + (1-b2) mean(g^2)                          one v for every row: a table without copies
              w = w (1 - rate*decay) - rate * g / (sqrt(v/(1-b2^t)) + eps)

Decay reaches untouched rows lazily: the running sum of log(1 - rate*decay) is kept once, and what a row has
had of it is kept by row. `gather` includes what is owed, so nobody can tell; who reads `values` settles first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import kernels

STATE = {"adamw": ("first", "second", "steps", "decayed"), "rowwise": ("second", "steps", "decayed")}


@dataclass(frozen=True, kw_only=True)
class TableOptimiser:
    """Which optimiser a table has, and its constants."""

    kind: str = "adamw"  # or "rowwise"
    decay: float = 0.01
    beta1: float = 0.9  # adamw only
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        assert self.kind in STATE, f"{self.kind!r} is none of {', '.join(STATE)}"


class RowTable:
    """rows x width float32 values with row-sparse optimiser state (made on the first `apply`)."""

    def __init__(self, values: Tensor, optimiser: TableOptimiser | None = None, *, threads: int = 1) -> None:
        assert values.dim() == 2 and values.is_contiguous() and values.dtype == torch.float32
        self.values = values
        self.optimiser = optimiser or TableOptimiser()
        self.threads = threads
        self.state: dict[str, Tensor] = {}
        self.decay_sum = 0.0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def gather(self, rows: Tensor) -> Tensor:
        """A copy of some rows as they are now, the decay they are owed included."""
        values, owed = self.values[rows], self.owed(rows)
        return values if owed is None else values.mul_(owed[:, None])

    def owed(self, rows: Tensor) -> Tensor | None:
        """The factor of decay that `values[rows]` still lack; None where nothing decays."""
        if not self.state or self.decay_sum == 0.0:
            return None
        if self.values.device.type == "cpu":
            from .kernels.steps import owed_rows

            out = torch.empty(len(rows))
            arrays = (rows.long().contiguous().numpy(), self.state["decayed"].numpy(), self.decay_sum, out.numpy())
            kernels.run(owed_rows, len(rows), self.threads, *arrays)
            return out
        return torch.exp(self.decay_sum - self.state["decayed"][rows]).to(self.values.dtype)

    @torch.no_grad()
    def apply(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """One optimiser step on `rows` (each row at most once); every other row owes the step's decay."""
        self.begin_step(rate)
        self.step_rows(rows, gradients, rate)

    @torch.no_grad()
    def step_rows(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """The step that `begin_step` began, on some of its rows; each row at most once in a step."""
        if self.values.device.type == "cpu":
            self._apply_cpu(rows, gradients, rate)
            return
        twin = adamw_torch if self.optimiser.kind == "adamw" else rowwise_torch
        twin(self.values, self.state, self.decay_sum, rows, gradients, rate, self.optimiser)

    def begin_step(self, rate: float) -> None:
        """Every row owes the step's decay from now on; rows that have a gradient step with it."""
        if self.state.keys() != set(STATE[self.optimiser.kind]):
            self.start()
        self.decay_sum += math.log1p(-rate * self.optimiser.decay)

    def start(self) -> None:
        """Settle, and begin again with the state of a new optimiser: no moments, no steps."""
        self.settle()
        n_rows, device = len(self.values), self.values.device
        self.state = {
            "second": torch.zeros(n_rows, device=device),
            "steps": torch.zeros(n_rows, dtype=torch.int32, device=device),
            "decayed": torch.zeros(n_rows, dtype=torch.float64, device=device),
        }
        if self.optimiser.kind == "adamw":
            self.state |= {"first": torch.zeros_like(self.values), "second": torch.zeros_like(self.values)}
        self.decay_sum = 0.0

    @torch.no_grad()
    def settle(self) -> None:
        """Give every row the decay it is owed, so that `values` are what dense decay would have made them."""
        if self.state:
            owed = torch.exp(self.decay_sum - self.state["decayed"]).to(self.values.dtype)
            self.values.mul_(owed[:, None])
            self.state["decayed"].fill_(self.decay_sum)

    def to(self, device: torch.device | str) -> RowTable:
        """Move values and state; returns the table itself."""
        self.values = self.values.to(device)
        self.state = {name: tensor.to(device) for name, tensor in self.state.items()}
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, by name: the live tensors, not copies."""
        total = torch.tensor(self.decay_sum, dtype=torch.float64)
        return {"values": self.values, "decay_sum": total, **self.state}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up where `tensors` left off."""
        self.values.copy_(tensors["values"])
        self.decay_sum = float(tensors["decay_sum"])
        state = {name: tensor for name, tensor in tensors.items() if name not in ("values", "decay_sum")}
        self.state = {name: tensor.to(self.values.device, copy=True) for name, tensor in state.items()}

    def _apply_cpu(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        from .kernels.steps import adamw_rows, rowwise_rows

        constants = self.optimiser
        places = (rows.long().contiguous().numpy(), gradients.contiguous().numpy(), self.values.numpy())
        state = [self.state[name].numpy() for name in STATE[constants.kind]]
        last = (constants.beta2, constants.epsilon)
        if constants.kind == "adamw":
            numbers = [self.decay_sum, rate, constants.beta1, *last]
            kernels.run(adamw_rows, len(rows), self.threads, *places, *state, *numbers)
        else:
            kernels.run(rowwise_rows, len(rows), self.threads, *places, *state, self.decay_sum, rate, *last)


def adamw_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: TableOptimiser,
) -> None:
    """The step of `adamw` on any device; the definition of the kernel."""
    keep, count = _decay_and_count(state, decay_sum, rows)
    m = constants.beta1 * state["first"][rows] + (1 - constants.beta1) * gradients
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients * gradients
    state["first"][rows], state["second"][rows] = m, v
    size = (rate / (1 - constants.beta1**count)).float()[:, None]
    root = (1 / torch.sqrt(1 - constants.beta2**count)).float()[:, None]
    values[rows] = keep[:, None] * values[rows] - size * m / (v.sqrt() * root + constants.epsilon)


def rowwise_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: TableOptimiser,
) -> None:
    """The step of `rowwise` on any device; the definition of the kernel."""
    keep, count = _decay_and_count(state, decay_sum, rows)
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients.square().mean(dim=1)
    state["second"][rows] = v
    size = (rate / (torch.sqrt(v / (1 - constants.beta2**count)) + constants.epsilon)).float()
    values[rows] = keep[:, None] * values[rows] - size[:, None] * gradients


def _decay_and_count(state: dict[str, Tensor], decay_sum: float, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of decay that `rows` are owed, and their step counts with this step; both are noted."""
    state["steps"][rows] += 1
    keep = torch.exp(decay_sum - state["decayed"][rows]).float()
    state["decayed"][rows] = decay_sum
    return keep, state["steps"][rows].double()


@dataclass
class Tape:
    """What one forward pass took from the tables, and the gradients that came back."""

    gathered: list[tuple[RowTable, Tensor, Tensor]] = field(default_factory=list)
    pushed: list[tuple[RowTable, Tensor, Tensor]] = field(default_factory=list)
    rates: dict[RowTable, float] = field(default_factory=dict)  # of tables that a kernel may step at once

    def gather(self, table: RowTable, rows: Tensor) -> Tensor:
        """Rows of a table as a leaf of the graph."""
        leaf = table.gather(rows).requires_grad_()
        self.gathered.append((table, rows, leaf))
        return leaf

    def push(self, table: RowTable, rows: Tensor, gradients: Tensor) -> None:
        """A gradient that a kernel computed itself."""
        self.pushed.append((table, rows, gradients))

    def gradients(self) -> list[tuple[RowTable, Tensor, Tensor]]:
        """(table, rows, gradient) of everything that received one."""
        leaves = [(table, rows, leaf.grad) for table, rows, leaf in self.gathered if leaf.grad is not None]
        return [*leaves, *self.pushed]
