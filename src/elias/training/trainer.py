"""The training loop, section 5 of the method: one loop for both stages.

AdamW with explicit groups (encoder, clusters, classifiers, edges), each with its own rate; linear warm-up,
then linear decay to 0. Weights are averaged over the last part of a stage, and the mean is one more
candidate: what is kept is the best of nDCG@5 on the validation rows, or the last weights where there are
none. Randomness is a function of (seed, stage, epoch, row), so a resumed run repeats an undisturbed one bit
for bit on a CPU; sums on a GPU are in no fixed order, so there it does so to rounding.

Several ranks (`core/distributed.py`) train one network together: each has its share of the rows of every batch and its
share of the label classifiers (`network/sharding.py`). The batch, and what is drawn for a row, do not depend on them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.errors import SettingsError
from ..core.metrics import evaluate
from ..core.noise import Noise
from ..core.propensity import PropensityModel
from ..core.ragged import Ragged
from ..core.read_ahead import read_ahead
from ..core.rng import key, permutation
from ..core.row_optimizers import RowOptimizer
from ..core.settings import Settings, StageSettings, known
from ..dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from ..encoders.encoder import TrainingContext
from ..network.network import Batch, Network
from ..network.sharded_search import search_all
from .accumulation import GradientSum
from .gradient_exchange import sum_dense, sum_rows
from .weight_averaging import AveragedWeights, flush_tables

CHOICE = "nDCG@5"
LATE = {"classifiers": ("classifiers",), "all": ("classifiers", "edges", "clusters")}  # groups, by `accumulated`
AHEAD = {"cpu": 0, "cuda": 2}  # batches that a thread reads before their step, by kind of device


@dataclass(frozen=True)
class TrainingRows:
    """Rows to learn from or to validate on."""

    prepared: Any
    labels: sp.csr_matrix
    excluded: sp.csr_matrix
    weights: np.ndarray
    kinds: np.ndarray | None = None  # KIND_TEXT or KIND_LABEL_TEXT; None: texts alone

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def of_kind(self, kind: int) -> np.ndarray:
        """The rows that are texts, or label texts."""
        kinds = np.full(len(self), KIND_TEXT, dtype=np.uint8) if self.kinds is None else self.kinds
        return np.flatnonzero(kinds == kind)

    def batch(self, rows: np.ndarray, inputs: Any = None) -> Batch:
        positives, positive_weights = Ragged.from_rows(self.labels, rows)
        excluded = Ragged.from_rows(self.excluded, rows)[0]
        return Batch(rows, positives, positive_weights, excluded, self.weights[rows], inputs)


@dataclass(frozen=True)
class Stage:
    """One stage of a run: the name of its step, which also keys its random draws, and its settings."""

    name: str
    settings: Settings  # of the whole run
    own: StageSettings


@dataclass
class TrainingPosition:
    """How far a stage has come: everything that changes from step to step besides tensors."""

    epoch: int = 0
    step: int = 0  # within the epoch
    loss_sum: float = 0.0
    seconds: float = 0.0
    best: float = -1.0
    best_epoch: int = -1
    best_is_mean: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear warm-up over a share of all steps, then linear decay to 0."""
    rise = max(1.0, warmup * total)
    return min((step + 1) / rise, max(0.0, (total - step) / max(1.0, total - rise)))


