"""Row tables: both optimizers by kernel, by torch and by dense formula; lazy decay; state in and out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.core.embedding_table import EmbeddingTable, GradientBuffer
from elias.core.row_optimizers import RowOptimizer
from helpers.tables import KINDS, SHAPE, random_steps, reference_step, table_of


def dense_steps(values: np.ndarray, steps: list, o: RowOptimizer) -> np.ndarray:
    """Row by row in float64, decay at every step."""
    w = values.astype(np.float64)
    m, v, t = np.zeros(SHAPE), np.zeros(SHAPE), np.zeros(SHAPE[0])
    for rows, gradients, rate in steps:
        w *= 1 - rate * o.decay
        for row, g in zip(rows.tolist(), gradients.double().numpy(), strict=True):
            t[row] += 1
            square = g * g if o.kind == "adamw" else np.full_like(g, np.mean(g * g))
            m[row] = o.beta1 * m[row] + (1 - o.beta1) * g
            v[row] = o.beta2 * v[row] + (1 - o.beta2) * square
            direction = m[row] / (1 - o.beta1 ** t[row]) if o.kind == "adamw" else g
            w[row] -= rate * direction / (np.sqrt(v[row] / (1 - o.beta2 ** t[row])) + o.epsilon)
    return w


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from([0.0, 0.01, 0.9]))
def test_kernel_torch_and_dense_formula_agree(seed: int, kind: str, decay: float) -> None:
    by_kernel, by_torch = table_of(kind, seed, decay=decay, epsilon=1e-6), table_of(kind, seed, decay=decay)
    steps, before = random_steps(seed, 6), by_kernel.values.clone().numpy()
    by_torch.optimizer = by_kernel.optimizer
    by_torch.start()
    for rows, gradients, rate in steps:
        by_kernel.apply(rows, gradients, rate)
        by_torch.begin_step(rate)
        reference_step(by_torch, rows, gradients, rate)
    np.testing.assert_allclose(by_kernel.values, by_torch.values, rtol=1e-5, atol=1e-6)
    for name, tensor in by_kernel.state.items():
        room = 1e-6 * float(tensor.abs().max())  # sums of large terms that cancel
        np.testing.assert_allclose(tensor, by_torch.state[name], rtol=1e-5, atol=room, err_msg=name)
    by_kernel.flush()
    wanted = dense_steps(before, steps, by_kernel.optimizer)
    np.testing.assert_allclose(by_kernel.values, wanted, rtol=1e-4, atol=1e-5)


def test_adamw_is_torchs_adamw_when_every_row_is_touched() -> None:
    table = table_of("adamw", decay=0.1)
    parameter = torch.nn.Parameter(table.values.clone())
    reference = torch.optim.AdamW([parameter], lr=0.01, weight_decay=0.1)
    for step in range(20):
        gradient = torch.randn(SHAPE, generator=torch.Generator().manual_seed(step))
        parameter.grad = gradient.clone()
        reference.step()
        table.apply(torch.arange(SHAPE[0]), gradient, 0.01)
    np.testing.assert_allclose(table.values, parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_untouched_rows_get_their_decay_on_settling(kind: str) -> None:
    table = table_of(kind, decay=0.5)
    before = table.values.clone()
    for rate in (0.1, 0.2, 0.3):
        table.apply(torch.tensor([4]), torch.ones(1, SHAPE[1]), rate)
    assert torch.equal(table.values[0], before[0])
    gathered = table.gather(torch.arange(SHAPE[0]))
    table.flush()
    assert torch.equal(gathered, table.values), "a reader sees the decay before it is written"
    np.testing.assert_allclose(table.values[0], before[0] * (0.95 * 0.9 * 0.85), rtol=1e-6)
    settled = table.values.clone()
    table.flush()
    assert torch.equal(table.values, settled)


@pytest.mark.parametrize("kind", KINDS)
def test_state_survives_tensors_and_restore(kind: str) -> None:
    steps = random_steps(3, 8)
    straight, stopped = table_of(kind), table_of(kind)
    for step in steps[:4]:
        straight.apply(*step)
        stopped.apply(*step)
    resumed = EmbeddingTable(torch.zeros(SHAPE), stopped.optimizer)
    resumed.restore({name: tensor.clone() for name, tensor in stopped.tensors().items()})
    for step in steps[4:]:
        straight.apply(*step)
        resumed.apply(*step)
    straight.flush()
    resumed.flush()
    assert torch.equal(straight.values, resumed.values)
    assert all(torch.equal(straight.state[name], resumed.state[name]) for name in straight.state)


def test_restore_copies_and_a_fresh_table_restores_to_fresh() -> None:
    fresh, used = table_of("adamw"), table_of("adamw", seed=1)
    used.apply(torch.tensor([0]), torch.ones(1, SHAPE[1]), 0.1)
    used.restore(fresh.tensors())
    assert used.state == {}
    assert used.decay_sum == 0.0
    used.apply(torch.tensor([0]), torch.ones(1, SHAPE[1]), 0.1)
    assert not torch.equal(used.values, fresh.values)
    assert fresh.state == {}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing(kind: str) -> None:
    tables = [table_of(kind, threads=threads) for threads in (1, 2, 7)]
    for step in random_steps(4, 5):
        for table in tables:
            table.apply(*step)
    assert all(torch.equal(tables[0].values, table.values) for table in tables[1:])


def test_another_kind_of_optimizer_settles_and_starts_afresh() -> None:
    table = table_of("rowwise", decay=0.5)
    before = table.values.clone()
    table.apply(torch.tensor([1]), torch.ones(1, SHAPE[1]), 0.1)
    table.optimizer = dataclasses.replace(table.optimizer, kind="adamw")
    table.apply(torch.tensor([1]), torch.ones(1, SHAPE[1]), 0.1)
    assert table.state["steps"][1] == 1
    table.flush()
    np.testing.assert_allclose(table.values[0], before[0] * 0.95 * 0.95, rtol=1e-6)


def test_to_moves_values_and_state() -> None:
    table = table_of("adamw")
    table.apply(torch.tensor([1]), torch.ones(1, SHAPE[1]), 0.1)
    assert table.to("meta") is table
    assert table.values.device.type == "meta"
    assert {tensor.device.type for tensor in table.state.values()} == {"meta"}


def test_strided_gradients_and_narrow_rows() -> None:
    table, twin = table_of("adamw"), table_of("adamw")
    gradient = torch.randn(SHAPE[1], 3).T
    table.apply(torch.tensor([5, 1, 3], dtype=torch.int32), gradient, 0.1)
    twin.apply(torch.tensor([5, 1, 3]), gradient.contiguous(), 0.1)
    assert torch.equal(table.values, twin.values)


def test_names_of_optimizers() -> None:
    assert RowOptimizer(decay=0.1, epsilon=1e-6).kind == "adamw"
    with pytest.raises(AssertionError, match="'adagrad' is none of adamw, rowwise"):
        RowOptimizer(kind="adagrad")


def test_a_tape_returns_every_gradient_to_its_table() -> None:
    table, other, buffer = table_of("adamw"), table_of("adamw"), GradientBuffer()
    leaf = buffer.gather(table, torch.tensor([2, 0]))
    buffer.gather(other, torch.tensor([1]))  # nothing depends on it
    (leaf * torch.arange(10.0).view(2, 5)).sum().backward()
    buffer.push(other, torch.tensor([3]), torch.ones(1, 5))
    found = [(owner is table, rows.tolist(), gradient.tolist()) for owner, rows, gradient in buffer.gradients()]
    assert found == [(True, [2, 0], torch.arange(10.0).view(2, 5).tolist()), (False, [3], [[1.0] * 5])]
