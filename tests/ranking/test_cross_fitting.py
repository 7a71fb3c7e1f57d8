"""What the final score is learned from: samples joined, kept and taken apart; few rows drawn several times."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

import elias
from elias.core.files import read_tensors
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.model.model import Model
from elias.pipeline.fit import fit_to
from elias.ranking import cross_fitting as calibration
from elias.ranking.cross_fitting import Sample, with_final_score
from elias.ranking.features import Evidence
from helpers.processes import STACKED, content, sets, start, wait_until
from helpers.processes import elias as run_elias

FEW = {key: value for key, value in STACKED.items() if key != "split.calibration_rows"}
DRAWN = {**FEW, "score_model.folds": 2}


def random_sample(rng: np.random.Generator, n_rows: int, width: int, first_row: int = 0) -> Sample:
    def values() -> np.ndarray:
        return rng.random((n_rows, width), dtype=np.float32)

    labels = rng.permuted(np.tile(np.arange(40, dtype=np.int32), (n_rows, 1)), axis=1)[:, :width]
    labels = np.where(rng.random(labels.shape) < 0.1, -1, labels).astype(np.int32)
    evidence = Evidence(
        labels, labels.copy(), values(), values(), values(), values(), values(), (values(), values(), values()),
        (values(), values()), rng.integers(0, 9, labels.shape),
    )  # fmt: skip
    right = (rng.random(labels.shape) < 0.3) & (labels >= 0)
    return Sample(evidence, right, np.arange(first_row, first_row + n_rows))


def same(left: Sample, right: Sample) -> None:
    np.testing.assert_array_equal(left.right, right.right)
    np.testing.assert_array_equal(left.rows, right.rows)
    np.testing.assert_array_equal(left.evidence.columns(), right.evidence.columns())
    np.testing.assert_array_equal(left.evidence.labels, right.evidence.labels)


def test_a_sample_survives_its_file(tmp_path: Path) -> None:
    sample = random_sample(np.random.default_rng(0), 7, 5)
    sample.save(tmp_path)
    same(Sample.load(tmp_path), sample)


def test_samples_of_different_widths_are_joined() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = random_sample(rng, 3, 4), random_sample(rng, 5, 6, first_row=2)
    both = Sample.joined([narrow, wide])
    assert both.right.shape == (8, 6)
    assert both.rows.tolist() == [0, 1, 2, 2, 3, 4, 5, 6]
    assert (both.evidence.labels[:3, 4:] == -1).all()
    assert not both.right[:3, 4:].any()
    same(both.take(np.arange(3, 8)), wide)
    np.testing.assert_array_equal(both.evidence.words[1][:3, :4], narrow.evidence.words[1])


def test_a_row_that_was_drawn_twice_is_in_one_fold(stacked_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its probabilities would come from scores that were learned on it."""
    assert stacked_model.plus is not None
    rng = np.random.default_rng(2)
    sample = Sample.joined([random_sample(rng, 60, 8), random_sample(rng, 60, 8, first_row=30)])
    learned_on: list[set[int]] = []
    number_of = {key.tobytes(): row for key, row in zip(sample.evidence.margin, sample.rows.tolist(), strict=True)}
    fit = calibration.fit_fusion

    def watched(evidence: Evidence, right: np.ndarray, *more: object) -> object:
        learned_on.append({number_of[line.tobytes()] for line in evidence.margin})
        return fit(evidence, right, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(calibration, "fit_fusion", watched)
    settings = Settings().updated({"score_model.epochs": 2, "score_model.hidden_units": 2}).fusion
    found = with_final_score(stacked_model.plus, sample, settings, 0, lambda line: None)
    assert found.fusion.probability is not None
    every = set(sample.rows.tolist())
    assert sorted(len(every - rows) for rows in learned_on)[0] == 0  # the score itself: of all
    left_out = [every - rows for rows in learned_on if rows != every]
    assert len(left_out) == calibration.FOLDS
    assert sum(map(len, left_out)) == len(every)


@pytest.fixture(scope="module")
def drawn(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = Settings().updated(DRAWN)
    return fit_to(elias.load_dataset(tiny_dataset), tmp_path_factory.mktemp("drawn") / "model", settings=settings)


def test_few_rows_are_held_out_of_other_networks_than_the_model(drawn: Path, data: Dataset) -> None:
    run, model = drawn.with_name("model.run"), elias.load(drawn)
    assert model.gives_probabilities
    parts = read_tensors(run / "10-features" / "split.safetensors")[0]
    assert len(parts["calibration"]) == 0
    assert len(parts["train"]) + len(parts["validation"]) == len(data.train)
    assert not (run / "12-ranker").exists()  # nothing would be learned with it
    assert (run / "14-ranker").exists()
    held_out = []
    for number in range(2):
        folder = run / f"draw-{number}"
        own = read_tensors(folder / "10-features" / "split.safetensors")[0]
        sample = Sample.load(folder / "65-sample")
        assert (folder / "12-ranker").exists()
        np.testing.assert_array_equal(sample.rows, own["calibration"])
        assert not np.isin(own["calibration"], own["train"]).any()
        assert len(own["calibration"]) == pytest.approx(100, abs=10)
        held_out.append(set(own["calibration"].tolist()))
    assert held_out[0] != held_out[1]
    assert model.predict([data.train.texts[0]], k=3).labels.shape == (1, 3)  # type: ignore[index]


def test_members_learn_from_the_same_draws(tiny_dataset: Path, tmp_path: Path) -> None:
    """The networks of the draws are trained once; the members' own differ."""
    output = tmp_path / "model"
    fit_to(elias.load_dataset(tiny_dataset), output, settings=Settings().updated(DRAWN), members=2)
    runs = [tmp_path / "model.run" / f"member-{number}" for number in range(2)]
    for step in ("draw-0/50-stage2", "draw-1/65-sample"):
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


def test_killed_in_a_draw_it_is_the_same_model(drawn: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    process = start("fit", tiny_dataset, "-o", output, *sets(DRAWN))
    wait_until((run / "draw-1" / "20-clusters" / "done.json").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not output.exists()
    finished = (run / "draw-0" / "65-sample" / "done.json").read_bytes()
    done = run_elias("fit", tiny_dataset, "-o", output, *sets(DRAWN))
    assert done.returncode == 0, done.stderr
    assert (run / "draw-0" / "65-sample" / "done.json").read_bytes() == finished
    assert content(output, "*.safetensors") == content(drawn, "*.safetensors")
    assert json.loads((output / "fusion.json").read_text()) == json.loads((drawn / "fusion.json").read_text())
