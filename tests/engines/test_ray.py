"""Prediction on Ray: the answers of `elias predict`, in blocks that survive kills."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elias import Model
from elias.core.errors import EliasError, InputError, MissingExtraError, ModelError
from elias.dataset.fields import Fields
from elias.engines import ray as engine
from helpers.processes import environment, here, one_line, start, wait_until

pytest.importorskip("ray.data")
ROWS, BLOCK = 900, 100
PATIENCE = 300
# Ray of its own, on loopback; what Ray itself warns of is not ours to repair.
SCRIPT = """
import json, sys
import ray
import elias.engines.ray
from elias.engines.ray import session
model, rows, out = sys.argv[1:]
with session(None):
    dataset = ray.data.read_json(rows, lines=True)
    elias.engines.ray.predict(dataset, model, k=3, actors=2, batch_size=64).write_parquet(out)
"""


@pytest.fixture(scope="module")
def rows(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of rows with ids that a csv reader could take for numbers."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [
        json.dumps({"id": f"{n:05d}", "text": f"{texts[n % len(texts)]}\n{texts[n * 7 % len(texts)]}"}) + "\n"
        for n in range(ROWS)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plain(stacked_folder: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `elias predict` makes of them, in every format."""
    folder = tmp_path_factory.mktemp("plain")
    for kind in ("jsonl", "csv", "parquet"):
        assert here("predict", stacked_folder, rows, "-o", folder / f"out.{kind}", "-k", "3").returncode == 0
    return folder


