"""Large tables: label classifiers, word embeddings, edge logits.

A table is touched through two calls only, `gather(rows)` and `apply(rows, gradients, rate)`, and keeps its
optimizer state by row: rows that no batch touched cost nothing. That is all another process would need to
own a share of the rows. A `GradientBuffer` remembers what a forward pass gathered, so that after `backward` every
gradient finds its table.

Two optimizers, both by row: `row_optimizers`. Decay reaches untouched rows lazily: the running sum of
log(1 - rate*decay) is kept once, and what a row has had of it is kept by row. `gather` includes what is pending;
call `settle` before reading `values`.

Values are float32, or bfloat16 with stochastic rounding: half the memory, and every write is off by up to 2^-7 of the
value, to either side. The noise depends on (key, step, row, column) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .rng import key
from .rounding import as_array
from .row_optimizers import STATE, RowOptimizer, Step, step_reference, stored

ROWS_AT_ONCE = 1 << 16  # rows


class EmbeddingTable:
    """rows x width float32 or bfloat16 values with row-sparse optimizer state (made on the first `apply`)."""

    def __init__(self, values: Tensor, optimizer: RowOptimizer | None = None, *, threads: int = 1) -> None:
        assert values.dim() == 2 and values.is_contiguous()
        assert values.dtype in (torch.float32, torch.bfloat16)
        self.values = values
        self.optimizer = optimizer or RowOptimizer()
        self.threads = threads
        self.state: dict[str, Tensor] = {}
        self.decay_sum, self.clock, self.key = 0.0, 0, 0  # the key of its noise

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def gather(self, rows: Tensor) -> Tensor:
        """A copy of some rows as they are now, the decay they are pending_decay included."""
        pending_decay = self.pending_decay(rows)
        values = self.values[rows].float()
        return values if pending_decay is None else values.mul_(pending_decay[:, None])

    def array(self) -> np.ndarray:
        """The values as kernels read them; bfloat16 as its bits."""
        return as_array(self.values)

    def pending_decay(self, rows: Tensor) -> Tensor | None:
        """The factor of decay that `values[rows]` still lack; None where they lack none."""
        if not self.state or self.decay_sum == 0.0:
            return None
        if kernels.serve(self.values.device):
            from ..kernels.steps import pending_decay_rows

            out = torch.empty(len(rows))
            arrays = (rows.long().contiguous().numpy(), self.state["decayed"].numpy(), self.decay_sum, out.numpy())
            kernels.run(pending_decay_rows, len(rows), self.threads, *arrays)
            return out
        return torch.exp(self.decay_sum - self.state["decayed"][rows]).float()

    @torch.no_grad()
    def apply(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """One optimizer step on `rows` (each row at most once); every other row owes the step's decay."""
        self.begin_step(rate)
        self.step_rows(rows, gradients, rate)

    @torch.no_grad()
    def step_rows(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """The step that `begin_step` began, on some of its rows; each row at most once in a step."""
        if kernels.serve(self.values.device):
            self._apply_cpu(rows, gradients, rate)
            return
        step_reference(self.step_of(rows, gradients, rate))

    def step_of(self, rows: Tensor, gradients: Tensor, rate: float) -> Step:
        """As the definition wants it."""
        return Step(self.values, self.state, self.decay_sum, rows, gradients, rate, self.optimizer, self.noise)

    @property
    def noise(self) -> int:
        """What the rounding of this step is keyed by; 32 bits."""
        return key(self.key, self.clock) & 0xFFFFFFFF

    def begin_step(self, rate: float) -> None:
        """Every row owes the step's decay from now on; rows that have a gradient step with it."""
        if self.state.keys() != set(STATE[self.optimizer.kind]):
            self.start()
        self.clock += 1
        self.decay_sum += math.log1p(-rate * self.optimizer.decay)

    def start(self) -> None:
        """Settle, and begin again with the state of a new optimizer: no moments, no steps."""
        self.flush()
        n_rows, device = len(self.values), self.values.device
        made = {
            "second": torch.zeros(n_rows, device=device),
            "steps": torch.zeros(n_rows, dtype=torch.int32, device=device),
            "decayed": torch.zeros(n_rows, dtype=torch.float64, device=device),
        }
        if self.optimizer.kind == "adamw":
            made |= {name: torch.zeros(self.values.shape, device=device) for name in ("first", "second")}
        self.state = {name: made[name] for name in STATE[self.optimizer.kind]}
        self.decay_sum, self.clock = 0.0, 0

    @torch.no_grad()
    def flush(self) -> None:
        """Give every row what it is pending_decay, so that `values` are what dense steps would have made them."""
        if not self.state:
            return
        if self.values.dtype == torch.float32:
            pending_decay = torch.exp(self.decay_sum - self.state["decayed"]).to(self.values.dtype)
            self.values.mul_(pending_decay[:, None])
        else:
            self._flush_rounded()
        self.state["decayed"].fill_(self.decay_sum)

    def _flush_rounded(self) -> None:
        """Decay of bfloat16 rows that are pending_decay some; the others are not rounded again."""
        if kernels.serve(self.values.device):
            from ..kernels.rounding import decay_rows

            arrays = (self.array(), self.state["decayed"].numpy(), self.decay_sum, self.noise)
            kernels.run(decay_rows, len(self), self.threads, *arrays)
            return
        late = torch.nonzero(self.state["decayed"] != self.decay_sum)[:, 0]
        for rows in torch.split(late, ROWS_AT_ONCE):
            pending_decay = torch.exp(self.decay_sum - self.state["decayed"][rows]).float()[:, None]
            self.values[rows] = stored(pending_decay * self.values[rows], self.values, rows, self.noise)

    def to(self, device: torch.device | str) -> EmbeddingTable:
        """Move values and state; returns the table itself."""
        self.values = self.values.to(device)
        self.state = {name: tensor.to(device) for name, tensor in self.state.items()}
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, by name: the live tensors, not copies."""
        own = {"values": self.values, "decay_sum": torch.tensor(self.decay_sum, dtype=torch.float64)}
        return {**own, "clock": torch.tensor(self.clock), **self.state}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up where `tensors` left off."""
        self.values.copy_(tensors["values"])
        self.decay_sum = float(tensors["decay_sum"])
        self.clock = int(tensors["clock"])
        own = ("values", "decay_sum", "clock")
        state = {name: tensor for name, tensor in tensors.items() if name not in own}
        self.state = {name: tensor.to(self.values.device, copy=True) for name, tensor in state.items()}

    def _apply_cpu(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        from ..kernels.steps import adamw_rows, rowwise_rows

        constants = self.optimizer
        given = (rows.long().contiguous().numpy(), gradients.contiguous().numpy())
        places = (*given, self.array())
        state = [self.state[name].numpy() for name in STATE[constants.kind]]
        last = (constants.beta2, constants.epsilon, self.noise)
        if constants.kind == "adamw":
            numbers = [self.decay_sum, rate, constants.beta1, *last]
            kernels.run(adamw_rows, len(rows), self.threads, *places, *state, *numbers)
        else:
            kernels.run(rowwise_rows, len(rows), self.threads, *places, *state, self.decay_sum, rate, *last)


@dataclass
class GradientBuffer:
    """What one forward pass took from the tables, and the gradients that came back."""

    gathered: list[tuple[EmbeddingTable, Tensor, Tensor]] = field(default_factory=list)
    pushed: list[tuple[EmbeddingTable, Tensor, Tensor]] = field(default_factory=list)
    rates: dict[EmbeddingTable, float] = field(default_factory=dict)  # of tables that a kernel may step at once

    def gather(self, table: EmbeddingTable, rows: Tensor) -> Tensor:
        """Rows of a table as a leaf of the graph."""
        leaf = table.gather(rows).requires_grad_()
        self.gathered.append((table, rows, leaf))
        return leaf

    def push(self, table: EmbeddingTable, rows: Tensor, gradients: Tensor) -> None:
        """A gradient that a kernel computed itself."""
        self.pushed.append((table, rows, gradients))

    def gradients(self) -> list[tuple[EmbeddingTable, Tensor, Tensor]]:
        """(table, rows, gradient) of everything that received one."""
        leaves = [(table, rows, leaf.grad) for table, rows, leaf in self.gathered if leaf.grad is not None]
        return [*leaves, *self.pushed]
