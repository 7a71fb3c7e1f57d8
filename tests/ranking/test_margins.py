"""Margins of the linear ranker and paths of the label tree from one table, against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias import kernels
from elias.kernels.margins import COLUMNS
from elias.ranking import margins as module
from elias.ranking.label_tree import TOP, LabelTree
from elias.ranking.margins import LOWEST, Margins, labels_and_nodes, margin_table
from elias.ranking.sparse_rows import SparseRows
from helpers.sparse_data import random_tree, sparse


def dense_margins(rows: SparseRows, x: sp.csr_matrix, labels: np.ndarray) -> np.ndarray:
    margins = x.toarray() @ rows.to_csr().toarray().T + rows.biases
    return np.where(labels >= 0, np.take_along_axis(margins, np.maximum(labels, 0), axis=1), 0)


def dense_paths(tree: LabelTree, x: sp.csr_matrix, labels: np.ndarray) -> np.ndarray:
    """-max(0, 1 - margin)^3 of every row, then summed along the rows above each label."""
    margins = x.toarray() @ tree.rows.to_csr().toarray().T + tree.rows.biases
    losses = -(np.maximum(0.0, 1.0 - margins) ** 3)
    out = np.zeros(labels.shape)
    for label, parent in enumerate(tree.parents.tolist()):
        along = [label]
        while parent != TOP:
            along.append(parent)
            parent = tree.parents[parent]
        total = np.maximum(losses[:, along].sum(axis=1), -10.0)
        out += np.where(labels == label, total[:, None], 0.0)
    return out


def random_ranker(rng: np.random.Generator, n_labels: int, n_words: int) -> SparseRows:
    return SparseRows.from_csr(sparse(rng, n_labels, n_words, signed=True), rng.normal(size=n_labels))


def some_labels(rng: np.random.Generator, n_rows: int, n_labels: int) -> np.ndarray:
    """In any order, PAD after the last; also rows with none and with all of them."""
    labels = rng.permuted(np.tile(np.arange(n_labels), (n_rows, 1)), axis=1).astype(np.int32)
    labels[np.arange(n_labels) >= rng.integers(0, n_labels + 1, size=(n_rows, 1))] = -1
    return labels


@pytest.mark.parametrize("kind", ["float32", "int16", "int8"])
@given(seed=st.integers(0, 1_000_000), share=st.sampled_from([0, 1, 2, 1000]))
def test_margins_and_paths_are_the_formulas(kind: str, seed: int, share: int) -> None:
    """No word, some and all of them common; labels that have no weights in the tree, or in the ranker."""
    rng = np.random.default_rng(seed)
    n_labels, n_words = int(rng.integers(1, 60)), int(rng.integers(1, 20))
    ranker = random_ranker(rng, n_labels, n_words)
    trees = [random_tree(rng, n_labels, n_words) for _ in range(int(rng.integers(0, 4)))]
    x, labels = sparse(rng, 7, n_words), some_labels(rng, 7, n_labels)
    margins = Margins(ranker, trees, n_words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMMON_SHARE", share)
        patch.setattr(module, "NODE_SHARE", share)
        margins.table = margin_table(ranker, trees, n_words, np.dtype(kind))
    loose = {"float32": 1e-4, "int16": 2e-3, "int8": 0.2}[kind]
    paths = [dense_paths(tree, x, labels) for tree in trees]
    expected = dense_margins(ranker, x, labels), sum(paths, np.zeros(labels.shape)) / max(1, len(trees))
    for definition, threads in ((False, 1), (False, 2), (True, 1)):
        with kernels.reference(definition):
            margin, path = margins.of(x, labels, threads=threads)
        np.testing.assert_allclose(margin, expected[0], rtol=1e-4, atol=loose)
        np.testing.assert_allclose(path, expected[1], rtol=10 * loose, atol=10 * loose)


def test_kernel_and_definition_have_the_same_lowest_path() -> None:
    from elias.kernels.margins import LOWEST as LOWEST_OF_KERNEL

    assert LOWEST_OF_KERNEL == LOWEST
    rows = SparseRows.from_csr(sp.csr_matrix((1, 2), dtype=np.float32), np.array([-50.0]))
    margins = Margins(SparseRows.empty(2, 1), [LabelTree(rows, np.array([TOP], dtype=np.int32))], 2)
    x, labels = sp.csr_matrix(np.ones((1, 2), dtype=np.float32)), np.zeros((1, 1), dtype=np.int32)
    for definition in (False, True):
        with kernels.reference(definition):
            assert margins.of(x, labels)[1].tolist() == [[LOWEST]]


@pytest.mark.parametrize("share", [0, 1, 2, 5, 1000])
def test_lists_and_rows_hold_each_weight_once(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(share)
    n_labels, n_words = 20, 9
    ranker, trees = random_ranker(rng, n_labels, n_words), [random_tree(rng, n_labels, n_words) for _ in range(2)]
    monkeypatch.setattr(module, "COMMON_SHARE", share)
    table = margin_table(ranker, trees, n_words, np.dtype(np.float32))
    dense = np.zeros((n_words, n_labels, COLUMNS), dtype=np.float32)
    for word, column in enumerate(table.column_of.tolist()):
        place = slice(table.indptr[word], table.indptr[word + 1])
        dense[word, table.labels[place]] += table.listed[place]
        if column >= 0:
            assert place.start == place.stop
            dense[word] += table.codes[:, COLUMNS * column : COLUMNS * (column + 1)]
    np.testing.assert_array_equal(dense[:, :, 0], ranker.to_csr().toarray().T)
    for number, tree in enumerate(trees):
        np.testing.assert_array_equal(dense[:, :, 1 + number], tree.rows.to_csr().toarray()[:n_labels].T)
    assert not dense[:, :, 3].any(), "the column of a third tree"
    either = (dense != 0).any(axis=2).sum(axis=1)
    assert (table.column_of >= 0).sum() == (either * share > n_labels).sum()


def test_quantized_weights_are_off_by_half_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ranker, trees = random_ranker(rng, 30, 12), [random_tree(rng, 30, 12)]
    monkeypatch.setattr(module, "COMMON_SHARE", 4)  # so that some words are listed
    exact, quantized = (margin_table(ranker, trees, 12, np.dtype(kind)) for kind in ("float32", "int16"))
    assert quantized.codes.dtype == quantized.listed.dtype == np.int16
    assert quantized.codes.size > 0
    assert quantized.listed.size > 0
    steps = quantized.steps[quantized.column_of >= 0].reshape(-1)
    assert (np.abs(quantized.codes * steps - exact.codes) <= 0.5001 * steps).all()
    steps = np.repeat(quantized.steps, np.diff(quantized.indptr), axis=0)
    assert (np.abs(quantized.listed * steps - exact.listed) <= 0.5001 * steps).all()


def test_only_tables_of_many_labels_are_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUANTIZED_FROM", 30)
    for n_labels, kind in ((29, np.float32), (30, np.int8)):
        ranker = random_ranker(np.random.default_rng(0), n_labels, 5)
        assert Margins(ranker, [], 5).table.codes.dtype == kind


def test_the_rows_of_a_tree_are_divided_into_labels_and_nodes() -> None:
    tree = random_tree(np.random.default_rng(2), 8, 5)
    leaves, nodes = labels_and_nodes(tree.rows, 8)
    both = np.vstack([leaves.to_csr().toarray(), nodes.to_csr().toarray()])
    np.testing.assert_array_equal(both, tree.rows.to_csr().toarray())
    np.testing.assert_array_equal(np.concatenate([leaves.biases, nodes.biases]), tree.rows.biases)
    assert len(leaves) == 8


def test_without_a_tree_all_paths_are_0() -> None:
    rng = np.random.default_rng(0)
    ranker, x, labels = random_ranker(rng, 4, 5), sparse(rng, 3, 5), np.tile(np.arange(4, dtype=np.int32), (3, 1))
    for definition in (False, True):
        with kernels.reference(definition):
            margin, path = Margins(ranker, [], 5).of(x, labels)
        np.testing.assert_allclose(margin, dense_margins(ranker, x, labels), rtol=1e-5, atol=1e-5)
        assert not path.any()


def test_sums_are_zero_again() -> None:
    """After texts of no word, of one, and of all words."""
    from elias.kernels.margins import margin_rows

    rng = np.random.default_rng(1)
    margins = Margins(random_ranker(rng, 200, 40), [random_tree(rng, 200, 40)], 40)
    summed, words = margins.new_sums(), np.arange(40, dtype=np.int32)
    labels = np.arange(200, dtype=np.int32)[None]
    out = np.empty(labels.shape, dtype=np.float32)
    for count in (0, 1, 40):
        indptr, values = np.array([0, count]), np.ones(count, dtype=np.float32)
        margin_rows(0, 1, indptr, words[:count], values, margins.table, summed, labels, out, out.copy())
        assert np.ptp(out) > 0, "margins were written"
        assert not summed.sums.any()


def test_coded_rows_have_the_table_of_what_they_stand_for() -> None:
    rng = np.random.default_rng(3)
    ranker, trees = random_ranker(rng, 40, 12).coded(), [random_tree(rng, 40, 12) for _ in range(3)]
    coded = [LabelTree(tree.rows.coded(), tree.parents) for tree in trees]
    plain = [LabelTree(tree.rows.decoded(), tree.parents) for tree in coded]
    x, labels = sparse(rng, 7, 12), some_labels(rng, 7, 40)
    found = Margins(ranker, coded, 12).of(x, labels)
    for one, other in zip(found, Margins(ranker.decoded(), plain, 12).of(x, labels), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    with kernels.reference():
        for one, other in zip(found, Margins(ranker, coded, 12).of(x, labels), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
