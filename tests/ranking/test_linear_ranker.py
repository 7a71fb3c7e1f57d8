"""The linear ranker: its training pairs, its solver against liblinear, labels without positives, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from elias import kernels
from elias.core.errors import ModelError
from elias.core.settings import LinearRankerSettings
from elias.ranking.linear_ranker import (
    NAME,
    NO_POSITIVES,
    TrainingPairs,
    load_ranker,
    q_of,
    save_ranker,
    solve,
    train_ranker,
    training_pairs,
)
from elias.ranking.sparse_rows import SparseRows

TIGHT: dict[str, Any] = {"tolerance": 1e-6, "max_iterations": 50_000, "min_weight": 0.0}
BOTH = pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
Problem = tuple[list[int], list[int]]  # rows and signs of one label


# -- training pairs ---------------------------------------------------------------------------------------------------


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
    masked = {(row, label) for row, label in zip(*np.nonzero(excluded.toarray()), strict=True)}
    candidates = {(row, int(label)) for row in range(len(found)) for label in found[row] if label >= 0}
    expected = {(r, c, 1) for r, c in positive} | {(r, c, -1) for r, c in candidates - positive - masked}
    for definition in (False, True):
        with kernels.reference(definition):
            pairs = training_pairs(found, labels, excluded)
        assert (pairs.starts.dtype, pairs.rows.dtype, pairs.signs.dtype) == (np.int64, np.int32, np.int8)
        assert len(pairs) == n_labels
        assert len(pairs.rows) == len(pairs.signs) == len(expected)
        np.testing.assert_array_equal(pairs.starts, [0, *pairs.ends[:-1]])
        assert pairs.ends[-1] == len(expected)
        by_label = np.repeat(np.arange(n_labels), pairs.ends - pairs.starts)
        assert set(zip(pairs.rows.tolist(), by_label.tolist(), pairs.signs.tolist(), strict=True)) == expected
        for start, end in zip(pairs.starts, pairs.ends, strict=True):
            assert (np.diff(pairs.rows[start:end]) > 0).all(), "by rising row"


# -- solver -----------------------------------------------------------------------------------------------------------


def random_rows(rng: np.random.Generator, n_rows: int, n_words: int, *, density: float = 0.3) -> sp.csr_matrix:
    """Sparse rows, some of them empty, with values of either sign."""
    dense = rng.normal(size=(n_rows, n_words)) * (rng.random((n_rows, n_words)) < density)
    dense[rng.random(n_rows) < 0.1] = 0.0
    return sp.csr_matrix(dense.astype(np.float32))


def solved(
    x: sp.csr_matrix, problems: list[Problem], loss: str, *, threads: int = 1, labels_at_once: int = 2, **changes: Any
) -> tuple[np.ndarray, np.ndarray]:
    """(weights [labels, words], biases) of labels given as (rows, signs)."""
    ends = np.cumsum([len(rows) for rows, _ in problems], dtype=np.int64)
    rows = np.array([row for rows, _ in problems for row in rows], dtype=np.int32)
    signs = np.array([sign for _, signs in problems for sign in signs], dtype=np.int8)
    pairs = TrainingPairs(np.concatenate([[0], ends[:-1]]), ends, rows, signs)
    settings = LinearRankerSettings(loss=loss, **{**TIGHT, **changes})
    found = solve(x, pairs, settings, labels_at_once=labels_at_once, threads=threads)
    assert found.to_csr().has_canonical_format, "each word once, rising"
    return found.to_csr().toarray(), found.biases


def objective(x: np.ndarray, y: np.ndarray, w: np.ndarray, bias: float, loss: str, cost: float) -> float:
    """1/2 |w, b|^2 + C sum of losses, in float64."""
    margins = y * (x.astype(np.float64) @ w.astype(np.float64) + bias)
    losses = np.maximum(0, 1 - margins) ** 2 if loss == "squared-hinge" else np.logaddexp(0, -margins)
    return float(0.5 * (w.astype(np.float64) @ w + bias**2) + cost * losses.sum())


def liblinear(x: np.ndarray, y: np.ndarray, loss: str, cost: float) -> tuple[np.ndarray, float]:
    """scikit-learn's answer; the bias is the weight of one more feature of value 1 there too."""
    made: Any
    if loss == "squared-hinge":
        made = LinearSVC(C=cost, loss="squared_hinge", dual=False, tol=1e-8, max_iter=100_000, intercept_scaling=1)
    else:
        made = LogisticRegression(C=cost, solver="liblinear", tol=1e-8, max_iter=100_000, intercept_scaling=1)
    made.fit(x.astype(np.float64), y)
    return made.coef_[0], float(made.intercept_[0])


