"""Recipes: every packaged one has exactly the numbers of the paper or of the authors' program; bad ones are refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from elias.cli import main
from elias.core.defaults import DataSize, resolve
from elias.core.errors import InputError, SettingsError
from elias.core.recipes import FOLDER, open_recipe, read_recipe, recipe_names
from elias.core.settings import Settings
from elias.pipeline.fit import _settings_of

# rows, labels, labels per row, of the four datasets
SIZES = {
    "lf-amazontitles-131k": DataSize(rows=294_805, labels=131_073, pairs=int(294_805 * 2.29)),
    "amazon-670k": DataSize(rows=490_449, labels=670_091, pairs=int(490_449 * 3.99)),
    "wikipedia-500k": DataSize(rows=1_779_881, labels=501_070, pairs=int(1_779_881 * 4.75)),
    "amazon-3m": DataSize(rows=1_717_899, labels=2_812_281, pairs=int(1_717_899 * 22.02)),
}
# Table 4: max len, C, alpha, beta, kappa, lambda, K, b, epochs of both stages, lr W, lr phi, batch; size of the bow
TABLE_4 = {
    "lf-amazontitles-131k": (32, 2048, 10, 150, 1000, 0.05, 2000, 20, 60, 0.02, 1e-4, 512, 40_000),
    "amazon-670k": (128, 8192, 10, 150, 1000, 0.05, 2000, 20, 60, 0.01, 1e-4, 256, 135_909),
    "wikipedia-500k": (128, 8192, 10, 150, 1000, 0.05, 2000, 20, 45, 0.005, 5e-5, 256, 2_381_304),
    "amazon-3m": (128, 32768, 20, 150, 1000, 0.05, 2000, 20, 45, 0.002, 2e-5, 64, 337_067),
}
# The program, stage by stage: epochs, batch, W_C, W_L and A, encoder, lambda, accumulation, averaging from, every
PROGRAM = {
    "lf-amazontitles-131k": (
        "distilbert-base-uncased", "float32",
        (20, 1024, 5e-3, 5e-3, 2e-4, 0.01, 1, 1.0, 0), (50, 420, 1e-4, 5e-3, 3e-5, 0.05, 10, 8 / 50, 500),
    ),
    "amazon-670k": (
        "bert-base-uncased", "auto",
        (15, 256, 1e-2, 1e-2, 1e-4, 0.0, 10, 1.0, 0), (30, 256, 3e-4, 5e-3, 3e-5, 0.05, 10, 6 / 30, 2000),
    ),
}  # fmt: skip
FROM_THE_DATA = {
    "features.min_df",
    "encoder.dim",
}  # the only settings of the network and the published ranker that stay auto


def resolved(name: str) -> Settings:
    return resolve(Settings().updated(read_recipe(name)), SIZES[name.removesuffix("-program")])


def common(s: Settings) -> None:
    """What the paper and the program share."""
    assert s.network.kind == "elias"
    assert s.features.label_texts is False
    assert (s.split.validation_rows, s.split.near_duplicates) == (4000, False)
    assert (s.clustering.iterations, s.clustering.again_after) == (20, 5)
    assert (s.encoder.kind, s.encoder.pooling, s.encoder.head) == ("transformer", "cls", "none")
    assert (s.encoder.frozen, s.encoder.dropout) == (False, 0.5)
    assert (s.index.cluster_weights, s.index.logits, s.index.parent_slots) == ("random", "random", 5)
    for stage in (s.stage1, s.stage2):
        assert (stage.classifiers, stage.optimizer) == ("random", "adamw")
        assert (stage.warmup, stage.weight_decay, stage.evaluate_every) == (0.1, 0.01, 3)
    assert (s.ranking.kind, s.ranking.network_candidates, s.score_model.folds) == ("published", 100, 0)
    ranker = s.linear_ranker
    assert (ranker.cost, ranker.tolerance, ranker.max_iterations, ranker.min_weight) == (1.0, 0.1, 100, 0.1)


def test_the_names_of_the_recipes() -> None:
    assert recipe_names() == sorted([*TABLE_4, *(f"{name}-program" for name in PROGRAM)])


@pytest.mark.parametrize("name", TABLE_4)
def test_the_paper(name: str) -> None:
    max_len, C, alpha, beta, kappa, lambda_, K, b, epochs, lr_w, lr_phi, batch, bow = TABLE_4[name]
    s = resolved(name)
    common(s)
    assert (s.encoder.max_length, s.encoder.model, s.encoder.precision) == (max_len, "bert-base-uncased", "auto")
    assert (s.clustering.clusters, s.features.max_words) == (C, bow)
    assert (s.index.alpha, s.index.beta, s.index.kappa, s.index.beam_size) == (alpha, beta, kappa, b)
    assert (s.index.shortlist_size, s.index.training_shortlist_size) == (K, K)
    assert s.index.random_clusters is False
    assert (s.stage1.epochs, s.stage2.epochs) == (epochs // 3, epochs - epochs // 3)
    for stage in (s.stage1, s.stage2):
        rates = (stage.learning_rate_clusters, stage.learning_rate_classifiers, stage.learning_rate_edges)
        assert (*rates, stage.learning_rate_transformer) == (lr_w, lr_w, lr_w, lr_phi)
        assert (stage.batch_size, stage.shortlist_loss_weight) == (batch, lambda_)
        assert (stage.accumulate, stage.accumulated, stage.average_from) == (10, "classifiers", 1)
    assert s.split.calibration_rows == 5000
    assert (s.published.unretrieved_positives, s.published.calibration, s.published.tree_weight) == (False, True, 0.5)
    assert s.linear_ranker.loss == "logistic"


@pytest.mark.parametrize("name", PROGRAM)
def test_the_program(name: str) -> None:
    model, precision, *stages = PROGRAM[name]
    s = resolved(f"{name}-program")
    common(s)
    max_len, C, alpha, beta, kappa, _, K, b = TABLE_4[name][:8]
    assert (s.encoder.max_length, s.encoder.model, s.encoder.precision) == (max_len, model, precision)
    assert (s.clustering.clusters, s.features.max_words) == (C, TABLE_4[name][-1])
    assert (s.index.alpha, s.index.beta, s.index.kappa, s.index.beam_size) == (alpha, beta, kappa, b)
    assert (s.index.shortlist_size, s.index.training_shortlist_size) == (K, K)
    assert s.index.random_clusters is True
    for stage, wanted in zip((s.stage1, s.stage2), stages, strict=True):
        assert stage.learning_rate_edges == stage.learning_rate_classifiers
        assert stage.accumulated == "all"
        assert (
            stage.epochs, stage.batch_size, stage.learning_rate_clusters, stage.learning_rate_classifiers,
            stage.learning_rate_transformer, stage.shortlist_loss_weight, stage.accumulate, stage.average_from,
            stage.average_every,
        ) == wanted  # fmt: skip
    assert s.split.calibration_rows == 0
    assert (s.published.unretrieved_positives, s.published.calibration, s.published.tree_weight) == (True, False, 0.3)
    assert s.linear_ranker.loss == "squared-hinge"


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_decides_everything(name: str) -> None:
    """Nothing that a stage, the index or the encoder reads follows from the size of the data."""
    before = Settings().updated(read_recipe(name))
    after = resolve(before, SIZES[name.removesuffix("-program")])
    sections = ("network", "split", "features", "clustering", "encoder", "index", "stage1", "stage2", "published")
    changed = {
        f"{section}.{key}"
        for section in sections
        for key, value in vars(getattr(after, section)).items()
        if value != getattr(getattr(before, section), key)
    }
    assert changed <= FROM_THE_DATA
    assert after.run.recipe == name


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_says_how_it_is_used(name: str) -> None:
    recipe = open_recipe(name)
    assert recipe.description
    assert f"elias fit DATA --recipe {name} " in recipe.text
    assert "propensity_a" in recipe.text
    tomllib.loads(recipe.text)


def test_the_baseline_without_an_index_starts_from_a_recipe_too() -> None:
    changes = {
        "network.kind": "one-versus-all", "clustering.clusters": "auto", "clustering.again_after": 0,
        "index.shortlist_size": "auto", "stage1.epochs": 50, "stage1.accumulate": 1, "stage2.epochs": 0,
        "ranking.kind": "none",
    }  # fmt: skip
    s = resolve(Settings().updated({**read_recipe("amazon-670k"), **changes}), SIZES["amazon-670k"])
    assert (s.stage1.epochs, s.stage1.batch_size, s.clustering.clusters) == (50, 256, 1)
    assert (s.stage1.learning_rate_classifiers, s.stage1.learning_rate_transformer) == (1e-2, 1e-4)
    assert s.index.shortlist_size == SIZES["amazon-670k"].labels


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_of_your_own(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", 'description = "quick"\n[stage1]\nepochs = 3\n[index]\nalpha = 20\n')
    wanted = {"run.recipe": "mine.toml", "stage1.epochs": 3, "index.alpha": 20}
    assert read_recipe(path) == read_recipe(str(path)) == wanted
    assert _settings_of({"stage1.epochs": 4}, path).stage1.epochs == 4  # as elias.fit(recipe=..., settings=...)
    assert _settings_of(None, "amazon-3m").index.alpha == 20


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[stage1\nepochs = 3", "line 1"),
        ("[stage1]\nepochs = 3\nepochs = 4\n", "line 3"),
        ("[stage1]\nepoch = 3", 'unknown setting "stage1.epoch"; did you mean "stage1.epochs"?'),
        ('[stage1]\nepochs = "many"\n[run]\nseed = -1', "stage1.epochs=many: must be a whole number"),
        ("[stage1]\nepochs = 2.5", "must be a whole number"),
        ("epochs = 3", "epochs=3: is in no section"),
        ("[stage1]\nepochs = [3, 4]", "stage1.epochs: must be one number"),
        ("[stage1.more]\nepochs = 3", "stage1.more: must be one number"),
        ("description = 3", "must be text"),
        ('[encoder]\nhead = "none"', "set encoder.head=residual"),
    ],
)
def test_a_bad_file_is_named_with_the_place(tmp_path: Path, content: str, expected: str) -> None:
    path = write(tmp_path / "bad.toml", content)
    with pytest.raises(SettingsError) as error:
        read_recipe(path)
    assert str(path) in str(error.value)
    assert expected in str(error.value)


def test_what_is_no_recipe_is_refused_with_the_list(tmp_path: Path) -> None:
    for given, expected in (
        ("amazon-670", 'unknown recipe "amazon-670"; did you mean "amazon-670k"? known: amazon-3m, '),
        ("nothing like it", 'unknown recipe "nothing like it"; known: amazon-3m, '),
        (tmp_path / "no.toml", "there is no such file"),
        ("folder/amazon-670k", "there is no such file"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(InputError) as error:
            read_recipe(given)
        assert expected in str(error.value)
        assert "amazon-670k" in str(error.value)
    (tmp_path / "bytes.toml").write_bytes(b"[stage1]\n\xff")
    with pytest.raises(SettingsError, match=r"UTF-8 \(byte 9\)"):
        read_recipe(tmp_path / "bytes.toml")
    with pytest.raises(InputError, match="pass what differs from the recipe as a dict"):
        _settings_of(Settings(), "amazon-670k")
    wrong: Any = {"stage1.epochs": 3}
    with pytest.raises(InputError, match="pass the name of a recipe"):
        _settings_of(None, wrong)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recipe", "what", "epochs", "C", "batch", "encoder"]
    assert [line.split()[0] for line in lines[1:]] == recipe_names()
    program = next(line for line in lines if line.startswith("lf-amazontitles-131k-program"))
    assert all(part in program for part in ("20 + 50", "2,048", "1024, 420", "distilbert-base-uncased"))
    assert main(["recipes", "amazon-3m"]) == 0
    assert capsys.readouterr().out == (FOLDER / "amazon-3m.toml").read_text(encoding="utf-8")
    assert main(["recipes", "amazon-3n"]) == InputError.exit_code
    assert "did you mean" in capsys.readouterr().err


def test_set_wins_over_the_recipe() -> None:
    from elias.cli import parse
    from elias.cli.options import changed_settings

    args = parse(["fit", "data", "--set", "stage2.epochs=5", "--recipe", "amazon-670k", "--seed", "7"])
    s = Settings().updated(changed_settings(args))
    assert (s.stage1.epochs, s.stage2.epochs, s.run.seed, s.run.recipe) == (20, 5, 7, "amazon-670k")


def test_an_unknown_recipe_ends_a_fit_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "no-such-data", "--recipe", "amazon"]) == InputError.exit_code
    assert "unknown recipe" in capsys.readouterr().err
