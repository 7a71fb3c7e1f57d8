"""The sparse ranker: which pairs it learns from, labels that have none, margins turned into q, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias.core.errors import ModelError
from elias.core.settings import LinearRankerSettings
from elias.ranking import linear_ranker as module
from elias.ranking.linear_ranker import NAME, load_ranker, quality, save_ranker, train_ranker, training_pairs
from elias.ranking.sparse_rows import SparseRows


def matrix(rng: np.random.Generator, rows: int, columns: int, density: float) -> sp.csr_matrix:
    """Positive entries, and some explicit zeros, which count as none."""
    kept = rng.random((rows, columns)) < density
    out = sp.csr_matrix(kept * rng.choice([0.5, 1.0, 2.0], size=kept.shape).astype(np.float32))
    out.data[rng.random(out.nnz) < 0.1] = 0
    return out


def nothing(shape: tuple[int, int]) -> sp.csr_matrix:
    return sp.csr_matrix(shape, dtype=np.bool_)


@given(seed=st.integers(0, 10_000), shorter=st.integers(0, 4))
def test_pairs_are_those_of_sets(seed: int, shorter: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n_labels = int(rng.integers(1, 15)), int(rng.integers(1, 9))
    labels, excluded = matrix(rng, n_rows, n_labels, 0.3), matrix(rng, n_rows, n_labels, 0.2)
    found = rng.integers(-1, n_labels, size=(max(0, n_rows - shorter), 5)).astype(np.int32)  # may name one twice
    positive = {(row, label) for row, label in zip(*np.nonzero(labels.toarray()), strict=True)}
    left_out = {(row, label) for row, label in zip(*np.nonzero(excluded.toarray()), strict=True)}
    chosen = {(row, int(label)) for row in range(len(found)) for label in found[row] if label >= 0}
    expected = {(r, c, 1) for r, c in positive} | {(r, c, -1) for r, c in chosen - positive - left_out}

    starts, rows, signs = training_pairs(found, labels, excluded)
    assert (starts.dtype, rows.dtype, signs.dtype) == (np.int64, np.int32, np.int8)
    assert starts[0] == 0
    assert starts[-1] == len(rows) == len(signs) == len(expected)
    by_label = np.repeat(np.arange(n_labels), np.diff(starts))
    assert set(zip(rows.tolist(), by_label.tolist(), signs.tolist(), strict=True)) == expected
    for label in range(n_labels):
        assert (np.diff(rows[starts[label] : starts[label + 1]]) > 0).all(), "by rising row"


def problem() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix]:
    """Rows 0..3 have label 0 and word 0, rows 4..7 label 1 and word 1; all share word 2. Label 2 is nobody's."""
    bow = np.zeros((8, 4), dtype=np.float32)
    bow[:4, 0] = bow[4:, 1] = 1.0
    bow[:, 2] = 0.5
    labels = np.zeros((8, 3), dtype=np.float32)
    labels[:4, 0] = labels[4:, 1] = 1.0
    return sp.csr_matrix(bow), np.tile(np.array([0, 1, 2], dtype=np.int32), (8, 1)), sp.csr_matrix(labels)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_it_tells_labels_apart(loss: str) -> None:
    bow, found, labels = problem()
    settings = LinearRankerSettings(loss=loss, cost=10.0, epsilon=0.001, least_weight=0.0)
    trained = train_ranker(bow, found, labels, nothing((8, 3)), settings, threads=2)
    margins = trained.products(bow, np.tile(np.arange(3), (8, 1)))
    assert (margins[:4, 0] > 0.5).all()
    assert (margins[4:, 0] < -0.5).all()
    assert (margins[4:, 1] > 0.5).all()
    assert (margins[:4, 1] < -0.5).all()


def test_a_label_without_positives_has_a_bias_of_minus_one() -> None:
    """Though it was found: it would have negatives only."""
    bow, found, labels = problem()
    trained = train_ranker(bow, found, labels, nothing((8, 3)), LinearRankerSettings())
    assert trained.biases[2] == -1.0
    assert trained.indptr[2] == trained.indptr[3] == len(trained.words)
    assert trained.indptr[1] > 0
    np.testing.assert_array_equal(trained.products(bow, np.full((8, 1), 2)), -1.0)


def test_an_excluded_pair_is_no_negative() -> None:
    """Row 4 looks like a row of label 0 and finds it; were it a negative, the margin there would be lower."""
    bow, found, labels = problem()
    bow = sp.csr_matrix(bow[[0, 1, 2, 3, 0, 5, 6, 7]])
    excluded = sp.csr_matrix((np.ones(1, dtype=np.bool_), ([4], [0])), shape=(8, 3))
    settings = LinearRankerSettings(least_weight=0.0, epsilon=1e-4)
    with_it, without = (
        train_ranker(bow, found, labels, left_out, settings) for left_out in (nothing((8, 3)), excluded)
    )
    place = np.zeros((1, 1), dtype=np.int32)
    assert without.products(bow[4], place)[0, 0] > with_it.products(bow[4], place)[0, 0] + 0.1


def test_threads_and_blocks_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    bow, labels = matrix(rng, 80, 30, 0.2), matrix(rng, 80, 21, 0.1)
    found = rng.integers(-1, 21, size=(80, 6)).astype(np.int32)
    one = train_ranker(bow, found, labels, nothing((80, 21)), LinearRankerSettings(), threads=1)
    monkeypatch.setattr(module, "LABELS_AT_A_TIME", 4)
    two = train_ranker(bow, found, labels, nothing((80, 21)), LinearRankerSettings(), threads=2)
    for name, array in one.arrays("x").items():
        np.testing.assert_array_equal(array, two.arrays("x")[name])
    assert (np.abs(one.weights) >= 0.1).all()


def test_q_rises_from_0_to_1() -> None:
    margins = np.array([-100, -1, 0, 0.5, 1, 3, 100], dtype=np.float32)
    hinge, logistic = quality(margins, "squared-hinge"), quality(margins, "logistic")
    np.testing.assert_allclose(hinge, [0, np.exp(-8), np.exp(-1), np.exp(-0.125), 1, 1, 1], rtol=1e-5)
    np.testing.assert_allclose(logistic[1:6], 1 / (1 + np.exp(-margins[1:6])), rtol=1e-5)
    assert np.isfinite(logistic).all()
    assert hinge.dtype == logistic.dtype == np.float32


def test_saved_and_loaded(tmp_path: Path) -> None:
    bow, found, labels = problem()
    trained = train_ranker(bow, found, labels, nothing((8, 3)), LinearRankerSettings())
    save_ranker(trained, tmp_path)
    loaded = load_ranker(tmp_path, n_labels=3, n_words=4)
    assert isinstance(loaded, SparseRows)
    for name, array in trained.arrays("x").items():
        np.testing.assert_array_equal(loaded.arrays("x")[name], array)
    for sizes in ({"n_labels": 4, "n_words": 4}, {"n_labels": 3, "n_words": 1}):
        with pytest.raises(ModelError, match=f"{NAME}: ranker does not fit the other files"):
            load_ranker(tmp_path, **sizes)
    (tmp_path / NAME).write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        load_ranker(tmp_path, n_labels=3, n_words=4)
