"""`elias serve --workers`: several processes behave like one service."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from elias.server.errors import ServiceError
from elias.server.metrics import Metrics, add_up
from elias.server.models import Registry
from elias.server.run import Options, listen
from elias.server.workers import CallFailed, Link, Supervisor, Worker
from helpers.processes import PATIENCE, elias, one_line
from helpers.serving_process import Load, process, wait_for


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser's tests leave an event loop in this one."""
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, coroutine).result()


def value(text: str, name: str) -> float:
    return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")))


def test_metrics_add_up() -> None:
    workers = [Metrics(), Metrics(), Metrics()]
    for number, metrics in enumerate(workers):
        metrics.gauge("elias_ready", "Readiness.", lambda number=number: number > 0)  # type: ignore[misc]
        metrics.gauge("elias_waiting_texts", "Texts.", lambda number=number: number)  # type: ignore[misc]
        metrics.texts.inc(10 * number)
    workers[1].requests.inc(route="/a", status="200")
    workers[2].requests.inc(2, route="/a", status="200")
    workers[2].requests.inc(route="/b", status="404")
    workers[1].compute.observe(0.02)
    workers[2].compute.observe(0.2)
    text = add_up([metrics.text() for metrics in workers])
    assert value(text, "elias_ready") == 0
    assert value(text, "elias_waiting_texts") == 3
    assert value(text, "elias_texts_total") == 30
    assert value(text, 'elias_requests_total{route="/a",status="200"}') == 3
    assert value(text, 'elias_requests_total{route="/b",status="404"}') == 1
    assert "\nelias_requests_total 0" not in text
    assert value(text, 'elias_batch_seconds_bucket{le="0.025"}') == 1
    assert value(text, 'elias_batch_seconds_bucket{le="+Inf"}') == value(text, "elias_batch_seconds_count") == 2
    assert text.count("# TYPE elias_texts_total counter\n") == 1


def test_a_call_is_answered_whatever_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    """Reloads wait without a time limit: a worker that says nothing would end all of them."""

    async def broken(_: Any) -> None:
        raise MemoryError

    async def call() -> None:
        ours, theirs = socket.socketpair()
        one, other = Link({}), Link({"open_again": broken})
        tasks = [asyncio.create_task(link.run(sock)) for link, sock in ((one, ours), (other, theirs))]
        await asyncio.sleep(0)  # both are connected
        while one._writer is None:
            await asyncio.sleep(0)
        with pytest.raises(CallFailed, match=r"^MemoryError$"):
            await one.call("open_again", seconds=10)
        one._writer.close()
        await asyncio.gather(*tasks)

    run(call())
    assert [record.message for record in caplog.records if record.name == "elias.server"] == ["unexpected error"]


class Answers(Link):
    """A worker that can do some of what it is called for."""

    def __init__(self, **known: Any) -> None:
        super().__init__({})
        self.known = known

    async def call(self, name: str, value: Any = None, *, seconds: float | None = None) -> Any:
        if name not in self.known:
            raise CallFailed("the other process has ended")
        return self.known[name]


