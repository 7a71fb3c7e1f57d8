"""Who waits for an answer, and what is computed next.

A batch takes a share of every waiting request before it takes the rest of the first, so one text never waits behind
ten thousand. A request whose client went away, or whose answer nobody awaits any more, is dropped when its turn comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .answers import Ask
from .limits import Limits

if TYPE_CHECKING:
    from .models import Served

SHARE = 64  # texts of one request that a batch takes before others have had theirs
Gone = Callable[[], bool]


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

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def texts(self) -> Sequence[str]:
        return self.job.texts[self.start : self.stop]

    @property
    def ids(self) -> Sequence[str] | None:
        return None if self.job.ids is None else self.job.ids[self.start : self.stop]


class Waiting:
    """Jobs by what can be computed together. Not for several threads at once; `Batcher` sees to that."""

    def __init__(self, limits: Limits, abandon: Callable[[Job], None]) -> None:
        self.limits, self.texts = limits, 0  # not yet handed out; jobs that were given up count until their turn
        self._abandon = abandon
        self._jobs: dict[tuple[Any, ...], deque[Job]] = {}

    def put(self, job: Job) -> None:
        self._jobs.setdefault(job.key, deque()).append(job)
        self.texts += len(job.texts)

    def take(self) -> list[Slice]:
        """The next batch: a share of every request that can be computed with the first."""
        while self._jobs:
            key, jobs = next(iter(self._jobs.items()))
            del self._jobs[key]
            batch = self._slices(jobs)
            if jobs:
                self._jobs[key] = jobs  # at the back, so that other kinds get their turn
            if batch:
                self.texts -= sum(map(len, batch))
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
                self.texts -= len(job.texts) - job.at
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
