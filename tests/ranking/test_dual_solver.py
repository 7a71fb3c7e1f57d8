"""The ranker's solver: the same minimum as liblinear's, pair by pair, whatever the threads and the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from elias import kernels
from elias.kernels.dual import LOGISTIC, SQUARED_HINGE, solve_labels

TIGHT = {"eps": 1e-6, "passes": 50_000, "least": 0.0}
BOTH = pytest.mark.parametrize("loss", [SQUARED_HINGE, LOGISTIC])


def random_rows(rng: np.random.Generator, n_rows: int, n_words: int, *, density: float = 0.3) -> sp.csr_matrix:
    """Sparse rows, some of them empty, with values of either sign."""
    dense = rng.normal(size=(n_rows, n_words)) * (rng.random((n_rows, n_words)) < density)
    dense[rng.random(n_rows) < 0.1] = 0.0
    return sp.csr_matrix(dense.astype(np.float32))


def solve(
    x: sp.csr_matrix, pairs: list[tuple[list[int], list[int]]], loss: int, *, cost: float = 1.0, threads: int = 1,
    at_a_time: int = 2, **options: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(weights [labels, words], biases) of labels given as (rows, signs)."""
    given_options = {**TIGHT, "keep_from": x.shape[1], **options}
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in pairs])]).astype(np.int64)
    rows = np.array([row for rows, _ in pairs for row in rows], dtype=np.int32)
    signs = np.array([sign for _, signs in pairs for sign in signs], dtype=np.int8)
    squares = np.asarray(x.multiply(x).sum(axis=1), dtype=np.float64).ravel()
    parts = kernels.run_ranges(
        solve_labels, [*range(0, len(pairs), at_a_time), len(pairs)], threads, starts[:-1], starts[1:], rows, signs,
        x.indptr, x.indices, x.data, squares, x.shape[1], loss, cost,
        given_options["eps"], given_options["passes"], given_options["least"], given_options["keep_from"],
    )  # fmt: skip
    words, weights, counts, biases = (np.concatenate([part[i] for part in parts]) for i in range(4))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    found = sp.csr_matrix((weights, words, indptr), shape=(len(pairs), x.shape[1]))
    assert found.has_canonical_format, "each word once, rising"
    return found.toarray(), biases


def objective(x: np.ndarray, y: np.ndarray, w: np.ndarray, bias: float, loss: int, cost: float) -> float:
    """1/2 |w, b|^2 + C sum of losses, in float64."""
    margins = y * (x.astype(np.float64) @ w.astype(np.float64) + bias)
    losses = np.maximum(0, 1 - margins) ** 2 if loss == SQUARED_HINGE else np.logaddexp(0, -margins)
    return float(0.5 * (w.astype(np.float64) @ w + bias**2) + cost * losses.sum())


def liblinear(x: np.ndarray, y: np.ndarray, loss: int, cost: float) -> tuple[np.ndarray, float]:
    """scikit-learn's answer; the bias is the weight of one more feature of value 1 there too."""
    made: Any
    if loss == SQUARED_HINGE:
        made = LinearSVC(C=cost, loss="squared_hinge", dual=False, tol=1e-8, max_iter=100_000, intercept_scaling=1)
    else:
        made = LogisticRegression(C=cost, solver="liblinear", tol=1e-8, max_iter=100_000, intercept_scaling=1)
    made.fit(x.astype(np.float64), y)
    return made.coef_[0], float(made.intercept_[0])


@BOTH
@pytest.mark.parametrize("cost", [0.05, 1.0, 20.0])
def test_the_minimum_is_liblinears(loss: int, cost: float) -> None:
    rng = np.random.default_rng(int(cost * 100) + loss)
    x = random_rows(rng, 120, 40)
    pairs = []
    for size in (3, 10, 50, 120):
        rows = np.sort(rng.choice(120, size, replace=False))
        signs = np.where(rng.random(size) < 0.3, 1, -1)
        signs[:2] = 1, -1  # liblinear wants both
        pairs.append((rows.tolist(), signs.tolist()))
    weights, biases = solve(x, pairs, loss, cost=cost)
    for label, (rows_, signs_) in enumerate(pairs):
        seen, y = x.toarray()[rows_], np.array(signs_)
        ours = objective(seen, y, weights[label], float(biases[label]), loss, cost)
        theirs = objective(seen, y, *liblinear(seen, y, loss, cost), loss, cost)
        assert ours == pytest.approx(theirs, rel=1e-4)


