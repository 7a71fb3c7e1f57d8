"""Equation (5): the kernels against their definition, values and gradients, and against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.embedding_table import EmbeddingTable, GradientBuffer, RowOptimizer
from elias.index import edge_scores as module
from elias.index.edge_scores import LearnedEdges, edge_scores, edge_scores_reference
from elias.kernels.edge_scores import backward, forward


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_edge_scores_and_gradients_are_the_dense_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 6, 20, density=rng.choice([0.0, 0.1, 0.6]))
    expected = dense.edge_scores(index)[index.clusters, index.labels]
    np.testing.assert_allclose(index.edge_scores(), expected, rtol=1e-5)
    gradients, upstream = [], torch.from_numpy(rng.normal(size=index.n_edges).astype(np.float32))
    for by_definition in (False, True):
        leaf = torch.from_numpy(index.logits).clone().requires_grad_()
        with kernels.reference(by_definition):
            found = edge_scores(leaf, index.indptr, index.beta, threads=3)
        np.testing.assert_allclose(found.e_F.numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(found.log_F.detach().numpy(), np.log(expected), rtol=1e-5, atol=1e-6)
        found.log_F.backward(upstream)
        gradients.append(leaf.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_edge_scores_do_not_depend_on_where_memory_lies() -> None:
    """Arrays one behind the other, as a small heap lays them, and far apart."""
    rng = np.random.default_rng(0)
    indptr = np.asarray([0, 60, 120, 180, 240])
    logits, grad = rng.normal(size=(2, 240)).astype(np.float32)
    answers = set()
    for gap in (0, 4, 16, 64, 4096):
        buffer = np.empty(3 * (240 + gap), dtype=np.float32)
        scaled, logs, out = (part[:240] for part in np.split(buffer, 3))
        forward(0, 4, indptr, logits, 15.0, scaled, logs)
        backward(0, 4, indptr, scaled, logs, 15.0, grad, out)
        answers.add((scaled.tobytes(), logs.tobytes(), out.tobytes()))
    assert len(answers) == 1


def test_an_edge_that_trails_far_behind_still_learns() -> None:
    """e itself is 0 in float32; its logarithm and the gradient are not."""
    for by_definition in (False, True):
        logits = torch.tensor([0.0, -200.0], requires_grad=True)
        with kernels.reference(by_definition):
            found = edge_scores(logits, np.asarray([0, 2]), 1.5)
        assert found.e_F[1] == 0
        assert found.log_F[1].item() == pytest.approx(np.log(1.5) - 200, rel=1e-6)
        found.log_F[1].backward()
        assert logits.grad.tolist() == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("at_once", [1, 7, 1 << 16])
@pytest.mark.parametrize("seed", range(4))
def test_all_edges_at_once_are_the_definition(seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EDGES_AT_ONCE", (at_once, at_once))
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 6, 20, density=rng.choice([0.1, 0.6]), beta=4.0)
    places = torch.from_numpy(rng.integers(0, index.n_edges, 30))
    upstream = torch.from_numpy(rng.normal(size=30).astype(np.float32))
    leaf = torch.from_numpy(index.logits).clone().requires_grad_()
    expected = edge_scores_reference(leaf, index.indptr, index.beta)
    (expected.log_F[places] * upstream).sum().backward()

    edges = LearnedEdges(EmbeddingTable(torch.from_numpy(index.logits)[:, None].clone()), index.indptr, index.beta)
    found, buffer = edges.scores(), GradientBuffer()
    torch.testing.assert_close(found.e_E, expected.e_F, rtol=1e-5, atol=1e-7)
    touched = torch.tensor([[0, 2, -1]])
    log_N = edges.log_of(places, found, touched, buffer)
    torch.testing.assert_close(log_N, expected.log_F[places].detach(), rtol=1e-5, atol=1e-6)
    (log_N * upstream).sum().backward()
    ((_, rows, gradient),) = buffer.gradients()
    torch.testing.assert_close(gradient[:, 0], leaf.grad, rtol=1e-4, atol=1e-6)
    assert rows.tolist() == np.isin(index.clusters, [0, 2]).tolist()


def test_edges_that_step_at_once_are_those_that_step_later() -> None:
    rng = np.random.default_rng(0)
    index = dense.random_index(rng, 6, 20, density=0.5, beta=4.0)
    ends = []
    for at_once in (False, True):
        table = EmbeddingTable(torch.from_numpy(index.logits)[:, None].clone(), RowOptimizer(decay=0.3))
        edges = LearnedEdges(table, index.indptr, index.beta)
        for rate, cluster in ((0.1, 0), (0.05, 3)):
            buffer = GradientBuffer(rates={table: rate} if at_once else {})
            places = torch.arange(int(index.indptr[cluster]), int(index.indptr[cluster + 1]))
            log_N = edges.log_of(places, edges.scores(), torch.tensor([[cluster]]), buffer)
            (log_N * torch.arange(len(log_N))).sum().backward()
            for _, rows, gradient in buffer.gradients():
                table.apply(rows, gradient, rate)
        ends.append(table.tensors())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert ends[0]["steps"].tolist() == np.isin(index.clusters, [0, 3]).astype(int).tolist()


def test_one_long_cluster_does_not_pad_all_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scores` pads the clusters of a block to the longest of all: their number is bounded too."""
    monkeypatch.setattr(module, "EDGES_AT_ONCE", (1000, 1000))
    indptr = np.concatenate([[0], np.cumsum([400, *[2] * 300])])
    edges = LearnedEdges(EmbeddingTable(torch.rand(int(indptr[-1]), 1)), indptr, 5.0)
    blocks = [clusters for clusters, _ in edges.blocks()]
    assert all((block.stop - block.start) * edges.longest <= 1000 for block in blocks)
    assert [block.start for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
    assert (blocks[0].start, blocks[-1].stop) == (0, 301)
