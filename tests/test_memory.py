"""A fit that does not fit is refused before it begins, with the setting that would help."""

from __future__ import annotations

from pathlib import Path

import pytest

import elias
from elias import fitting
from elias.errors import SettingsError
from elias.estimate import Estimate
from elias.memory import available_bytes, refuse_if_too_large
from processes import SMALL

LARGE = {"label classifiers": 50 << 30, "word embeddings": 1 << 30, "edges": 2 << 30, "python, torch, numba": 1 << 30}


def test_the_largest_part_and_its_remedy_are_named() -> None:
    with pytest.raises(
        SettingsError, match=r"54\.0 GiB.*10\.0 GiB are free.*50\.0 GiB, are label classifiers.*encoder\.dim"
    ):
        refuse_if_too_large(Estimate(LARGE, 1.0), 10 << 30)
    with pytest.raises(SettingsError, match=r"index\.kappa"):
        refuse_if_too_large(Estimate({**LARGE, "edges": 90 << 30}, 1.0), 10 << 30)


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
