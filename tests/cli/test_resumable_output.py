"""`elias predict FILE -o OUT`: streamed, killed, gone on with, and the same to the last byte."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elias.cli import main, predict, resumable_output
from elias.dataset.fields import TYPED_ROWS
from elias.model.model import Model
from helpers.processes import PATIENCE, environment, start, wait_until

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str]:
        code = main([str(item) for item in arguments])
        return code, capsys.readouterr().err

    return call


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safe points every 20 rows."""
    monkeypatch.setattr(predict, "CHUNK_ROWS", 10)
    monkeypatch.setattr(resumable_output, "CHECKPOINT_CHUNKS", 2)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({"id": n, "text": f"bada kuku {n}"}) + "\n" for n in range(95)), encoding="utf-8"
    )
    return path


class Stopped(BaseException):
    """Like a kill, but in this process."""


def stop_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    answer, count = predict.Predictor.answer, 0

    def limited(self: predict.Predictor, chunk: Any) -> str:
        nonlocal count
        count += 1
        if count > calls:
            raise Stopped
        return answer(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(predict.Predictor, "answer", limited)
        yield


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.csv", "out.tsv.gz", "out.parquet"])
@pytest.mark.parametrize("calls", [1, 3, 5, 9])
def test_goes_on_where_it_stopped(
    run: Run,
    tiny_model_folder: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    calls: int,
) -> None:
    whole, cut = tmp_path / f"whole-{name}", tmp_path / name
    assert run("predict", tiny_model_folder, rows, "-o", whole, "-k", "3")[0] == 0
    for _ in stop_after(calls, monkeypatch):
        with pytest.raises(Stopped):
            main(["predict", str(tiny_model_folder), str(rows), "-o", str(cut), "-k", "3"])
    assert not cut.exists()
    progress = tmp_path / f"{name}.progress.json"
    safe = json.loads(progress.read_text())["rows"] if progress.exists() else 0
    assert safe == (calls - 1) // 2 * 20 or safe == calls // 2 * 20  # two chunks are under way
    code, err = run("predict", tiny_model_folder, rows, "-o", cut, "-k", "3")
    assert code == 0
    assert (f"continuing after {safe} rows" in err) == (safe > 0)
    assert cut.read_bytes() == whole.read_bytes()
    if ".jsonl" in name:
        assert len(read(cut).splitlines()) == 95
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([rows.name, name, whole.name])


@pytest.mark.usefixtures("small_steps")
def test_only_the_same_command_goes_on(
    run: Run, tiny_model_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    for _ in stop_after(5, monkeypatch):
        with pytest.raises(Stopped):
            main(["predict", str(tiny_model_folder), str(rows), "-o", str(out)])
    before = (tmp_path / "out.jsonl.part").read_bytes()
    code, err = run("predict", tiny_model_folder, rows, "-o", out, "-k", "3", "--explain")
    assert code == 6
    assert "begun with another explain and k" in err
    assert "--restart" in err
    lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
    rows.write_text("".join(['{"text": "another"}\n', *lines[1:]]), encoding="utf-8")
    code, err = run("predict", tiny_model_folder, rows, "-o", out)
    assert code == 2
    assert "no longer those" in err
    assert (tmp_path / "out.jsonl.part").read_bytes()[:100] == before[:100], "nothing was thrown away"
    rows.write_text("".join([*lines[:60], '{"text": "changed later"}\n']), encoding="utf-8")
    assert run("predict", tiny_model_folder, rows, "-o", out)[0] == 0, "what comes after may change"
    assert len(out.read_bytes().splitlines()) == 61
    code, err = run("predict", tiny_model_folder, rows, "-o", out, "--restart")
    assert code == 0
    assert len(out.read_bytes().splitlines()) == 61


@pytest.mark.usefixtures("small_steps")
def test_a_broken_row_is_named_and_what_was_done_is_kept(run: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """After the rows that are looked at before anything is computed."""
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"id": n, "text": f"bada kuku {n}"}) + "\n" for n in range(TYPED_ROWS + 95)]
    broken = TYPED_ROWS + 70
    rows.write_text("".join([*lines[:broken], "{broken\n", *lines[broken:]]), encoding="utf-8")
    code, err = run("predict", tiny_model_folder, rows, "-o", out)
    assert code == 3
    assert f"{rows}:{broken + 1}" in err
    assert not out.exists()
    rows.write_text("".join(lines), encoding="utf-8")
    code, err = run("predict", tiny_model_folder, rows, "-o", out)
    assert code == 0
    assert f"continuing after {broken - 10} rows" in err
    assert [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()] == list(range(len(lines)))