@BOTH
@pytest.mark.parametrize("cost", [0.05, 1.0, 20.0])
def test_the_minimum_is_that_of_liblinear(loss: str, cost: float) -> None:
    rng = np.random.default_rng(int(cost * 100) + (loss == "logistic"))
    x = random_rows(rng, 120, 40)
    problems = []
    for size in (3, 10, 50, 120):
        rows = np.sort(rng.choice(120, size, replace=False))
        signs = np.where(rng.random(size) < 0.3, 1, -1)
        signs[:2] = 1, -1  # liblinear needs both
        problems.append((rows.tolist(), signs.tolist()))
    weights, biases = solved(x, problems, loss, cost=cost)
    for label, (rows_, signs_) in enumerate(problems):
        seen, y = x.toarray()[rows_], np.array(signs_)
        ours = objective(seen, y, weights[label], float(biases[label]), loss, cost)
        theirs = objective(seen, y, *liblinear(seen, y, loss, cost), loss, cost)
        assert ours == pytest.approx(theirs, rel=1e-4)


@BOTH
def test_kernel_and_definition_have_the_same_weights(loss: str) -> None:
    """Also of labels of one class, of one pair and of none, and with small weights dropped."""
    rng = np.random.default_rng(11)
    x = random_rows(rng, 60, 30)
    signs = np.where(rng.random(60) < 0.3, 1, -1).tolist()
    problems: list[Problem] = [
        (list(range(60)), signs),
        (list(range(9)), [1] * 9),
        ([], []),
        (list(range(7)), [-1] * 7),
    ]
    problems += [([4], [1]), (list(range(20, 50)), signs[20:50])]
    options = {"min_weight": 0.01, "max_iterations": 5000}
    weights, biases = solved(x, problems, loss, **options)
    with kernels.reference():
        expected, expected_biases = solved(x, problems, loss, **options)
    np.testing.assert_allclose(biases, expected_biases, atol=2e-3)
    on_the_line = np.abs(np.abs(expected) - 0.01) < 2e-3  # rounding decides whether such a weight is dropped
    np.testing.assert_allclose(weights[~on_the_line], expected[~on_the_line], atol=2e-3)
    for label in (0, 1, 3, 5):
        assert np.abs(weights[label]).max() > 0.02
    assert (biases[1], biases[3]) == (pytest.approx(abs(biases[1])), pytest.approx(-abs(biases[3])))
    assert not weights[2].any()
    assert biases[2] == 0


@BOTH
@given(seed=st.integers(0, 10_000), n_rows=st.integers(1, 25), cost=st.sampled_from([0.01, 0.3, 1.0, 10.0]))
def test_no_small_step_lowers_the_objective(loss: str, seed: int, n_rows: int, cost: float) -> None:
    """Both functions are convex, so a place where every step goes up is the minimum; of one class or one pair too."""
    rng = np.random.default_rng(seed)
    x = random_rows(rng, n_rows, 6, density=rng.random())
    signs = np.where(rng.random(n_rows) < rng.choice([0.0, 0.5, 1.0]), 1, -1)
    weights, biases = solved(x, [(list(range(n_rows)), signs.tolist())], loss, cost=cost)
    here = objective(x.toarray(), signs, weights[0], float(biases[0]), loss, cost)
    for step in np.vstack([np.eye(7), -np.eye(7), rng.normal(size=(6, 7))]) * 0.01:
        moved = objective(x.toarray(), signs, weights[0] + step[:6], float(biases[0]) + step[6], loss, cost)
        assert moved > here - 1e-5 * max(1.0, here)


@BOTH
def test_threads_and_blocks_do_not_change_a_bit(loss: str) -> None:
    rng = np.random.default_rng(5)
    x = random_rows(rng, 60, 30)
    problems = []
    for _ in range(9):
        rows = rng.choice(60, 20, replace=False).tolist()
        problems.append((rows, np.where(rng.random(20) < 0.4, 1, -1).tolist()))
    loose = {"tolerance": 0.1, "max_iterations": 100, "min_weight": 0.01}
    expected = solved(x, problems, loss, labels_at_once=9, **loose)
    assert np.abs(expected[0]).max() > 0.1
    for threads, labels_at_once in ((1, 1), (2, 2), (4, 1)):
        found = solved(x, problems, loss, threads=threads, labels_at_once=labels_at_once, **loose)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@BOTH
