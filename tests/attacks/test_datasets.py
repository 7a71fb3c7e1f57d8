"""A few hundred damaged datasets in every layout: `elias check` names what is wrong, in a line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import elias
from attacks.bases import make_datasets
from attacks.run import cases, is_failure, run_cases
from elias.core.errors import DataError


def failures(count: int, seed: int, folder: Path) -> list[str]:
    targets = make_datasets(folder / "datasets")
    found = run_cases(list(cases("datasets", targets, count, seed)), folder)
    assert len(found) == count
    return [f"{one['target']} {one['seed']}: {one['did']}: {one['said'][-300:]}" for one in found if is_failure(one)]


def test_damaged_datasets_are_refused_or_read(tmp_path: Path) -> None:
    assert failures(100, 0, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_damaged_datasets(tmp_path: Path) -> None:
    assert failures(int(os.environ.get("ATTACKS", "3000")), 1, tmp_path) == []


def test_a_broken_list_in_a_cell_is_an_error_and_no_label(tmp_path: Path) -> None:
    """Also where the other cells are plain labels that nothing separates."""
    path = tmp_path / "train.csv"
    rows = [f"text number {n},label {n % 3}" for n in range(12)]
    path.write_text("\n".join(["text,labels", *rows, 'one more,"[""a"", ""b]"\n']))
    with pytest.raises(DataError, match=r"train\.csv:14: .*is not a list of labels"):
        elias.load_dataset(path)
    assert '["a", "b]' in elias.load_dataset(path, separator="none").labels.ids


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("name = " + "[" * 5000, "not TOML"),
        ("propensity_a = " + "9" * 400, "not a number above 0"),
        ("propensity_a = 1e999", "not a number above 0"),
    ],
)
def test_odd_settings_are_one_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["b"]}\n')
    (tmp_path / "dataset.toml").write_text(line)
    with pytest.raises(DataError, match=says) as error:
        elias.load_dataset(tmp_path)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"text": "a", "labels": ["b"], "weight": 1e30}', r"weight.*1e\+30 is not a number from 1e-06 to 1e\+06"),
        ('{"text": "a", "labels": ["b"], "weight": ' + "9" * 400 + "}", "weight.*is not a number from 1e-06"),
        ('{"text": "a", "labels": [["b", 1e30]]}', r"weight 1e\+30 is not a number of 0 or more; at most 1e\+06"),
        ('{"text": "a", "labels": [["b", ' + "9" * 400 + "]]}", "weight 9.*is not a number of 0 or more"),
    ],
)
def test_weights_are_bounded(row: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(row + "\n")
    with pytest.raises(DataError, match=says):
        elias.load_dataset(tmp_path)
