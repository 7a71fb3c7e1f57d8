"""Requests that arrive together are computed together; a bounded queue in front of a few compute threads.

    admit   a place in the queue, or 503 at once: requests, texts and bytes in the house are counted
    run     wait for the texts of an admitted request to be computed

Nothing lingers on purpose: an idle thread starts on the first text that comes, and when it is done it takes what has
come meanwhile, without asking the event loop, which may be busy with other requests (`waiting.py` says what it takes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .answers import Ask, result_lines
from .errors import ServiceError, busy
from .limits import Limits
from .metrics import Metrics
from .waiting import SHARE, Gone, Job, Slice, Waiting

if TYPE_CHECKING:
    from .models import Served

THREADS = 2  # batches under way: one in the kernels while the other is read or written in Python
CROWD = 32  # texts, or
PATIENCE = 0.02  # seconds, that wait before a second thread helps: a few texts are sooner done by the one at work


class ClientGone(Exception):
    """Nobody waits for this answer any more."""


class Batcher:
    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.requests = self.texts = self.bytes = 0  # in the house
        self._waiting = Waiting(limits, self._abandon)
        self._change = Condition()  # guards what waits and what is under way
        self._under_way, self._closed = 0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[Thread] = []
        metrics.gauge("elias_waiting_requests", "Requests accepted and not yet answered.", lambda: self.requests)
        metrics.gauge("elias_waiting_texts", "Their texts.", lambda: self.texts)
        metrics.gauge("elias_waiting_bytes", "Their bodies.", lambda: self.bytes)

    def start(self) -> None:
        """Called from the event loop that the requests come from."""
        self._loop, self._closed = asyncio.get_running_loop(), False
        names = [f"elias-compute-{number}" for number in range(THREADS)]
        self._threads = [Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()

    def join(self) -> None:
        """Wait for the batches under way: a process that ends in the middle of one may crash."""
        for thread in self._threads:
            thread.join()

    def refuse_if_full(self) -> None:
        """Before a body is read."""
        if self.requests >= self.limits.waiting_requests or self.bytes >= self.limits.waiting_bytes:
            raise self._full()

    @contextmanager
    def admit(self, n_texts: int, n_bytes: int) -> Iterator[None]:
        """A place in the queue for as long as the block lasts. Large requests leave an eighth of it to small ones."""
        n_texts = min(n_texts, max(1, self.limits.waiting_texts // 4))
        room = self.limits.waiting_texts * (8 if n_texts <= SHARE else 7) // 8
        if self.texts + n_texts > room or self.requests >= self.limits.waiting_requests:
            raise self._full()
        self.requests += 1
        self.texts += n_texts
        self.bytes += n_bytes
        try:
            yield
        finally:
            self.requests -= 1
            self.texts -= n_texts
            self.bytes -= n_bytes

    def _full(self) -> ServiceError:
        self.metrics.refused.add()
        return busy("the service is busy: its queue is full; try again after the seconds in Retry-After")

    async def run(
        self, served: Served, ask: Ask, texts: Sequence[str], ids: Sequence[str] | None, gone: Gone
    ) -> list[str]:
        """A JSON object for each text, in order."""
        if not texts:
            return []
        done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        job = Job(served, ask, texts, ids, gone, done, left=len(texts), lines=[""] * len(texts))
        with self._change:
            if self._closed:
                raise busy("the service is ending")
            are_first = not self._waiting.texts
            self._waiting.put(job)
            if are_first or self._waiting.texts >= CROWD:  # else somebody is awake already
                self._change.notify()
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                return await done
        except TimeoutError:
            message = f"no answer within {self.limits.answer_seconds:g} seconds; send fewer texts at a time"
            raise busy(message, after=5) from None

    def _work(self) -> None:
        """One compute thread, until the end."""
        while self._one_batch():
            pass

    def _one_batch(self) -> bool:
        """Compute a batch; a thread that waits for the next keeps nothing of it, nor of a model replaced since."""
        batch = self._next()
        started, problem, answers = perf_counter(), None, list[list[str]]()
        try:
            answers = computed(batch) if batch else []
        except Exception as raised:  # belongs to those who asked
            problem = raised
        except BaseException as raised:  # of an extension in need; the thread lives on
            problem = RuntimeError(type(raised).__name__)
        seconds = perf_counter() - started
        if batch:
            with self._change:
                self._under_way -= 1
            self._in_loop(self._answered, batch, answers, problem, seconds)
        return bool(batch)

    def _next(self) -> list[Slice]:
        """What to compute now; waits for it. Nothing when the service ends."""
        with self._change:
            since = perf_counter()
            while not self._closed:
                waited = perf_counter() - since
                if not self._under_way or self._waiting.texts >= CROWD or waited >= PATIENCE:
                    batch = self._waiting.take()
                    if batch:
                        self._under_way += 1
                        if self._waiting.texts:
                            self._change.notify()
                        return batch
                if self._waiting.texts:
                    self._change.wait(PATIENCE - waited)
                else:
                    self._change.wait()
                    since = perf_counter()
            return []

    def _answered(
        self, batch: list[Slice], answers: list[list[str]], problem: Exception | None, seconds: float
    ) -> None:
        """In the event loop: hand the lines of a batch to those who wait."""
        n_texts = sum(map(len, batch))
        self.metrics.batches.see(n_texts)
        self.metrics.texts.add(n_texts)
        self.metrics.compute.see(seconds)
        for number, piece in enumerate(batch):
            job = piece.job
            if problem is None:
                job.lines[piece.start : piece.stop] = answers[number]
                job.left -= len(piece)
            if job.done.done():
                continue
            if problem is not None:
                job.done.set_exception(problem)
            elif job.left == 0:
                job.done.set_result(job.lines)

    def _abandon(self, job: Job) -> None:
        def give_up() -> None:
            self.metrics.abandoned.add()
            if not job.done.done():
                job.done.set_exception(ClientGone())

        self._in_loop(give_up)

    def _in_loop(self, call: Any, *arguments: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(call, *arguments)


def computed(batch: Sequence[Slice]) -> list[list[str]]:
    """One call of the model for the whole batch; its answers as JSON, slice by slice."""
    first = batch[0].job
    model = first.served.model
    texts = [text for piece in batch for text in piece.texts]
    ids = None
    if any(piece.ids is not None for piece in batch):
        ids = [name for piece in batch for name in piece.ids or [""] * len(piece)]
    options: dict[str, Any] = {}
    if first.ask.threshold is not None:
        options["threshold"] = first.ask.threshold
    if first.ask.labels is not None:
        options["allow"] = first.ask.labels
    k = max(piece.job.ask.k for piece in batch)
    explain = any(piece.job.ask.explain for piece in batch)
    found = model.predict(texts, k, ids=ids, explain=explain, **options)
    answers, at = [], 0
    for piece in batch:
        answers.append(result_lines(found, model.labels.texts, at, at + len(piece), piece.job.ask, piece.ids))
        at += len(piece)
    return answers
