"""Settings: every problem in one message, suggestions, and defaults that follow from the size of the data."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from elias.core.defaults import DataSize, describe, resolve
from elias.core.errors import SettingsError
from elias.core.settings import Settings, StageSettings, differences, known


def test_settings_survive_json() -> None:
    settings = Settings().updated({"stage2.epochs": 5, "encoder.frozen": "no", "index.beta": 3})
    again = Settings.from_dict(json.loads(json.dumps(settings.as_dict())))
    assert again == settings
    assert (again.stage2.epochs, again.encoder.frozen, again.index.beta) == (5, False, 3.0)


def test_a_change_leaves_the_original_alone() -> None:
    before = Settings()
    after = before.updated({"run.seed": "7"})
    assert (before.run.seed, after.run.seed) == (0, 7)
    assert differences(before, after) == ["run.seed 0 -> 7"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.run.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("stage2.epoch", 5, 'unknown setting "stage2.epoch"; did you mean "stage2.epochs"?'),
        ("stage3.epochs", 5, 'unknown setting "stage3.epochs"; did you mean "stage'),
        ("epochs", 5, "a setting is section.key"),
        ("stage2.", 5, 'unknown setting "stage2."'),
        ("stage2.epochs", "many", "stage2.epochs=many: must be a whole number"),
        ("stage2.epochs", 2.5, "must be a whole number"),
        ("stage2.epochs", True, "stage2.epochs=true: must be a whole number"),
        ("stage2.epochs", float("inf"), "must be a whole number"),
        ("stage2.epochs", -1, "stage2.epochs=-1: must be at least 0"),
        ("encoder.dropout", 1.5, "must be at most 0.99"),
        ("encoder.dropout", "nan", "must be a finite number"),
        ("encoder.kind", "bags", 'must be one of auto, bag, transformer, hybrid, vectors; did you mean "bag"?'),
        ("encoder.frozen", "maybe", "must be true or false"),
    ],
)
def test_a_bad_setting_is_named_with_value_and_remedy(path: str, value: object, expected: str) -> None:
    with pytest.raises(SettingsError) as error:
        Settings().updated({path: value})
    assert expected in str(error.value)


def test_every_problem_is_listed() -> None:
    with pytest.raises(SettingsError) as error:
        Settings().updated({"stage1.epochs": "x", "nothing.here": 1, "run.seed": -1, "index.alpha": 0})
    for place in ("stage1.epochs", "nothing.here", "run.seed", "index.alpha"):
        assert place in str(error.value)


def test_types_are_checked_where_settings_are_made_directly() -> None:
    with pytest.raises(
        SettingsError, match=r"stage1.epochs=5: must be a whole number; stage1.weight_decay=None: must be"
    ):
        Settings(stage1=StageSettings(epochs="5", weight_decay=None))  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"stage1\.epochs=True"):
        Settings(stage1=StageSettings(epochs=True))
    assert Settings(stage1=StageSettings(weight_decay=0)).stage1.weight_decay == 0


def test_auto_means_chosen_later() -> None:
    settings = Settings().updated({"index.kappa": "auto", "stage1.epochs": None})
    assert settings == Settings()
    with pytest.raises(AssertionError):
        known(settings.index.kappa)


@pytest.mark.parametrize(
    ("rows", "units", "passes"), [(100, 4, 1000), (250, 4, 500), (600, 10, 200), (2858, 32, 45), (4000, 32, 40)]
)
def test_a_final_score_of_few_rows_has_few_units_and_many_passes(rows: int, units: int, passes: int) -> None:
    size = DataSize(rows=50_000, labels=5_000, pairs=100_000)
    score_model = resolve(Settings().updated({"split.calibration_rows": rows}), size).score_model
    assert (score_model.hidden_units, score_model.epochs) == (units, passes)
    given = {"split.calibration_rows": rows, "score_model.hidden_units": 7, "score_model.epochs": 9}
    score_model = resolve(Settings().updated(given), size).score_model
    assert (score_model.hidden_units, score_model.epochs) == (7, 9)


@pytest.mark.parametrize(
    ("rows", "given", "more", "expected"),
    [
        (399, {}, {}, (0, 0)),  # too few to learn from
        (400, {}, {}, (80, 5)),
        (10_000, {}, {}, (2000, 5)),
        (10_000, {}, {"pairs": 10_001}, (3333, 3)),
        (10_000, {}, {"pairs": 50_001}, (3333, 2)),
        (10_001, {}, {}, (2500, 2)),
        (99_999, {}, {}, (8000, 2)),
        (100_000, {}, {}, (4000, 0)),
        (50_000, {"score_model.folds": 0}, {}, (3125, 0)),
        (1500, {"split.calibration_rows": 150}, {}, (150, 0)),
        (1500, {"score_model.folds": 0}, {}, (187, 0)),
        (9000, {"score_model.folds": 4}, {}, (2250, 4)),
        (9000, {"score_model.folds": 2}, {}, (3000, 2)),
        (1_000_000, {"score_model.folds": 2}, {}, (8000, 2)),
        (1500, {"score_model.folds": 3, "split.calibration_rows": 0}, {}, (0, 0)),
        (1500, {"score_model.folds": 3, "ranking.kind": "none"}, {}, (0, 0)),
        (1500, {"score_model.folds": 3}, {"dense_dim": 9}, (0, 0)),
        (1500, {"ranking.kind": "none"}, {}, (0, 0)),
        (1500, {}, {"dense_dim": 9}, (0, 0)),
        (1500, {}, {"own_validation": 400}, (200, 0)),
        (1500, {"ranking.kind": "published"}, {}, (187, 0)),
        (1500, {"ranking.kind": "published", "score_model.folds": 3}, {}, (187, 0)),
        (1500, {"ranking.kind": "published", "published.calibration": False}, {}, (0, 0)),
        (1500, {"ranking.kind": "published", "split.calibration_rows": 70}, {}, (70, 0)),
        (300, {"ranking.kind": "published"}, {}, (0, 0)),  # fewer than 100 could be held out
        (300_000, {"ranking.kind": "published"}, {}, (5000, 0)),  # as in the paper
    ],
)
def test_few_rows_are_drawn_several_times(
    rows: int, given: dict[str, Any], more: dict[str, Any], expected: tuple[int, int]
) -> None:
    resolved = resolve(Settings().updated(given), DataSize(**{"rows": rows, "labels": 300, "pairs": rows, **more}))
    assert (resolved.split.calibration_rows, resolved.score_model.folds) == expected


@pytest.mark.parametrize(
    ("rows", "given", "more", "quick"),
    [
        (10_000, {}, {}, True),
        (400, {}, {}, True),
        (10_001, {}, {}, True),
        (99_999, {}, {}, True),
        (399, {}, {}, False),  # no score model: the network ranks
        (5000, {"ranking.kind": "none"}, {}, False),
        (5000, {"ranking.kind": "published"}, {}, False),
        (5000, {"encoder.kind": "transformer"}, {}, False),
        (5000, {}, {"dense_dim": 9}, False),
    ],
)
def test_cross_fits_are_quick(rows: int, given: dict[str, Any], more: dict[str, Any], quick: bool) -> None:
    """Where a score that is learned on folds stands on top, few epochs and no validation rows are needed."""
    resolved = resolve(Settings().updated(given), DataSize(rows=rows, labels=300, pairs=rows, **more))
    assert ((resolved.stage1.epochs, resolved.stage2.epochs) == (3, 4)) is quick
    assert (resolved.split.validation_rows == 0) is quick
    assert resolved.stage2.batch_size == max(16, min(512, rows // (12 if quick else 50)))


def test_a_small_fit_uses_its_validation_file() -> None:
    resolved = resolve(Settings(), DataSize(rows=5000, labels=300, pairs=5000, own_validation=400))
    assert (resolved.split.validation_rows, resolved.split.calibration_rows) == (200, 200)
    assert (resolved.stage1.epochs, resolved.stage2.epochs, resolved.score_model.negatives) == (3, 4, 32)


def test_draws_beside_a_validation_file_are_refused() -> None:
    size = DataSize(rows=1500, labels=300, pairs=1500, own_validation=400)
    with pytest.raises(SettingsError, match=r"score_model\.folds=3: the rows of the validation file"):
        resolve(Settings().updated({"score_model.folds": 3}), size)


@pytest.mark.parametrize("rows", [1, 10, 1000, 50_000, 2_000_000])
@pytest.mark.parametrize("labels", [0, 1, 3, 100, 5000, 1_000_000])
def test_resolve_fills_everything_in(rows: int, labels: int) -> None:
    resolved = resolve(Settings(), DataSize(rows=rows, labels=labels, pairs=rows))
    for section in dataclasses.fields(resolved):
        if section.name != "run":
            assert None not in vars(getattr(resolved, section.name)).values(), section.name
    assert resolved.encoder.kind == "bag"
    assert known(resolved.split.validation_rows) <= rows / 2
    assert resolve(resolved, DataSize(rows=rows, labels=labels, pairs=rows)) == resolved


def test_resolve_keeps_what_was_given() -> None:
    given = Settings().updated(
        {"clustering.clusters": 7, "index.kappa": 3, "stage2.epochs": 0, "split.validation_rows": 0}
    )
    resolved = resolve(given, DataSize(rows=10_000, labels=1000, pairs=30_000, has_texts=False))
    assert (resolved.clustering.clusters, resolved.index.kappa, resolved.stage2.epochs) == (7, 3, 0)
    assert resolved.split.validation_rows == 0
    assert resolved.encoder.kind == "vectors"


def test_every_setting_has_a_description() -> None:
    for section in dataclasses.fields(Settings):
        for item in dataclasses.fields(getattr(Settings(), section.name)):
            assert item.metadata["what"], item.name


def test_a_decay_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(
        SettingsError,
        match=r"stage1\.learning_rate_classifiers=100 with stage1\.weight_decay=0\.01: a step would take 100 %",
    ):
        Settings().updated({"stage1.learning_rate_classifiers": 100})
    Settings().updated({"stage1.learning_rate_classifiers": 100, "stage1.weight_decay": 1e-5})


def test_the_chosen_settings_are_described() -> None:
    size = DataSize(rows=20_000, labels=1000, pairs=60_000, label_texts=900)
    shown = describe(resolve(Settings().updated({"run.threads": 2}), size), size, "mine")
    assert shown.startswith(
        "mine: 20,000 training rows, 1,000 labels with training rows, 60,000 pairs, 900 label texts"
    )
    assert "encoder bag, d=256; C=8 clusters, kappa=1250 edges each; alpha=10, beta=125" in shown
    assert "validation: 0 rows held out; score model: 2 x 5000 rows" in shown
    dense = DataSize(rows=20_000, labels=1000, pairs=60_000, has_texts=False, dense_dim=64, own_validation=700)
    shown = describe(resolve(Settings(), dense), dense, "mine")
    assert "encoder vectors, d=64" in shown
    assert "validation: its own file; seed 0" in shown
