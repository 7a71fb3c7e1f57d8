"""`elias check`: options for fields, and many defects of one kind in few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from elias.cli import main
from elias.cli.check import summed_up


def test_fields_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.csv"
    file.write_text('about,area,price\nred apple,"a, b",1\nfire engine,"b, c",2\n')
    assert main(["check", str(file)]) == 3
    assert "cannot tell which field holds the text" in capsys.readouterr().err
    options = ["--text", "about", "--labels", "area", "--separator", ","]
    assert main(["check", str(file), *options]) == 0
    assert 'text from about, labels from area split at "," (2.0 per row, e.g. "a", "b")' in capsys.readouterr().out


def test_repeated_defects_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text('{"text": "x", "labels": ["a"]}\n' + '{"text": "x"}\n' * 1183 + "{\n")
    assert main(["check", str(tmp_path)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[2].endswith('train.jsonl:4: field "labels": missing; fields of this row: "text" (and 1,180 more)')
    assert "train.jsonl:1185: not JSON" in lines[3]
    assert summed_up([]) == []
    assert summed_up(['a:1: field "x": 3', 'a:2: field "y": 4']) == ['a:1: field "x": 3', 'a:2: field "y": 4']
