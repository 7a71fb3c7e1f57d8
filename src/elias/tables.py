"""Large tables: label classifiers, word embeddings, edge logits.

A table is touched through two calls only, `gather(rows)` and `apply(rows, gradients, rate)`, and keeps its
optimiser state by row: rows that no batch touched cost nothing. That is all another process would need to
own a share of the rows. A `Tape` remembers what a forward pass gathered, so that after `backward` every
gradient finds its table.

AdamW by row:  m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  w = w (1-rate*decay) - rate mhat / (sqrt vhat + eps)
with the row's own step count in mhat and vhat. Decay reaches untouched rows lazily: the running sum of
log(1 - rate*decay) is kept once, and what a row has had of it is kept by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import kernels


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Constants of the optimiser of a table."""

    decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    shared: bool = False


class RowTable:
    """rows x width float32 values with row-sparse AdamW state (made on the first `apply`)."""

    def __init__(self, values: Tensor, optimiser: AdamW | None = None, *, threads: int = 1) -> None:
        assert values.dim() == 2 and values.is_contiguous()
        self.values = values
        self.optimiser = optimiser or AdamW()
        self.threads = threads
        self.state: dict[str, Tensor] = {}
        self.decay_sum = 0.0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def gather(self, rows: Tensor) -> Tensor:
        """A copy of some rows."""
        return self.values[rows]

    def apply(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """One optimiser step on `rows` (each row at most once)."""
        if not self.state:
            self._make_state()
        self.decay_sum += math.log1p(-rate * self.optimiser.decay)
        if self.values.device.type == "cpu":
            self._apply_cpu(rows, gradients, rate)
        else:
            adamw_torch(self.values, self.state, self.decay_sum, rows, gradients, rate, self.optimiser)

    def settle(self) -> None:
        """Give every row the decay it is owed, so that `values` are what dense AdamW would hold."""
        if self.state:
            owed = torch.exp(self.decay_sum - self.state["decayed"]).to(self.values.dtype)
            self.values.mul_(owed[:, None])
            self.state["decayed"].fill_(self.decay_sum)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, by name."""
        total = torch.tensor(self.decay_sum, dtype=torch.float64)
        return {"values": self.values, "decay_sum": total, **self.state}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up where `tensors` left off."""
        device = self.values.device
        self.values.copy_(tensors["values"])
        self.decay_sum = float(tensors["decay_sum"])
        self.state = {name: tensors[name].clone().to(device) for name in ("first", "second", "steps", "decayed") if name in tensors}

    def _make_state(self) -> None:
        device = self.values.device
        if self.optimiser.shared:
            self.state = {
                "second": torch.zeros((len(self.values), 1), device=device),
                "steps": torch.zeros(len(self.values), dtype=torch.int32, device=device),
                "decayed": torch.zeros(len(self.values), dtype=torch.float64, device=device),
            }
            return
        self.state = {
            "first": torch.zeros_like(self.values),
            "second": torch.zeros_like(self.values),
            "steps": torch.zeros(len(self.values), dtype=torch.int32, device=device),
            "decayed": torch.zeros(len(self.values), dtype=torch.float64, device=device),
        }

    def _apply_cpu(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        from .kernels.adamw import step_rows

        constants = self.optimiser
        if constants.shared:
            from .kernels.adamw import step_rows_shared
            kernels.run(
                step_rows_shared, len(rows), self.threads,
                rows.numpy(), gradients.numpy(), self.values.numpy(), self.state["second"].numpy(),
                self.state["steps"].numpy(), self.state["decayed"].numpy(),
                self.decay_sum, rate, constants.beta2, constants.epsilon,
            )  # fmt: skip
            return
        kernels.run(
            step_rows, len(rows), self.threads,
            rows.numpy(), gradients.numpy(), self.values.numpy(),
            self.state["first"].numpy(), self.state["second"].numpy(),
            self.state["steps"].numpy(), self.state["decayed"].numpy(),
            self.decay_sum, rate, constants.beta1, constants.beta2, constants.epsilon,
        )  # fmt: skip


def adamw_torch(
    values: Tensor,
    state: dict[str, Tensor],
    decay_sum: float,
    rows: Tensor,
    gradients: Tensor,
    rate: float,
    constants: AdamW,
) -> None:
    """The step on any device; the definition of the kernel."""
    state["steps"][rows] += 1
    count = state["steps"][rows][:, None].double()
    keep = torch.exp(decay_sum - state["decayed"][rows])[:, None].to(values.dtype)
    state["decayed"][rows] = decay_sum
    m = constants.beta1 * state["first"][rows] + (1 - constants.beta1) * gradients
    v = constants.beta2 * state["second"][rows] + (1 - constants.beta2) * gradients * gradients
    state["first"][rows], state["second"][rows] = m, v
    size = (rate / (1 - constants.beta1**count)).to(values.dtype)
    root = (1 / torch.sqrt(1 - constants.beta2**count)).to(values.dtype)
    values[rows] = keep * values[rows] - size * m / (v.sqrt() * root + constants.epsilon)


@dataclass
class Tape:
    """What one forward pass took from the tables, and the gradients that came back."""

    gathered: list[tuple[RowTable, Tensor, Tensor]] = field(default_factory=list)
    pushed: list[tuple[RowTable, Tensor, Tensor]] = field(default_factory=list)

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
