"""What `elias.fit` takes: data in many forms, settings by name, progress; nothing is trained here but once."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import elias
from elias.core.errors import InputError, SettingsError
from elias.core.progress import Progress
from elias.dataset import Dataset, Rows
from elias.pipeline import fit as fitting
from helpers.processes import NEITHER, SMALL

TEXTS = ["red apple pie", "fast fire engine", "green apple tree", "slow fire truck"]
LABELS = [["fruit", "red"], ["red"], ["fruit"], ["car"]]
FRAME = pd.DataFrame(
    {"sku": range(4), "body": TEXTS, "price": [1.0, 2.0, 3.0, 4.0], "tags": ["fruit;red", "red", "fruit", "car"]}
)
NAMES = ["car", "fruit", "red"]
INDICATORS = np.array([[0, 1, 1], [0, 0, 1], [0, 1, 0], [1, 0, 0]])


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of what trains, which is replaced: (data, settings, run folder, options)."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(fitting, "_fit_and_load", lambda *arguments: calls.append(arguments))
    return calls


def pairs(data: Dataset, rows: Rows | None = None) -> list[tuple[str, list[str]]]:
    rows = rows or data.train
    ends = rows.labels.indptr
    names = [[data.labels.ids[n] for n in rows.labels.indices[a:b]] for a, b in pairwise(ends)]
    return [(text, sorted(labels)) for text, labels in zip(rows.texts or [], names, strict=True)]


def test_the_same_rows_in_many_forms(given: list[tuple[Any, ...]], tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "shop.csv", index=False)
    elias.fit(TEXTS, LABELS)
    elias.fit(np.array(TEXTS), LABELS)
    elias.fit(pd.Series(TEXTS), pd.Series(LABELS))
    elias.fit(FRAME, text="body", labels="tags", id="sku", separator=";")
    elias.fit(FRAME, "tags", text="body", separator=";")
    elias.fit(tmp_path / "shop.csv", "tags", text=["body"], separator=";")
    elias.fit(str(tmp_path / "shop.csv"), labels="tags", text="body")
    elias.fit([{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)])
    elias.fit(Dataset.from_lists(TEXTS, LABELS))
    found = [pairs(arguments[0]) for arguments in given]
    assert found == [list(zip(TEXTS, LABELS, strict=True))] * 9
    assert given[3][0].fields.text == ("body",)
    assert given[3][0].train.ids == ["0", "1", "2", "3"]


def test_indicator_matrices_dense_and_sparse(given: list[tuple[Any, ...]]) -> None:
    for matrix in (INDICATORS, INDICATORS.astype(bool), sp.csr_matrix(INDICATORS), sp.coo_array(INDICATORS)):
        elias.fit(TEXTS, matrix)
        assert pairs(given[-1][0])[0] == ("red apple pie", ["1", "2"])
    elias.fit(TEXTS, pd.DataFrame(INDICATORS, columns=NAMES))
    assert pairs(given[-1][0]) == list(zip(TEXTS, LABELS, strict=True))
    elias.fit(np.eye(4), INDICATORS)
    assert given[-1][0].train.vectors.shape == (4, 4)
    assert given[-1][0].train.labels.nnz == 5


def test_single_labels(given: list[tuple[Any, ...]]) -> None:
    for labels in (["a", "b", "a", "b"], np.array(["a", "b", "a", "b"]), pd.Series(["a", "b", "a", "b"])):
        elias.fit(TEXTS, labels)
        assert [labels for _, labels in pairs(given[-1][0])] == [["a"], ["b"], ["a"], ["b"]]
    elias.fit(TEXTS, [3, 7, 3, 7])
    assert [labels for _, labels in pairs(given[-1][0])] == [["3"], ["7"], ["3"], ["7"]]


def test_other_splits(given: list[tuple[Any, ...]]) -> None:
    elias.fit(TEXTS, LABELS, test=(TEXTS[:2], LABELS[:2]), validation=(TEXTS[2:], LABELS[2:]))
    data = given[-1][0]
    assert pairs(data, data.test) == list(zip(TEXTS[:2], LABELS[:2], strict=True))
    assert pairs(data, data.validation) == list(zip(TEXTS[2:], LABELS[2:], strict=True))
    elias.fit(FRAME, "tags", text="body", separator=";", test=FRAME[:1])
    assert len(given[-1][0].test) == 1


def test_settings_by_name(given: list[tuple[Any, ...]]) -> None:
    for settings in ({"stage2.epochs": 3}, {"stage2.epochs": "3"}, elias.Settings().updated({"stage2.epochs": 3})):
        elias.fit(TEXTS, LABELS, settings=settings)
        assert given[-1][1].stage2.epochs == 3
    elias.fit(TEXTS, LABELS)
    assert given[-1][1] == elias.Settings()
    with pytest.raises(SettingsError, match=r"stage2.epoch.*did you mean"):
        elias.fit(TEXTS, LABELS, settings={"stage2.epoch": 3})
    for wrong in (["stage2.epochs=3"], "stage2.epochs=3", {1: 2}, 5):
        with pytest.raises(SettingsError, match=r'pass a dict of settings by name, such as {"stage2.epochs": 5}'):
            elias.fit(TEXTS, LABELS, settings=wrong)  # type: ignore[arg-type]


def test_settings_are_checked_before_data_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        elias.fit(tmp_path / "nothing.csv", settings={"stage2.epochs": -1})
    with pytest.raises(InputError, match="progress='no'"):
        elias.fit(tmp_path / "nothing.csv", progress="no")  # type: ignore[arg-type]


def test_a_dataset_brings_its_own(given: list[tuple[Any, ...]]) -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    for more in ({"labels": LABELS}, {"labels": "tags"}, {"test": FRAME}, {"text": "body"}, {"id": "sku"}):
        with pytest.raises(InputError, match=rf"{next(iter(more))}: a Dataset has its own; leave them out"):
            elias.fit(data, **more)  # type: ignore[arg-type]
    assert not given


@pytest.mark.parametrize("data", [None, 5, b"x", {"text": "a"}, ["a", "b"], object()])
def test_what_is_no_data_is_one_line(data: Any, given: list[tuple[Any, ...]]) -> None:
    with pytest.raises(elias.EliasError) as error:
        elias.fit(data)
    assert "\n" not in str(error.value)
    assert not given


def test_what_was_understood_is_said_first(given: list[tuple[Any, ...]]) -> None:
    shown = io.StringIO()
    elias.fit(FRAME, "tags", text="body", progress=Progress(stream=shown))
    first = shown.getvalue().splitlines()[0]
    assert "text from body" in first
    assert 'labels from tags split at ";"' in first


def test_a_fit_is_quiet_where_there_is_no_terminal(
    given: list[tuple[Any, ...]], capfd: pytest.CaptureFixture[str]
) -> None:
    elias.fit(TEXTS, LABELS)
    assert capfd.readouterr() == ("", "")
    assert given[-1][3].progress.quiet
    elias.fit(TEXTS, LABELS, progress=True)
    assert capfd.readouterr().err


def test_from_a_table_to_predictions_of_a_table(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"name": [f"{text} {n}" for n in range(8) for text in TEXTS], "label": ["a", "b", "a", "b"] * 8}
    )
    model = elias.fit(rows, settings={**SMALL, **NEITHER, "run.threads": 1}, run_dir=tmp_path / "run", progress=False)
    assert sorted(model.labels.ids) == ["a", "b"]
    assert len(model.predict(rows["name"][:3], k=2)) == 3
    assert model.evaluate(rows["name"], rows["label"]).metrics.rows == 32
