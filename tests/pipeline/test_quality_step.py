"""Step 85: on which rows a model is measured, that it is the model as it answers, and what is said where it is not."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias.core.files import read_tensors
from elias.core.progress import Progress
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.evaluation.baselines import MOST_FREQUENT, NEAREST
from elias.evaluation.quality import LEAST_ROWS, MEASURES
from elias.model.ensemble import Ensemble
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.pipeline import quality_step
from elias.pipeline.fit import fit_to
from elias.pipeline.ranking_steps import BASELINES, OUT_OF_FOLD
from helpers.processes import SMALL, STACKED

FOLDED = {**{key: value for key, value in STACKED.items() if key != "split.calibration_rows"}, "score_model.folds": 2}


@pytest.fixture(scope="module")
def no_test(data: Dataset) -> Dataset:
    """The small dataset without its test rows."""
    assert data.train.texts is not None
    return without_test(data)


def without_test(data: Dataset, n_rows: int | None = None, **more: Any) -> Dataset:
    ids, matrix = data.labels.ids, data.train.labels
    texts = list(data.train.texts or [])[:n_rows]
    labels = [[ids[n] for n in matrix.indices[matrix.indptr[r] : matrix.indptr[r + 1]]] for r in range(len(texts))]
    return Dataset.from_lists(texts, labels, label_texts=dict(zip(ids, data.labels.texts, strict=True)), **more)


def said(data: Dataset, output: Path, changes: dict[str, Any], **options: Any) -> tuple[Path, str]:
    """(model folder, what the fit printed)."""
    stream = io.StringIO()
    settings = Settings().updated(changes)
    return fit_to(data, output, settings=settings, progress=Progress(stream=stream), **options), stream.getvalue()


def config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("fixture", ["tiny_model_folder", "stacked_folder"])
def test_on_test_rows_it_is_the_model_as_it_answers(
    fixture: str, data: Dataset, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(fixture)
    model = elias.load(folder, threads=2)
    quality, found = config(folder)["quality"], evaluate_model(model, data)
    assert (quality["rows"], quality["n_rows"], quality["note"]) == ("test", 80, "")
    assert quality["metrics"] == pytest.approx({name: found.metrics[name] for name in MEASURES}, abs=1e-3)
    assert quality["calibration_error"] == (
        None if found.calibration_error is None else pytest.approx(found.calibration_error, abs=1e-5)
    )
    assert list(quality["baselines"]) == [NEAREST, MOST_FREQUENT]
    frequent = quality["baselines"][MOST_FREQUENT]
    assert frequent["P@1"] < 10 < quality["metrics"]["P@1"]
    assert not (folder / OUT_OF_FOLD).exists()
    assert not (folder.with_name("model.run") / "65-held-out" / BASELINES).exists(), "test rows are what is measured on"
    assert model.about["quality"] == quality


@pytest.mark.parametrize("changes", [STACKED, FOLDED], ids=["one split", "folds"])
def test_without_test_rows_on_rows_that_no_part_has_seen(
    changes: dict[str, Any], no_test: Dataset, data: Dataset, tmp_path: Path
) -> None:
    folder, printed = said(no_test, tmp_path / "model", changes)
    quality, run = config(folder)["quality"], tmp_path / "model.run"
    arrays, _ = read_tensors(run / "70-score-model" / OUT_OF_FOLD)
    assert (quality["rows"], quality["n_rows"]) == ("held-out", len(np.unique(arrays["rows"])))
    table = printed[printed.index("on ") :] if "\non " not in printed else printed[printed.index("\non ") + 1 :]
    assert table.startswith(f"on {quality['n_rows']} held-out rows ")
    assert "nearest texts (tf-idf)" in table
    assert "calibration error" in table
    # The rows of the real test file are exchangeable with these: the figures agree within their spread.
    real = evaluate_model(elias.load(folder, threads=2), data).metrics
    assert abs(quality["metrics"]["P@1"] - real["P@1"]) < 20
    assert abs(quality["metrics"]["R@100"] - real["R@100"]) < 10
    assert 0 < quality["calibration_error"] < 0.2
    assert quality["note"].startswith("a low estimate: what answered was trained on ")
    assert "; near-duplicates of half of the rows" in quality["note"]
    # By hand: the labels of all held-out rows are in the denominators, candidates or not.
    first = np.unique(arrays["rows"], return_index=True)[1]
    truth = no_test.train.labels[arrays["rows"][first]].toarray() > 0
    hits = [truth[place, label] for place, label in enumerate(arrays["labels"][first, 0])]
    assert quality["metrics"]["P@1"] == pytest.approx(100 * np.mean(hits), abs=1e-3)


def test_what_the_rows_say_cannot_be_known(no_test: Dataset, tmp_path: Path) -> None:
    """Labels drawn at random: had any part seen the rows, the score model would learn to read them off it."""
    rng = random.Random(0)
    texts = list(no_test.train.texts or [])
    labels = [[f"label {rng.randrange(20)}"] for _ in texts]
    noise = Dataset.from_lists(texts, labels)
    for number, changes in enumerate((STACKED, FOLDED)):
        folder, _ = said(noise, tmp_path / f"model-{number}", changes)
        quality = config(folder)["quality"]
        assert quality["metrics"]["P@1"] < 18, "20 labels, so about 5"
        assert quality["baselines"][NEAREST]["P@1"] < 18


def test_the_network_alone_is_measured_on_validation_rows(no_test: Dataset, tmp_path: Path) -> None:
    changes = {**SMALL, "split.validation_rows": 80}
    folder, printed = said(no_test, tmp_path / "model", changes)
    quality = config(folder)["quality"]
    assert (quality["rows"], quality["note"]) == ("held-out", quality_step.CHECKPOINT_NOTE)
    assert quality["n_rows"] == pytest.approx(80, abs=3)
    assert quality["calibration_error"] is None
    assert quality["metrics"]["P@1"] == pytest.approx(config(folder)["validation"]["P@1"], abs=0.01)
    assert quality_step.CHECKPOINT_NOTE in printed


def test_so_is_a_model_with_a_small_validation_file(data: Dataset, texts: list[str], tmp_path: Path) -> None:
    assert data.test is not None
    ids, matrix = data.labels.ids, data.test.labels
    labels = [[ids[n] for n in matrix.indices[matrix.indptr[r] : matrix.indptr[r + 1]]] for r in range(80)]
    own = without_test(data, validation_texts=texts, validation_labels=labels)
    changes = {key: value for key, value in STACKED.items() if key != "split.calibration_rows"}
    folder, _ = said(own, tmp_path / "model", changes)
    quality = config(folder)["quality"]
    assert (quality["rows"], quality["n_rows"]) == ("held-out", 80)
    found = evaluate_model(elias.load(folder, threads=2), own, "validation")
    assert quality["metrics"]["P@1"] == pytest.approx(found.metrics["P@1"], abs=1e-3)


@pytest.mark.parametrize("kind", ["none", "stacked"])
def test_too_few_rows_are_not_measured(kind: str, data: Dataset, tmp_path: Path) -> None:
    changes = {key: value for key, value in SMALL.items() if key != "ranking.kind"}
    folder, printed = said(without_test(data, 100), tmp_path / "model", {**changes, "ranking.kind": kind})
    assert config(folder)["quality"] is None
    assert printed.splitlines()[-1].startswith("not measured: ")
    assert "held-out rows are too few; give a test file" in printed
    assert elias.load(folder).about["quality"] is None


def test_few_test_rows_are_measured_with_a_warning(data: Dataset, texts: list[str], tmp_path: Path) -> None:
    assert data.test is not None
    label = data.labels.ids[data.test.labels.indices[0]]
    few = without_test(data, test_texts=texts[:1], test_labels=[[label]])
    folder, printed = said(few, tmp_path / "model", SMALL)
    assert config(folder)["quality"]["n_rows"] == 1 < LEAST_ROWS
    assert "1 rows are few: these figures can be off by 50 points or more." in printed


def test_test_rows_without_labels_are_none(data: Dataset, texts: list[str], tmp_path: Path) -> None:
    unlabeled = without_test(data, test_texts=texts, test_labels=[[]] * 80)
    folder, _ = said(unlabeled, tmp_path / "model", STACKED)
    assert config(folder)["quality"]["rows"] == "held-out"


def test_of_very_many_test_rows_a_sample(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_step, "MOST_ROWS", 60)
    folder, printed = said(data, tmp_path / "model", SMALL)
    quality = config(folder)["quality"]
    assert (quality["n_rows"], quality["note"]) == (60, "drawn at random from 80 test rows")
    assert quality["note"] in printed


def test_vectors_have_baselines_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    import scipy.sparse as sp

    labels = sp.csr_matrix((rng.random((60, 12)) < 0.2).astype(np.float32))
    for number, vectors in enumerate((rng.normal(size=(60, 9)), sp.random(60, 30, density=0.2, format="csr"))):
        given = Dataset.from_arrays(vectors, labels, test_vectors=vectors[:50], test_labels=labels[:50])
        folder, _ = said(given, tmp_path / f"model-{number}", SMALL)
        quality = config(folder)["quality"]
        assert quality["rows"] == "test"
        assert quality["baselines"][NEAREST]["P@1"] > quality["baselines"][MOST_FREQUENT]["P@1"], "rows it has seen"


# -- ensembles, resuming ----------------------------------------------------------------------------------------------


def test_an_ensemble_on_test_rows(ensemble: Ensemble, ensemble_folder: Path, data: Dataset, tmp_path: Path) -> None:
    quality = json.loads((ensemble_folder / "ensemble.json").read_text())["quality"]
    found = evaluate_model(ensemble, data)
    assert quality["metrics"] == pytest.approx({name: found.metrics[name] for name in MEASURES}, abs=1e-3)
    assert quality["calibration_error"] == pytest.approx(found.calibration_error, abs=1e-5)
    members = [config(ensemble_folder / name)["quality"] for name in ("member-0", "member-1")]
    assert all(member["baselines"] == quality["baselines"] for member in members)
    assert ensemble.about["quality"] == quality
    ensemble.save(tmp_path / "copy")
    assert elias.load(tmp_path / "copy").about["quality"] == quality


def test_an_ensemble_without_test_rows_says_whose_figure_it_is(no_test: Dataset, tmp_path: Path) -> None:
    folder, printed = said(no_test, tmp_path / "both", STACKED, members=2)
    quality = json.loads((folder / "ensemble.json").read_text())["quality"]
    assert quality == {**config(folder / "member-0")["quality"], "note": quality_step.MEMBER_NOTE}
    assert quality_step.MEMBER_NOTE in printed
    in_memory = elias.fit(
        no_test, settings=Settings().updated(STACKED), run_dir=tmp_path / "both.run", members=2, force=True
    )
    assert in_memory.about["quality"] == quality


def test_it_is_a_step_that_is_not_done_again(
    data: Dataset, stacked_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while measuring, the run goes on there; finished, the figures are printed from its file."""
    from elias.core.files import link_tree

    link_tree(stacked_folder.with_name("model.run"), tmp_path / "model.run")
    measured: list[int] = []
    of_model: Callable[..., Any] = quality_step._of_model

    def killed(*arguments: Any) -> Any:
        measured.append(1)
        if len(measured) == 1:
            raise KeyboardInterrupt
        return of_model(*arguments)

    monkeypatch.setattr(quality_step, "_of_model", killed)
    _, printed = said(data, tmp_path / "model", STACKED)
    assert "on 80 test rows" in printed
    assert not measured
    for step in ("85-quality", "90-model"):
        (tmp_path / "model.run" / step / "done.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        said(data, tmp_path / "model", STACKED, force=True)
    folder, printed = said(data, tmp_path / "model", STACKED, force=True)
    assert len(measured) == 2
    assert "80-ranking" not in printed
    assert config(folder)["quality"] == config(stacked_folder)["quality"]


def test_measuring_leaves_the_model_as_it_is(stacked_model: Model, no_test: Dataset, data: Dataset) -> None:
    """The same training rows with and without test rows: the same weights and answers."""
    other = elias.fit(without_test(data, ids=data.train.ids), settings=Settings().updated(STACKED))
    texts = list(no_test.train.texts or [])[:40]
    ours, theirs = stacked_model.predict(texts), other.predict(texts)
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