class Optimizer:
    """One AdamW over dense parameters and tables, in named groups with their own rates."""

    def __init__(self, network: Network, settings: StageSettings, seed: int = 0) -> None:
        """`seed` is that of the rounding of bfloat16 tables."""
        self.settings, self.ranks = settings, network.ranks
        self.replicated: set[EmbeddingTable] = set()  # every rank has all rows, and makes the same steps
        rates = {
            "encoder": settings.learning_rate_encoder,
            "transformer": settings.learning_rate_transformer,
            "clusters": settings.learning_rate_clusters,
            "classifiers": settings.learning_rate_classifiers,
            "edges": settings.learning_rate_edges,
        }
        late = LATE[settings.accumulated] if settings.accumulate > 1 else ()
        self.table_rates: list[tuple[EmbeddingTable, float]] = []
        self.sums: dict[EmbeddingTable, GradientSum] = {}  # of the tables that step every `accumulate` batches
        self.late_dense: list[torch.nn.Parameter] = []  # dense parameters that do
        self.between_steps = True  # no gradient is waiting for the next batches
        for name, table in network.tables().items():
            group = "encoder" if name.startswith("encoder.") else "edges" if name == "edges" else "classifiers"
            decay = 0.0 if name == "classifier_biases" else settings.weight_decay
            kind = settings.optimizer if table.width > 1 else "adamw"
            table.optimizer = RowOptimizer(kind=kind, decay=decay, epsilon=settings.epsilon)
            table.start()
            table.key = key(seed, name)
            self.table_rates.append((table, rates[group]))
            if group != "classifiers":
                self.replicated.add(table)
            elif self.ranks.size > 1:  # rows have other numbers on every rank
                table.key = key(seed, name, self.ranks.rank, self.ranks.size)
            if group in late:
                self.sums[table] = GradientSum(table)
        groups = []
        for group, parameters in dense_groups(network).items():
            self.late_dense += parameters if group in late else []
            plain = [parameter for parameter in parameters if parameter.dim() < 2]  # biases and norms
            decayed = [parameter for parameter in parameters if parameter.dim() >= 2]
            groups += (
                [{"params": decayed, "rate": rates[group], "weight_decay": settings.weight_decay}] if decayed else []
            )
            groups += [{"params": plain, "rate": rates[group], "weight_decay": 0.0}] if plain else []
        fused = True if network.device.type == "cuda" else None  # one kernel for all parameters
        self.dense = torch.optim.AdamW(groups, lr=0.0, eps=settings.epsilon, fused=fused)

    def immediate_rates(self, factor: float) -> dict[EmbeddingTable, float]:
        """Tables whose rows may step as soon as their gradient is known: where no other batch or rank adds to it."""
        waits = self.sums.keys() | (self.replicated if self.ranks.size > 1 else set())
        return {table: factor * rate for table, rate in self.table_rates if table not in waits}

    def step(self, buffer: GradientBuffer, factor: float, step: int, *, last: bool) -> None:
        """Step number `step` of the stage; what accumulates steps every `accumulate` batches, and at the last one."""
        self.between_steps = last or (step + 1) % self.settings.accumulate == 0
        for group in self.dense.param_groups:
            group["lr"] = factor * group["rate"]
        # A parameter without a gradient is left alone; the gradient comes back, and the next batch adds to it.
        kept = [] if self.between_steps else [(parameter, parameter.grad) for parameter in self.late_dense]
        for parameter, _ in kept:
            parameter.grad = None
        sum_dense([p for group in self.dense.param_groups for p in group["params"]], self.ranks)
        self.dense.step()
        self.dense.zero_grad(set_to_none=True)
        for parameter, gradient in kept:
            parameter.grad = gradient
        found = buffer.gradients()
        for table, rate in self.table_rates:
            parts = [(rows, grads) for owner, rows, grads in found if owner is table]
            if table in self.replicated:
                parts = sum_rows(table, [_merge(parts)] if len(parts) > 1 else parts, self.ranks)
            if table in self.sums:
                for rows, grads in parts:
                    self.sums[table].add(rows, grads)
                if self.between_steps:
                    self.sums[table].step(factor * rate)
            elif parts:
                rows, grads = parts[0] if len(parts) == 1 else _merge(parts)
                table.apply(rows, grads, factor * rate)


def dense_groups(network: Network) -> dict[str, list[torch.nn.Parameter]]:
    """The dense parameters by the name of their rate; a fine-tuned transformer's have one of their own."""
    groups: dict[str, list[torch.nn.Parameter]] = {"encoder": [], "transformer": []}
    for name, parameter in network.encoder.module().named_parameters():
        groups["transformer" if name.startswith("transformer.") else "encoder"].append(parameter)
    for name, module in network.dense_modules().items():
        groups.setdefault(name, []).extend(module.parameters() if name != "encoder" else [])
    return groups


