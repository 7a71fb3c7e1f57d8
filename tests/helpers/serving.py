"""Helpers for tests of the service: it runs in a thread of the test, on a real socket; and plain HTTP to talk to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from elias.server.admission import Limits
from elias.server.app import create_app
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
    wait: bool = True,
    **options: Any,
) -> Iterator[Running]:
    """The service in a thread, until the block ends; it must end by itself then."""
    limits = limits or Limits()
    sock = listen("127.0.0.1", 0)
    app = create_app(Registry(folders, opener), limits=limits, token=token.encode() if token else None, **options)
    config = uvicorn.Config(
        app, http=protocol_with(limits), ws="none", loop="asyncio", log_config=None, access_log=False,
        server_header=False, timeout_keep_alive=5, timeout_graceful_shutdown=5, lifespan="on",
    )  # fmt: skip
    server = Server(config, app.state.service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    found = Running(sock.getsockname()[1], app.state.service, token)
    try:
        _wait_for(lambda: server.started)
        if wait:
            _wait_for(lambda: found.service.registry.ready)
        yield found
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the service did not end"


def _wait_for(happened: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)