def test_small_weights_are_dropped(loss: str) -> None:
    rng = np.random.default_rng(8)
    x = random_rows(rng, 40, 12)
    problems = [(list(range(40)), np.where(rng.random(40) < 0.4, 1, -1).tolist())]
    every, bias = solved(x, problems, loss)
    least = float(np.median(np.abs(every)))
    some, same_bias = solved(x, problems, loss, min_weight=least)
    dropped = np.abs(every) < least
    assert dropped.any()
    np.testing.assert_array_equal(some, np.where(dropped, 0.0, every))
    np.testing.assert_array_equal(same_bias, bias)


@BOTH
def test_one_class_one_pair_and_none(loss: str) -> None:
    """Known answers: symmetric ones for one class, 0 without pairs; scratch is clean for the label that follows."""
    x = sp.csr_matrix(np.array([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 0]], dtype=np.float32))
    everything = ([0, 1, 2], [1, 1, 1])
    opposite = ([0, 1, 2], [-1, -1, -1])
    weights, biases = solved(x, [everything, ([], []), opposite, ([0], [1]), ([2], [-1]), everything], loss)
    np.testing.assert_allclose(weights[2], -weights[0], atol=1e-5)
    assert biases[2] == pytest.approx(-biases[0], abs=1e-5)
    assert biases[0] > 0
    assert (weights[1] == 0).all()
    assert biases[1] == 0
    np.testing.assert_allclose(weights[5], weights[0], atol=1e-5)  # the same pairs in another order
    assert weights[3, 0] == pytest.approx(float(biases[3]), abs=1e-6)  # a word of value 1 beside the 1 of the bias
    assert (weights[3, 1:] == 0).all()
    assert (weights[4] == 0).all()  # an empty row has its bias only
    if loss == "squared-hinge":  # 1/2 b^2 + (1 - b)^2 is smallest at 2/3; with w = b, b^2 + (1 - 2b)^2 at 2/5
        assert biases[4] == pytest.approx(-2 / 3, abs=1e-5)
        assert biases[3] == pytest.approx(2 / 5, abs=1e-5)


def test_a_hopeless_pair_does_not_break_the_logistic_loss() -> None:
    """Its margin is so far below 0 that cost - alpha is less than float64 can tell from 0 beside the cost."""
    x = sp.csr_matrix(np.array([[1.0]] * 2000 + [[0.0]] * 2000 + [[200.0]], dtype=np.float32))
    y = np.array([1] * 2000 + [-1] * 2001)
    weights, biases = solved(x, [(list(range(len(y))), y.tolist())], "logistic", max_iterations=200)
    assert 200 * weights[0, 0] + biases[0] > 200
    ours = objective(x.toarray(), y, weights[0], float(biases[0]), "logistic", 1.0)
    theirs = objective(x.toarray(), y, *liblinear(x.toarray(), y, "logistic", 1.0), "logistic", 1.0)
    assert ours == pytest.approx(theirs, rel=1e-4)


# -- training ---------------------------------------------------------------------------------------------------------


def problem() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix]:
    """Rows 0..3 have label 0 and word 0, rows 4..7 label 1 and word 1; all share word 2. No row has label 2."""
    bow = np.zeros((8, 4), dtype=np.float32)
    bow[:4, 0] = bow[4:, 1] = 1.0
    bow[:, 2] = 0.5
    labels = np.zeros((8, 3), dtype=np.float32)
    labels[:4, 0] = labels[4:, 1] = 1.0
    return sp.csr_matrix(bow), np.tile(np.array([0, 1, 2], dtype=np.int32), (8, 1)), sp.csr_matrix(labels)


@pytest.mark.parametrize("definition", [False, True])
@BOTH
def test_margins_have_the_sign_of_the_label(loss: str, definition: bool) -> None:
    bow, found, labels = problem()
    settings = LinearRankerSettings(loss=loss, cost=10.0, tolerance=0.001, min_weight=0.0)
    with kernels.reference(definition):
        trained = train_ranker(bow, found, labels, nothing((8, 3)), settings, threads=2)
        margins = trained.products(bow, np.tile(np.arange(3), (8, 1)))
    assert (margins[:4, 0] > 0.5).all()
    assert (margins[4:, 0] < -0.5).all()
    assert (margins[4:, 1] > 0.5).all()
    assert (margins[:4, 1] < -0.5).all()