def test_a_worker_that_ends_in_the_middle_of_a_reload(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others have replaced their models, and it opens the new ones when it is started again: this is a reload."""
    caplog.set_level("INFO")
    with listen("127.0.0.1", 0) as sock:
        supervisor = Supervisor({"tiny": tmp_path}, lambda folder: cast("Any", None), Options(), [sock])
    supervisor.links = {0: Answers(open_again=["tiny"]), 1: Answers(open_again=["tiny"], replace=None)}
    assert run(supervisor._reload(None)) == ["tiny"]
    assert list(supervisor._metrics.reloads.lines())[-1] == 'elias_reloads_total{outcome="done"} 1'
    said = [record.message for record in caplog.records if record.name == "elias.server"]
    assert said == ["a worker has ended during a reload; started again it opens the new folders", "reloaded"]
    supervisor.links = {}
    with pytest.raises(CallFailed, match="no worker"):
        run(supervisor._reload(None))


def test_metrics_of_a_worker_that_is_started_again(tmp_path: Path) -> None:
    """They are missing for a moment, which is no defect."""
    worker = Worker(Registry({"tiny": tmp_path}, lambda folder: cast("Any", None)))
    worker.link = Answers()
    with pytest.raises(ServiceError) as caught:
        run(worker.metrics())
    assert (caught.value.status, caught.value.code, caught.value.headers) == (503, "busy", {"Retry-After": "5"})


def test_workers_are_one_service(tiny_model_folder: Path, tmp_path: Path) -> None:
    """Metrics add up, a reload reaches all or none, a killed worker is replaced, SIGTERM loses nothing."""
    folder, token = tmp_path / "model", tmp_path / "token"
    shutil.copytree(tiny_model_folder, folder)
    token.write_text("a-token-of-some-length", encoding="utf-8")
    token.chmod(0o600)
    arguments = (folder, "--workers", "2", "--token-file", token, "--feedback", tmp_path / "feedback.jsonl")
    with process(*arguments) as (server, found, lines):
        found.token = token.read_text()
        for _ in range(40):  # each on a connection of its own
            assert found.predict(["bada"])["results"]
            assert found.get("/ready").status == 200
        answered = {line["worker"] for line in lines if line["event"] == "request"}
        assert answered == {0, 1}
        assert value(found.get("/metrics").body.decode(), "elias_texts_total") == 40
        label = found.predict(["bada"])["results"][0]["labels"][0]["label"]
        for number in range(10):
            answer = found.post("/v1/feedback", {"text": f"text {number}", "accepted": [label]})
            assert answer.json == {"stored": True}
        rows = [json.loads(line) for line in (tmp_path / "feedback.jsonl").read_text().splitlines()]
        assert [row["text"] for row in rows] == [f"text {number}" for number in range(10)]

        opened = [line for line in lines if line["event"] == "model opened"]
        assert found.post("/v1/reload", {}).json == {"reloaded": ["model"]}
        wait_for(lambda: sum(line["event"] == "model opened" for line in lines) == len(opened) + 2)
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: sum(line["event"] == "reloaded" for line in lines) == 2)
        kept = (folder / "index.safetensors").read_bytes()
        (folder / "index.safetensors").unlink()
        answer = found.post("/v1/reload", {})
        assert (answer.status, answer.error["code"]) == (503, "reload_failed")
        assert found.predict(["still here"])["results"]
        (folder / "index.safetensors").write_bytes(kept)
        text = found.get("/metrics").body.decode()
        assert value(text, 'elias_reloads_total{outcome="done"}') == 2
        assert value(text, 'elias_reloads_total{outcome="failed"}') == 1

        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        wait_for(lambda: any(line["event"] == "a worker has ended and is started again" for line in lines))
        wait_for(lambda: sum(line["event"] == "model opened" for line in lines) >= len(opened) + 5)
        wait_for(lambda: found.get("/ready").status == 200)

        load = Load(found.port, headers={"Authorization": f"Bearer {found.token}"})
        wait_for(lambda: len(load.answers) > 20)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        load.join()
        assert load.lost == []
        assert set(load.answers) == {(200, 5)}
    assert not any("Traceback" in json.dumps(line) for line in lines)


def test_wrong_models_and_numbers_are_one_line(tiny_model_folder: Path, tmp_path: Path) -> None:
    done = elias("serve", tiny_model_folder, "--workers", "0")
    assert done.returncode == 2
    assert one_line(done.stderr)
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_folder, folder)
    (folder / "index.safetensors").write_bytes(b"broken")
    done = elias("serve", folder, "--port", "0", "--workers", "2")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("elias: ")
    assert "index.safetensors" in done.stderr
    assert "Traceback" not in done.stderr
