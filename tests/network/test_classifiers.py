"""Classifier scores over a shortlist: kernel against torch, exact where integers make it exact."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elias import kernels
from elias.core.embedding_table import EmbeddingTable, GradientBuffer, RowOptimizer
from elias.network import classifiers


def random_case(seed: int, threads: int = 1) -> tuple[torch.Tensor, torch.Tensor, EmbeddingTable, EmbeddingTable]:
    """phi, shortlists with pads, and integer-valued tables: every product and sum is exact."""
    rng = np.random.default_rng(seed)
    n_rows, width, dim, n_labels = (int(rng.integers(1, top)) for top in (6, 9, 20, 30))
    width = min(width, n_labels)
    phi = torch.from_numpy(rng.integers(-3, 4, (n_rows, dim)).astype(np.float32))
    labels = np.argsort(rng.random((n_rows, n_labels)), axis=1)[:, :width].copy()
    labels[rng.random(labels.shape) < rng.choice([0.0, 0.3, 1.0])] = -1
    weights = torch.from_numpy(rng.integers(-3, 4, (n_labels, dim)).astype(np.float32))
    biases = torch.from_numpy(rng.integers(-3, 4, (n_labels, 1)).astype(np.float32))
    return (
        phi,
        torch.from_numpy(labels),
        EmbeddingTable(weights, threads=threads),
        EmbeddingTable(biases, threads=threads),
    )


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_kernel_and_torch_are_identical_on_integers(seed: int) -> None:
    phi, labels, weights, biases = random_case(seed, threads=1 + seed % 3)
    z = classifiers.scores(phi, labels, weights, biases)
    assert torch.equal(z, classifiers.scores_reference(phi, labels, weights, biases, None))
    expected = phi.numpy() @ weights.values.numpy().T + biases.values.numpy()[:, 0]
    expected = np.where(labels >= 0, np.take_along_axis(expected, labels.clamp(min=0).numpy(), axis=1), 0.0)
    assert np.array_equal(z.numpy(), expected)


Case = tuple[torch.Tensor, torch.Tensor, EmbeddingTable, EmbeddingTable]


def loss_and_gradients(function: Any, case: Case, seed: int, factor: float = 1.0) -> list[np.ndarray]:
    """(7) with random yhat, y and weights, and every gradient, dense."""
    phi, labels, weights, biases = case
    rng = np.random.default_rng(seed)
    special = np.float32([-100.0, -46.0, -30.0, -11.0, -1.2, -0.1, 0.0])
    log_yhat = torch.from_numpy(rng.choice(special, labels.shape)).requires_grad_()
    y = torch.from_numpy(rng.choice(np.float32([0.0, 0.0, 0.5, 1.0, 2.0]), labels.shape))
    weight = torch.from_numpy(rng.choice(np.float32([0.0, 1.0, 3.0]), len(phi)))
    buffer, leaf = GradientBuffer(), phi.clone().requires_grad_()
    value = function(leaf, log_yhat, labels, y, weight, weights, biases, buffer)
    if value.requires_grad:
        (factor * value).backward()
    dense = [torch.zeros_like(weights.values), torch.zeros_like(biases.values)]
    for owner, rows, gradient in buffer.gradients():
        dense[owner is biases].index_add_(0, rows, gradient)
    leaves = [torch.zeros_like(x) if x.grad is None else x.grad for x in (leaf, log_yhat)]
    return [tensor.detach().numpy() for tensor in (value, *leaves, *dense)]


@settings(max_examples=80)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 0.25]))
def test_the_loss_and_its_gradients_are_those_of_torch(seed: int, factor: float) -> None:
    case = random_case(seed, threads=1 + seed % 3)
    mine = loss_and_gradients(classifiers.loss, case, seed, factor)
    expected = loss_and_gradients(classifiers.loss_reference, case, seed, factor)
    for name, a, b in zip(("loss", "phi", "log yhat", "weights", "biases"), mine, expected, strict=True):
        np.testing.assert_allclose(
            a, b, rtol=2e-4, atol=1e-6 * max(1.0, float(np.abs(b).max(initial=0.0))), err_msg=name
        )


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.booleans())
def test_a_step_at_once_is_gradient_then_step_bit_for_bit(seed: int, by_definition: bool) -> None:
    with kernels.reference(by_definition):
        check_a_step_at_once(seed)


def check_a_step_at_once(seed: int) -> None:
    results = []
    for at_once in (False, True):
        phi, labels, weights, biases = random_case(seed, threads=1 + seed % 3)
        weights.optimizer = RowOptimizer(kind="rowwise", decay=0.3)
        y = torch.from_numpy((np.random.default_rng(seed).random(labels.shape) < 0.3).astype(np.float32))
        for rate in (0.1, 0.05):
            leaf, log_yhat = phi.clone().requires_grad_(), torch.full(labels.shape, -0.4).requires_grad_()
            buffer = GradientBuffer(rates={weights: rate} if at_once else {})
            value = classifiers.loss(leaf, log_yhat, labels, y, torch.ones(len(phi)), weights, biases, buffer)
            value.backward()
            owners = [owner for owner, _, _ in buffer.gradients()]
            assert (weights in owners) != at_once
            for owner, rows, gradient in buffer.gradients():
                if owner is weights:
                    weights.apply(rows, gradient, rate)
        results.append([value.detach(), leaf.grad, log_yhat.grad, *weights.tensors().values()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_negative_that_is_certain_is_pushed_down() -> None:
    weights, biases = EmbeddingTable(torch.ones(1, 1)), EmbeddingTable(torch.zeros(1, 1))
    for function in (classifiers.loss, classifiers.loss_reference):
        phi, log_yhat = torch.full((1, 1), 40.0).requires_grad_(), torch.zeros(1, 1).requires_grad_()
        rest = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1), torch.ones(1)
        value = function(phi, log_yhat, *rest, weights, biases, GradientBuffer())
        value.backward()
        assert [value.item(), phi.grad.item(), log_yhat.grad.item()] == pytest.approx([40.0, 1.0, 0.0])


@pytest.mark.parametrize("floats", [1, 7, 20])
def test_blocks_of_the_definition_change_nothing(floats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(11)
    whole = [
        classifiers.scores_reference(*case, None).numpy(),
        *loss_and_gradients(classifiers.loss_reference, case, 3),
    ]
    monkeypatch.setattr(classifiers, "SCORES_AT_ONCE", (floats, floats))
    monkeypatch.setattr(classifiers, "WEIGHTS_AT_ONCE", (floats, floats))
    blocks = [
        classifiers.scores_reference(*case, None).numpy(), *loss_and_gradients(classifiers.loss_reference, case, 3)
    ]  # fmt: skip
    assert np.array_equal(whole[0], blocks[0])  # integers: every sum is exact
    for a, b in zip(whole[1:], blocks[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_scores_include_pending_decay() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 4, generator=generator), torch.randn(6, 1, generator=generator)
    tables = [EmbeddingTable(v, RowOptimizer(decay=0.5)) for v in values]
    for table in tables:
        table.apply(torch.tensor([2]), torch.ones(1, table.width), 0.4)
    phi, labels = torch.randn(3, 4, generator=generator), torch.tensor([[0, 2], [5, 1], [2, -1]])

    def scores_and_gradients() -> list[np.ndarray]:
        z = classifiers.scores(phi, labels, *tables).numpy()
        return [z, *loss_and_gradients(classifiers.loss, (phi, labels, *tables), 0)]

    lazy, defined = scores_and_gradients(), classifiers.scores_reference(phi, labels, *tables, None).numpy()
    for table in tables:
        table.flush()
    for mine, expected in zip([*lazy, defined], [*scores_and_gradients(), lazy[0]], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 0), (0, 4), (0, 0)])
def test_empty_shortlists(shape: tuple[int, int]) -> None:
    weights, biases = EmbeddingTable(torch.ones(3, 2)), EmbeddingTable(torch.ones(3, 1))
    phi, labels = torch.ones(shape[0], 2), torch.zeros(shape, dtype=torch.long)
    assert classifiers.scores(phi, labels, weights, biases).shape == shape
    value, *gradients = loss_and_gradients(classifiers.loss, (phi, labels, weights, biases), 0)
    assert value == 0.0
    assert not any(gradient.any() for gradient in gradients)


def test_rounding_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "PAIRS_PER_RANGE", 50)
    rng = np.random.default_rng(0)
    phi = torch.from_numpy(rng.normal(size=(20, 33)).astype(np.float32))
    labels = torch.from_numpy(np.argsort(rng.random((20, 90)), axis=1)[:, :40].copy())
    values = torch.from_numpy(rng.normal(size=(90, 33)).astype(np.float32))
    found = []
    for threads in (1, 2, 5):
        case = phi, labels, EmbeddingTable(values, threads=threads), EmbeddingTable(torch.zeros(90, 1))
        found.append([classifiers.scores(*case).numpy(), *loss_and_gradients(classifiers.loss, case, 0)])
    assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 100), max_size=40))
def test_ranges_cover_every_label_once(sizes: list[int]) -> None:
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    cuts = classifiers.fixed_ranges(starts)
    assert cuts[0] == 0
    assert cuts[-1] == len(sizes)
    assert cuts == sorted(cuts)


def test_grouping_needs_no_clean_scratch() -> None:
    from elias.kernels.classifiers import group_by_label

    labels = np.array([[5, 2, -1], [2, 0, 5]])
    for scratch in (np.zeros(6, np.int32), np.full(6, -7, np.int32), np.arange(6, dtype=np.int32)):
        unique, starts, positions = group_by_label(labels, scratch)
        assert unique.tolist() == [5, 2, 0]
        assert starts.tolist() == [0, 2, 4, 5]
        assert positions.tolist() == [0, 5, 1, 3, 4]


def test_kernels_run_in_range_order_from_many_threads_at_once() -> None:
    def ranges(start: int, stop: int, shift: int) -> list[int]:
        return list(range(start + shift, stop + shift))

    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(lambda shift: kernels.run(ranges, 10, 3, shift), range(20)))
    for shift, answer in enumerate(answers):
        assert [number for part in answer for number in part] == list(range(shift, shift + 10))
    assert kernels.run(ranges, 0, 4, 0) == [[]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_threads_of_its_own() -> None:
    code = (
        "import os, signal; from elias import kernels\n"
        "f = lambda start, stop: stop - start\n"
        "assert kernels.run(f, 8, 2) == [4, 4]\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    signal.alarm(10); os._exit(0 if kernels.run(f, 8, 2) == [4, 4] else 1)\n"
        "raise SystemExit(os.waitpid(pid, 0)[1] != 0)\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
