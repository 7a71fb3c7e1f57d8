"""Attacks made by hand, against a real process: the right status, the service alive, its memory flat."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import PATIENCE
from helpers.serving import Running, read_all
from helpers.serving_process import process

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
Attack = Callable[[Running], tuple[int, dict[str, Any]]]
FLAT = 96 << 20  # bytes a process may have grown by after all of it


def memory_of(pid: int) -> int:
    """Private memory: without the page cache."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024


@pytest.fixture(scope="module")
def victim(tiny_model_folder: Path) -> Iterator[tuple[subprocess.Popen[str], Running, list[dict[str, Any]]]]:
    limits = ["--limit", "body_seconds=1", "--limit", "header_seconds=1", "--limit", "answer_seconds=5"]
    with process(tiny_model_folder, *limits) as (server, found, lines):
        found.predict(["warm"] * 500)
        yield server, found, lines
        assert server.poll() is None, "it survived everything"
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        assert not [line for line in lines if line["level"] == "error"], "nothing unexpected in the log"


def send(found: Running, *pieces: bytes) -> tuple[int, dict[str, Any]]:
    """(status, error) of a request written by hand; what cannot be sent any more is not."""
    with found.raw() as sock:
        with suppress(OSError):
            for piece in pieces:
                sock.sendall(piece)
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        content = json.loads(answer.read())
        return answer.status, content.get("error", {})


def in_pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 1 << 20):
        yield b" " * (1 << 20)


def body_of_100_mb(found: Running) -> tuple[int, dict[str, Any]]:
    return send(found, HEAD % (100 << 20), *in_pieces(100 << 20))


def million_empty_texts(found: Running) -> tuple[int, dict[str, Any]]:
    body = b'{"texts":[' + b",".join([b'""'] * 1_000_000) + b"]}"
    return send(found, HEAD % len(body), body)


def deep_json(found: Running) -> tuple[int, dict[str, Any]]:
    body = b'{"texts":' + b"[" * 3_000_000 + b"]" * 3_000_000 + b"}"
    return send(found, HEAD % len(body), body)


def one_word_of_10_mb(found: Running) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"texts": ["x" * (10 << 20)]}).encode()
    return send(found, HEAD % len(body), body)


def many_unknown_fields(found: Running) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"texts": ["a"], **{f"field{n}": n for n in range(200_000)}}).encode()
    return send(found, HEAD % len(body), body)


def small(content: Any) -> Attack:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda found: send(found, HEAD % len(body), body)


@pytest.mark.parametrize(
    ("attack", "status", "field"),
    [
        (body_of_100_mb, 413, None),
        (million_empty_texts, 413, "texts"),
        (deep_json, 400, None),
        (one_word_of_10_mb, 413, "texts.0"),
        (many_unknown_fields, 422, "field0"),
        (small({"texts": ["a"], "k": 100_000}), 422, "k"),
        (small({"texts": ["a"], "k": 10**30}), 422, "k"),
        (small(b'{"texts":["\xc3\x28"]}'), 400, None),
        (small(b"\xff\xfe\x00{\x00}"), 400, None),
        (small(b'{"texts":["a\x00b"]}'), 400, None),
        (small(b'{"texts":["a\\u0000b"]}'), 200, None),
        (small({"texts": ["\u202e\ufeff\U0010ffff" * 50]}), 200, None),
        (small({"texts": ["a"], "labels": ["nobody" * 1000]}), 422, "labels.0"),
        (small({"texts": ["a"], "model": "x" * 100_000}), 404, "model"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_attack(
    victim: Any, attack: Callable[[Running], tuple[int, dict[str, Any]]], status: int, field: Any
) -> None:
    server, found, _ = victim
    before = memory_of(server.pid)
    for _ in range(2):
        got, error = attack(found)
        assert (got, error.get("field")) == (status, field), error
        assert len(json.dumps(error)) < 1000, "a message is not as long as the attack"
    assert found.predict(["alive"])["results"]
    assert memory_of(server.pid) - before < FLAT


def test_nul_bytes_and_odd_paths(victim: Any) -> None:
    _, found, _ = victim
    for path in (
        "/v1/labels/%00",
        "/v1/labels?search=%00",
        "/%00",
        "/v1/labels/%ff%fe",
        "/v1/labels?search=%ff",
        "//",
        "/%2e%2e/",
    ):
        assert found.get(path).status in {200, 404}, path
    assert found.get("/v1/labels/" + "x" * 10_000).status == 404


def test_pipelined_garbage(victim: Any) -> None:
    _, found, _ = victim
    body = json.dumps({"texts": ["a"]}).encode()
    good = HEAD % len(body) + body
    for _ in range(20):
        with found.raw() as sock:
            with suppress(OSError):
                sock.sendall(good * 3 + os.urandom(2000) + b"\r\n\r\n" + good * 50)
            answer = read_all(sock)
            assert answer.count(b"HTTP/1.1 200 ") == 3, answer[:1000]
    assert found.predict(["alive"])["results"]


def test_a_hundred_slow_clients(victim: Any) -> None:
    """Each sends a byte now and then; all are answered 408, and other requests are served meanwhile."""
    server, found, _ = victim
    before = memory_of(server.pid)
    with ExitStack() as stack:
        socks = [stack.enter_context(found.raw()) for _ in range(100)]
        for number, sock in enumerate(socks):
            sock.sendall(HEAD % 1000 if number % 2 else b"POST /v1/pre")
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            for sock in socks:
                with suppress(OSError):
                    sock.sendall(b" ")
            assert found.predict(["quick"])["results"]
            time.sleep(0.1)  # the pace of the slow clients
        for sock in socks:
            assert read_all(sock).startswith(b"HTTP/1.1 408 ")
    assert memory_of(server.pid) - before < FLAT


def test_readers_that_do_not_read(victim: Any) -> None:
    """Clients that request a long stream and never read it are disconnected."""
    server, found, _ = victim
    before = memory_of(server.pid)
    body = json.dumps({"texts": ["a"] * 10_000, "k": 60, "explain": True, "stream": True}).encode()
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", found.port))
            sock.sendall(HEAD % len(body) + body)
        assert found.predict(["others"])["results"], "small requests have a place of their own"
        deadline = time.monotonic() + 60
        while waiting(found) > 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert memory_of(server.pid) - before < FLAT


def waiting(found: Running) -> float:
    lines = found.get("/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("elias_waiting_requests ")))


def test_clients_that_hang_up(victim: Any) -> None:
    server, found, _ = victim
    before = memory_of(server.pid)
    body = json.dumps({"texts": ["a"] * 5000, "k": 30}).encode()

    def hang_up() -> None:
        for _ in range(10):
            with found.raw() as sock:
                sock.sendall(HEAD % len(body) + body)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    threads = [threading.Thread(target=hang_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    deadline = time.monotonic() + 30
    while waiting(found) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found.predict(["alive"])["results"]
    assert memory_of(server.pid) - before < FLAT
