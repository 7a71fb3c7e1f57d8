"""Isotonic calibration: a strictly rising curve, its means, its error on other rows, refused curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from elias.core import model_schema
from elias.core.errors import ModelError
from elias.core.metrics import CALIBRATION_BINS as BINS
from elias.core.metrics import calibration_error
from elias.core.schema import check_object
from elias.ranking.calibration import MOST_KNOTS, IsotonicCalibration, fit_calibration
from elias.ranking.score_model import ScoreModel


def scored(seed: int, rows: int, m: int = 10, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores [rows, m] whose true probability is sigmoid(s / sharpness), and which labels are right."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=2.0, size=(rows, m)).astype(np.float32)
    return scores, rng.random((rows, m)) < 1 / (1 + np.exp(-scores / sharpness))


@given(seed=st.integers(0, 10_000), rows=st.sampled_from([1, 2, 7, 200]), coarse=st.booleans())
def test_the_curve_rises_strictly(seed: int, rows: int, coarse: bool) -> None:
    scores, right = scored(seed, rows)
    if coarse:
        scores = scores.round()
    curve = fit_calibration(scores, right, np.random.default_rng(seed).random(scores.shape) < 0.7)
    asked = np.linspace(-12, 12, 500)
    found = curve(asked)
    assert (np.diff(found) > 0).all()
    assert ((found > 0) & (found < 1)).all()
    assert np.isfinite(curve(np.array([-1e30, 1e30]))).all()
    assert curve.rows == rows
    np.testing.assert_array_equal(IsotonicCalibration.from_dict(curve.as_dict())(asked), found)
    assert len(curve.scores) <= MOST_KNOTS


@given(seed=st.integers(0, 10_000))
def test_scores_close_to_each_other_keep_their_order(seed: int) -> None:
    """Products are float32 and mostly tiny: rounding must not tear a step of the curve in two."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((100, 10)) ** 8).astype(np.float32)
    curve = fit_calibration(scores, rng.random(scores.shape) < scores, np.ones(scores.shape, dtype=bool))
    again = IsotonicCalibration.from_dict(curve.as_dict())
    order = np.argsort(scores, axis=None)
    assert (np.diff(again(scores.ravel()[order].astype(np.float64))) >= 0).all()
    assert (np.diff(curve.scores) > 0).all()
    assert (np.diff(curve.probabilities) > 0).all()


def test_the_curve_goes_through_isotonic_means() -> None:
    scores, right = scored(8, 100)
    flat, truth = scores.astype(np.float64).ravel(), right.ravel()
    curve = fit_calibration(scores, right, np.ones(scores.shape, dtype=bool))
    steps = IsotonicRegression(y_min=0, y_max=1).fit(flat, truth)
    np.testing.assert_allclose(curve.probabilities, steps.predict(curve.scores), atol=1e-6)
    assert len(curve.scores) > 5


def test_an_overconfident_score_is_calibrated() -> None:
    """The truth is sigmoid(s / 3): taken as sigmoid(s), the score is off by 0.13; its curve hardly at all."""
    scores, right = scored(0, 4000, sharpness=3.0)
    naive = calibration_error((1 / (1 + np.exp(-scores))).ravel(), right.ravel())
    curve = fit_calibration(scores, right, np.ones(scores.shape, dtype=bool))
    fresh, fresh_right = scored(1, 4000, sharpness=3.0)
    error = calibration_error(curve(fresh).ravel(), fresh_right.ravel())
    assert naive > 0.1
    assert error < 0.015
    assert curve.error < 0.02, "the error it reports is as small"
    np.testing.assert_allclose(curve(np.array([-3.0, 0.0, 3.0])), 1 / (1 + np.exp([1.0, 0.0, -1.0])), atol=0.04)


def test_the_error_is_measured_on_other_rows() -> None:
    """A score without information, of few rows: the curve fits the chance of its own rows, which are no measure."""
    rng = np.random.default_rng(0)
    scores, right = rng.normal(size=(60, 3)), rng.random((60, 3)) < 0.5
    used = np.ones(scores.shape, dtype=bool)
    curve = fit_calibration(scores, right, used)
    assert curve.error > calibration_error(np.interp(scores.ravel(), curve.scores, curve.probabilities), right.ravel())


