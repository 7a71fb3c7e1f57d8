"""Features of candidates: one pass per text against the definition, feature by feature."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers.dense_equations as dense
from elias import kernels
from elias.core.ragged import Ragged
from elias.model.model import Model
from elias.network.network import SearchSettings
from elias.network.searcher import EncodedQuery, Searcher
from elias.ranking import inverted_index, margins
from elias.ranking.features import (
    FEATURES,
    WIDER,
    CandidateSizes,
    Features,
    RankingParts,
    candidate_features,
    features_of,
    reference_features,
    stack,
    take,
    unite,
)
from elias.ranking.inverted_index import InvertedIndex
from elias.ranking.knn import KNN, build_knn
from elias.ranking.sparse_rows import SparseRows
from helpers.networks import random_case, small_network
from helpers.sparse_data import random_tree, sparse

SEEDS = st.integers(0, 1_000_000)
N_WORDS, N_ROWS, DIM = 12, 5, 8


class Case(NamedTuple):
    """Texts, networks that share their ranking parts, and labels that are excluded."""

    parts: RankingParts
    searchers: list[Searcher]
    queries: list[EncodedQuery]
    bow: sp.csr_matrix
    excluded: Ragged


def random_parts(rng: np.random.Generator, n_labels: int, *, coarse: bool = False) -> RankingParts:
    """Parts of random vectors: v, t, w and the mixture have nothing to do with each other."""
    v, t = sparse(rng, n_labels, N_WORDS, coarse=coarse), sparse(rng, n_labels, N_WORDS)
    ranker = SparseRows.from_csr(sparse(rng, n_labels, N_WORDS, signed=True), rng.normal(size=n_labels))
    mixture = (0.2 + rng.random((n_labels, 2))) * (rng.random((n_labels, 1)) < 0.8)
    by_word = SparseRows.from_csr(sp.csr_matrix(v.T))
    trees = [random_tree(rng, n_labels, N_WORDS) for _ in range(int(rng.integers(0, 4)))]
    return RankingParts(
        inverted_index=InvertedIndex(SparseRows.from_csr(t), mixture.astype(np.float32), by_word, threads=2),
        ranker=ranker, trees=trees, knn=random_knn(rng, n_labels), counts=np.arange(n_labels) % 7, threads=2,
    )  # fmt: skip


def random_knn(rng: np.random.Generator, n_labels: int) -> KNN:
    if rng.random() < 0.1:
        return KNN.empty(n_labels, N_WORDS)
    n_texts = int(rng.integers(1, 20))
    labels = sp.csr_matrix((rng.random((n_texts, n_labels)) < 0.3).astype(np.float32))
    kinds, sizes = np.zeros(n_texts, dtype=np.uint8), {"neighbors": 4, "words_per_text": 5, "budget": 12}
    return build_knn(sparse(rng, n_texts, N_WORDS), labels, kinds, **sizes, threads=2)


def encoded(rng: np.random.Generator, searcher: Searcher, dim: int) -> EncodedQuery:
    phi = torch.from_numpy(rng.normal(size=(N_ROWS, dim)).astype(np.float32))
    with torch.no_grad():
        return EncodedQuery(phi, searcher.network.clusters(phi))


def random_parts_and_networks(rng: np.random.Generator, networks: int, *, coarse: bool = False) -> Case:
    """Several networks of the same labels, each with an index of its own."""
    n_labels = int(rng.integers(1, 120))
    searchers = []
    for _ in range(networks):
        n_clusters = int(rng.integers(1, 12))
        index = dense.random_index(rng, n_clusters, n_labels, density=float(rng.choice([0.1, 0.5, 1.0])))
        search = SearchSettings(
            alpha=float(rng.choice([0.5, 3.0])), beam_size=int(rng.integers(1, n_clusters + 2)),
            shortlist_size=int(rng.integers(1, n_labels + 10)),
        )  # fmt: skip
        searchers.append(Searcher(small_network(rng, index, DIM, search, threads=2)))
    queries = [encoded(rng, searcher, DIM) for searcher in searchers]
    parts = random_parts(rng, n_labels, coarse=coarse)
    bow = sparse(rng, N_ROWS, N_WORDS, coarse=coarse)
    return Case(parts, searchers, queries, bow, dense.random_ragged(rng, N_ROWS, n_labels, 5))


def all_labels(n_labels: int) -> Ragged:
    return Ragged.of([np.arange(n_labels)] * N_ROWS)


def by_label(features: Features, row: int) -> dict[int, np.ndarray]:
    """Cluster and features of each candidate of a row."""
    real = np.flatnonzero(features.labels[row] >= 0)
    np.testing.assert_array_equal(real, np.arange(len(real)), "PAD after the last candidate")
    columns = np.vstack([features.clusters[row], features.values[row]])
    assert not columns[1:, len(real) :].any(), "0 at PAD"
    assert (columns[0, len(real) :] == -1).all()
    found = {int(label): columns[:, place] for place, label in enumerate(features.labels[row, real])}
    assert len(found) == len(real), "each label once"
    return found


def assert_same(fast: Features, slow: Features, *, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    assert len(fast.labels) == len(slow.labels) == N_ROWS
    assert (fast.labels.dtype, fast.clusters.dtype, fast.values.dtype) == (np.int32, np.int32, np.float32)
    for row in range(len(slow.labels)):
        ours, theirs = by_label(fast, row), by_label(slow, row)
        assert set(ours) == set(theirs)
        for label, values in theirs.items():
            for name, found, expected in zip(("cluster", *FEATURES), ours[label], values, strict=True):
                where = f"{name} of label {label} in row {row}"
                np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=where)


# -- candidate_features against reference_features --------------------------------------------------------------------


@given(seed=SEEDS, network=st.integers(1, 12), words=st.integers(1, 9))
def test_one_pass_is_step_by_step(seed: int, network: int, words: int) -> None:
    """Labels from 1 to 200, texts without words, excluded labels, more candidates asked for than there are."""
    rng = np.random.default_rng(seed)
    trained, phi, _, excluded = random_case(rng)
    n_labels, searcher = trained.index.n_labels, Searcher(trained)
    parts, bow = random_parts(rng, n_labels), sparse(rng, len(phi), N_WORDS)
    with torch.no_grad():
        query = EncodedQuery(torch.from_numpy(phi), trained.clusters(torch.from_numpy(phi)))
    sizes = CandidateSizes(min(network, n_labels), min(words, n_labels))
    for left_out in (None, excluded, all_labels(n_labels)):
        (found,) = candidate_features(parts, [searcher], [query], bow, sizes, left_out)
        assert_same(found, reference_features(parts, searcher, query, bow, sizes, left_out))
        masked = Ragged.empty(N_ROWS) if left_out is None else left_out
        for row in range(N_ROWS):
            out = masked.labels[masked.indptr[row] : masked.indptr[row + 1]]
            assert not np.isin(found.labels[row], out).any(), "no excluded label is a candidate"


@settings(max_examples=40)  # definitions take their time
@given(seed=SEEDS, networks=st.integers(1, 3))
def test_kernels_are_the_definition(seed: int, networks: int) -> None:
    """Every part by its definition in numpy and torch; one network or several."""
    rng = np.random.default_rng(seed)
    case = random_parts_and_networks(rng, networks, coarse=True)  # coarse: 16 bits lose nothing
    n_labels = len(case.parts.counts)
    sizes = CandidateSizes(min(6, n_labels), min(5, n_labels))
    for left_out in (None, case.excluded, all_labels(n_labels)):
        shared = case.parts, case.searchers, case.queries, case.bow, sizes, left_out
        found = candidate_features(*shared)
        with kernels.reference():
            expected = candidate_features(*shared)
        assert len(found) == len(expected) == networks
        for fast, slow in zip(found, expected, strict=True):
            assert_same(fast, slow)


@given(seed=SEEDS)
def test_networks_that_share_parts_are_as_each_alone(seed: int) -> None:
    """To the last bit: an ensemble must answer as its members do."""
    case = random_parts_and_networks(np.random.default_rng(seed), 3)
    n_labels = len(case.parts.counts)
    sizes = CandidateSizes(min(7, n_labels), min(4, n_labels))
    together = candidate_features(case.parts, case.searchers, case.queries, case.bow, sizes, case.excluded)
    for searcher, query, found in zip(case.searchers, case.queries, together, strict=True):
        (alone,) = candidate_features(case.parts, [searcher], [query], case.bow, sizes, case.excluded)
        for ours, theirs in zip(found, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(8))
def test_tables_of_many_labels_are_the_definition_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of 8 bits, which hold coarse values exactly, and margins of 8."""
    monkeypatch.setattr(inverted_index, "QUANTIZED_FROM", 1)
    monkeypatch.setattr(margins, "QUANTIZED_FROM", 1)
    case = random_parts_and_networks(np.random.default_rng(seed), 1, coarse=True)
    n_labels = len(case.parts.counts)
    sizes = CandidateSizes(min(6, n_labels), min(5, n_labels))
    shared = case.parts, case.searchers, case.queries, case.bow, sizes, case.excluded
    (found,) = candidate_features(*shared)
    assert case.parts.inverted_index.table.codes.dtype == np.int8
    assert case.parts.margins.table.codes.dtype == np.int8
    with kernels.reference():
        (expected,) = candidate_features(*shared)
    rounded = [FEATURES.index("margin"), FEATURES.index("path")]
    for row in range(N_ROWS):
        ours, theirs = by_label(found, row), by_label(expected, row)
        assert ours.keys() == theirs.keys()
        for label in ours:  # margins are off by up to half a step per word
            np.testing.assert_allclose(
                np.delete(ours[label][1:], rounded), np.delete(theirs[label][1:], rounded), rtol=5e-3, atol=2e-3
            )
            np.testing.assert_allclose(ours[label][1:], theirs[label][1:], rtol=5e-2, atol=0.3)


