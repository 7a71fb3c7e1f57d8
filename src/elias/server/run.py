"""The process: a socket, an event loop, signals.

SIGTERM, SIGINT   drain: listen no more, answer what was accepted (at most drain_seconds), end with code 0
SIGHUP            open the model folders again; a broken one leaves the old one serving
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from ..core.errors import EliasError, InputError
from . import logs
from .app import create_app
from .errors import ServiceError
from .limits import Limits
from .models import Opener, Registry
from .protocol import protocol_with
from .routes import reloaded
from .service import Service

log = logging.getLogger("elias.server")
SWITCH_SECONDS = 0.0005  # between threads: the event loop must not wait 5 ms for a compute thread
SHORTEST_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class Options:
    host: str = "127.0.0.1"
    port: int = 8000
    token: bytes | None = None
    origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


def serve(folders: Mapping[str, Path], opener: Opener, options: Options) -> None:
    """Serve until a signal ends it. A model that cannot be opened is an EliasError."""
    logs.set_up()
    sock = listening(options.host, options.port)
    registry, failures = Registry(folders, opener), list[EliasError]()

    def on_failure(problem: EliasError) -> None:
        failures.append(problem)
        server.should_exit = True

    app = create_app(
        registry, limits=options.limits, token=options.token, origins=options.origins, on_failure=on_failure
    )
    config = uvicorn.Config(
        app, http=protocol_with(options.limits), ws="none", loop="asyncio", log_config=None, access_log=False,
        server_header=False, timeout_keep_alive=30, timeout_graceful_shutdown=math.ceil(options.limits.drain_seconds),
        lifespan="on",
    )  # fmt: skip
    server = Server(config, app.state.service)
    sys.setswitchinterval(SWITCH_SECONDS)
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.info("listening", extra={"facts": {"url": f"http://{shown}:{port}", "token": options.token is not None}})
    batcher = app.state.service.batcher
    try:
        asyncio.run(server.serve(sockets=[sock]))
    finally:
        batcher.close()
        batcher.join()
    if failures:
        raise failures[0]


class Server(uvicorn.Server):
    """uvicorn with our signals; it would raise SIGTERM again after a clean end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._reloading: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        actions = {signal.SIGTERM: self._drain, signal.SIGINT: self._drain, signal.SIGHUP: self._reload}
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number in actions:
                loop.remove_signal_handler(number)

    def _drain(self) -> None:
        if self.should_exit:
            self.force_exit = True  # asked twice: at once
        self.should_exit = True
        log.info("draining", extra={"facts": {"waiting": self.service.batcher.requests}})

    def _reload(self) -> None:
        self._reloading = asyncio.get_running_loop().create_task(self._reloaded())

    async def _reloaded(self) -> None:
        with contextlib.suppress(ServiceError):  # logged where it happened
            await reloaded(self.service)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; refused with a hint where it cannot."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
    except OSError as problem:
        raise InputError(f"--host {host}: there is no such address ({problem.strerror or problem})") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError as problem:
        sock.close()
        raise InputError(
            f"--host {host} --port {port}: cannot listen there ({problem.strerror or problem}); choose another --port"
        ) from None
    sock.set_inheritable(False)
    return sock


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def read_token(path: Path) -> bytes:
    """The first line of a file."""
    try:
        token = path.read_bytes().splitlines()[0].strip()
    except OSError as problem:
        raise InputError(f"--token-file {path}: cannot be read ({problem.strerror})") from None
    except IndexError:
        token = b""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or b" " in token:
        raise InputError(
            f"--token-file {path}: the first line must be a token of at least {SHORTEST_TOKEN} characters without "
            "spaces; make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token
