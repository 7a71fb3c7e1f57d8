"""Cross-fitting: held-out predictions joined, kept and taken apart; inner folds; folds of a fit."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from elias.core.files import read_tensors
from elias.core.settings import ScoreModelSettings, Settings
from elias.dataset import Dataset
from elias.pipeline.fit import fit_to
from elias.ranking import cross_fitting as module
from elias.ranking.cross_fitting import ENOUGH, FOLDS, HeldOutPredictions, fit_score_model
from elias.ranking.features import FEATURES, Features
from elias.ranking.score_fit import TrainingCandidates
from elias.ranking.score_model import LearnedScore
from helpers.processes import STACKED, content, sets, start, wait_until
from helpers.processes import elias as run_elias

FEW = {key: value for key, value in STACKED.items() if key != "split.calibration_rows"}
FOLDED = {**FEW, "score_model.folds": 2}
QUICK = ScoreModelSettings(hidden_units=2, epochs=2)


def random_features(rng: np.random.Generator, n_rows: int, width: int) -> Features:
    labels = rng.permuted(np.tile(np.arange(40, dtype=np.int32), (n_rows, 1)), axis=1)[:, :width]
    labels = np.where(np.arange(width) >= rng.integers(width // 2, width + 1, (n_rows, 1)), -1, labels)
    values = rng.random((n_rows, len(FEATURES), width), dtype=np.float32)
    return Features(labels.astype(np.int32), labels.astype(np.int32), values)


def random_predictions(rng: np.random.Generator, n_rows: int, width: int, first_row: int = 0) -> HeldOutPredictions:
    features = random_features(rng, n_rows, width)
    right = (rng.random(features.labels.shape) < 0.3) & (features.labels >= 0)
    return HeldOutPredictions(features, right, np.arange(first_row, first_row + n_rows))


def assert_same(left: HeldOutPredictions, right: HeldOutPredictions) -> None:
    np.testing.assert_array_equal(left.right, right.right)
    np.testing.assert_array_equal(left.rows, right.rows)
    assert left.right.dtype == right.right.dtype == bool
    for ours, theirs in zip(left.features, right.features, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- held-out predictions ---------------------------------------------------------------------------------------------


def test_right_candidates_are_those_of_the_labels() -> None:
    """Batches in order, of different widths; a label of value 0 is none, and PAD is never right."""
    rng = np.random.default_rng(0)
    batches = [random_features(rng, 3, 4), random_features(rng, 5, 6)]
    labels = sp.csr_matrix((rng.random((8, 40)) < 0.4).astype(np.float32))
    labels.data[::3] = 0.0
    found = HeldOutPredictions.of(batches, labels, np.arange(10, 18))
    assert found.right.shape == (8, 6)
    expected = labels.toarray() > 0
    for row in range(8):
        for place, label in enumerate(found.features.labels[row].tolist()):
            assert found.right[row, place] == (label >= 0 and expected[row, label])
    assert 0 < found.right.sum() < (found.features.labels >= 0).sum()


def test_predictions_are_saved_and_loaded(tmp_path: Path) -> None:
    predictions = random_predictions(np.random.default_rng(0), 7, 5)
    predictions.save(tmp_path)
    assert_same(HeldOutPredictions.load(tmp_path), predictions)


def test_folds_of_different_widths_are_joined() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = random_predictions(rng, 3, 4), random_predictions(rng, 5, 6, first_row=2)
    both = HeldOutPredictions.join([narrow, wide])
    assert both.right.shape == (8, 6)
    assert both.rows.tolist() == [0, 1, 2, 2, 3, 4, 5, 6]
    assert (both.features.labels[:3, 4:] == -1).all()
    assert not both.right[:3, 4:].any()
    np.testing.assert_array_equal(both.features.values[:3, :, :4], narrow.features.values)
    assert_same(both.take(np.arange(3, 8)), wide)


# -- the score model and its calibration ------------------------------------------------------------------------------


def test_a_row_that_was_held_out_twice_is_in_one_inner_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its calibration would come from scores of a model that was trained on it."""
    rng = np.random.default_rng(2)
    folds = random_predictions(rng, 60, 8), random_predictions(rng, 60, 8, first_row=30)
    held_out = HeldOutPredictions.join(folds)
    trained_on: list[set[int]] = []

    def watched(candidates: TrainingCandidates, texts: np.ndarray, *more: Any, **named: Any) -> LearnedScore:
        trained_on.append(set(held_out.rows[texts].tolist()))
        return fit(candidates, texts, *more, **named)

    fit = module.fit_score
    monkeypatch.setattr(module, "fit_score", watched)
    found = fit_score_model(held_out, QUICK, loss="logistic", seed=0, threads=2).score_model
    assert found.calibration is not None
    assert found.calibration.rows == 120
    every = set(held_out.rows.tolist())
    assert sum(rows == every for rows in trained_on) == 1  # the score model itself
    left_out = [every - rows for rows in trained_on if rows != every]
    assert len(left_out) == FOLDS
    assert sum(map(len, left_out)) == len(every)
    assert set().union(*left_out) == every