@given(seed=SEEDS)
def test_given_labels_have_the_features_they_have_when_found(seed: int) -> None:
    """A ranked feature to the last bit: otherwise a label would rank behind itself."""
    case = random_parts_and_networks(np.random.default_rng(seed), 1)
    n_labels = len(case.parts.counts)
    sizes = CandidateSizes(min(6, n_labels), min(5, n_labels))
    (found,) = candidate_features(case.parts, case.searchers, case.queries, case.bow, sizes)
    asked = np.sort(found.labels, axis=1)[:, ::-1]  # in another order, PAD last
    asked_for = features_of(case.parts, case.searchers[0], case.queries[0], case.bow, asked)
    assert_same(asked_for, found)
    for name in ("combined", "centroid", "vote"):
        place = 1 + FEATURES.index(name)
        for row in range(N_ROWS):
            ours, theirs = by_label(asked_for, row), by_label(found, row)
            assert all(ours[label][place] == theirs[label][place] for label in theirs), name


def test_a_row_does_not_depend_on_its_batch_or_on_threads() -> None:
    case = random_parts_and_networks(np.random.default_rng(5), 2)
    n_labels = len(case.parts.counts)
    sizes = CandidateSizes(min(6, n_labels), min(5, n_labels))
    together = candidate_features(case.parts, case.searchers, case.queries, case.bow, sizes)
    one_thread = replace(case.parts, threads=1)
    for row in range(N_ROWS):
        queries = [EncodedQuery(*(part[row : row + 1] for part in query)) for query in case.queries]
        alone = candidate_features(one_thread, case.searchers, queries, case.bow[row], sizes)
        for ours, theirs in zip(alone, together, strict=True):
            for found, expected in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(found[0], expected[row])


