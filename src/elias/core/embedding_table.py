"""Embedding tables: the large parameters (label classifiers, word embeddings, edge logits), stored and trained by row.

A table is used through two calls, `gather(rows)` and `apply(rows, gradients, rate)`, and keeps its optimizer state by
row, so rows that no batch touches cost nothing. A process may own a share of the rows (`network/sharding.py`).
A `GradientBuffer` records what a forward pass gathered, so that after `backward` every gradient finds its
table.

Weight decay reaches untouched rows lazily. `decay_sum` is the sum of log(1 - rate*decay) over all steps, `decayed` is
its value when a row was last written, and the pending decay of the row is the factor exp(decay_sum - decayed).
`gather` includes it; `flush` writes it, and must be called before `values` are read directly.

Values are float32, or bfloat16 with stochastic rounding: half the memory, and every write is off by up to 2^-7 of the
value, to either side. The random bits depend on (key, step, row, column) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .rng import key
from .rounding import as_array
from .row_optimizers import STATE, RowOptimizer, Step, step_reference, stored

ROWS_AT_ONCE = 1 << 16  # rows


class EmbeddingTable:
    """rows x width values (float32 or bfloat16) with optimizer state by row, which the first `apply` makes."""

    def __init__(self, values: Tensor, optimizer: RowOptimizer | None = None, *, threads: int = 1) -> None:
        assert values.dim() == 2 and values.is_contiguous()
        assert values.dtype in (torch.float32, torch.bfloat16)
        self.values = values
        self.optimizer = optimizer or RowOptimizer()
        self.threads = threads
        self.state: dict[str, Tensor] = {}
        self.decay_sum, self.clock, self.key = 0.0, 0, 0  # the key of its rounding

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def gather(self, rows: Tensor) -> Tensor:
        """A float32 copy of some rows, their pending decay included."""
        pending_decay = self.pending_decay(rows)
        values = self.values[rows].float()
        return values if pending_decay is None else values.mul_(pending_decay[:, None])

    def array(self) -> np.ndarray:
        """The values as kernels read them; bfloat16 as its bits."""
        return as_array(self.values)

    def pending_decay(self, rows: Tensor | slice) -> Tensor | None:
        """The factor that `values[rows]` are still to be multiplied by; None if no decay is pending in the table."""
        if not self.state or self.decay_sum == 0.0:
            return None
        if isinstance(rows, Tensor) and kernels.serve(self.values.device):
            from ..kernels.steps import pending_decay_rows

            out = torch.empty(len(rows))
            arrays = (rows.long().contiguous().numpy(), self.state["decayed"].numpy(), self.decay_sum, out.numpy())
            kernels.run(pending_decay_rows, len(rows), self.threads, *arrays)
            return out
        return torch.exp(self.decay_sum - self.state["decayed"][rows]).float()

    @torch.no_grad()
    def apply(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """One optimizer step on `rows` (each row at most once); for every other row the step's decay is pending.

        `rows` are numbers, or one bool per row of the table (then there is a gradient of every row): a GPU is waited
        for to learn how many rows are true, but not to step where they are.
        """
        self.begin_step(rate)
        if rows.dtype == torch.bool:
            self.step_range(slice(0, len(self)), gradients, rate, rows)
        else:
            self.step_rows(rows, gradients, rate)

    @torch.no_grad()
    def step_rows(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        """The step that `begin_step` began, on some of its rows; each row at most once in a step."""
        if kernels.serve(self.values.device):
            self._apply_cpu(rows, gradients, rate)
            return
        step_reference(self.step_of(rows, gradients, rate))

    @torch.no_grad()
    def step_range(self, rows: slice, gradients: Tensor, rate: float, touched: Tensor) -> None:
        """`step_rows` of those rows of a range that are touched."""
        step_reference(replace(self.step_of(rows, gradients, rate), touched=touched))

    def step_of(self, rows: Tensor | slice, gradients: Tensor, rate: float) -> Step:
        """The arguments of `step_reference`."""
        return Step(self.values, self.state, self.decay_sum, rows, gradients, rate, self.optimizer, self.noise)

    @property
    def noise(self) -> int:
        """The key of this step's rounding, 32 bits."""
        return key(self.key, self.clock) & 0xFFFFFFFF

    def begin_step(self, rate: float) -> None:
        """Count the step and its decay, which is pending in every row until `step_rows` or `flush` writes it."""
        if self.state.keys() != set(STATE[self.optimizer.kind]):
            self.start()
        self.clock += 1
        self.decay_sum += math.log1p(-rate * self.optimizer.decay)

    def start(self) -> None:
        """Flush, and begin again with the state of a new optimizer: no moments, no steps."""
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
        """Write the pending decay of every row, so that `values` are those of dense steps."""
        if not self.state:
            return
        if self.values.dtype == torch.float32:
            pending_decay = torch.exp(self.decay_sum - self.state["decayed"]).to(self.values.dtype)
            self.values.mul_(pending_decay[:, None])
        else:
            self._flush_rounded()
        self.state["decayed"].fill_(self.decay_sum)

    def _flush_rounded(self) -> None:
        """Pending decay of bfloat16 rows; a row without any is not written, because writing would round it again."""
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
        """Continue from what `tensors` returned."""
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
    rates: dict[EmbeddingTable, float] = field(
        default_factory=dict
    )  # of tables whose rows a kernel may update together with the loss

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