def test_the_score_model_is_that_of_all_rows_whatever_the_threads() -> None:
    held_out = random_predictions(np.random.default_rng(3), 80, 8)
    one, two = (
        fit_score_model(held_out, QUICK, loss="logistic", seed=5, threads=threads).score_model for threads in (1, 2)
    )
    candidates = TrainingCandidates.of(held_out.features, held_out.right)
    whole = module.fit_score(candidates, np.arange(80), QUICK, 5, fast=True)
    for found in (one, two):
        np.testing.assert_array_equal(found(held_out.features), whole(held_out.features))
    assert one.calibration is not None
    assert two.calibration is not None
    assert one.calibration.as_dict() == two.calibration.as_dict()


def test_features_without_information_are_calibrated_to_their_base_rate() -> None:
    """Scores of rows that a model was trained on would look informative; cross-fitted ones do not."""
    held_out = random_predictions(np.random.default_rng(4), 120, 8)
    settings = ScoreModelSettings(hidden_units=32, epochs=200)  # enough to overfit 120 rows
    found, out_of_fold = fit_score_model(held_out, settings, loss="logistic", seed=0)
    assert found.calibration is not None
    real = held_out.features.labels >= 0
    scores, right = found(held_out.features)[real], held_out.right[real]
    highest = np.argsort(scores)[-60:]
    assert right[highest].mean() > 0.8, "on its own rows the model looks right"
    assert found.calibration(scores[highest].astype(np.float64)).mean() < 0.6, "its probabilities do not repeat that"
    place = (held_out.features.labels == out_of_fold.labels[:, :1]).argmax(axis=1)
    first = held_out.right[np.arange(120), place]
    assert first.mean() < 0.45, "and out-of-fold predictions are right as often as chance is (0.3)"
    assert abs(out_of_fold.scores[:, 0].mean() - first.mean()) < 0.15


def test_out_of_fold_predictions_are_candidates_in_falling_order() -> None:
    held_out = random_predictions(np.random.default_rng(6), 90, 8)
    found = fit_score_model(held_out, QUICK, loss="logistic", seed=0).out_of_fold
    assert found.labels.shape == held_out.features.labels.shape
    np.testing.assert_array_equal(np.sort(found.labels, axis=1), np.sort(held_out.features.labels, axis=1))
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert (found.scores[found.labels < 0] == 0).all()
    assert (np.diff((found.labels >= 0).astype(int), axis=1) <= 0).all(), "pads come last"


def test_too_few_rows_with_a_right_candidate_leave_p_q() -> None:
    predictions = random_predictions(np.random.default_rng(5), 100, 8)
    useful = np.flatnonzero(predictions.right.any(axis=1))
    assert len(useful) > ENOUGH
    for kept in (ENOUGH, ENOUGH - 1):
        learned = kept == ENOUGH
        right = predictions.right & np.isin(np.arange(100), useful[:kept])[:, None]
        lines: list[str] = []
        some = HeldOutPredictions(predictions.features, right, predictions.rows)
        found = fit_score_model(some, QUICK, loss="logistic", seed=0, say=lines.append).score_model
        assert (found.learned is not None, found.loss) == (learned, "logistic")
        assert (found.calibration is not None) == learned
        assert ("p q; only 39 of 100 held-out rows" in lines[0]) == (not learned)


