"""Gradients summed over several batches: what steps when, on which gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import helpers.dense_equations as dense
from elias.core.embedding_table import EmbeddingTable, GradientBuffer
from elias.core.noise import Noise
from elias.core.row_optimizers import RowOptimizer
from elias.core.settings import StageSettings
from elias.encoders import TrainingContext
from elias.network.network import Network, SearchSettings
from elias.training import accumulation
from elias.training.accumulation import GradientSum
from elias.training.trainer import Optimizer
from elias.training.weight_averaging import weights_of
from helpers.networks import GivenPhi, random_batch, small_network

K = 3
CLASSIFIERS, EDGES = {"classifier_weights", "classifier_biases"}, {"edges"}
CLUSTERS, ENCODER = {"clusters.weight", "clusters.bias"}, {"encoder.weight"}


def test_one_step_on_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that occur twice in a batch, in several batches, or never; and a second round on a clean sum."""
    monkeypatch.setattr(accumulation, "ROWS_AT_ONCE", 2)
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(7, 3)).astype(np.float32))
    optimizer = RowOptimizer(kind="adamw", decay=0.01)
    one, other = EmbeddingTable(values.clone(), optimizer), EmbeddingTable(values.clone(), optimizer)
    gradients = GradientSum(one)
    for batches in ([[0, 2, 2], [2, 5]], [[5, 6, 1]]):
        total = torch.zeros(7, 3)
        for rows in batches:
            part = torch.from_numpy(rng.normal(size=(len(rows), 3)).astype(np.float32))
            gradients.add(torch.tensor(rows), part)
            total.index_add_(0, torch.tensor(rows), part)
        touched = torch.tensor(sorted({row for rows in batches for row in rows}))
        gradients.step(0.1)
        other.apply(touched, total[touched], 0.1)
        torch.testing.assert_close(one.values, other.values)
    before = one.values.clone()
    GradientSum(one).step(0.1)  # without a gradient, no step
    assert torch.equal(one.values, before)


class LearnedPhi(GivenPhi):
    """phi = given phi through a layer that is learned."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.layer = torch.nn.Linear(dim, dim, bias=False)
        torch.nn.init.eye_(self.layer.weight)

    def encode(self, prepared: Any, rows: np.ndarray, context: TrainingContext | None = None) -> torch.Tensor:
        phi: torch.Tensor = self.layer(prepared[torch.from_numpy(rows)])
        return phi

    def module(self) -> torch.nn.Module:
        return self.layer


def network_of() -> Network:
    rng = np.random.default_rng(1)
    network = small_network(rng, dense.random_index(rng, 5, 20), 6, SearchSettings(beam_size=2, shortlist_size=8))
    network.encoder = LearnedPhi(6)
    return network


def backward(network: Network, seed: int, buffer: GradientBuffer) -> None:
    """The gradients of one random batch."""
    rng = np.random.default_rng(seed)
    batch, phi = random_batch(rng, 4, 20), torch.from_numpy(rng.normal(size=(4, 6)).astype(np.float32))
    context = TrainingContext(buffer, Noise(1), torch.from_numpy(batch.rows))
    loss = network.loss(phi, batch, network.learned_index().parents(), context, 0.3)
    loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("accumulated", "late"), [("classifiers", CLASSIFIERS), ("all", CLASSIFIERS | EDGES | CLUSTERS)]
)
def test_what_accumulates_steps_every_k_batches(accumulated: str, late: set[str]) -> None:
    network = network_of()
    settings = StageSettings(accumulate=K, accumulated=accumulated, optimizer="adamw", weight_decay=0.0)
    optimizer = Optimizer(network, settings)
    names = CLASSIFIERS | EDGES | CLUSTERS | ENCODER
    for step in range(2 * K + 1):  # the last one comes in the middle of a round
        before = {name: tensor.clone() for name, tensor in weights_of(network).items()}
        assert before.keys() == names
        buffer = GradientBuffer(rates=optimizer.immediate_rates(1.0))
        assert not any(network.tables()[name] in buffer.rates for name in late & network.tables().keys())
        backward(network, step, buffer)
        optimizer.step(buffer, 1.0, step, last=step == 2 * K)
        moved = {name for name, tensor in weights_of(network).items() if not torch.equal(tensor, before[name])}
        due = step in (K - 1, 2 * K - 1, 2 * K)
        assert moved == (names if due else names - late), step
        assert optimizer.between_steps == due


def test_the_step_sees_the_sum_of_the_gradients() -> None:
    """With a fixed encoder nothing changes between the batches, so that the sum can be computed beside."""
    fixed = {"learning_rate_encoder": 0.0, "weight_decay": 0.0}
    network = network_of()
    optimizer = Optimizer(network, StageSettings(accumulate=K, accumulated="all", optimizer="adamw", **fixed))
    for step in range(K):
        buffer = GradientBuffer(rates=optimizer.immediate_rates(1.0))
        backward(network, step, buffer)
        optimizer.step(buffer, 1.0, step, last=False)
    found = {name: network.tables()[name].state["first"] for name in CLASSIFIERS | EDGES}
    found |= {
        f"clusters.{name}": optimizer.dense.state[p]["exp_avg"] for name, p in network.clusters.named_parameters()
    }

    alone, buffer = network_of(), GradientBuffer()
    for step in range(K):
        backward(alone, step, buffer)  # dense gradients add up, those of tables are listed
    wanted = {f"clusters.{name}": p.grad for name, p in alone.clusters.named_parameters()}
    for name in CLASSIFIERS | EDGES:
        table = alone.tables()[name]
        total = torch.zeros_like(table.values)
        for owner, rows, gradient in buffer.gradients():
            if owner is table:
                total.index_add_(0, rows, gradient)
        wanted[name] = total
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert gradient is not None
        torch.testing.assert_close(
            found[name], 0.1 * gradient, rtol=1e-4, atol=1e-7, msg=name
        )  # first moment of step 1
