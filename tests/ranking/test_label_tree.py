"""The tree of labels: its shape, its pairs against dense arithmetic, files. Paths are in test_closer.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.core.settings import LinearRankerSettings
from elias.encoders.centroids import rows_by_label
from elias.ranking.label_tree import NAME, TOP, LabelTree, grow, joined, levels_of
from elias.ranking.margins import CloserLook
from elias.ranking.sparse_rows import SparseRows


@pytest.mark.parametrize(
    ("n_labels", "levels"),
    [(0, [0]), (1, [0]), (32, [0]), (33, [1, 0]), (1024, [5, 0]), (1025, [6, 2, 0]), (53_023, [11, 7, 3, 0])],
)
def test_levels(n_labels: int, levels: list[int]) -> None:
    assert levels_of(n_labels, 32) == levels


def small_data(rng: np.random.Generator) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
    """(bow, labels, excluded): label l has the word l, label 11 no row; some pairs are left out."""
    n_rows, n_labels = 120, 12
    labels = (rng.random((n_rows, n_labels)) < 0.15).astype(np.float32)
    labels[:, 11] = 0
    bow = sp.csr_matrix(np.hstack([labels, 0.3 * rng.random((n_rows, 5))]).astype(np.float32))
    excluded = ((rng.random(labels.shape) < 0.05) & (labels == 0)).astype(np.float32)
    return bow, sp.csr_matrix(labels), sp.csr_matrix(excluded)


@pytest.mark.parametrize("leaf", [1, 3, 100])
def test_every_classifier_separates_its_texts_from_those_of_its_parent(leaf: int) -> None:
    """Labels that have a word of their own: all margins have the right sign, in whatever tree."""
    bow, labels, excluded = small_data(np.random.default_rng(0))
    tree = grow(bow, labels, excluded, LinearRankerSettings(leaf=leaf, cost=100.0, least_weight=0.0))
    assert tree.parents[11] == TOP
    assert (tree.rows.indptr[11], tree.rows.biases[11]) == (tree.rows.indptr[12], -1.0)
    depth = levels_of(11, leaf)
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


def test_pairs_are_the_texts_of_the_parent() -> None:
    from elias.kernels.pairs import pairs_of_siblings

    rng = np.random.default_rng(3)
    _, labels, excluded = small_data(rng)
    group = rng.integers(-1, 3, 12).astype(np.int32)
    texts, left_out = rows_by_label(labels), rows_by_label(excluded)
    above = joined(texts, group, 3)
    most = np.where(group >= 0, np.diff(above.indptr)[group], 0)[4:]
    starts, ends = np.concatenate([[0], np.cumsum(most)]), np.empty(8, dtype=np.int64)
    rows, signs = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=np.int8)
    matrices = (texts.indptr, texts.indices, above.indptr, above.indices, left_out.indptr, left_out.indices)
    pairs_of_siblings(0, 8, 4, group, *matrices, starts, ends, rows, signs)
    dense, out = labels.toarray() > 0, excluded.toarray() > 0
    for place, label in enumerate(range(4, 12)):
        own = slice(starts[place], ends[place])
        here = dense[:, group == group[label]].any(axis=1) & ~out[:, label] & (group[label] >= 0)
        assert rows[own].tolist() == np.flatnonzero(here).tolist()
        assert (signs[own] > 0).tolist() == dense[here, label].tolist()


def test_threads_change_nothing_and_pieces_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which pairs are visited depends on the piece."""
    monkeypatch.setattr("elias.ranking.label_tree.EPSILON", 1e-4)
    given, settings = small_data(np.random.default_rng(1)), LinearRankerSettings(leaf=2, least_weight=0.0)
    one, two = (grow(*given, settings, threads=threads) for threads in (1, 2))
    monkeypatch.setattr("elias.ranking.label_tree.PAIRS_AT_A_TIME", 50)
    pieces = grow(*given, settings, threads=2)
    for other, most in ((two, 0.0), (pieces, 1e-3)):
        np.testing.assert_array_equal(one.parents, other.parents)
        np.testing.assert_allclose(one.rows.to_csr().toarray(), other.rows.to_csr().toarray(), rtol=0, atol=most)
        np.testing.assert_allclose(one.rows.biases, other.rows.biases, rtol=0, atol=most)


def test_rows_without_labels() -> None:
    bow, labels, excluded = small_data(np.random.default_rng(2))
    tree = grow(bow, labels * 0, excluded, LinearRankerSettings())
    assert (tree.parents == TOP).all()
    look = CloserLook(SparseRows.nobody(bow.shape[1], labels.shape[1]), tree, bow.shape[1])
    assert (look.look(bow, np.zeros((120, 1), dtype=np.int32))[1] == -8.0).all()  # a margin of -1


def test_files(tmp_path: Path) -> None:
    bow, labels, excluded = small_data(np.random.default_rng(4))
    tree = grow(bow, labels, excluded, LinearRankerSettings(leaf=3))
    tree.save(tmp_path)
    loaded = LabelTree.load(tmp_path, n_labels=12, n_words=17)
    np.testing.assert_array_equal(loaded.parents, tree.parents)
    np.testing.assert_array_equal(loaded.rows.to_csr().toarray(), tree.rows.to_csr().toarray())
    np.testing.assert_array_equal(loaded.rows.biases, tree.rows.biases)
    with pytest.raises(ModelError, match="does not fit"):
        LabelTree.load(tmp_path, n_labels=12, n_words=3)
    with pytest.raises(ModelError, match="parents do not fit"):
        LabelTree.load(tmp_path, n_labels=13, n_words=17)
    arrays = {name: array.copy() for name, array in read_tensors(tmp_path / NAME)[0].items()}
    arrays["parents"][0] = 0  # its own parent: a climb without end
    write_tensors(tmp_path / NAME, arrays)
    with pytest.raises(ModelError, match="parents do not fit"):
        LabelTree.load(tmp_path, n_labels=12, n_words=17)
