"""The label tree: its shape, its sibling pairs, its classifiers, files. Paths are in test_margins.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from elias import kernels
from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.core.settings import LabelTreeSettings, LinearRankerSettings
from elias.encoders.centroids import rows_by_label
from elias.ranking.label_tree import (
    NAME,
    TOP,
    Level,
    _sibling_pairs,
    build_label_tree,
    build_label_trees,
    joined,
    levels_of,
    load_trees,
    save_trees,
)
from elias.ranking.margins import Margins
from elias.ranking.sparse_rows import SparseRows


@pytest.mark.parametrize(
    ("n_labels", "levels"),
    [(0, [0]), (1, [0]), (32, [0]), (33, [1, 0]), (1024, [5, 0]), (1025, [6, 2, 0]), (53_023, [11, 7, 3, 0])],
)
def test_levels_of_a_tree(n_labels: int, levels: list[int]) -> None:
    assert levels_of(n_labels, 32) == levels


def small_data(rng: np.random.Generator) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
    """(bow, labels, excluded): label l has the word l, label 11 no row; some pairs are excluded."""
    n_rows, n_labels = 120, 12
    labels = (rng.random((n_rows, n_labels)) < 0.15).astype(np.float32)
    labels[:, 11] = 0
    bow = sp.csr_matrix(np.hstack([labels, 0.3 * rng.random((n_rows, 5))]).astype(np.float32))
    excluded = ((rng.random(labels.shape) < 0.05) & (labels == 0)).astype(np.float32)
    return bow, sp.csr_matrix(labels), sp.csr_matrix(excluded)


@pytest.mark.parametrize("leaf_size", [1, 3, 100])
def test_every_classifier_separates_its_texts_from_those_of_its_parent(leaf_size: int) -> None:
    """Labels that have a word of their own: all margins have the right sign, whatever the leaf size."""
    bow, labels, excluded = small_data(np.random.default_rng(0))
    settings = LinearRankerSettings(cost=100.0, min_weight=0.0)
    tree = build_label_tree(bow, labels, excluded, settings, leaf_size=leaf_size)
    assert tree.parents[11] == TOP
    assert (tree.rows.indptr[11], tree.rows.biases[11]) == (tree.rows.indptr[12], -1.0)
    depth = levels_of(11, leaf_size)
    assert len(tree.parents) == 12 + sum(1 << level for level in depth[:-1])
    margins = (bow @ tree.rows.to_csr().T).toarray() + tree.rows.biases
    texts = [set(np.flatnonzero(labels.toarray()[:, label])) for label in range(12)]
    for node in range(12, len(tree.parents)):
        texts.append(set().union(*(texts[child] for child in np.flatnonzero(tree.parents[:node] == node))))
    everything = set().union(*texts[:12])
    for node in [*range(11), *range(12, len(tree.parents))]:
        here = everything if tree.parents[node] == TOP else texts[tree.parents[node]]
        assert texts[node] <= here
        for row in here:
            if node >= 12 or not excluded[row, node]:
                assert (margins[row, node] > 0) == (row in texts[node]), (node, row)


def test_sibling_pairs_are_the_texts_of_the_parent() -> None:
    rng = np.random.default_rng(3)
    _, labels, excluded = small_data(rng)
    group = rng.integers(-1, 3, 12).astype(np.int32)
    texts, masked = rows_by_label(labels), rows_by_label(excluded)
    level, nodes = Level(texts, joined(texts, group, 3), masked, group), np.arange(4, 12)
    most = np.where(group >= 0, np.diff(level.above.indptr)[group], 0)[nodes]
    positive, out = labels.toarray() > 0, excluded.toarray() > 0
    assert set(group[nodes].tolist()) == {-1, 0, 1, 2}
    for definition, threads in ((False, 1), (False, 2), (True, 1)):
        with kernels.reference(definition):
            pairs = _sibling_pairs(level, nodes, most, threads)
        for place, label in enumerate(nodes.tolist()):
            own = slice(pairs.starts[place], pairs.ends[place])
            here = positive[:, group == group[label]].any(axis=1) & ~out[:, label] & (group[label] >= 0)
            assert pairs.rows[own].tolist() == np.flatnonzero(here).tolist()
            assert (pairs.signs[own] > 0).tolist() == positive[here, label].tolist()


def test_the_definition_builds_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters, pairs, then liblinear in place of our solver; both solved nearly to the end."""
    monkeypatch.setattr("elias.ranking.label_tree.TOLERANCE", 1e-6)
    data, settings = small_data(np.random.default_rng(5)), LinearRankerSettings(min_weight=0.0, max_iterations=5000)
    kernel = build_label_tree(*data, settings, leaf_size=3)
    with kernels.reference():
        definition = build_label_tree(*data, settings, leaf_size=3)
    np.testing.assert_array_equal(kernel.parents, definition.parents)
    np.testing.assert_allclose(kernel.rows.biases, definition.rows.biases, atol=2e-3)
    np.testing.assert_allclose(kernel.rows.to_csr().toarray(), definition.rows.to_csr().toarray(), atol=2e-3)