@pytest.mark.usefixtures("small_steps")
def test_a_full_disk_and_then_more_room(run: Run, tiny_model_folder: Path, rows: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run("predict", tiny_model_folder, rows, "-o", whole)[0] == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole.stat().st_size // 2, before[1]))
    try:
        code, err = run("predict", tiny_model_folder, rows, "-o", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 6
    assert "the disk is full; free some space and start the same command again" in err
    code, err = run("predict", tiny_model_folder, rows, "-o", out)
    assert code == 0
    assert "continuing after" in err
    assert out.read_bytes() == whole.read_bytes()


def test_nothing_in_nothing_out(
    run: Run, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, expected in (
        ("out.jsonl", b""), ("out.jsonl.gz", b""), ("out.csv", b"row,rank,label,label_text,score\n"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert run("predict", tiny_model_folder, "-", "-o", tmp_path / name)[0] == 0
        assert read(tmp_path / name) == expected


def test_one_writer_at_a_time(run: Run, tiny_model_folder: Path, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with resumable_output.ResumableOutput(out, {}) as first:
        code, err = run("predict", tiny_model_folder, rows, "-o", out)
        assert code == 6
        assert "another process" in err
        first.write(["{}\n"])
    assert out.read_text(encoding="utf-8") == "{}\n"


def test_killed_for_good(run: Run, tiny_model: Model, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A real process and kill -9."""
    source, out, whole = tmp_path / "rows.txt.gz", tmp_path / "out.jsonl.gz", tmp_path / "whole.jsonl.gz"
    texts = [f"bada {n} kuku {n % 97}" for n in range(24_000)]
    with gzip.open(source, "wt", encoding="utf-8", compresslevel=1) as file:
        file.writelines(f"{text}\n" for text in texts)
    process = start("predict", tiny_model_folder, source, "-o", out, "-k", "2")
    wait_until((tmp_path / "out.jsonl.gz.progress.json").exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    code, err = run("predict", tiny_model_folder, source, "-o", out, "-k", "2")
    assert code == 0
    assert "continuing after 16,384 rows" in err
    assert "24,000 rows" in err
    assert run("predict", tiny_model_folder, source, "-o", whole, "-k", "2", "--quiet") == (0, "")
    assert out.read_bytes() == whole.read_bytes()
    lines = gzip.decompress(out.read_bytes()).decode().splitlines()
    assert len(lines) == 24_000
    expected = tiny_model.predict(texts[-3:], 2).named()
    assert [[item["label"] for item in json.loads(line)["labels"]] for line in lines[-3:]] == [
        [label for label, _ in row] for row in expected
    ]


@pytest.mark.slow
def test_memory_stays_flat(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Ten times the rows, the same memory."""
    peaks = []
    for count in (5_000, 50_000):
        source = tmp_path / f"{count}.txt"
        source.write_text(
            "".join(f"bada {n} kuku lorem ipsum dolor sit amet\n" for n in range(count)), encoding="utf-8"
        )
        code = (
            "import sys; from elias.cli import main; main(sys.argv[1:]);"
            "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:')))"
        )
        command = [
            sys.executable,
            "-c",
            code,
            "predict",
            tiny_model_folder,
            source,
            "-o",
            tmp_path / f"{count}.jsonl",
            "--quiet",
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(), check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 60, f"MiB at 5,000 and 50,000 rows: {peaks}"
