"""Requests that arrive together are computed together; a bounded queue in front of one compute pool.

    admit   a place in the queue, or 503 at once: requests, texts and bytes in the house are counted
    run     wait for the texts of an admitted request to be computed

Nothing lingers on purpose: an idle pool starts as soon as the event loop has read what is already there; while it is
busy, what arrives becomes the next batch. A batch takes a share of every waiting request before it takes the rest of
the first, so one text never waits behind ten thousand. A request whose client went away is dropped when its turn comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .answers import Ask, result_lines
from .errors import ServiceError, busy
from .limits import Limits
from .metrics import Metrics

if TYPE_CHECKING:
    from .models import Served

SHARE = 64  # texts of one request that a batch takes before others have had theirs
POOL = 2  # batches under way: one in the kernels while the other is read or written in Python
Gone = Callable[[], bool]


class ClientGone(Exception):
    """Nobody waits for this answer any more."""


@dataclass(eq=False)
class Job:
    served: Served
    ask: Ask
    texts: Sequence[str]
    ids: Sequence[str] | None
    gone: Gone
    done: asyncio.Future[list[str]]
    at: int = 0  # texts handed to a batch so far
    left: int = 0  # texts not yet computed
    lines: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.served.name, id(self.served), *self.ask.together)


@dataclass(frozen=True)
class Slice:
    """Some texts of one job inside a batch."""

    job: Job
    start: int
    stop: int


class Batcher:
    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.requests = self.texts = self.bytes = 0  # in the house
        self._waiting: dict[tuple[Any, ...], deque[Job]] = {}
        self._wake = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._pool = ThreadPoolExecutor(POOL, thread_name_prefix="elias-compute")
        metrics.gauge("elias_waiting_requests", "Requests accepted and not yet answered.", lambda: self.requests)
        metrics.gauge("elias_waiting_texts", "Their texts.", lambda: self.texts)
        metrics.gauge("elias_waiting_bytes", "Their bodies.", lambda: self.bytes)

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
        self._waiting.setdefault(job.key, deque()).append(job)
        self._wake.set()
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                return await done
        except TimeoutError:
            message = f"no answer within {self.limits.answer_seconds:g} seconds; send fewer texts at a time"
            raise busy(message, after=5) from None

    async def work(self) -> None:
        """Make batches until cancelled."""
        room = asyncio.Semaphore(POOL)
        while True:
            await self._wake.wait()
            await room.acquire()
            await asyncio.sleep(0)  # let requests that are already here join
            batch = self._take()
            if not batch:
                self._wake.clear()
                room.release()
                continue
            task = asyncio.create_task(self._compute(batch, room))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self) -> list[Slice]:
        """The next batch: a share of every request that can be computed with the first."""
        while self._waiting:
            key, jobs = next(iter(self._waiting.items()))
            del self._waiting[key]
            batch = self._slices(jobs)
            if jobs:
                self._waiting[key] = jobs  # at the back, so that other kinds get their turn
            if batch:
                return batch
        return []

    def _slices(self, jobs: deque[Job]) -> list[Slice]:
        room, characters, batch = self._room(jobs[0]), self.limits.batch_characters, []
        share = min(SHARE, room)
        for _ in range(len(jobs)):
            if room <= 0 or characters <= 0:
                break
            job = jobs.popleft()
            if job.done.done() or job.gone():
                self._abandon(job)
                continue
            stop = job.at
            while stop < min(job.at + min(share, room), len(job.texts)) and characters > 0:
                characters -= len(job.texts[stop])
                stop += 1
            batch.append(Slice(job, job.at, stop))
            room -= stop - job.at
            job.at = stop
            if job.at < len(job.texts):
                jobs.append(job)
        return self._filled(jobs, batch, room, characters)

    def _filled(self, jobs: deque[Job], batch: list[Slice], room: int, characters: int) -> list[Slice]:
        """Where all had their share and there is room, the first go on."""
        for number, piece in enumerate(batch):
            job, stop = piece.job, piece.stop
            while room > 0 and characters > 0 and stop < len(job.texts):
                characters -= len(job.texts[stop])
                room -= 1
                stop += 1
            if stop > piece.stop:
                batch[number] = Slice(job, piece.start, stop)
                job.at = stop
                if job.at == len(job.texts):
                    jobs.remove(job)
        return batch

    def _room(self, job: Job) -> int:
        """Texts a batch may hold: fewer where each is scored against many named labels."""
        named = len(job.ask.labels or ())
        return min(self.limits.batch, max(1, (1 << 18) // max(1, named)))

    def _abandon(self, job: Job) -> None:
        self.metrics.abandoned.add()
        if not job.done.done():
            job.done.set_exception(ClientGone())

    async def _compute(self, batch: list[Slice], room: asyncio.Semaphore) -> None:
        n_texts = sum(piece.stop - piece.start for piece in batch)
        self.metrics.batches.see(n_texts)
        self.metrics.texts.add(n_texts)
        started = perf_counter()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._pool, computed, batch)
        except Exception as problem:
            for piece in batch:
                if not piece.job.done.done():
                    piece.job.done.set_exception(problem)
            return
        finally:
            room.release()
            self.metrics.compute.see(perf_counter() - started)
        for piece, lines in zip(batch, answers, strict=True):
            job = piece.job
            job.lines[piece.start : piece.stop] = lines
            job.left -= len(lines)
            if job.left == 0 and not job.done.done():
                job.done.set_result(job.lines)


def computed(batch: Sequence[Slice]) -> list[list[str]]:
    """One call of the model for the whole batch; its answers as JSON, slice by slice."""
    first = batch[0].job
    model = first.served.model
    texts = [text for piece in batch for text in piece.job.texts[piece.start : piece.stop]]
    ids = None
    if any(piece.job.ids is not None for piece in batch):
        ids = [name for piece in batch for name in _ids(piece)]
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
        length = piece.stop - piece.start
        own = None if piece.job.ids is None else piece.job.ids[piece.start : piece.stop]
        answers.append(result_lines(found, model.labels.texts, at, at + length, piece.job.ask, own))
        at += length
    return answers


def _ids(piece: Slice) -> Sequence[str]:
    if piece.job.ids is None:
        return [""] * (piece.stop - piece.start)
    return piece.job.ids[piece.start : piece.stop]