def on_ray(model: Any, rows: Any, out: Any, *options: str) -> subprocess.CompletedProcess[str]:
    arguments = ("predict", model, rows, "-o", out, "-k", "3", "--engine", "ray", "--block-rows", str(BLOCK))
    command = [sys.executable, "-m", "elias", *map(str, arguments), *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def joined(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in parts(folder))


def test_writes_what_predict_writes_and_only_what_is_missing(
    stacked_folder: Path, rows: Path, plain: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = on_ray(stacked_folder, rows, out, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "core_worker.cc" not in line)  # Ray's C++ cannot be quiet
    assert f"{ROWS} rows in {ROWS // BLOCK} blocks" in line
    assert joined(out) == (plain / "out.jsonl").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["_elias.json", *(path.name for path in parts(out))]
    lost = [parts(out)[2], parts(out)[7]]
    for path in lost:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in parts(out)}
    again = on_ray(stacked_folder, rows, out, "--format", "jsonl")
    assert again.returncode == 0, again.stderr
    assert "continuing after 7 blocks" in again.stderr
    assert f"{2 * BLOCK} rows in 2 blocks" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before, "what was there was not written again"
    assert joined(out) == (plain / "out.jsonl").read_bytes()
    other = here("predict", stacked_folder, rows, "-o", out, "-k", "4", "--engine", "ray", "--format", "jsonl")
    assert other.returncode == 6
    assert one_line(other.stderr)
    assert "begun with another block_rows and k" in other.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables(stacked_folder: Path, rows: Path, plain: Path, tmp_path: Path, kind: str) -> None:
    """The same rows as in one file; through file:// URLs, as any other place that pyarrow opens."""
    import pyarrow.parquet as pq

    source, out = rows.as_uri(), tmp_path / f"out.{kind}"
    done = on_ray(stacked_folder, source, out.as_uri())
    assert done.returncode == 0, done.stderr
    if kind == "parquet":
        assert pq.read_table(out).equals(pq.read_table(plain / "out.parquet"))
        return
    tables = [list(csv.reader(path.read_text(encoding="utf-8").splitlines())) for path in parts(out)]
    whole = list(csv.reader((plain / "out.csv").read_text(encoding="utf-8").splitlines()))
    assert all(table[0] == whole[0] for table in tables)
    assert [row for table in tables for row in table[1:]] == whole[1:]


@pytest.mark.slow
def test_several_files_of_a_folder(stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    """csv, gzip and parquet beside each other, each read as `elias predict` reads it."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    with open(folder / "a.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["id", "text"])
        table.writeheader()
        table.writerows(records[:250])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[250:600]).encode()))
    pq.write_table(pa.Table.from_pylist(records[600:]), folder / "c.parquet")
    done = on_ray(stacked_folder, folder, out, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    files = sorted(folder.iterdir())
    whole = here("predict", stacked_folder, *files, "-o", tmp_path / "whole.jsonl", "-k", "3")
    assert whole.returncode == 0, whole.stderr
    assert joined(out) == (tmp_path / "whole.jsonl").read_bytes()
    assert [path.name[:10] for path in parts(out)] == ["part-00000"] * 3 + ["part-00001"] * 4 + ["part-00002"] * 3


@pytest.mark.slow
def test_an_actor_killed_midway_costs_no_text(stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    many, out, whole = tmp_path / "many.jsonl", tmp_path / "out", tmp_path / "whole.jsonl"
    many.write_text(rows.read_text(encoding="utf-8") * 20, encoding="utf-8")
    assert here("predict", stacked_folder, many, "-o", whole, "-k", "3").returncode == 0
    options = ("-k", "3", "--engine", "ray", "--block-rows", str(BLOCK), "--actors", "1")
    process = start("predict", stacked_folder, many, "-o", out, *options)
    wait_until(lambda: len(parts(out)) >= 3, process, PATIENCE)
    (actor,) = actors_of(process.pid)
    os.kill(actor, signal.SIGKILL)
    at_kill = len(parts(out))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert at_kill < len(parts(out)) == ROWS * 20 // BLOCK, "the only actor was killed midway"
    assert joined(out) == whole.read_bytes()
    assert not list(out.glob(".*")) or all(path.name.endswith(".under-way") for path in out.glob(".*"))


def actors_of(root: int) -> list[int]:
    """The processes below one that are actors of Ray Data."""
    parents = dict(_processes())
    below = {root}
    for _ in range(10):
        below |= {process for process, parent in parents.items() if parent in below}
    return [process for process in below if b"MapWorker" in Path(f"/proc/{process}/cmdline").read_bytes()]


def _processes() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            yield int(entry.name), int(stat.rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_an_error_of_a_row_is_one_line(stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.jsonl", tmp_path / "out"
    bad.write_text(rows.read_text(encoding="utf-8") + '{"id": 1, "text": ["not a text"\n', encoding="utf-8")
    done = on_ray(stacked_folder, bad, out)
    (line,) = (line for line in done.stderr.splitlines() if "core_worker.cc" not in line)
    assert done.returncode == 3, done.stderr
    assert line.startswith("elias: ")
    assert f"bad.jsonl:{ROWS + 1}" in line


@pytest.mark.slow
def test_of_a_ray_dataset(stacked_model: Model, stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    command = [sys.executable, "-c", SCRIPT, str(stacked_folder), str(rows), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert table.column_names == ["id", "text", "labels"]
    found = stacked_model.predict(table["text"].to_pylist(), k=3).records(stacked_model.labels.texts_to_show)
    wanted = [[{"label": r["label"], "label_text": r["text"], "score": r["score"]} for r in row] for row in found]
    assert table["labels"].to_pylist() == wanted


def in_another_folder(elsewhere: Path) -> Any:
    """`run_blocks` without Ray: in this process, but in a folder that is not the caller's, as on a cluster."""

    def run(sources: Any, read: Any, worker: Any, arguments: Any, pool: Any) -> Iterator[int]:
        with contextlib.chdir(elsewhere):
            work = worker(*arguments)
            done = [work(source, number, content) for source in sources for number, content in read(source)]
        yield from done

    return run


def test_relative_names_where_workers_run_in_another_folder(
    stacked_folder: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model").symlink_to(stacked_folder)
    lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)[:20]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "in" / name).write_text("".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "session", contextlib.nullcontext)
    monkeypatch.setattr(engine, "run_blocks", in_another_folder(tmp_path / "elsewhere"))
    done = here("predict", "model", "in", "-o", "out", "--engine", "ray")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("out: 40 rows in 2 blocks")
    assert here("predict", "model", "in/a.jsonl", "in/b.jsonl", "-o", "whole.jsonl").returncode == 0
    assert joined(tmp_path / "out") == (tmp_path / "whole.jsonl").read_bytes()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_wrong_uses(stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("")
    uses = [
        ((rows, "--engine", "ray"), 2, "-o FOLDER"),
        ((rows, "-o", there, "--engine", "ray"), 2, "is a file"),
        ((rows, "-o", full, "--engine", "ray"), 2, "has other files in it, such as mine.txt"),
        ((tmp_path / "no.jsonl", "-o", tmp_path / "out", "--engine", "ray"), 2, "no such file"),
        ((rows, "-o", tmp_path / "out", "--engine", "ray", "--format", "table"), 2, "--format table"),
        ((rows, "-o", tmp_path / "out", "--engine", "ray", "--actors", "0"), 2, "actors=0"),
        ((rows, "-o", tmp_path / "out", "--engine", "ray", "--block-rows", "0"), 2, "--block-rows 0"),
        ((rows, "-o", tmp_path / "out", "--actors", "2"), 2, "--actors: only with --engine ray"),
    ]
    for arguments, code, words in uses:
        done = here("predict", stacked_folder, *arguments)
        assert (done.returncode, one_line(done.stderr), words in done.stderr) == (code, True, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, stacked_folder: Path, rows: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elias-xmc\[ray\]'"):
        engine.predict(None, "model")
    done = here("predict", stacked_folder, rows, "-o", tmp_path / "out", "--engine", "ray")
    assert (done.returncode, one_line(done.stderr)) == (7, True)
    assert not (tmp_path / "out").exists()


def nodes(*cpus: int) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": float(n)}} for n in cpus] + [{"Alive": False, "Resources": {}}]


def test_an_actor_is_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.nodes", lambda: nodes(3, 5))
    assert engine.Pool(threads=2).options()["compute"].max_size == 3
    assert engine.Pool(3, threads=2).options()["compute"].max_size == 3
    for pool, words in (
        (engine.Pool(4, 2), "actors=4, threads=2: this Ray cluster has room for 3 such actors"),
        (engine.Pool(threads=6), r"room for 0 such actors \(CPUs per node: 3, 5\); ask for fewer"),
    ):
        with pytest.raises(InputError, match=words):
            pool.options()


def test_no_progress_is_one_line() -> None:
    from ray.data.exceptions import ExecutionTimeoutError

    with pytest.raises(EliasError, match=r"^Ray: no progress$"), engine._one_line_errors():
        raise ExecutionTimeoutError("no progress\nand much more")


TRACEBACK = """\x1b[36mray::MapWorker.submit()\x1b[39m (pid=1)
  File "block_folder.py", line 9, in write
    out.write(content)
OSError: no space left

The above exception was the direct cause of the following exception:

\x1b[36mray::MapWorker.submit()\x1b[39m (pid=1)
  File "map_operator.py", line 9, in _map_task
    raise UserCodeException
ray.exceptions.UserCodeException: UDF failed to process a data block.
To change retry attempts, configure something."""


@pytest.mark.parametrize(
    ("message", "reason"),
    [(TRACEBACK, "OSError: no space left"), ("It died.\nAlone.", "It died."), ("", "RayError")],
)
def test_an_error_in_a_worker_is_its_cause(message: str, reason: str) -> None:
    from ray.exceptions import RayError

    with pytest.raises(EliasError) as caught, engine._one_line_errors():
        raise RayError(message)
    assert str(caught.value) == f"Ray: {reason}"


def test_a_worker_without_a_model_says_why() -> None:
    def broken() -> Any:
        raise ModelError("models/mine: no model")

    import pyarrow as pa

    worker = engine._Worker([0], broken, ())
    block = {"number": 0, "block": 0, "content": b"", "kind": None, "error": None}
    (row,) = worker(pa.Table.from_pylist([block, block][:1])).to_pylist()
    assert row == {"rows": 0, "kind": "ModelError", "error": "models/mine: no model"}


def test_an_id_that_was_named_must_exist(stacked_folder: Path) -> None:
    import pyarrow as pa

    table = pa.table({"text": ["some text"], "ident": ["1"]})
    column = engine.LabelColumn(engine.ModelPlace.of(str(stacked_folder)), 1, Fields.of("text", None, "idnt"), {"k": 1})
    with pytest.raises(InputError, match=r'no column "idnt"; .*did you mean "ident".; say id='):
        column(table)
    column = engine.LabelColumn(engine.ModelPlace.of(str(stacked_folder)), 1, Fields.of("text", None, None), {"k": 1})
    assert column(table).num_rows == 1, "that of the training data may be missing"


@pytest.mark.parametrize("address", [None, "127.0.0.1:6379"])
def test_ray_of_another_version_is_one_line(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.0\n")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(EliasError) as caught, engine.session(address):
        pass
    said = str(caught.value)
    assert "Version mismatch: The cluster was started with: Ray: 2.0" in said
    assert "\n" not in said
    assert ("--address" in said) == (address is not None)


def test_a_model_without_a_folder(stacked_model: Model) -> None:
    import dataclasses

    changed = dataclasses.replace(stacked_model, n_train=1)
    with pytest.raises(InputError, match="save it"):
        engine.predict(None, changed)


def test_a_model_at_a_url_is_copied_once(stacked_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = engine.ModelPlace.of(stacked_folder.as_uri()).local_folder()
    assert {path.name for path in first.iterdir()} == {path.name for path in stacked_folder.iterdir()}
    stamp = first.stat().st_mtime_ns
    time.sleep(0.01)
    assert engine.ModelPlace.of(stacked_folder.as_uri()).local_folder() == first
    assert first.stat().st_mtime_ns == stamp


def test_a_model_replaced_at_its_url_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    there = tmp_path / "model"
    there.mkdir()
    (there / "config.json").write_text("old")
    old = engine.ModelPlace.of(there.as_uri())
    late = engine.ModelPlace.of(there.as_uri())
    assert (old.local_folder() / "config.json").read_text() == "old"
    (there / "config.json").write_text("newer")
    new = engine.ModelPlace.of(there.as_uri())
    assert (new.local_folder() / "config.json").read_text() == "newer"
    assert (late.local_folder() / "config.json").read_text() == "old", "a run keeps to the model that it began with"
    shutil.rmtree(old.local_folder())
    with pytest.raises(ModelError, match="was replaced meanwhile"):
        old.local_folder()


@pytest.mark.parametrize(("url", "words"), [("foo://x", "not a place"), ("file:///no/such/model", "no model")])
def test_a_url_without_a_model_is_one_line(url: str, words: str, rows: Path, tmp_path: Path) -> None:
    done = here("predict", url, rows, "-o", tmp_path / "out", "--engine", "ray")
    assert (one_line(done.stderr), words in done.stderr) == (True, True), done.stderr
    assert done.returncode in (2, 5)


@pytest.mark.slow
def test_object_store(stacked_folder: Path, rows: Path, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, input and output at s3://, which moto stands in for: pip install 'moto[server,s3]'."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
        client.create_bucket(Bucket="bucket")
        client.upload_file(str(rows), "bucket", "in/rows.jsonl")
        for file in stacked_folder.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), "bucket", f"model/{file.relative_to(stacked_folder).as_posix()}")
        there = f"?endpoint_override={host}:{port}&scheme=http"
        model, source, out = (f"s3://bucket/{name}{there}" for name in ("model", "in", "out"))
        for computed in (ROWS, 0):
            done = on_ray(model, source, out)
            assert done.returncode == 0, done.stderr
            assert f"{computed} rows in" in done.stderr
        names = sorted(
            entry["Key"] for entry in client.list_objects_v2(Bucket="bucket", Prefix="out/part-")["Contents"]
        )
        content = b"".join(client.get_object(Bucket="bucket", Key=name)["Body"].read() for name in names)
        assert content == (plain / "out.jsonl").read_bytes()
    finally:
        server.stop()