@BOTH
@given(seed=st.integers(0, 10_000), n_rows=st.integers(1, 25), cost=st.sampled_from([0.01, 0.3, 1.0, 10.0]))
def test_no_small_step_lowers_the_objective(loss: int, seed: int, n_rows: int, cost: float) -> None:
    """Both functions are convex, so a place where every step goes up is the minimum: one class, one pair, all fine."""
    rng = np.random.default_rng(seed)
    x = random_rows(rng, n_rows, 6, density=rng.random())
    signs = np.where(rng.random(n_rows) < rng.choice([0.0, 0.5, 1.0]), 1, -1)
    weights, biases = solve(x, [(list(range(n_rows)), signs.tolist())], loss, cost=cost)
    here = objective(x.toarray(), signs, weights[0], float(biases[0]), loss, cost)
    for step in np.vstack([np.eye(7), -np.eye(7), rng.normal(size=(6, 7))]) * 0.01:
        moved = objective(x.toarray(), signs, weights[0] + step[:6], float(biases[0]) + step[6], loss, cost)
        assert moved > here - 1e-5 * max(1.0, here)


@BOTH
def test_threads_and_blocks_do_not_change_a_bit(loss: int) -> None:
    rng = np.random.default_rng(5)
    x = random_rows(rng, 60, 30)
    pairs = []
    for _ in range(9):
        rows = rng.choice(60, 20, replace=False).tolist()
        pairs.append((rows, np.where(rng.random(20) < 0.4, 1, -1).tolist()))
    loose = {"eps": 0.1, "passes": 100, "least": 0.01}
    expected = solve(x, pairs, loss, at_a_time=9, **loose)
    assert np.abs(expected[0]).max() > 0.1
    for threads, at_a_time in ((1, 1), (2, 2), (4, 1)):
        found = solve(x, pairs, loss, threads=threads, at_a_time=at_a_time, **loose)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@BOTH
def test_small_weights_are_dropped_but_those_of_the_last_columns(loss: int) -> None:
    rng = np.random.default_rng(8)
    x = random_rows(rng, 40, 12)
    pairs = [(list(range(40)), np.where(rng.random(40) < 0.4, 1, -1).tolist())]
    every, _ = solve(x, pairs, loss, least=0.0)
    least = float(np.median(np.abs(every)))
    some, _ = solve(x, pairs, loss, least=least, keep_from=9)
    dropped = np.abs(every) < least
    dropped[:, 9:] = False
    assert dropped.any()
    np.testing.assert_array_equal(some, np.where(dropped, 0.0, every))


@BOTH
def test_one_class_one_pair_and_none(loss: int) -> None:
    """Known answers: symmetric ones for one class, 0 without pairs; scratch is clean for the label that follows."""
    x = sp.csr_matrix(np.array([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 0]], dtype=np.float32))
    everything = ([0, 1, 2], [1, 1, 1])
    opposite = ([0, 1, 2], [-1, -1, -1])
    weights, biases = solve(x, [everything, ([], []), opposite, ([0], [1]), ([2], [-1]), everything], loss)
    np.testing.assert_allclose(weights[2], -weights[0], atol=1e-5)
    assert biases[2] == pytest.approx(-biases[0], abs=1e-5)
    assert biases[0] > 0
    assert (weights[1] == 0).all()
    assert biases[1] == 0
    np.testing.assert_allclose(weights[5], weights[0], atol=1e-5)  # the same pairs in another order
    assert weights[3, 0] == pytest.approx(float(biases[3]), abs=1e-6)  # a word of value 1 beside the 1 of the bias
    assert (weights[3, 1:] == 0).all()
    assert (weights[4] == 0).all()  # an empty row has its bias only
    if loss == SQUARED_HINGE:  # 1/2 b^2 + (1 - b)^2 is smallest at 2/3; with w = b, b^2 + (1 - 2b)^2 at 2/5
        assert biases[4] == pytest.approx(-2 / 3, abs=1e-5)
        assert biases[3] == pytest.approx(2 / 5, abs=1e-5)


@BOTH
def test_small_weights_are_dropped(loss: int) -> None:
    rng = np.random.default_rng(3)
    x = random_rows(rng, 50, 20)
    pairs = [(list(range(50)), np.where(rng.random(50) < 0.5, 1, -1).tolist())]
    (all_weights, all_biases), (kept, biases) = (solve(x, pairs, loss, least=least) for least in (0.0, 0.2))
    large = np.abs(all_weights) >= 0.2
    assert 0 < large.sum() < large.size
    np.testing.assert_array_equal(kept, np.where(large, all_weights, 0))
    np.testing.assert_array_equal(biases, all_biases)


def test_a_hopeless_pair_does_not_break_the_logistic_loss() -> None:
    """Its margin is so far below 0 that cost - alpha is less than float64 can tell from 0 beside the cost."""
    x = sp.csr_matrix(np.array([[1.0]] * 2000 + [[0.0]] * 2000 + [[200.0]], dtype=np.float32))
    y = np.array([1] * 2000 + [-1] * 2001)
    weights, biases = solve(x, [(list(range(len(y))), y.tolist())], LOGISTIC, passes=200)
    assert 200 * weights[0, 0] + biases[0] > 200
    ours = objective(x.toarray(), y, weights[0], float(biases[0]), LOGISTIC, 1.0)
    theirs = objective(x.toarray(), y, *liblinear(x.toarray(), y, LOGISTIC, 1.0), LOGISTIC, 1.0)
    assert ours == pytest.approx(theirs, rel=1e-4)
