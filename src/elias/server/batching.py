"""Dynamic batching: requests that arrive together are computed together, by two compute threads.

`Batcher.run` is called in the event loop with a job; it puts the job into the queue and waits for its lines. A compute
thread that becomes free takes the next batch (`queue.py`), calls the model once and hands the lines back to the event
loop. No request is delayed in order to form a batch: an idle thread starts on the first text that arrives, and
whatever arrives while it computes forms the next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread
from time import perf_counter
from typing import Any

from .admission import Limits, shutting_down, too_slow
from .errors import ClientGone
from .metrics import Metrics
from .queue import Entry, Job, RequestQueue, Slice
from .responses import result_lines

THREADS = 2  # batches under way: one inside the kernels while the other is parsed or written in Python
# The second thread helps only when this many texts wait, or when they have waited this long. One thread finishes a few
# texts sooner than two threads that contend for the interpreter lock.
CROWD_TEXTS = 32
CROWD_SECONDS = 0.02


class Batcher:
    """The queue and its compute threads."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self._queue = RequestQueue(limits, self._abandon)
        self._changed = Condition()  # its lock guards the queue and the next two attributes
        self._batches_under_way, self._closed = 0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the threads. Called inside the event loop that `run` will be called in."""
        self._loop, self._closed = asyncio.get_running_loop(), False
        names = [f"elias-compute-{number}" for number in range(THREADS)]
        self._threads = [Thread(target=self._compute_batches, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Let the threads end after the batch they compute."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the threads to end: a process that exits inside a kernel may crash."""
        for thread in self._threads:
            thread.join()

    async def run(self, job: Job) -> list[str]:
        """One JSON object per text of an admitted job, in order."""
        if not job.texts:
            return []
        assert self._loop is not None
        done: asyncio.Future[list[str]] = self._loop.create_future()
        entry = Entry(job, done, remaining=len(job.texts), lines=[""] * len(job.texts))
        with self._changed:
            if self._closed:
                raise shutting_down()
            was_empty = not self._queue.texts
            self._queue.put(entry)
            # In between, a thread is awake already and will find the entry.
            if was_empty or self._queue.texts >= CROWD_TEXTS:
                self._changed.notify()
        # A third of the time that asyncio.timeout takes.
        timer = self._loop.call_later(self.limits.answer_seconds, self._expire, done)
        try:
            return await done
        finally:
            timer.cancel()

    def _expire(self, done: asyncio.Future[list[str]]) -> None:
        if not done.done():
            done.set_exception(too_slow(self.limits.answer_seconds))

    def _compute_batches(self) -> None:
        """The loop of one compute thread."""
        while self._compute_one_batch():
            pass

    def _compute_one_batch(self) -> bool:
        """Compute a batch; False when the service ends.

        A function of its own, so that a thread that waits for work holds no reference to the last batch, and through
        it to a model that has been replaced since.
        """
        batch = self._next_batch()
        if not batch:
            return False
        started, problem, lines = perf_counter(), None, list[list[str]]()
        try:
            lines = compute(batch)
        except Exception as raised:  # sent to the clients of this batch
            problem = raised
        except BaseException as raised:  # panics of compiled extensions; the thread must survive them
            problem = RuntimeError(type(raised).__name__)
        seconds = perf_counter() - started
        with self._changed:
            self._batches_under_way -= 1
        self._call_in_loop(self._deliver, batch, lines, problem, seconds)
        return True

    def _next_batch(self) -> list[Slice]:
        """Wait for a batch that this thread should compute; empty when the service ends."""
        with self._changed:
            since = perf_counter()
            while not self._closed:
                waited = perf_counter() - since
                is_crowd = self._queue.texts >= CROWD_TEXTS or waited >= CROWD_SECONDS
                if not self._batches_under_way or is_crowd:
                    batch = self._queue.take_batch()
                    if batch:
                        self._batches_under_way += 1
                        if self._queue.texts:
                            self._changed.notify()
                        return batch
                if self._queue.texts:
                    self._changed.wait(CROWD_SECONDS - waited)
                else:
                    self._changed.wait()
                    since = perf_counter()
            return []

    def _deliver(self, batch: list[Slice], lines: list[list[str]], problem: Exception | None, seconds: float) -> None:
        """In the event loop: hand the lines of a batch to the requests that wait for them."""
        n_texts = sum(map(len, batch))
        self.metrics.batches.observe(n_texts)
        self.metrics.texts.inc(n_texts)
        self.metrics.compute.observe(seconds)
        for number, piece in enumerate(batch):
            entry = piece.entry
            if problem is None:
                entry.lines[piece.start : piece.stop] = lines[number]
                entry.remaining -= len(piece)
            if entry.done.done():
                continue
            if problem is not None:
                entry.done.set_exception(problem)
            elif entry.remaining == 0:
                entry.done.set_result(entry.lines)

    def _abandon(self, entry: Entry) -> None:
        """In a compute thread: the client of an entry has disconnected."""

        def give_up() -> None:
            self.metrics.abandoned.inc()
            if not entry.done.done():
                entry.done.set_exception(ClientGone())

        self._call_in_loop(give_up)

    def _call_in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and with it every request
            self._loop.call_soon_threadsafe(call, *arguments)


def compute(batch: Sequence[Slice]) -> list[list[str]]:
    """One call of the model for a whole batch; JSON lines per slice."""
    first = batch[0].job
    texts = [text for piece in batch for text in piece.texts]
    ids = None
    if any(piece.ids is not None for piece in batch):
        ids = [name for piece in batch for name in piece.ids or [""] * len(piece)]
    # Only options that were given are passed on: a model need not know the others.
    options: dict[str, Any] = {}
    if first.options.threshold is not None:
        options["threshold"] = first.options.threshold
    if first.options.labels is not None:
        options["allow"] = first.options.labels
    if first.options.block:
        options["block"] = first.options.block
    if first.options.rare:
        options["rare"] = first.options.rare
    k = max(piece.job.options.k for piece in batch)
    predictions = first.served.model.predict(texts, k, ids=ids, explain=first.options.explain, **options)
    lines, row = [], 0
    for piece in batch:
        write = piece.job.write or result_lines
        lines.append(write(predictions, row, piece))
        row += len(piece)
    return lines