# -- folds of a fit ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folded(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = Settings().updated(FOLDED)
    return fit_to(elias.load_dataset(tiny_dataset), tmp_path_factory.mktemp("folded") / "model", settings=settings)


def test_folds_are_held_out_of_other_networks_than_the_model(folded: Path, data: Dataset) -> None:
    run, model = folded.with_name("model.run"), elias.load(folded)
    assert model.gives_probabilities
    split = read_tensors(run / "10-features" / "split.safetensors")[0]
    assert len(split["calibration"]) == 0
    assert len(split["train"]) + len(split["validation"]) == len(data.train)
    assert not (run / "65-held-out").exists(), "nothing is held out of the model itself"
    held_out = []
    for number in range(2):
        folder = run / f"fold-{number}"
        own = read_tensors(folder / "10-features" / "split.safetensors")[0]
        predictions = HeldOutPredictions.load(folder / "65-held-out")
        assert (folder / "60-ranking").exists()
        np.testing.assert_array_equal(predictions.rows, own["calibration"])
        assert not np.isin(own["calibration"], own["train"]).any()
        assert len(own["calibration"]) == pytest.approx(len(data.train) / 3, abs=10)
        held_out.append(set(own["calibration"].tolist()))
    assert held_out[0] != held_out[1]
    calibration = json.loads((folded / "score_model.json").read_text())["calibration"]
    assert calibration["rows"] == sum(map(len, held_out))


def test_members_learn_from_the_same_folds(tiny_dataset: Path, tmp_path: Path) -> None:
    """The networks of the folds are trained once; the members' own differ."""
    output = tmp_path / "model"
    fit_to(elias.load_dataset(tiny_dataset), output, settings=Settings().updated(FOLDED), members=2)
    runs = [tmp_path / "model.run" / f"member-{number}" for number in range(2)]
    for step in ("fold-0/50-stage2", "fold-1/65-held-out"):
        first, second = (run / step / "done.json" for run in runs)
        assert first.stat().st_ino == second.stat().st_ino
    first, second = ((run / "50-stage2" / "network" / "classifiers.safetensors").read_bytes() for run in runs)
    assert first != second
    assert elias.load(output).gives_probabilities


def test_groups_too_large_to_be_held_out_leave_p_q(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with open(tmp_path / "train.jsonl", "w", encoding="utf-8") as file:
        for row in range(400):
            words = [f"word{row % 8}", *(f"noise{number}" for number in rng.integers(0, 50, 4))]
            line = {"text": " ".join([*words, f"own{row}"]), "labels": [f"label{row % 8}"], "group": f"group{row % 2}"}
            file.write(json.dumps(line) + "\n")
    model = elias.fit(elias.load_dataset(tmp_path), settings=Settings().updated(FEW))
    assert not model.gives_probabilities


@pytest.mark.slow
def test_killed_in_a_fold_it_is_the_same_model(folded: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    process = start("fit", tiny_dataset, "-o", output, *sets(FOLDED))
    wait_until((run / "fold-1" / "20-clusters" / "done.json").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not output.exists()
    finished = (run / "fold-0" / "65-held-out" / "done.json").read_bytes()
    done = run_elias("fit", tiny_dataset, "-o", output, *sets(FOLDED))
    assert done.returncode == 0, done.stderr
    assert (run / "fold-0" / "65-held-out" / "done.json").read_bytes() == finished
    assert content(output, "*.safetensors") == content(folded, "*.safetensors")
    assert json.loads((output / "score_model.json").read_text()) == json.loads(
        (folded / "score_model.json").read_text()
    )
