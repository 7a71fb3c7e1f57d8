"""The score model: its inputs and formulas by hand, kernels against definitions, top k, learning, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elias import kernels
from elias.core.devices import pick_threads
from elias.core.errors import ModelError
from elias.core.settings import ScoreModelSettings
from elias.ranking.calibration import fit_calibration
from elias.ranking.features import FEATURES, Features, p_of
from elias.ranking.linear_ranker import q_of
from elias.ranking.score_fit import TrainingCandidates, fit_score
from elias.ranking.score_model import (
    FARTHEST,
    LEAST,
    N_INPUTS,
    NAME,
    RANKED,
    RELATIVE,
    LearnedScore,
    ReferenceScores,
    ScoreModel,
    score_inputs,
)

LOSS = "squared-hinge"
RANKS = len(FEATURES) + RELATIVE  # inputs from here on are log ranks


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """As in a fit."""
    pick_threads(2)


def named(features: Features) -> dict[str, np.ndarray]:
    """Views of the features by name."""
    return {name: features.values[:, place] for place, name in enumerate(FEATURES)}


def random_features(seed: int = 0, rows: int = 40, m: int = 12) -> tuple[Features, np.ndarray]:
    """(features, which labels are right): right ones have a larger p and margin; rows have 3 to m candidates."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.permuted(np.tile(np.arange(60), (rows, 1)), axis=1)[:, :m], axis=1).astype(np.int32)
    labels[np.arange(m) >= rng.integers(3, m + 1, size=(rows, 1))] = -1
    right = (rng.random(labels.shape) < 0.2) & (labels >= 0)
    values = rng.random((rows, len(FEATURES), m)).astype(np.float32)
    features = Features(labels, rng.integers(0, 4, labels.shape).astype(np.int32), values)
    by_name = named(features)
    by_name["classifier"][:] = np.where(right, 0.3 + 0.7 * by_name["classifier"], 0.8 * by_name["classifier"])
    by_name["margin"][:] = 2 * by_name["margin"] - 1.5 + right * rng.random(labels.shape)
    by_name["path"][:] *= -1
    by_name["log_count"][:] = np.log1p(rng.integers(0, 50, size=labels.shape))
    return features, right


def learned_of(features: Features, right: np.ndarray, units: int = 32, epochs: int = 2) -> LearnedScore:
    settings = ScoreModelSettings(hidden_units=units, epochs=epochs)
    return fitted_on(features, right, settings)


def fitted_on(features: Features, right: np.ndarray, settings: ScoreModelSettings) -> LearnedScore:
    """Learned from all rows."""
    return fit_score(TrainingCandidates.of(features, right), np.arange(len(right)), settings, 0, fast=True)


def shifted(reference: ReferenceScores, by: float) -> ReferenceScores:
    return ReferenceScores(reference.best + np.float32(by), reference.rising + np.float32(by))


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_inputs_are_the_features_their_distances_and_ranks() -> None:
    features, _ = random_features()
    by_name = named(features)
    by_name["vote"][:, ::2] = 0.0  # equal values have the same rank
    inputs = score_inputs(features)
    assert inputs.shape == (40, 12, N_INPUTS) == (40, 12, len(FEATURES) + RELATIVE + len(RANKED))
    real = features.labels >= 0
    yhat = by_name["cluster_score"] * by_name["edge_score"]
    log_p = np.log(np.maximum(by_name["classifier"] * yhat, LEAST))
    z = np.log(by_name["classifier"] / (1 - by_name["classifier"]))
    plain = [log_p, z, np.log(np.maximum(yhat, LEAST)), *(by_name[name] for name in FEATURES[3:])]
    for place, values in enumerate(plain):
        np.testing.assert_allclose(inputs[..., place][real], values[real], rtol=1e-3, atol=1e-4)
        if place == RELATIVE:
            break  # the count has no distance
        for row in range(40):
            own = inputs[row, real[row], place]
            np.testing.assert_allclose(inputs[row, real[row], len(FEATURES) + place], own - own.max())
    for place, name in enumerate(("combined", "centroid", "vote")):
        for row in range(40):
            own = by_name[name][row, real[row]]
            more = [(own > value).sum() for value in own]
            np.testing.assert_allclose(inputs[row, real[row], RANKS + place], np.log1p(more), rtol=1e-6)
    assert np.isfinite(inputs).all()


