"""A fit that does not fit is refused before it begins, with the setting that would help."""

from __future__ import annotations

from pathlib import Path

import pytest

import elias
from elias.core.defaults import DataSize, resolve
from elias.core.errors import SettingsError
from elias.pipeline import fit as fitting
from elias.pipeline.estimate import Estimate, Workload, estimate
from elias.pipeline.memory import available_bytes, refuse_if_too_large
from helpers.processes import SMALL

LARGE = {"label classifiers": 50 << 30, "word embeddings": 1 << 30, "edges": 2 << 30, "python, torch, numba": 1 << 30}


def test_the_largest_part_and_its_remedy_are_named() -> None:
    with pytest.raises(
        SettingsError,
        match=r"54\.0 GiB of memory.*10\.0 GiB are free.*50\.0 GiB, is for label classifiers.*encoder\.dim",
    ):
        refuse_if_too_large(Estimate(LARGE, 1.0), 10 << 30)
    with pytest.raises(SettingsError, match=r"index\.kappa"):
        refuse_if_too_large(Estimate({**LARGE, "edges": 90 << 30}, 1.0), 10 << 30)


def test_settings_that_help_are_named_with_what_they_leave() -> None:
    size = DataSize(rows=1000, labels=100_000, pairs=3000)
    adamw = {"stage1.optimizer": "adamw", "stage2.optimizer": "adamw"}
    settings = resolve(elias.Settings().updated(adamw), size)
    work = Workload(size, n_labels=1_000_000, n_words=1000, words_per_text=10.0)
    needed = estimate(settings, work)
    value = 1_000_000 * 256
    assert needed.memory_bytes["label classifiers"] == value * (4 + 4 + 4 + 8)
    assert not needed.gpu_bytes
    found = {setting: then.memory_bytes["label classifiers"] for setting, then in needed.smaller.items()}
    assert found == {
        "network.precision=bfloat16": value * (2 + 4 + 2 + 8),
        "stage1.optimizer=rowwise stage2.optimizer=rowwise": value * 12,
        "stage1.average_from=1.0 stage2.average_from=1.0": value * 16,
    }
    with pytest.raises(
        SettingsError, match=r"--set network\.precision=bfloat16 makes it \d\.\d; --set stage1\.optimizer=rowwise"
    ):
        refuse_if_too_large(needed, 1 << 30)
    thrifty = {"network.precision": "bfloat16", "stage1.average_from": 1, "stage2.average_from": 1}
    needed = estimate(settings.updated(thrifty), work)
    assert needed.memory_bytes["label classifiers"] == value * (2 + 4 + 8)
    assert list(needed.smaller) == ["stage1.optimizer=rowwise stage2.optimizer=rowwise"]


def test_what_fits_or_cannot_be_known_goes_on() -> None:
    refuse_if_too_large(Estimate(LARGE, 1.0), 54 << 30)
    refuse_if_too_large(Estimate(LARGE, 1.0), None)
    found = available_bytes()
    assert found is None or found > 0


def test_a_fit_asks_first(tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "available_bytes", lambda: 1 << 20)
    data, settings = elias.load_dataset(tiny_dataset), elias.Settings().updated(SMALL)
    with pytest.raises(SettingsError, match="check_memory=false"):
        elias.fit(data, settings=settings, run_dir=tmp_path / "run")
    assert not list((tmp_path / "run").glob("*/done.json"))
    elias.fit(data, settings=settings.updated({"run.check_memory": False}), run_dir=tmp_path / "run")


def test_the_largest_part_is_named_even_where_no_setting_makes_it_smaller() -> None:
    parts = {"label classifiers": 1 << 30, "published ranker": 30 << 30}
    with pytest.raises(SettingsError, match=r"30\.0 GiB, is for published ranker: lower ranking\.network_candidates"):
        refuse_if_too_large(Estimate(parts, 1.0), 2 << 30)
    with pytest.raises(SettingsError, match=r"30\.0 GiB, is for texts: say --set run\.check_memory=false"):
        refuse_if_too_large(Estimate({"texts": 30 << 30}, 1.0), 2 << 30)


def test_a_validation_file_is_never_used_up_by_calibration_rows() -> None:
    asked = elias.Settings().updated({"split.calibration_rows": 5000})
    found = resolve(asked, DataSize(rows=50_000, labels=900, pairs=90_000, own_validation=4000)).split
    assert (found.calibration_rows, found.validation_rows) == (2000, 2000)