def test_threads_change_nothing_and_pieces_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which pairs are visited depends on the piece."""
    monkeypatch.setattr("elias.ranking.label_tree.TOLERANCE", 1e-4)
    data, settings = small_data(np.random.default_rng(1)), LinearRankerSettings(min_weight=0.0)
    one, two = (build_label_tree(*data, settings, leaf_size=2, threads=threads) for threads in (1, 2))
    monkeypatch.setattr("elias.ranking.label_tree.PAIRS_AT_ONCE", 50)
    pieces = build_label_tree(*data, settings, leaf_size=2, threads=2)
    for other, most in ((two, 0.0), (pieces, 1e-3)):
        np.testing.assert_array_equal(one.parents, other.parents)
        np.testing.assert_allclose(one.rows.to_csr().toarray(), other.rows.to_csr().toarray(), rtol=0, atol=most)
        np.testing.assert_allclose(one.rows.biases, other.rows.biases, rtol=0, atol=most)


def test_labels_without_rows_stay_outside_the_tree() -> None:
    bow, labels, excluded = small_data(np.random.default_rng(2))
    tree = build_label_tree(bow, labels * 0, excluded, LinearRankerSettings())
    assert (tree.parents == TOP).all()
    margins = Margins(SparseRows.empty(bow.shape[1], labels.shape[1]), [tree], bow.shape[1])
    assert (margins.of(bow, np.zeros((120, 1), dtype=np.int32))[1] == -8.0).all()  # a margin of -1


def test_saved_and_loaded_with_refusals(tmp_path: Path) -> None:
    bow, labels, excluded = small_data(np.random.default_rng(4))
    settings = LabelTreeSettings(trees=2, leaf_size=3, min_weight=0.1)
    trees = build_label_trees(bow, labels, excluded, LinearRankerSettings(), settings)
    save_trees(trees, tmp_path)
    loaded = load_trees(tmp_path, 2, n_labels=12, n_words=17)
    for tree, one in zip(trees, loaded, strict=True):
        np.testing.assert_array_equal(one.parents, tree.parents)
        rows = tree.rows.coded().to_csr().toarray()  # a file holds codes
        np.testing.assert_array_equal(one.rows.to_csr().toarray(), rows)
        np.testing.assert_allclose(rows, tree.rows.to_csr().toarray(), rtol=0, atol=np.abs(rows).max() / 32767)
        np.testing.assert_array_equal(one.rows.biases, tree.rows.biases)
    with pytest.raises(ModelError, match="must be from 0 to 2"):
        load_trees(tmp_path, 2, n_labels=12, n_words=3)
    with pytest.raises(ModelError, match="is no tree of"):
        load_trees(tmp_path, 2, n_labels=13, n_words=17)
    with pytest.raises(ModelError, match="parents2"):
        load_trees(tmp_path, 3, n_labels=12, n_words=17)
    arrays = {name: array.copy() for name, array in read_tensors(tmp_path / NAME)[0].items()}
    arrays["parents1"][0] = 0  # its own parent: a climb without end
    write_tensors(tmp_path / NAME, arrays)
    with pytest.raises(ModelError, match="is no tree of"):
        load_trees(tmp_path, 2, n_labels=12, n_words=17)


def test_trees_differ_in_clusters_and_in_the_size_of_leaves() -> None:
    bow, labels, excluded = small_data(np.random.default_rng(4))
    trees = build_label_trees(bow, labels, excluded, LinearRankerSettings(), LabelTreeSettings(trees=3, leaf_size=1))
    assert [len(tree.parents) for tree in trees] == [
        12 + sum(1 << level for level in levels_of(11, leaf)[:-1]) for leaf in (1, 2, 4)
    ]
    kept = [np.abs(tree.rows.weights) for tree in trees]
    assert all((weights >= 0.2).all() for weights in kept), "min_weight of the trees, not of the ranker"
    alone = build_label_tree(bow, labels, excluded, LinearRankerSettings(min_weight=0.2), leaf_size=2, seed=1)
    np.testing.assert_array_equal(alone.parents, trees[1].parents)