def test_reference_scores_move_distances_and_ranks_only() -> None:
    features, _ = random_features(1)
    inputs, reference, real = score_inputs(features), ReferenceScores.of(features), features.labels >= 0
    np.testing.assert_array_equal(score_inputs(features, reference), inputs)  # compared with themselves
    lower = score_inputs(features, shifted(reference, -5))
    np.testing.assert_array_equal(lower[..., :RANKS], inputs[..., :RANKS])  # lower ones move no distance
    assert not lower[real][:, RANKS:].any()  # and every candidate is first
    higher = score_inputs(features, shifted(reference, 2))
    distances = slice(len(FEATURES), RANKS)
    np.testing.assert_array_equal(higher[..., : len(FEATURES)], inputs[..., : len(FEATURES)])
    np.testing.assert_allclose(higher[..., distances], inputs[..., distances] - 2, atol=1e-4)
    every = np.broadcast_to(np.log1p(real.sum(axis=1))[:, None, None], higher[..., RANKS:].shape)
    np.testing.assert_allclose(higher[..., RANKS:][real], every[real], rtol=1e-6)


# -- kernels against definitions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [None, 2.0, -5.0])
@pytest.mark.parametrize("m", [12, 1100])
def test_the_kernel_is_the_formula(by: float | None, m: int) -> None:
    """Rows without candidates, equal values, more candidates than the kernel has logarithms of ranks in its table."""
    rng = np.random.default_rng(3)
    features, right = random_features(3)
    learned = learned_of(features, right)
    if m > 12:
        values = rng.random((3, len(FEATURES), m)).astype(np.float32)
        features = Features(np.tile(np.arange(m, dtype=np.int32), (3, 1)), np.zeros((3, m), dtype=np.int32), values)
    features.labels[:2] = -1
    features.values[:, FEATURES.index("combined"), ::3] = 0.25
    reference = None if by is None else shifted(ReferenceScores.of(features), by)
    found = learned(features, reference, threads=2)
    with kernels.reference():
        expected = learned(features, reference)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=5e-5)
    assert not found[features.labels < 0].any()


def test_kernel_and_definition_rank_the_same_features() -> None:
    from elias.kernels import score_model as kernel

    assert [FEATURES[feature] for feature in RANKED] == ["combined", "centroid", "vote"]
    assert (kernel.RANKED, kernel.RELATIVE, kernel.RANKS, kernel.N_INPUTS) == (RANKED, RELATIVE, RANKS, N_INPUTS)
    assert FEATURES[-1] == "log_count", "the only feature without a distance is the last"


def test_tanh_of_the_kernel() -> None:
    from elias.kernels.score_model import tanh_of

    x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, 1e-6, -1e-6]]).astype(np.float32)
    np.testing.assert_allclose([tanh_of(value) for value in x], np.tanh(x.astype(np.float64)), atol=4e-7)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("k", [1, 4, 20])
def test_top_k_are_the_sorted_scores(k: int, calibrated: bool) -> None:
    """Ties to the lower label, PAD and 0 where there are fewer than k; calibrated, values are probabilities."""
    features, right = random_features(4)
    rng = np.random.default_rng(4)
    labels = rng.permuted(features.labels, axis=1)  # PAD and labels in any order
    labels[0] = -1
    scores = rng.integers(-2, 3, labels.shape).astype(np.float32)  # many ties
    curve = fit_calibration(scores, right, labels >= 0)
    model = ScoreModel(LOSS, calibration=curve if calibrated else None)
    for definition, threads in ((False, 1), (False, 2), (True, 1)):
        with kernels.reference(definition):
            places, best, values = model.top_k(labels, scores, k, threads=threads)
        assert (places.shape, best.dtype, values.dtype) == ((40, k), np.int32, np.float32)
        for row in range(40):
            real = [place for place in range(labels.shape[1]) if labels[row, place] >= 0]
            order = sorted(real, key=lambda place: (-scores[row, place], labels[row, place]))[:k]
            rest = k - len(order)
            own = scores[row, order].astype(np.float64)
            assert places[row].tolist() == [*order, *[-1] * rest]
            assert best[row].tolist() == [*labels[row, order], *[-1] * rest]
            np.testing.assert_allclose(values[row], [*(curve(own) if calibrated else own), *[0] * rest], rtol=1e-6)


# -- scores ----------------------------------------------------------------------------------------------------------


def test_the_product_by_hand() -> None:
    features, _ = random_features(3)
    p, margin = p_of(features), named(features)["margin"]
    by_name = named(features)
    np.testing.assert_allclose(p, by_name["cluster_score"] * by_name["edge_score"] * by_name["classifier"], rtol=1e-6)
    np.testing.assert_allclose(ScoreModel(LOSS)(features), p * q_of(margin, LOSS), rtol=1e-6)
    np.testing.assert_allclose(ScoreModel("logistic")(features), p / (1 + np.exp(-margin)), rtol=1e-5)


