"""`elias serve --workers N`: several processes at one port.

One process per core has no interpreter lock in common with the others; the models are memory-mapped, so they share
their memory. Every worker is a whole service with its own event loop, queue, limits and compute threads. The kernel
distributes connections among their sockets (SO_REUSEPORT).

The process that the user has started serves nothing. It holds the sockets, so that connections wait where a worker is
started again, has the signals, and is connected with each worker by a pair of sockets, over which either side calls
the other:

    worker  -> supervisor   ready      answered when all workers are ready
                            failed     the models cannot be opened: the service ends
                            metrics    those of all workers, added up
                            reload     open folders again, in all workers or in none
    supervisor -> worker    metrics, drain
                            open_again, replace, forget     the two phases of a reload

A worker whose supervisor is gone drains. Feedback needs no care here: a line is appended under a lock of the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any

import uvloop

from ..core.errors import EliasError
from .admission import reload_failed, worker_missing
from .feedback import FeedbackFile
from .logs import configure_logging
from .metrics import Metrics, add_up
from .middleware import location
from .models import Opener, Registry, Served, note_failed_reload, note_reload
from .run import SAME_SIGNAL_SECONDS, Options, Server, listen, run_server, server_of, tell_listening, tell_ready, url_of

log = logging.getLogger("elias.server")
RESTART_SECONDS = 1.0  # before a worker that has ended is started again
CALL_SECONDS = 5.0  # for a call that computes nothing
MAX_LINE = 1 << 24
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Handler = Callable[[Any], Awaitable[Any]]


class CallFailed(Exception):
    """The other side could not do what it was called for."""


class Link:
    """Calls in both directions over one socket: lines of JSON {"call", "number", "value"}, {"answer", "value"}."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._numbers, self._waiting = itertools.count(), dict[int, asyncio.Future[Any]]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, sock: socket.socket) -> None:
        """Serve calls until the other side is gone."""
        reader, self._writer = await asyncio.open_unix_connection(sock=sock, limit=MAX_LINE)
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "call" in message:
                    task = asyncio.get_running_loop().create_task(self._answer(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                elif (answer := self._waiting.pop(message["answer"], None)) is not None and not answer.done():
                    if "error" in message:
                        answer.set_exception(CallFailed(message["error"]))
                    else:
                        answer.set_result(message["value"])
        except (OSError, ValueError):
            pass  # it ended in the middle of a line
        finally:
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(CallFailed("the other process has ended"))

    async def call(self, name: str, value: Any = None, *, seconds: float | None = CALL_SECONDS) -> Any:
        """The answer of the other side. CallFailed: it has raised an EliasError, has ended or says nothing."""
        if self._writer is None or self._writer.is_closing():
            raise CallFailed("the other process is not connected")
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"call": name, "number": number, "value": value})
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise CallFailed(f"no answer within {seconds:g} seconds") from None
        finally:
            self._waiting.pop(number, None)

    async def _answer(self, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"answer": message["number"]}
        try:
            reply["value"] = await self._handlers[message["call"]](message["value"])
        except (EliasError, CallFailed) as problem:
            reply["error"] = str(problem)
        except Exception as problem:  # a defect; without an answer the other side would wait for ever
            log.error("unexpected error", extra={"facts": {"call": message["call"], **location(problem)}})
            reply["error"] = type(problem).__name__
        self._send(reply)

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")


# -- the process of the user ------------------------------------------------------------------------------------------


def serve_with_workers(folders: Mapping[str, Path], opener: Opener, options: Options) -> None:
    """As `serve`, in `options.workers` processes."""
    configure_logging()
    if options.feedback is not None:
        FeedbackFile(options.feedback).check()
    probe = listen(options.host, options.port)  # sockets that share an address would not notice another service
    port = probe.getsockname()[1]
    probe.close()
    sockets = [listen(options.host, port, is_shared=True) for _ in range(options.workers)]
    supervisor = Supervisor(folders, opener, options, sockets)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}  # workers inherit this
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(supervisor.run())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if supervisor.failure is not None:
        raise supervisor.failure