def test_scratch_is_zero_between_batches(stacked_model: Model) -> None:
    assert stacked_model.reranker is not None
    parts = stacked_model.reranker.parts
    stacked_model.predict(["babipo nazadi", "", "vunili " * 50] * 30, k=7)
    free = list(parts.scratch._free)
    assert free
    for scratch in free:
        arrays = [scratch.sums.sums, scratch.sums.seen, scratch.dense, scratch.margins.sums]
        arrays += [scratch.votes.sums.sums, scratch.votes.sums.seen, scratch.votes.votes, scratch.votes.nearest]
        assert not any(array.any() for array in arrays)


# -- lists of candidates ----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 5))
def test_lists_are_united(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(-1, 8, size=(rows, width)).astype(np.int32) for width in (4, 6))
    value_of = rng.random(8).astype(np.float32)
    both, values = unite(first, second, value_of[first], value_of[second])
    np.testing.assert_array_equal(values, np.where(both >= 0, value_of[both], 0))
    for row in range(rows):
        real = both[row][both[row] >= 0].tolist()
        assert sorted(real) == sorted({*first[row].tolist(), *second[row].tolist()} - {-1})
        assert (both[row, len(real) :] == -1).all(), "PAD comes last"
    assert both.shape[1] == max([1, *[(row >= 0).sum() for row in both]])


def test_batches_of_different_widths_are_stacked() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = (
        Features(
            rng.integers(0, 40, (rows, width)).astype(np.int32), rng.integers(0, 9, (rows, width)).astype(np.int32),
            rng.random((rows, len(FEATURES), width)).astype(np.float32),
        )
        for rows, width in ((3, 4), (5, 6))
    )  # fmt: skip
    both = stack([narrow, wide])
    assert both.labels.shape == both.clusters.shape == (8, 6)
    assert (both.labels[:3, 4:] == -1).all()
    assert (both.clusters[:3, 4:] == -1).all()
    assert not both.values[:3, :, 4:].any()
    np.testing.assert_array_equal(both.values[:3, :, :4], narrow.values)
    for ours, theirs in zip(take(both, np.arange(3, 8)), wide, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_shortlist_of_a_search_is_only_as_long_as_candidates_need() -> None:
    rng = np.random.default_rng(0)
    index = dense.random_index(rng, 4, 50)
    for shortlist_size, expected in ((40, WIDER * 3), (WIDER * 3, WIDER * 3), (5, 5), (50, 50), (80, 80)):
        search = SearchSettings(alpha=1.0, beam_size=2, shortlist_size=shortlist_size)
        searcher = Searcher(small_network(rng, index, DIM, search))
        assert CandidateSizes(3, 9).search_settings(searcher).shortlist_size == expected