def _merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Sum gradients of the same row."""
    if parts[0][0].dtype == torch.bool:  # a gradient of every row, and which rows it counts for
        masks, sums = torch.stack([mask for mask, _ in parts]), torch.stack([g * mask[:, None] for mask, g in parts])
        return masks.any(dim=0), sums.sum(dim=0)
    rows, place = torch.unique(torch.cat([rows for rows, _ in parts]), return_inverse=True)
    grads = torch.cat([grads for _, grads in parts])
    return rows, grads.new_zeros((len(rows), grads.shape[1])).index_add_(0, place, grads)


@dataclass(frozen=True)
class Callbacks:
    """What a trainer calls: with the best weights so far, after a step, and with the record of an epoch."""

    keep_best: Callable[[Network], None]
    after_step: Callable[[Trainer], None] = lambda trainer: None
    after_epoch: Callable[[dict[str, Any]], None] = lambda record: None


class Trainer:
    """Trains one stage of a network in place."""

    def __init__(
        self,
        network: Network,
        train: TrainingRows,
        validation: TrainingRows,
        settings: StageSettings,
        *,
        stage: str,
        seed: int,
        callbacks: Callbacks,
    ) -> None:
        self.network, self.train, self.validation, self.settings = network, train, validation, settings
        self.stage, self.seed = stage, seed
        self.callbacks = callbacks
        self.epochs, self.batch_size = known(settings.epochs), known(settings.batch_size)
        self.texts, self.label_texts = train.of_kind(KIND_TEXT), train.of_kind(KIND_LABEL_TEXT)
        self.label_texts = self.label_texts[permutation(len(self.label_texts), seed, stage, 0, "label texts")]
        self.label_counts = np.bincount(train.labels[self.texts].indices, minlength=train.labels.shape[1])
        self.optimizer = Optimizer(network, settings, key(seed, stage, "rounding"))
        self.mean = AveragedWeights()
        self.at = TrainingPosition()
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=network.device)  # of the epoch: see `read_loss`
        self.parents: np.ndarray | None = None  # of the epoch under way; they stay as they were at its start

    @property
    def steps_per_epoch(self) -> int:
        return -(-(len(self.texts) + len(self.label_texts)) // self.batch_size)

    @property
    def total_steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    @property
    def between_steps(self) -> bool:
        """No gradient is waiting for the next batches."""
        return self.optimizer.between_steps

    def run(self) -> None:
        """From `self.at` to the end of the stage. Without an epoch, the start is kept."""
        if self.epochs == 0:
            self.callbacks.keep_best(self.network)
        while self.at.epoch < self.epochs:
            self._epoch()
            self._close_epoch()

    def _epoch(self) -> None:
        order = self._rows_of_epoch()
        if self.parents is None:
            self.parents = self.network.learned_index().parents()
        noise = Noise.of(self.seed, self.stage, self.at.epoch)
        size, steps = self.batch_size, range(self.at.step, self.steps_per_epoch)
        batches = [order[step * size : (step + 1) * size] for step in steps]
        batches = [batch[self.network.ranks.share(len(batch))] for batch in batches]
        started = time.perf_counter()
        for batch in read_ahead(self._read, batches, AHEAD.get(self.network.device.type, 0)):
            loss = self._step(batch, self.parents, noise)
            if loss.device.type == "cpu" and not math.isfinite(float(loss)):  # a GPU is not waited for in every step
                raise self._diverged(batch)
            self.loss_sum += loss
            self.at.step += 1
            done = self.at.epoch * self.steps_per_epoch + self.at.step
            every = self.settings.average_every or self.steps_per_epoch
            if done > self.settings.average_from * self.total_steps and done % every == 0:
                self.mean.add(self.network)
            self.at.seconds += time.perf_counter() - started
            self.callbacks.after_step(self)
            started = time.perf_counter()

    def _read(self, rows: np.ndarray) -> Batch:
        """The batch of some rows, with its inputs where a thread reads it ahead."""
        ahead = AHEAD.get(self.network.device.type, 0)
        return self.train.batch(rows, self.network.encoder.take(self.train.prepared, rows) if ahead else None)

    def read_loss(self) -> float:
        """The sum of the losses of this epoch so far. A GPU is waited for, so this is not called in every step."""
        self.at.loss_sum = float(self.loss_sum)
        if not math.isfinite(self.at.loss_sum):
            raise self._diverged(None)
        return self.at.loss_sum

    def _diverged(self, batch: Batch | None) -> SettingsError:
        """The loss is not a finite number: where, and the largest numbers that can have caused it."""
        if batch is None or not len(batch.rows):  # of several ranks, one can have no rows of a small batch
            weights, numbers = self.train.weights, np.arange(len(self.train.weights))
        else:
            weights, numbers = batch.weights, batch.rows
        row = int(numbers[np.argmax(weights)])
        rates = {
            name: getattr(self.settings, f"learning_rate_{name}")
            for name in ("encoder", "clusters", "classifiers", "edges")
        }
        fastest = max(rates, key=rates.__getitem__)
        return SettingsError(
            f"{self.stage}, epoch {self.at.epoch + 1}, step {self.at.step + 1}: the loss is not a finite number. The "
            f"largest row weight is {float(np.max(weights)):g} (training row {row}), the largest learning rate "
            f"{rates[fastest]:g} (learning_rate_{fastest}); lower them, or scale the vectors"
        )

    def _rows_of_epoch(self) -> np.ndarray:
        """Every text and every label text, shuffled."""
        rows = np.concatenate([self.texts, self.label_texts])
        return np.asarray(rows[permutation(len(rows), self.seed, self.stage, self.at.epoch, "order")])

    def _step(self, batch: Batch, parents: np.ndarray, noise: Noise) -> Tensor:
        number = self.at.epoch * self.steps_per_epoch + self.at.step
        factor = rate_factor(number, self.total_steps, self.settings.warmup)
        rows_B = upload(batch.rows, self.network.device)
        buffer = GradientBuffer(rates=self.optimizer.immediate_rates(factor))
        context = TrainingContext(buffer, noise, rows_B, batch.rows)
        loss = self.network.loss(self.train.prepared, batch, parents, context, self.settings.shortlist_loss_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step(context.buffer, factor, number, last=number + 1 == self.total_steps)
        return self.network.ranks.sum(loss.detach())

    def _close_epoch(self) -> None:
        at, started = self.at, time.perf_counter()
        self.read_loss()  # and so the end of the epoch is waited for
        at.seconds += time.perf_counter() - started
        record: dict[str, Any] = {
            "stage": self.stage,
            "epoch": at.epoch + 1,
            "loss": at.loss_sum / self.steps_per_epoch,
        }
        last = at.epoch + 1 == self.epochs
        if self.validation.labels.nnz and (last or (at.epoch + 1) % self.settings.evaluate_every == 0):
            flush_tables(self.network)
            record["validation"] = self._consider(is_mean=False)
            if self.mean.count:
                self.mean.swap(self.network)
                record["validation_mean"] = self._consider(is_mean=True)
                self.mean.swap(self.network)
        elif last:
            flush_tables(self.network)
            self.callbacks.keep_best(self.network)
        record["seconds"] = round(at.seconds, 2)
        at.history.append(record)
        at.epoch, at.step, at.loss_sum, self.parents = at.epoch + 1, 0, 0.0, None
        self.loss_sum.zero_()
        self.callbacks.after_epoch(record)

    def _consider(self, *, is_mean: bool) -> dict[str, float]:
        """Validate the weights as they are; keep them if they are the best so far."""
        found = search_all(
            self.network, self.validation.prepared, len(self.validation), 5, excluded=self.validation.excluded
        )
        propensity = PropensityModel(self.label_counts, len(self.texts))
        values = evaluate(found.labels, self.validation.labels, propensity).values
        if values[CHOICE] > self.at.best:
            self.at.best, self.at.best_epoch, self.at.best_is_mean = values[CHOICE], self.at.epoch + 1, is_mean
            self.callbacks.keep_best(self.network)
        return {name: round(value, 3) for name, value in values.items() if name in ("P@1", "P@5", CHOICE)}