def test_the_learned_score_by_hand() -> None:
    features, right = random_features(4)
    w = learned_of(features, right, units=5, epochs=3)
    assert w.hidden.shape == (N_INPUTS, 5)
    scores, inputs = w(features), score_inputs(features).astype(np.float64)
    for row, place in ((0, 0), (7, 2), (39, 1)):
        x = np.clip((inputs[row, place] - w.mean) / w.spread, -FARTHEST, FARTHEST)
        expected = w.linear @ x + w.out @ np.tanh(w.hidden.T @ x + w.shift) + w.bias
        assert scores[row, place] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_inputs_are_standardized_over_real_candidates() -> None:
    features, right = random_features(12)
    w, real = learned_of(features, right), features.labels >= 0
    inputs = score_inputs(features)[real].astype(np.float64)
    np.testing.assert_allclose(w.mean, inputs.mean(axis=0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(w.spread, inputs.std(axis=0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("negatives", [None, 4])
def test_learning_puts_right_labels_first_and_is_repeatable(negatives: int | None) -> None:
    (train, right), (fresh, truth) = random_features(5, rows=400), random_features(6, rows=400)
    settings = ScoreModelSettings(hidden_units=32, epochs=10, negatives=negatives)
    fitted = fitted_on(train, right, settings)

    def hits(scores: np.ndarray) -> float:
        best = np.where(fresh.labels >= 0, scores, -np.inf).argmax(axis=1)
        return float(truth[np.arange(400), best][truth.any(axis=1)].mean())

    assert hits(fitted(fresh)) > hits(named(fresh)["combined"]) + 0.2
    assert hits(fitted(fresh)) > hits(p_of(fresh)) + 0.05
    again = fitted_on(train, right, settings)
    np.testing.assert_array_equal(again(fresh), fitted(fresh))


def test_rows_without_candidates_and_extreme_features_stay_finite() -> None:
    features, right = random_features(2)
    features.labels[:3] = -1
    by_name = named(features)
    by_name["classifier"][:] = by_name["classifier"].round()
    by_name["cluster_score"][:] = 0.0
    assert np.isfinite(score_inputs(features)).all()
    fitted = fitted_on(features, right & (features.labels >= 0), ScoreModelSettings(hidden_units=32, epochs=2))
    for definition in (False, True):
        with kernels.reference(definition):
            assert np.isfinite(fitted(features)).all()


def test_rows_without_a_right_label_leave_finite_scores() -> None:
    features, right = random_features(7)
    settings = ScoreModelSettings(hidden_units=32, epochs=2)
    assert np.isfinite(fitted_on(features, np.zeros_like(right), settings)(features)).all()


# -- files ------------------------------------------------------------------------------------------------------------


def test_saved_and_loaded(tmp_path: Path) -> None:
    features, right = random_features(8)
    fitted = fitted_on(features, right, ScoreModelSettings(hidden_units=32, epochs=2))
    curve = fit_calibration(fitted(features), right, features.labels >= 0)
    for whole in (ScoreModel("logistic"), ScoreModel("logistic", fitted), ScoreModel("logistic", fitted, curve)):
        whole.save(tmp_path)
        loaded = ScoreModel.load(tmp_path)
        assert loaded.loss == "logistic"
        assert (loaded.learned is None) == (whole.learned is None)
        scores = whole(features)
        np.testing.assert_array_equal(loaded(features), scores)
        ours, theirs = (model.top_k(features.labels, scores, 5)[2] for model in (loaded, whole))
        np.testing.assert_array_equal(ours, theirs)
        assert (loaded.calibration is None) == (whole.calibration is None)


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "hinge"},
        {"learned": None},  # a calibration alone
        {"learned": []},
        {"learned": {}},
        {"calibration": {}},
        {"calibration": {"scores": [1, 0], "probabilities": [0, 1], "error": 0, "rows": 1}},
        {"learned.mean": [0.0]},
        {"learned.linear": ["x"] * N_INPUTS},
        {"learned.spread": [float("nan")] * N_INPUTS},
        {"learned.out": [float("nan")] * 32},
        {"learned.bias": float("nan")},
        {"learned.spread": [0.0] * N_INPUTS},
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    features, right = random_features(9)
    learned = learned_of(features, right, epochs=1)
    curve = fit_calibration(learned(features), right, features.labels >= 0)
    ScoreModel(LOSS, learned, curve).save(tmp_path)
    content = json.loads((tmp_path / NAME).read_text())
    for key, value in change.items():
        section, _, name = key.partition(".")
        if name:
            content[section][name] = value
        else:
            content[section] = value
    (tmp_path / NAME).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=rf"{NAME}: .*(score model|learned|loss|calibration|as JSON)"):
        ScoreModel.load(tmp_path)


@pytest.mark.parametrize("features", [FEATURES[:-1], FEATURES[::-1], (*FEATURES, "more"), None])
def test_a_model_of_other_features_is_refused(features: tuple[str, ...] | None, tmp_path: Path) -> None:
    ScoreModel(LOSS).save(tmp_path)
    content = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps({**content, "features": features}))
    with pytest.raises(ModelError, match=rf"{NAME}: (the model was made with other features|.features. is null)"):
        ScoreModel.load(tmp_path)
