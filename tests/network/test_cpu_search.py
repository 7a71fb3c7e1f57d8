"""Search on the CPU against its definition in torch: the same labels and scores, whatever the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.embedding_table import EmbeddingTable
from elias.core.predictions import Predictions
from elias.core.ragged import Ragged
from elias.index.label_index import LabelIndex
from elias.kernels.beam_search import exact_scores, length_bound
from elias.kernels.bounds import bound_scores, quantize_query
from elias.kernels.exponent import exp, sum_of_exp
from elias.network.cpu_search import classifiers_with_codes, edges_by_score, new_scratch
from elias.network.network import Network, SearchSettings
from elias.network.quantization import QuantizedRows
from elias.network.searcher import Searcher
from helpers.networks import random_case, small_network

SEEDS = st.integers(0, 1_000_000)


def compare(network: Network, phi: np.ndarray, k: int, excluded: Ragged | None = None) -> Predictions:
    """`search`, checked against `search_reference`: label by label, but for scores that rounding cannot tell apart."""
    searcher = Searcher(network)
    query = searcher.encode(torch.from_numpy(phi), np.arange(len(phi)))
    found = searcher.search(query, k, excluded=excluded, explain=True)
    expected = searcher.search_reference(query, k, excluded=excluded, explain=True)
    assert found.labels.shape == expected.labels.shape == (len(phi), k)
    np.testing.assert_array_equal((found.labels >= 0).sum(axis=1), (expected.labels >= 0).sum(axis=1))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=1e-30)
    assert found.parts is not None
    assert expected.parts is not None
    same = found.labels == expected.labels
    for name, values in found.parts.items():
        np.testing.assert_allclose(values[same], expected.parts[name][same], rtol=2e-5, atol=1e-30, err_msg=name)
    for row in range(len(phi)):
        for column in np.flatnonzero(~same[row]):  # a swap of neighbors that are equal up to rounding
            score = expected.scores[row, column]
            np.testing.assert_allclose(found.scores[row, column], score, rtol=1e-6)
            ties = expected.labels[row][np.isclose(expected.scores[row], score, rtol=1e-6)]
            at_the_cut = np.isclose(score, expected.scores[row, -1], rtol=1e-6)
            assert at_the_cut or found.labels[row, column] in ties
    return found


@settings(max_examples=150)
@given(SEEDS)
def test_search_is_the_definition_on_random_networks(seed: int) -> None:
    network, phi, k, excluded = random_case(np.random.default_rng(seed))
    compare(network, phi, k, excluded)


@settings(max_examples=100)
@given(SEEDS)
def test_whole_numbers_give_the_very_same_labels(seed: int) -> None:
    """Sums of whole numbers are exact, and small ones tie all the time: every place must hold the same label."""
    rng = np.random.default_rng(seed)
    network, _, k, excluded = random_case(rng)
    for table in (network.classifier_weights, network.classifier_biases):
        table.values.copy_(torch.from_numpy(rng.integers(-2, 3, table.values.shape)).float())
    with torch.no_grad():
        network.clusters.weight.copy_(torch.from_numpy(rng.integers(-1, 2, network.clusters.weight.shape)).float())
    index = network.index
    logits = rng.choice(np.float32([0.0, 1.0]), index.n_edges)
    network = Network(
        network.encoder, network.clusters, replace(index, logits=logits if rng.random() < 0.7 else None),
        network.classifier_weights, network.classifier_biases, network.settings,
    )  # fmt: skip
    phi = rng.integers(-1, 2, (5, network.clusters.in_features)).astype(np.float32)
    searcher = Searcher(network)
    query = searcher.encode(torch.from_numpy(phi), np.arange(5))
    found = searcher.search(query, k, excluded=excluded)
    np.testing.assert_array_equal(found.labels, searcher.search_reference(query, k, excluded=excluded).labels)


@settings(max_examples=40)
@given(SEEDS)
def test_given_labels_score_the_same_by_kernels_and_by_definition(seed: int) -> None:
    network, phi, k, lists = random_case(np.random.default_rng(seed))
    searcher = Searcher(network)
    query = searcher.encode(torch.from_numpy(phi), np.arange(len(phi)))
    found = searcher.rank_candidates(query, k, lists, explain=True)
    with kernels.reference():
        expected = searcher.rank_candidates(query, k, lists, explain=True)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=1e-30)
    for row in range(len(phi)):
        wanted = set(lists.labels[lists.indptr[row] : lists.indptr[row + 1]].tolist())
        assert set(found.labels[row][found.labels[row] >= 0].tolist()) <= wanted


def test_the_definition_makes_no_tables_of_the_kernels() -> None:
    network, phi, k, excluded = random_case(np.random.default_rng(0))
    searcher = Searcher(network)
    with kernels.reference():
        found = searcher.search_rows(torch.from_numpy(phi), np.arange(len(phi)), k, excluded=excluded)
    assert "cpu_search" not in vars(searcher)
    by_kernel = searcher.search_rows(torch.from_numpy(phi), np.arange(len(phi)), k, excluded=excluded)
    np.testing.assert_allclose(found.scores, by_kernel.scores, rtol=2e-5, atol=1e-30)


@settings(max_examples=60)
@given(SEEDS)
def test_one_row_is_the_definition_too(seed: int) -> None:
    network, phi, k, _ = random_case(np.random.default_rng(seed))
    for row in range(2):
        compare(network, phi[row : row + 1], k)


def test_exp_is_numpys_exp() -> None:
    given = np.concatenate([np.linspace(-700, 700, 100_001), [0.0, -0.0, 1e-300, -1e-17, np.log(2), -np.log(2) / 2]])
    np.testing.assert_allclose([exp(x) for x in given], np.exp(given), rtol=1e-15)
    assert exp(-1e9) == pytest.approx(np.exp(-700))
    assert exp(1e9) == pytest.approx(np.exp(700))
    logits = np.random.default_rng(0).normal(size=1001).astype(np.float32) * 20
    wanted = np.exp(logits.astype(np.float64) - logits.max()).sum()
    assert sum_of_exp(logits, np.float64(logits.max())) == pytest.approx(wanted, rel=1e-13)


@settings(max_examples=60)
@given(SEEDS)
def test_a_quantized_query_leaves_no_more_than_its_bound(seed: int) -> None:
    """No sum with codes overflows, and the rest is no longer than |left|."""
    rng = np.random.default_rng(seed)
    dim = int(rng.choice([1, 7, 384, 20_000]))
    phi = (rng.normal(size=dim) * 10.0 ** rng.integers(-40, 30)).astype(np.float32) * rng.integers(0, 2)
    whole, step, left = quantize_query(phi)
    assert np.abs(whole.astype(np.int64)).sum() * 127 < 2**31
    rest = phi.astype(np.float64) - step * whole
    assert np.linalg.norm(rest) <= left
    assert np.linalg.norm(rest) <= np.abs(phi).max() * max(2.0**-16, 127 * dim / 2.0**31) * np.sqrt(dim) * 1.1


def everywhere(rng: np.random.Generator) -> LabelIndex:
    """Label 3 is in every cluster; cluster 2 is empty."""
    index = dense.random_index(rng, 6, 50, density=0.2)
    exists = np.zeros((6, 50), dtype=bool)
    exists[index.clusters, index.labels] = True
    exists[:, 3], exists[2] = True, False
    clusters, labels = np.nonzero(exists)
    indptr = np.searchsorted(clusters, np.arange(7)).astype(np.int64)
    logits = rng.normal(size=len(labels)).astype(np.float32)
    return LabelIndex(indptr=indptr, labels=labels.astype(np.int32), n_labels=50, logits=logits, beta=4.0)


def flat(network: Network) -> None:
    network.classifier_weights.values.zero_()
    network.classifier_biases.values.zero_()


def tiny_numbers(network: Network) -> None:
    network.classifier_weights.values.mul_(1e-42)
    network.classifier_biases.values.fill_(-0.0)


def saturated(network: Network) -> None:
    network.classifier_biases.values.copy_(torch.linspace(-200, 200, len(network.classifier_biases))[:, None])


def one_large_value(network: Network) -> None:
    """A row with one large value has coarse codes, and so a wide bound."""
    network.classifier_weights.values[:, 0] *= 1000.0


@pytest.mark.parametrize("change", [flat, tiny_numbers, saturated, one_large_value])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (7, 3), (50, 50), (500, 60), (20, 100)])
def test_awkward_networks(change: Callable[[Network], None], size: int, k: int) -> None:
    rng = np.random.default_rng(4)
    network = small_network(rng, everywhere(rng), 16, SearchSettings(beam_size=5, shortlist_size=size))
    change(network)
    compare(network, rng.normal(size=(9, 16)).astype(np.float32), k)
    compare(network, np.zeros((2, 16), dtype=np.float32), k)


def test_flat_edges_resolve_to_the_lower_labels() -> None:
    rng = np.random.default_rng(0)
    index = dense.random_index(rng, 8, 300, density=1.0)
    index = replace(index, logits=np.zeros(index.n_edges, dtype=np.float32), beta=1e9)
    network = small_network(rng, index, 8, SearchSettings(alpha=1e9, beam_size=8, shortlist_size=40))
    flat(network)
    found = compare(network, rng.normal(size=(3, 8)).astype(np.float32), 10)
    assert found.labels.tolist() == [list(range(10))] * 3


def test_an_answer_does_not_depend_on_what_came_before() -> None:
    """Scratch memory is used again, also by a query with other exclusions and another k."""
    rng = np.random.default_rng(1)
    index = dense.random_index(rng, 12, 400, density=0.3)
    network = small_network(rng, index, 8, SearchSettings(beam_size=4, shortlist_size=50))
    phi = torch.from_numpy(rng.normal(size=(40, 8)).astype(np.float32))
    fresh = [Searcher(network).search_rows(phi, np.array([row]), 5).labels for row in range(40)]
    used = Searcher(network)
    for row in rng.permutation(40).tolist():
        used.search_rows(phi, np.array([row]), 60, excluded=Ragged(np.array([0, 300]), np.arange(300, dtype=np.int32)))
        np.testing.assert_array_equal(used.search_rows(phi, np.array([row]), 5).labels, fresh[row])


def test_many_threads_search_at_once() -> None:
    rng = np.random.default_rng(2)
    index = dense.random_index(rng, 12, 400, density=0.3)
    network = small_network(rng, index, 8, SearchSettings(beam_size=4, shortlist_size=50), threads=2)
    phi = torch.from_numpy(rng.normal(size=(64, 8)).astype(np.float32))
    searcher = Searcher(network)
    whole = searcher.search_rows(phi, np.arange(64), 7)
    wrong: list[int] = []

    def search(first: int) -> None:
        for _ in range(20):
            rows = np.arange(first, first + 8)
            if not np.array_equal(searcher.search_rows(phi, rows, 7).labels, whole.labels[rows]):
                wrong.append(first)

    threads = [Thread(target=search, args=(8 * i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@settings(max_examples=60)
@given(SEEDS, st.sampled_from(["bfloat16", "int8"]))
def test_rows_in_fewer_bytes_are_searched_exactly(seed: int, precision: str) -> None:
    """The definition reads the same rounded rows, so the answers are the same."""
    network, phi, k, excluded = random_case(np.random.default_rng(seed))
    network.classifier_weights = QuantizedRows.of(network.trained_weights.values.numpy(), precision, threads=2)
    compare(network, phi, k, excluded)


def test_bfloat16_is_torchs_bfloat16() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(50, 70)) * 10.0 ** rng.integers(-30, 30, (50, 1))).astype(np.float32)
    rows[0, :6] = [0.0, -0.0, 1e-45, 1.00390625, 1.01171875, -3e38]  # two ties among them
    stored = QuantizedRows.of(rows, "bfloat16", threads=3)
    np.testing.assert_array_equal(stored.decoded(), torch.from_numpy(rows).bfloat16().float().numpy())
    with kernels.reference():
        np.testing.assert_array_equal(QuantizedRows.of(rows, "bfloat16").rows, stored.rows)
    some = torch.tensor([3, 3, 0])
    np.testing.assert_array_equal(stored.gather(some).numpy(), stored.decoded()[some.numpy()])


@settings(max_examples=60)
@given(SEEDS)
def test_int8_codes_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(9, 30)) * 10.0 ** rng.integers(-40, 30, (9, 1))).astype(np.float32)
    rows[rng.random(rows.shape) < rng.choice([0.0, 0.5, 1.0])] = 0.0
    by_kernel = QuantizedRows.of(rows, "int8", threads=2)
    with kernels.reference():
        by_definition = QuantizedRows.of(rows, "int8")
    np.testing.assert_array_equal(by_kernel.rows, by_definition.rows)
    np.testing.assert_array_equal(by_kernel.scales, by_definition.scales)


@settings(max_examples=60)
@given(SEEDS)
def test_the_bound_of_the_codes_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, dim = int(rng.integers(1, 30)), int(rng.integers(1, 600))
    weights = (rng.normal(size=(rows, dim)) * 10.0 ** rng.integers(-20, 6)).astype(np.float32)
    weights[rng.random(weights.shape) < rng.choice([0.0, 0.5, 1.0])] = 0.0
    made = classifiers_with_codes(
        EmbeddingTable(torch.from_numpy(weights)), EmbeddingTable(torch.zeros(rows, 1)), threads=2
    )
    phi = rng.normal(size=dim).astype(np.float32)
    scales, _, errors, _ = made.facts.T
    approximate = scales * (made.codes.astype(np.float32) @ phi)
    exact = weights.astype(np.float64) @ phi.astype(np.float64)
    assert (np.abs(approximate - exact) <= errors * np.linalg.norm(phi)).all()
    worst = (weights - scales[:, None] * made.codes).astype(np.float32)  # a phi along the rest meets the bound
    for row in range(rows):
        off = abs(float(worst[row].astype(np.float64) @ worst[row]))
        assert off <= errors[row] * np.linalg.norm(worst[row].astype(np.float64)) * (1 + 1e-6) + 1e-300


@settings(max_examples=150)
@given(SEEDS)
def test_scores_lie_between_their_bounds(seed: int) -> None:
    """Saturated sigmoids, coarse codes, large biases, the smallest floats: p is between its bounds."""
    rng = np.random.default_rng(seed)
    n_labels, dim = 40, int(rng.integers(1, 300))
    weights = (rng.normal(size=(n_labels, dim)) * 10.0 ** rng.uniform(-42, 2, (n_labels, 1))).astype(np.float32)
    weights[:, 0] *= rng.choice(np.float32([1.0, 1e3]))
    biases = (rng.normal(size=(n_labels, 1)) * rng.choice([0.0, 20.0, 300.0])).astype(np.float32)
    tables = EmbeddingTable(torch.from_numpy(weights)), EmbeddingTable(torch.from_numpy(biases))
    made = classifiers_with_codes(*tables)
    phi = (rng.normal(size=dim) * 10.0 ** rng.integers(-3, 2)).astype(np.float32)
    if rng.random() < 0.3:  # along the rest of a row, where the bound is tight
        rest = weights[0] - made.facts[0, 0] * made.codes[0]
        phi = rest / max(float(np.linalg.norm(rest)), 1e-30) * np.float32(rng.choice([1.0, 100.0]))
    scratch = new_scratch(n_labels, n_labels)
    scratch.label_at[:] = np.arange(n_labels)
    scratch.yhat_at[:] = rng.choice(np.float32([1e-44, 1e-38, 1e-5, 0.3, 1.0]), n_labels)
    bound_scores(0, n_labels, phi, length_bound(phi), made, scratch)
    low, high = scratch.low_at.copy(), scratch.high_at.copy()
    exact_scores(0, n_labels, phi, made, scratch)
    assert (low <= scratch.low_at).all()
    assert (scratch.low_at <= high).all()


def test_edges_are_sorted_within_their_cluster() -> None:
    rng = np.random.default_rng(3)
    index = dense.random_index(rng, 9, 60, density=0.5)
    index = replace(index, logits=rng.choice(np.float32([-1.0, 0.0, 2.0]), index.n_edges))
    edges = edges_by_score(index, threads=3)
    order = np.lexsort((index.labels, -index.edge_scores(), index.clusters))
    np.testing.assert_array_equal(edges.labels, index.labels[order])
    np.testing.assert_array_equal(edges.scores, index.edge_scores()[order])
