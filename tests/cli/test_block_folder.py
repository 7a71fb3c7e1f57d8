"""Blocks are whole or not there, whoever writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elias.cli.block_folder import UNDER_WAY, BlockFolder, input_files
from elias.cli.input_rows import READ
from elias.core.errors import InputError


def test_two_machines_can_be_at_the_same_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their processes may have the same number."""
    names, replace = [], os.replace
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(os, "replace", lambda source, target: (names.append(source), replace(source, target)))
    for _ in range(2):
        BlockFolder(str(tmp_path), ".jsonl").write(0, 0, b"a block")
    assert len(set(names)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000-00000.jsonl"]


def test_restart_removes_what_killed_writers_left(tmp_path: Path) -> None:
    folder = BlockFolder(str(tmp_path), ".jsonl")
    folder.begin({}, restart=False)
    left = tmp_path / f".part-00000-00000.jsonl.0123{UNDER_WAY}"
    left.write_text("half a bl")
    folder.begin({}, restart=False)
    assert left.exists(), "another process may be writing it"
    folder.begin({}, restart=True)
    assert not left.exists()


def test_only_file_systems_where_a_part_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    memory = fs._MockFileSystem()
    monkeypatch.setattr("elias.cli.block_folder.opened", lambda location: (memory, "out"))
    with pytest.raises(InputError, match="hdfs://host/out: a part on a file system of type mock could"):
        BlockFolder("hdfs://host/out", ".jsonl").begin({}, restart=False)
    monkeypatch.undo()
    BlockFolder(tmp_path.as_uri(), ".jsonl").begin({}, restart=False)


def test_of_a_folder_the_files_that_predict_reads(tmp_path: Path) -> None:
    for name in ("ROWS.CSV", "a.jsonl.gz", "b.Parquet", "notes.md", "_elias.json", ".c.csv"):
        (tmp_path / name).write_text("")
    files = input_files([str(tmp_path)], READ)
    assert [Path(file).name for file in files] == ["ROWS.CSV", "a.jsonl.gz", "b.Parquet"]
