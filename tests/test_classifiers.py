"""Classifier scores over a shortlist: kernel against torch, exact where integers make it exact."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elias import classifiers, kernels
from elias.tables import RowTable, TableOptimiser, Tape


def random_case(seed: int, threads: int = 1) -> tuple[torch.Tensor, torch.Tensor, RowTable, RowTable]:
    """phi, shortlists with pads, and integer-valued tables: every product and sum is exact."""
    rng = np.random.default_rng(seed)
    n_rows, width, dim, n_labels = (int(rng.integers(1, top)) for top in (6, 9, 20, 30))
    width = min(width, n_labels)
    phi = torch.from_numpy(rng.integers(-3, 4, (n_rows, dim)).astype(np.float32))
    labels = np.argsort(rng.random((n_rows, n_labels)), axis=1)[:, :width].copy()
    labels[rng.random(labels.shape) < rng.choice([0.0, 0.3, 1.0])] = -1
    weights = torch.from_numpy(rng.integers(-3, 4, (n_labels, dim)).astype(np.float32))
    biases = torch.from_numpy(rng.integers(-3, 4, (n_labels, 1)).astype(np.float32))
    return phi, torch.from_numpy(labels), RowTable(weights, threads=threads), RowTable(biases, threads=threads)


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_kernel_and_torch_are_identical_on_integers(seed: int) -> None:
    phi, labels, weights, biases = random_case(seed, threads=1 + seed % 3)
    grad_z = torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, labels.shape).astype(np.float32))
    results = []
    for function in (classifiers.scores, classifiers.scores_torch):
        tape, leaf = Tape(), phi.clone().requires_grad_()
        z = function(leaf, labels, weights, biases, tape)
        if z.requires_grad:
            z.backward(grad_z)
        dense = [torch.zeros_like(weights.values), torch.zeros_like(biases.values)]
        for owner, rows, gradient in tape.gradients():
            dense[owner is biases].index_add_(0, rows, gradient)
        results.append([z.detach(), torch.zeros_like(phi) if leaf.grad is None else leaf.grad, *dense])
    assert all(torch.equal(mine, twin) for mine, twin in zip(*results, strict=True))
    expected = phi.numpy() @ weights.values.numpy().T + biases.values.numpy()[:, 0]
    expected = np.where(labels >= 0, np.take_along_axis(expected, labels.clamp(min=0).numpy(), axis=1), 0.0)
    assert np.array_equal(results[0][0].numpy(), expected)


def test_chunks_of_the_torch_twin_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    phi, labels, weights, biases = random_case(11)
    whole = classifiers.scores_torch(phi, labels, weights, biases, None)
    monkeypatch.setattr(classifiers, "CHUNK_FLOATS", 1)
    assert torch.equal(classifiers.scores_torch(phi, labels, weights, biases, None), whole)


def test_scores_include_the_decay_that_rows_are_owed() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 4, generator=generator), torch.randn(6, 1, generator=generator)
    tables = [RowTable(v, TableOptimiser(decay=0.5)) for v in values]
    for table in tables:
        table.apply(torch.tensor([2]), torch.ones(1, table.width), 0.4)
    phi, labels = torch.randn(3, 4, generator=generator), torch.tensor([[0, 2], [5, 1], [2, -1]])

    def scores_and_gradient() -> list[torch.Tensor]:
        leaf = phi.clone().requires_grad_()
        z = classifiers.scores(leaf, labels, *tables)
        z.square().sum().backward()
        return [z.detach(), leaf.grad]

    lazy, twin = scores_and_gradient(), classifiers.scores_torch(phi, labels, *tables, None)
    for table in tables:
        table.settle()
    for mine, expected in zip([*lazy, twin], [*scores_and_gradient(), lazy[0]], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 0), (0, 4), (0, 0)])
def test_empty_shortlists(shape: tuple[int, int]) -> None:
    weights, biases = RowTable(torch.ones(3, 2)), RowTable(torch.ones(3, 1))
    phi, labels = torch.ones(shape[0], 2, requires_grad=True), torch.zeros(shape, dtype=torch.long)
    tape = Tape()
    z = classifiers.scores(phi, labels, weights, biases, tape)
    z.sum().backward()
    assert z.shape == shape
    assert phi.grad.shape == phi.shape
    for table, rows, gradient in tape.gradients():
        table.apply(rows, gradient, 0.1)
    assert torch.equal(weights.values, torch.ones(3, 2))


def test_rounding_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "PAIRS_PER_RANGE", 50)
    rng = np.random.default_rng(0)
    phi = torch.from_numpy(rng.normal(size=(20, 33)).astype(np.float32))
    labels = torch.from_numpy(np.argsort(rng.random((20, 90)), axis=1)[:, :40].copy())
    values = torch.from_numpy(rng.normal(size=(90, 33)).astype(np.float32))
    found = []
    for threads in (1, 2, 5):
        leaf = phi.clone().requires_grad_()
        z = classifiers.scores(leaf, labels, RowTable(values, threads=threads), RowTable(torch.zeros(90, 1)))
        z.square().sum().backward()
        found.append((z.detach(), leaf.grad))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


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
        assert unique.tolist() == [0, 2, 5]
        assert starts.tolist() == [0, 1, 3, 5]
        assert positions.tolist() == [4, 1, 3, 0, 5]


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
