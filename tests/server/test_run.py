"""`elias serve` as a process: it starts, reloads models, drains, and reports wrong usage in one line."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elias.server.run import greeting, url_of
from helpers.processes import PATIENCE, command, elias, environment, one_line
from helpers.serving import Running
from helpers.serving_process import Load, process, wait_for


def test_reload_and_drain_under_load(tiny_model_folder: Path, tmp_path: Path) -> None:
    """One process for all of it: SIGHUP with a good model, with a broken one, then SIGTERM. Nothing is lost.

    One request is half sent when SIGTERM comes: the rest may come, the answer does.
    """
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_folder, folder)
    with process(f"a={folder}", f"b={folder}") as (server, found, lines):
        assert [item["name"] for item in found.get("/v1/models").json["models"]] == ["a", "b"]
        assert next(line["url"] for line in lines if line["event"] == "ready") == found.url
        load = Load(found.port)
        wait_for(lambda: len(load.answers) > 20)
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: any(line["event"] == "reloaded" for line in lines))
        (folder / "index.safetensors").unlink()
        server.send_signal(signal.SIGHUP)
        wait_for(lambda: any(line["event"].startswith("reload failed") for line in lines))
        assert found.predict(["still here"])["results"]
        before = len(load.answers)
        wait_for(lambda: len(load.answers) > before + 20)
        with half_sent(found) as finished:
            server.send_signal(signal.SIGTERM)
            wait_for(lambda: is_refused(found.port))
            finished()
        assert server.wait(PATIENCE) == 0
        load.join()
    assert load.lost == []
    assert set(load.answers) == {(200, 5)}
    assert [line["event"] for line in lines if line["level"] == "error"] == [
        "reload failed, the old model keeps serving"
    ]
    assert not any("kuku" in json.dumps(line) for line in lines)  # no hex digits, unlike ids of requests


@pytest.mark.parametrize("workers", [1, 2])
def test_the_second_signal_ends_it_at_once(tiny_model_folder: Path, workers: int) -> None:
    """Quietly: no traceback, though a request is still being read."""
    with process(tiny_model_folder, "--workers", str(workers)) as (server, found, lines), half_sent(found):
        server.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(found.port))
        server.send_signal(signal.SIGTERM)  # to be taken for the same one, sent to its group too
        assert server.poll() is None

        def ends() -> bool:
            server.send_signal(signal.SIGTERM)
            return server.poll() is not None

        wait_for(ends)
        assert server.returncode == 128 + signal.SIGTERM
    assert not [line for line in lines if line["level"] == "error"]


@contextmanager
def half_sent(found: Running) -> Iterator[Callable[[], None]]:
    """A request whose body has begun; a call sends the rest and expects the answer, the last on this connection."""
    body = json.dumps({"texts": ["bada"] * 100}).encode()
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    with found.raw() as sock:
        sock.sendall(head % len(body))
        # The service sends this when it begins to read the body: the request is accepted now.
        assert sock.recv(1000).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body[:10])

        def finished() -> None:
            sock.sendall(body[10:])
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            assert answer.status == 200
            assert len(json.loads(answer.read())["results"]) == 100
            assert answer.will_close

        yield finished


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_terminal_is_told_the_address(tiny_model_folder: Path) -> None:
    """In a terminal a plain line follows the log; Ctrl-C ends the service."""
    terminal, stderr = pty.openpty()
    started = command("serve", tiny_model_folder, "--port", "0")
    with (
        subprocess.Popen(started, stderr=stderr, env=environment()) as server,
        open(terminal, encoding="utf-8") as printed,
    ):
        os.close(stderr)
        lines = [printed.readline().strip()]
        while lines[-1].startswith("{"):
            lines.append(printed.readline().strip())
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0
    told = rf"ELIAS is serving {re.escape(str(tiny_model_folder))} at (http://127.0.0.1:\d+) \(Ctrl-C stops it\)"
    found = re.fullmatch(told, lines.pop())
    assert found
    ready = json.loads(lines[-1])
    assert (ready["event"], ready["url"]) == ("ready", found[1])


def test_the_address_can_be_opened() -> None:
    folders = {"a": Path("models/a"), "b": Path("models/b")}
    told = greeting(folders, url_of("::1", 80))
    assert told == "ELIAS is serving models/a, models/b at http://[::1]:80 (Ctrl-C stops it)"
    for host in ("0.0.0.0", "::"):
        assert "http://localhost:80 " in greeting(folders, url_of(host, 80))


def test_wrong_usage_is_one_line(tiny_model_folder: Path, tmp_path: Path) -> None:
    done = elias("serve", tmp_path / "none")
    assert done.returncode == 5
    assert one_line(done.stderr)
    for arguments, words in (
        ([f"a={tiny_model_folder}", f"a={tiny_model_folder}"], "given twice"),
        ([f"ä={tiny_model_folder}"], "letters, digits"),
        ([tiny_model_folder, "--port", "70000"], "between 1 and 65535"),
        ([tiny_model_folder, "--limit", "txts=5"], 'did you mean "texts"?'),
        ([tiny_model_folder, "--token-file", tmp_path / "none"], "cannot be read"),
    ):
        done = elias("serve", *arguments)
        assert done.returncode in (2, 4), done.stderr
        assert one_line(done.stderr)
        assert words in done.stderr


def test_a_broken_model_ends_the_command(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_folder, folder)
    (folder / "index.safetensors").write_bytes(b"broken")
    done = elias("serve", folder, "--port", "0")
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1].startswith("elias: ")
    assert "index.safetensors" in done.stderr
    assert "Traceback" not in done.stderr