class Supervisor:
    def __init__(
        self, folders: Mapping[str, Path], opener: Opener, options: Options, sockets: list[socket.socket]
    ) -> None:
        self.folders, self.opener, self.options, self.sockets = folders, opener, options, sockets
        self.url = url_of(*sockets[0].getsockname()[:2])
        self.failure: EliasError | None = None
        self.processes: dict[int, BaseProcess] = {}
        self.links: dict[int, Link] = {}
        self._metrics = Metrics()  # of reloads, which are no worker's
        self._ready, self._all_ready = set[int](), asyncio.Event()
        self._ends = asyncio.Event()
        self._drained_at: float | None = None
        self._reloading = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()  # kept, because the loop holds only a weak reference

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._start(self._reload_quietly()))
        tell_listening(self.options, self.url)
        workers = [loop.create_task(self._keep_running(number)) for number in range(self.options.workers)]
        await self._ends.wait()
        for sock in self.sockets:
            sock.close()
        with contextlib.suppress(CallFailed):
            await self._each("drain")
        await asyncio.gather(*workers)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _drain(self, number: int) -> None:
        if self._drained_at is not None:
            if monotonic() < self._drained_at + SAME_SIGNAL_SECONDS:
                return
            for process in self.processes.values():
                process.kill()
            os._exit(128 + number)
        self._drained_at = monotonic()
        self._ends.set()

    async def _keep_running(self, number: int) -> None:
        """One worker, started again when it ends for a reason of its own."""
        while not self._ends.is_set():
            ours, theirs = socket.socketpair()
            process = multiprocessing.get_context("spawn").Process(
                target=run_worker,
                args=(number, self.folders, self.opener, self.options, self.sockets[number], theirs),
                name=f"elias-worker-{number}",
            )
            with theirs:
                process.start()
            self.processes[number] = process
            link = self.links[number] = Link(
                {
                    "ready": lambda _: self._when_all_ready(number),
                    "failed": self._fail,
                    "metrics": lambda _: self._all_metrics(),
                    "reload": self._reload,
                }
            )
            await link.run(ours)  # until the worker has closed its end
            await asyncio.to_thread(process.join)
            del self.links[number]
            if not self._ends.is_set():
                facts = {"worker": number, "exit_code": process.exitcode}
                log.error("a worker has ended and is started again", extra={"facts": facts})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RESTART_SECONDS):
                        await self._ends.wait()

    async def _when_all_ready(self, number: int) -> None:
        self._ready.add(number)
        if len(self._ready) == self.options.workers and not self._all_ready.is_set():
            self._all_ready.set()
            tell_ready(self.folders, self.url)
        await self._all_ready.wait()

    async def _fail(self, reason: str) -> None:
        if self._all_ready.is_set():
            log.error("a worker cannot open the models", extra={"facts": {"error": reason}})
            return  # the other workers serve; this one ends and is started again
        self.failure = self.failure or EliasError(reason)
        self._ends.set()

    async def _each(self, name: str, value: Any = None, *, seconds: float | None = CALL_SECONDS) -> list[Any]:
        """The answers of all workers; CallFailed if one of them cannot."""
        if not self.links:
            raise CallFailed("no worker is running")
        calls = [link.call(name, value, seconds=seconds) for link in self.links.values()]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _all_metrics(self) -> str:
        reloads = "".join(f"{line}\n" for line in self._metrics.reloads.lines())
        return add_up([*await self._each("metrics"), reloads])

    async def _reload(self, name: str | None) -> list[str]:
        """Open in every worker, then replace in every worker: they never answer from different models for long."""
        async with self._reloading:
            try:
                names: list[str] = (await self._each("open_again", name, seconds=None))[0]
            except CallFailed as problem:
                note_failed_reload(self._metrics, str(problem))
                with contextlib.suppress(CallFailed):
                    await self._each("forget")
                raise
            try:
                await self._each("replace")
            except CallFailed as problem:  # too late to undo: the other workers have the new models
                event = "a worker has ended during a reload; started again it opens the new folders"
                log.error(event, extra={"facts": {"error": str(problem)}})
            return note_reload(self._metrics, names)

    async def _reload_quietly(self) -> None:
        with contextlib.suppress(CallFailed):  # it is in the log
            await self._reload(None)


# -- a worker ---------------------------------------------------------------------------------------------------------


def run_worker(
    number: int,
    folders: Mapping[str, Path],
    opener: Opener,
    options: Options,
    sock: socket.socket,
    link_socket: socket.socket,
) -> None:
    """The main function of a worker's process."""
    configure_logging(worker=number)
    registry = Registry(folders, opener)
    registry.is_held = True
    worker = Worker(registry)
    worker.server = server_of(
        registry, options, workers=worker, on_ready=worker.tell_ready, on_failure=worker.tell_failure
    )
    with link_socket:
        run_server(worker.server, sock, worker.follow(link_socket))


class Worker:
    """The worker's side of the link; its routes see it as `Service.workers`."""

    server: Server

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._fresh: dict[str, Served] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.link = Link(
            {
                "metrics": self._own_metrics,
                "drain": self._drain,
                "open_again": self._open_again,
                "replace": self._replace,
                "forget": self._forget,
            }
        )

    async def follow(self, sock: socket.socket) -> None:
        await self.link.run(sock)
        if not self.server.should_exit:
            self.server.drain()  # the supervisor was killed

    def tell_ready(self) -> None:
        self._call("ready", None, self._release)

    def tell_failure(self, problem: EliasError) -> None:
        self._call("failed", str(problem), self.server.drain)

    def _call(self, name: str, value: Any, afterwards: Callable[[], None]) -> None:
        async def call() -> None:
            with contextlib.suppress(CallFailed):
                await self.link.call(name, value, seconds=None)
            afterwards()

        task = asyncio.get_running_loop().create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _release(self) -> None:
        self.registry.is_held = False

    async def metrics(self) -> str:
        """Those of all workers. Without one of them the sums would fall, so there are none then."""
        try:
            return str(await self.link.call("metrics"))
        except CallFailed:
            raise worker_missing() from None

    async def reload(self, name: str | None) -> list[str]:
        try:
            return list(await self.link.call("reload", name, seconds=None))
        except CallFailed:
            raise reload_failed() from None

    async def _own_metrics(self, _: None) -> str:
        return self.server.service.metrics.text()

    async def _drain(self, _: None) -> None:
        if not self.server.should_exit:
            self.server.drain()

    async def _open_again(self, name: str | None) -> list[str]:
        self._fresh = await asyncio.to_thread(self.registry.opened_again, name)
        return list(self._fresh)

    async def _replace(self, _: None) -> None:
        self.registry.replace(self._fresh)
        self._fresh = {}

    async def _forget(self, _: None) -> None:
        self._fresh = {}
