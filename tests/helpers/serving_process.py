"""`elias serve` as a real process, and clients that keep it busy."""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.processes import PATIENCE, start
from helpers.serving import Running


@contextmanager
def process(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], Running, list[dict[str, Any]]]]:
    """(the process, a way to talk to it, its log so far) once it is ready."""
    server = start("serve", *arguments, "--port", "0")
    lines: list[dict[str, Any]] = []
    assert server.stderr is not None
    thread = threading.Thread(target=lambda: [lines.append(json.loads(line)) for line in server.stderr], daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(line["event"] == "ready" for line in lines):
            assert server.poll() is None, lines
            assert time.monotonic() < deadline
            time.sleep(0.02)
        port = int(next(line["url"] for line in lines if line["event"] == "listening").rpartition(":")[2])
        yield server, Running(port, None), lines  # type: ignore[arg-type]
    finally:
        if server.poll() is None:
            server.kill()
        server.wait(PATIENCE)
        thread.join(PATIENCE)
        for pipe in (server.stdout, server.stderr):
            assert pipe is not None
            pipe.close()


class Load:
    """Clients that send one request after the other on open connections, until the server closes them."""

    def __init__(self, port: int, clients: int = 6, headers: Mapping[str, str] = {}) -> None:
        self.headers = {"Content-Type": "application/json", **headers}
        self.answers, self.lost, self.stop = [], [], threading.Event()  # type: ignore[var-annotated]
        self.threads = [threading.Thread(target=self._client, args=(port,), daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _client(self, port: int) -> None:
        body = json.dumps({"texts": ["bada kuku"] * 5}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        while not self.stop.is_set():
            try:
                connection.request("POST", "/v1/predict", body, self.headers)
                answer = connection.getresponse()
                self.answers.append((answer.status, len(json.loads(answer.read())["results"])))
                if answer.will_close:
                    return
            except ConnectionRefusedError:
                return  # it no longer listens: nothing was accepted
            except (OSError, http.client.HTTPException, ValueError, KeyError) as problem:
                self.lost.append(repr(problem))
                return

    def join(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