@pytest.mark.parametrize("definition", [False, True])
def test_a_label_without_positives_has_a_bias_of_minus_one(definition: bool) -> None:
    """Though it is a candidate: it would have negatives only."""
    bow, found, labels = problem()
    with kernels.reference(definition):
        trained = train_ranker(bow, found, labels, nothing((8, 3)), LinearRankerSettings())
    assert trained.biases[2] == NO_POSITIVES == -1.0
    assert trained.indptr[2] == trained.indptr[3] == len(trained.words)
    assert trained.indptr[1] > 0
    np.testing.assert_array_equal(trained.products(bow, np.full((8, 1), 2)), -1.0)


def test_an_excluded_pair_is_no_negative() -> None:
    """Row 4 has the words of label 0 and finds it; were it a negative, the margin there would be lower."""
    bow, found, labels = problem()
    bow = sp.csr_matrix(bow[[0, 1, 2, 3, 0, 5, 6, 7]])
    excluded = sp.csr_matrix((np.ones(1, dtype=np.bool_), ([4], [0])), shape=(8, 3))
    settings = LinearRankerSettings(min_weight=0.0, tolerance=1e-4)
    with_it, without = (train_ranker(bow, found, labels, masked, settings) for masked in (nothing((8, 3)), excluded))
    place = np.zeros((1, 1), dtype=np.int32)
    assert without.products(bow[4], place)[0, 0] > with_it.products(bow[4], place)[0, 0] + 0.1


def test_threads_do_not_change_a_trained_ranker() -> None:
    rng = np.random.default_rng(3)
    bow, labels = matrix(rng, 80, 30, 0.2), matrix(rng, 80, 21, 0.1)
    found = rng.integers(-1, 21, size=(80, 6)).astype(np.int32)
    one, two = (
        train_ranker(bow, found, labels, nothing((80, 21)), LinearRankerSettings(), threads=threads)
        for threads in (1, 2)
    )
    for name, array in one.arrays("x").items():
        np.testing.assert_array_equal(array, two.arrays("x")[name])
    assert len(one.weights) > 0
    assert (np.abs(one.weights) >= LinearRankerSettings().min_weight).all()


def test_q_rises_from_0_to_1() -> None:
    margins = np.array([-100, -1, 0, 0.5, 1, 3, 100], dtype=np.float32)
    hinge, logistic = q_of(margins, "squared-hinge"), q_of(margins, "logistic")
    np.testing.assert_allclose(hinge, [0, np.exp(-8), np.exp(-1), np.exp(-0.125), 1, 1, 1], rtol=1e-5)
    np.testing.assert_allclose(logistic[1:6], 1 / (1 + np.exp(-margins[1:6])), rtol=1e-5)
    assert np.isfinite(logistic).all()
    assert hinge.dtype == logistic.dtype == np.float32


# -- files ------------------------------------------------------------------------------------------------------------


def test_saved_and_loaded_with_refusals(tmp_path: Path) -> None:
    bow, found, labels = problem()
    trained = train_ranker(bow, found, labels, nothing((8, 3)), LinearRankerSettings())
    save_ranker(trained, tmp_path)
    exact = load_ranker(tmp_path, n_labels=3, n_words=4, coded=False)  # as the published ranker stores it
    np.testing.assert_array_equal(exact.to_csr().toarray(), trained.to_csr().toarray())
    with pytest.raises(ModelError, match=r'"ranker\.weights" is float32, not int16'):
        load_ranker(tmp_path, n_labels=3, n_words=4)
    trained = trained.coded()
    save_ranker(trained, tmp_path)
    loaded = load_ranker(tmp_path, n_labels=3, n_words=4)
    assert isinstance(loaded, SparseRows)
    for name, array in trained.arrays("x").items():
        np.testing.assert_array_equal(loaded.arrays("x")[name], array)
    for sizes in ({"n_labels": 4, "n_words": 4}, {"n_labels": 3, "n_words": 1}):
        with pytest.raises(ModelError, match=f'{NAME}: "ranker.*(other files of this model need|must be from 0)'):
            load_ranker(tmp_path, **sizes)
    (tmp_path / NAME).write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        load_ranker(tmp_path, n_labels=3, n_words=4)
