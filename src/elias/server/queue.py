"""The queue of admitted requests, and which of their texts form the next batch.

Requests for the same model with compatible options are computed in one call of the model. The order is fair: a batch
first takes a share of every waiting request and then fills up with the rest of the first ones, so one text never waits
behind ten thousand. A request whose client has disconnected is dropped when its turn comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .admission import Limits
from .models import Served

if TYPE_CHECKING:
    from ..core.predictions import Predictions

SHARE = 64  # texts of one request that a batch takes before every other request has had its share
SMALL_K = 32  # up to here requests with different k are computed together
MAX_PAIRS = 1 << 18  # texts times named labels per batch: their scores are computed exhaustively


@dataclass(frozen=True)
class PredictOptions:
    """The options of a request, as `Model.predict` takes them."""

    k: int = 5
    explain: bool = False
    threshold: float | None = None
    labels: tuple[str, ...] | None = None
    block: tuple[str, ...] = ()
    rare: float = 0.0

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Requests with equal keys can share a call of the model.

        Small k may differ: the k best labels are the first k of a longer list; with `rare` too, because SMALL_K is
        below the depth to which `predict` re-ranks. Explaining takes longer than predicting, so requests that do not
        ask for it do not share a batch with those that do.
        """
        k = self.k if self.k > SMALL_K else 0
        return self.threshold, self.labels, self.block, self.rare, k, self.explain


@dataclass(frozen=True, eq=False)
class Job:
    """A valid request: what to compute, and a function that tells whether its client is still connected.

    `write`: the answers as lines of JSON, where they differ from those of `responses.result_lines`.
    """

    served: Served
    options: PredictOptions
    texts: Sequence[str]
    ids: Sequence[str] | None
    client_gone: Callable[[], bool]
    write: Callable[[Predictions, int, Slice], list[str]] | None = None

    def rows(self, start: int, stop: int) -> Job:
        """The same for some of its texts."""
        ids = None if self.ids is None else self.ids[start:stop]
        return replace(self, texts=self.texts[start:stop], ids=ids)


@dataclass(eq=False)
class Entry:
    """A job in the queue, with its progress. Texts up to `taken` are computed or in a batch under way."""

    job: Job
    done: asyncio.Future[list[str]]
    taken: int = 0
    remaining: int = 0  # texts not yet computed
    lines: list[str] = field(default_factory=list)  # one JSON object per text

    @property
    def key(self) -> tuple[Any, ...]:
        # id(): after a reload the same name is another model.
        return (self.job.served.name, id(self.job.served), *self.job.options.batch_key)


@dataclass(frozen=True)
class Slice:
    """Texts start to stop of one entry, as part of a batch."""

    entry: Entry
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def job(self) -> Job:
        return self.entry.job

    @property
    def texts(self) -> Sequence[str]:
        return self.job.texts[self.start : self.stop]

    @property
    def ids(self) -> Sequence[str] | None:
        return None if self.job.ids is None else self.job.ids[self.start : self.stop]


class RequestQueue:
    """Entries grouped by what can be computed together. Not thread-safe: `Batcher` holds its lock around every call.

    `on_abandoned` is called with each entry that is dropped because its client has disconnected.
    """

    def __init__(self, limits: Limits, on_abandoned: Callable[[Entry], None]) -> None:
        self.limits, self._on_abandoned = limits, on_abandoned
        self.texts = 0  # not yet in a batch; those of abandoned entries count until their turn comes
        self._entries: dict[tuple[Any, ...], deque[Entry]] = {}

    def put(self, entry: Entry) -> None:
        self._entries.setdefault(entry.key, deque()).append(entry)
        self.texts += len(entry.job.texts)

    def take_batch(self) -> list[Slice]:
        """The next batch; empty when nothing waits."""
        while self._entries:
            key, entries = next(iter(self._entries.items()))
            del self._entries[key]
            batch = self._slices(entries)
            if entries:
                self._entries[key] = entries  # at the back, so that other groups get their turn
            if batch:
                self.texts -= sum(map(len, batch))
                return batch
        return []

    def _slices(self, entries: deque[Entry]) -> list[Slice]:
        """A share of every entry in turn, then more of the first ones while there is room."""
        room, characters, batch = self._batch_size(entries[0]), self.limits.batch_characters, list[Slice]()
        share = min(SHARE, room)
        for _ in range(len(entries)):
            if room <= 0 or characters <= 0:
                break
            entry = entries.popleft()
            texts = entry.job.texts
            if entry.done.done() or entry.job.client_gone():
                self.texts -= len(texts) - entry.taken
                self._on_abandoned(entry)
                continue
            stop = entry.taken
            # The limit on characters is checked before each text, so a batch holds at least one text of any length.
            while stop < min(entry.taken + min(share, room), len(texts)) and characters > 0:
                characters -= len(texts[stop])
                stop += 1
            batch.append(Slice(entry, entry.taken, stop))
            room -= stop - entry.taken
            entry.taken = stop
            if entry.taken < len(texts):
                entries.append(entry)
        return self._filled_up(entries, batch, room, characters)

    def _filled_up(self, entries: deque[Entry], batch: list[Slice], room: int, characters: int) -> list[Slice]:
        """Extend the slices, first come first served, by texts that fit after every entry has had its share."""
        for number, piece in enumerate(batch):
            entry, texts, stop = piece.entry, piece.job.texts, piece.stop
            while room > 0 and characters > 0 and stop < len(texts):
                characters -= len(texts[stop])
                room -= 1
                stop += 1
            if stop > piece.stop:
                batch[number] = Slice(entry, piece.start, stop)
                entry.taken = stop
                if entry.taken == len(texts):
                    entries.remove(entry)
        return batch

    def _batch_size(self, entry: Entry) -> int:
        """Texts per batch: fewer when each is scored against many named labels."""
        n_named = len(entry.job.options.labels or ())
        return min(self.limits.batch, max(1, MAX_PAIRS // max(1, n_named)))
