"""The service in a thread of the test process, on a real socket, and plain HTTP requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from elias.server.admission import Limits
from elias.server.app import create_app
from elias.server.middleware import Access
from elias.server.models import Registry
from elias.server.protocol import protocol_with
from elias.server.routes import Service
from elias.server.run import Server, listen

PATIENCE = 30


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.json) == {"error"}, self.body
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"code", "message", "field"}
        assert "Traceback" not in found["message"]
        assert 'File "' not in found["message"]
        return found


@dataclass
class Running:
    port: int
    service: Service
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own; dictionaries are sent as JSON."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        body = content
        if content is not None and not isinstance(content, bytes):
            body = json.dumps(content).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        if self.token and "Authorization" not in sent:
            sent["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        return self.ask("POST", path, content, **headers)

    def predict(self, texts: list[str], **options: Any) -> Any:
        answer = self.post("/v1/predict", {"texts": texts, **options})
        assert answer.status == 200, answer.body
        return answer.json

    def raw(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.settimeout(PATIENCE)
        return sock


def read_all(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    try:
        while piece := sock.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@contextmanager
def running(
    folders: Mapping[str, Path],
    opener: Any,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    wait: bool = True,
    **options: Any,
) -> Iterator[Running]:
    """The service in a thread, until the block ends; it must end by itself then."""
    limits = limits or Limits()
    sock = listen("127.0.0.1", 0)
    access = Access(token=token.encode() if token else None, origins=origins, hosts=hosts)
    app = create_app(Registry(folders, opener), limits=limits, access=access, **options)
    config = uvicorn.Config(
        app, http=protocol_with(limits), ws="none", loop="uvloop", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=5, timeout_graceful_shutdown=5, lifespan="on",
    )  # fmt: skip
    server = Server(config, app.state.service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    found = Running(sock.getsockname()[1], app.state.service, token)
    try:
        wait_until(lambda: server.started)
        if wait:
            wait_until(lambda: found.service.registry.ready)
        yield found
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the service did not end"


def wait_until(happened: Callable[[], bool]) -> None:
    """Poll until a condition holds; it must hold within PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


class HeldModel:
    """Holds every call of a model's `predict` until `release`; records the texts of each call."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released, self.calls = threading.Event(), list[list[str]]()
        predict = model.predict

        def held(texts: list[str], *args: Any, **options: Any) -> Any:
            self.calls.append(list(texts))
            assert self._released.wait(PATIENCE)
            return predict(texts, *args, **options)

        monkeypatch.setattr(model, "predict", held)

    def release(self) -> None:
        self._released.set()


SMALL_LIMITS = Limits(
    texts=50,
    text_length=1000,
    body_bytes=60_000,
    k=20,
    labels=10,
    answers=500,
    pairs=200,
    waiting_requests=4,
    waiting_texts=120,
    connections=40,
    header_seconds=0.6,
    body_seconds=0.6,
    answer_seconds=20,
)
