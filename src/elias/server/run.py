"""The process of `elias serve`: a socket, an event loop, signals.

SIGTERM, SIGINT   drain: stop listening, answer what was accepted (at most drain_seconds), exit with code 0;
                  the second one ends the process at once
SIGHUP            open the model folders again; if one is broken, the old models keep serving

With `--workers N` this is one of several processes, and workers.py has the signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import uvicorn
import uvloop

from ..core.errors import EliasError, InputError
from .admission import Limits
from .app import create_app
from .errors import ServiceError
from .feedback import FeedbackFile
from .logs import configure_logging
from .middleware import Access
from .models import Opener, Registry, reload
from .protocol import protocol_with
from .routes import Service

log = logging.getLogger("elias.server")
# How often Python switches threads. With its default of 5 ms the event loop would wait that long for a compute thread.
SWITCH_SECONDS = 0.0005
MIN_TOKEN_LENGTH = 16
# `timeout`, and others that start processes, send a signal to a process and then to its group.
SAME_SIGNAL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that the command line sets besides the models."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: bytes | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names by which it may be called, besides addresses, localhost and `host`
    feedback: Path | None = None
    workers: int = 1
    limits: Limits = field(default_factory=Limits)


def serve(folders: Mapping[str, Path], opener: Opener, options: Options) -> None:
    """Serve until a signal arrives. EliasError if a model cannot be opened.

    Parameters
    ----------
    folders : model folders by the name that requests use; the first one is the default
    opener : opens a folder, e.g. `elias.load`
    options : address, token, limits
    """
    configure_logging()
    if options.feedback is not None:
        FeedbackFile(options.feedback).check()
    sock = listen(options.host, options.port)
    url = url_of(*sock.getsockname()[:2])
    failures = list[EliasError]()

    def on_failure(problem: EliasError) -> None:
        failures.append(problem)
        server.should_exit = True

    server = server_of(
        Registry(folders, opener), options, on_ready=lambda: tell_ready(folders, url), on_failure=on_failure
    )
    tell_listening(options, url)
    run_server(server, sock)
    if failures:
        raise failures[0]


def server_of(registry: Registry, options: Options, **hooks: Any) -> Server:
    """The server of one process; `hooks` as `create_app` takes them."""
    app = create_app(
        registry,
        limits=options.limits,
        access=Access(token=options.token, origins=options.origins, hosts=names_of(options)),
        feedback=options.feedback,
        **hooks,
    )
    config = uvicorn.Config(
        app, http=protocol_with(options.limits), ws="none", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(options.limits.drain_seconds), lifespan="on",
    )  # fmt: skip
    return Server(config, app.state.service)


def run_server(server: Server, sock: socket.socket, beside: Coroutine[Any, Any, None] | None = None) -> None:
    """Until it has drained; `beside` runs in the same event loop as long."""

    async def run() -> None:
        task = None if beside is None else asyncio.get_running_loop().create_task(beside)
        await server.serve(sockets=[sock])
        if task is not None:
            task.cancel()

    sys.setswitchinterval(SWITCH_SECONDS)
    batcher = server.service.batcher
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        batcher.close()
        batcher.join()


def tell_listening(options: Options, url: str) -> None:
    log.info("listening", extra={"facts": {"url": url, "token": options.token is not None}})


def tell_ready(folders: Mapping[str, Path], url: str) -> None:
    log.info("ready", extra={"facts": {"models": list(folders), "url": url}})
    if sys.stderr.isatty():  # elsewhere the log must stay one JSON object per line
        print(greeting(folders, url), file=sys.stderr, flush=True)


def names_of(options: Options) -> tuple[str, ...]:
    """The names by which requests may call the service. Where it can be reached from outside: this machine's too."""
    own = () if is_loopback(options.host) else (socket.gethostname(),)
    return (options.host, *options.hosts, *own)


def url_of(host: str, port: int) -> str:
    """The address as a browser takes it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def greeting(folders: Mapping[str, Path], url: str) -> str:
    """What a person at a terminal needs to know: which models, where to look, how to stop."""
    names = ", ".join(map(str, folders.values()))
    # 0.0.0.0 and :: stand for every address of this machine; no browser can open them.
    opened = url.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")
    return f"ELIAS is serving {names} at {opened} (Ctrl-C stops it)"


class Server(uvicorn.Server):
    """uvicorn with the signals above; its own handler would raise SIGTERM again after a clean end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._drained_at = 0.0
        self._reload_task: asyncio.Task[None] | None = None  # kept, because the loop holds only a weak reference

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # in tests; Python delivers signals to the main thread only
            return
        if self.service.workers is not None:
            yield  # they are for the process that started this one
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.drain, number)
        loop.add_signal_handler(signal.SIGHUP, self._start_reload)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def drain(self, number: int = signal.SIGTERM) -> None:
        """End after the answers to what was accepted; called again, not just after the first time: at once."""
        waiting = {"facts": {"waiting": self.service.admission.requests}}
        if self.should_exit:
            if monotonic() < self._drained_at + SAME_SIGNAL_SECONDS:
                return
            log.warning("ended before everything was answered", extra=waiting)
            os._exit(128 + number)  # an orderly end would wait for the compute threads
        self.should_exit, self._drained_at = True, monotonic()
        log.info("draining", extra=waiting)

    def _start_reload(self) -> None:
        self._reload_task = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        with contextlib.suppress(ServiceError):  # `reload` has logged it
            await reload(self.service.registry, self.service.metrics)


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A listening socket; InputError with a remedy if the address cannot be used.

    `is_shared`: one of several at the same address, among which the kernel distributes connections.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, number)
    except OSError as problem:
        raise InputError(f"--host {host}: there is no such address ({problem.strerror or problem})") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


def others_can_read(path: Path) -> bool:
    """Whether every user of this machine may read or write the file."""
    return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


def read_token(path: Path) -> bytes:
    """The token: the first line of a file, so that it appears neither in a process list nor in a shell history."""
    try:
        token = path.read_bytes().splitlines()[0].strip()
    except OSError as problem:
        raise InputError(f"--token-file {path}: cannot be read ({problem.strerror})") from None
    except IndexError:
        token = b""
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or b" " in token:
        raise InputError(
            f"--token-file {path}: the first line must be a token of at least {MIN_TOKEN_LENGTH} characters without "
            "spaces; make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token
