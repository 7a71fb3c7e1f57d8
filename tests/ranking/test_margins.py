"""Ranker and label tree in one table against dense arithmetic, label by label."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias.kernels.closer import LOWEST
from elias.ranking import margins as closer
from elias.ranking.label_tree import TOP, LabelTree
from elias.ranking.margins import CloserLook, closer_of
from elias.ranking.sparse_rows import SparseRows
from helpers.sparse_data import random_tree, sparse

SEEDS = st.integers(0, 1_000_000)


def slow_paths(tree: LabelTree, x: sp.csr_matrix, labels: np.ndarray) -> np.ndarray:
    """The formula, label by label."""
    margins = (x @ tree.rows.to_csr().T).toarray() + tree.rows.biases
    out = np.zeros(labels.shape)
    for row, column in zip(*np.nonzero(labels >= 0), strict=True):
        node = labels[row, column]
        while node != TOP:
            out[row, column] -= max(0.0, 1.0 - margins[row, node]) ** 3
            node = tree.parents[node]
    return np.maximum(out, LOWEST)


def random_ranker(rng: np.random.Generator, n_labels: int, n_words: int) -> SparseRows:
    return SparseRows.of(sparse(rng, n_labels, n_words, signed=True), rng.normal(size=n_labels))


def some_labels(rng: np.random.Generator, n_rows: int, n_labels: int) -> np.ndarray:
    """In any order, -1 after the last; rows with none and with all of them too."""
    labels = rng.permuted(np.tile(np.arange(n_labels), (n_rows, 1)), axis=1).astype(np.int32)
    labels[np.arange(n_labels) >= rng.integers(0, n_labels + 1, size=(n_rows, 1))] = -1
    return labels


@pytest.mark.parametrize("kind", ["float32", "int16"])
@given(seed=SEEDS, share=st.sampled_from([0, 1, 2, 1000]))
def test_margins_and_paths_are_the_formulas(kind: str, seed: int, share: int) -> None:
    """No word, some and all of them common; labels that a tree, or a ranker, has no weights for."""
    rng = np.random.default_rng(seed)
    n_labels, n_words = int(rng.integers(1, 60)), int(rng.integers(1, 20))
    ranker, tree, x = (
        random_ranker(rng, n_labels, n_words),
        random_tree(rng, n_labels, n_words),
        sparse(rng, 7, n_words),
    )
    labels, look = some_labels(rng, 7, n_labels), CloserLook(ranker, tree, n_words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closer, "COMMON_SHARE", share)
        patch.setattr(closer, "NODE_SHARE", share)
        look.table = closer_of(ranker, tree, n_words, np.dtype(kind))
    loose = 1e-4 if kind == "float32" else 2e-3
    for threads in (1, 2):
        margin, path = look.look(x, labels, threads=threads)
        np.testing.assert_allclose(margin, ranker.products(x, labels), rtol=1e-4, atol=loose)
        np.testing.assert_allclose(path, slow_paths(tree, x, labels), rtol=10 * loose, atol=10 * loose)


@pytest.mark.parametrize("share", [0, 1, 2, 5, 1000])
def test_lists_and_rows_hold_each_weight_once(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(share)
    n_labels, n_words = 20, 9
    ranker, tree = random_ranker(rng, n_labels, n_words), random_tree(rng, n_labels, n_words)
    monkeypatch.setattr(closer, "COMMON_SHARE", share)
    table = closer_of(ranker, tree, n_words, np.dtype(np.float32))
    dense = np.zeros((n_words, n_labels, 2), dtype=np.float32)
    for word, column in enumerate(table.column_of.tolist()):
        place = slice(table.indptr[word], table.indptr[word + 1])
        dense[word, table.labels[place]] += table.weights[place]
        if column >= 0:
            assert place.start == place.stop
            dense[word] += table.codes[:, 2 * column : 2 * column + 2]
    np.testing.assert_array_equal(dense[:, :, 0], ranker.to_csr().toarray().T)
    np.testing.assert_array_equal(dense[:, :, 1], tree.rows.to_csr().toarray()[:n_labels].T)
    either = (dense != 0).any(axis=2).sum(axis=1)
    assert (table.column_of >= 0).sum() == (either * share > n_labels).sum()


def test_narrow_weights_are_off_by_half_a_step() -> None:
    rng = np.random.default_rng(0)
    ranker, tree = random_ranker(rng, 30, 6), random_tree(rng, 30, 6)
    exact, narrow = (closer_of(ranker, tree, 6, np.dtype(kind)) for kind in ("float32", "int16"))
    assert narrow.codes.dtype == np.int16
    assert narrow.codes.size > 0
    off = np.abs(narrow.codes * narrow.steps.reshape(-1) - exact.codes)
    assert (off <= 0.5001 * narrow.steps.reshape(-1)).all()


def test_no_tree_says_nothing() -> None:
    rng = np.random.default_rng(0)
    ranker, x, labels = random_ranker(rng, 4, 5), sparse(rng, 3, 5), np.tile(np.arange(4, dtype=np.int32), (3, 1))
    margin, path = CloserLook(ranker, LabelTree.none(5), 5).look(x, labels)
    np.testing.assert_allclose(margin, ranker.products(x, labels), rtol=1e-5, atol=1e-5)
    assert not path.any()


def test_sums_are_zero_again() -> None:
    """After texts of few words and of all words."""
    from elias.kernels.closer import closer_rows

    rng = np.random.default_rng(1)
    look = CloserLook(random_ranker(rng, 200, 40), random_tree(rng, 200, 40), 40)
    summed, words = look.new_sums(), np.arange(40, dtype=np.int32)
    labels = np.arange(200, dtype=np.int32)[None]
    out = np.empty(labels.shape, dtype=np.float32)
    for count in (0, 1, 40):
        indptr, values = np.array([0, count]), np.ones(count, dtype=np.float32)
        closer_rows(0, 1, indptr, words[:count], values, look.table, summed, labels, out, out.copy())
        assert not summed.sums.any()