def test_pairs_that_are_not_used_do_not_count() -> None:
    scores, right = scored(3, 300)
    used = np.zeros(scores.shape, dtype=bool)
    used[:, :4] = True
    spoiled = np.where(used, scores, 50.0)
    ours, theirs = fit_calibration(spoiled, right & used, used), fit_calibration(scores, right, used)
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
    empty = fit_calibration(scores, right, np.zeros_like(used))
    assert (empty(scores) < 1e-6).all()


def test_a_text_that_is_there_twice_is_in_one_half() -> None:
    """Each pair copied: halves of rows would hold the same pairs, and the error would be that of the own rows."""
    rng = np.random.default_rng(0)
    scores, right = rng.normal(size=(60, 3)), rng.random((60, 3)) < 0.5
    used, twice = np.ones((120, 3), dtype=bool), np.repeat(np.arange(60), 2)
    copied = fit_calibration(scores[twice], right[twice], used, twice)
    once = fit_calibration(scores, right, used[:60])
    assert copied.error == pytest.approx(once.error, abs=1e-9)
    assert copied.error > fit_calibration(scores[twice], right[twice], used).error + 0.02


def test_calibration_error_by_hand() -> None:
    guessed = np.repeat(np.linspace(0.05, 0.95, BINS), 20)
    right = np.tile(np.arange(20) < 10, BINS)  # half of every bin
    assert calibration_error(guessed, right) == pytest.approx(np.abs(np.linspace(0.05, 0.95, BINS) - 0.5).mean())
    assert calibration_error(np.array([1.0, 0.0, 1.0]), np.array([True, False, True])) == 0.0
    assert calibration_error(np.empty(0), np.empty(0, dtype=bool)) == 0.0


def test_through_json_it_stays_the_same() -> None:
    scores, right = scored(5, 50)
    curve = fit_calibration(scores, right, np.ones(scores.shape, dtype=bool))
    again = IsotonicCalibration.from_dict(json.loads(json.dumps(curve.as_dict())))
    np.testing.assert_array_equal(again(scores), curve(scores))
    assert (again.error, again.rows) == (curve.error, curve.rows)


def checked(content: dict[str, Any]) -> IsotonicCalibration:
    """As the score model is read from its file."""
    schema = {"calibration": model_schema.SCORE_MODEL["calibration"]}
    return IsotonicCalibration.from_dict(check_object(Path("m"), {"calibration": content}, schema)["calibration"])


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [1.0, 0.0]},
        {"scores": [0.0]},
        {"scores": []},
        {"scores": [0.0, float("nan")]},
        {"probabilities": [0.9, 0.1]},
        {"probabilities": [0.5, 1.5]},
        {"probabilities": [float("nan"), 0.5]},
        {"scores": [], "probabilities": []},
        {"scores": [[0.0, 1.0]], "probabilities": [[0.0, 1.0]]},
        {"scores": "curve"},
    ],
)
def test_a_broken_curve_is_refused(change: dict[str, Any]) -> None:
    whole = {"scores": [0.0, 1.0], "probabilities": [0.1, 0.9], "error": 0.01, "rows": 10}
    assert checked(whole)(np.array([0.5]))[0] == pytest.approx(0.5, abs=1e-6)
    with pytest.raises((ModelError, ValueError), match=r"calibration\.(scores|probabilities)|curve is empty or falls"):
        checked({**whole, **change})


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_the_kernel_evaluates_the_same_curve(rows: int) -> None:
    """At the knots, between them and far beyond them."""
    scores, right = scored(rows, rows)
    curve = fit_calibration(scores, right, np.ones(scores.shape, dtype=bool))
    asked = np.concatenate([np.linspace(-70, 70, 999), curve.scores, [0.0]]).astype(np.float32)[None]
    labels = np.arange(asked.size, dtype=np.int32)[None] * 3
    labels[0, 5] = -1
    calibrated = ScoreModel("logistic", calibration=curve)
    _, best, values = calibrated.top_k(labels, asked, asked.size)
    assert (best[0, -1], values[0, -1]) == (-1, 0.0)
    assert (best[0, :-1] >= 0).all()
    expected = curve(asked[0, best[0, :-1] // 3].astype(np.float64))
    np.testing.assert_allclose(values[0, :-1], expected, rtol=1e-6)
    _, best, values = ScoreModel("logistic").top_k(labels, asked, asked.size)
    np.testing.assert_array_equal(values[0, :-1], asked[0, best[0, :-1] // 3])
