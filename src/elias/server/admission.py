"""Admission control: the limits of the service, and every 503 answer with the place where it is decided.

A request is admitted before it is computed, or refused at once with 503 and `Retry-After`. Waiting clients cost
memory, so the service counts what it has admitted and not yet answered (requests, texts, bytes of bodies) and holds
these counts under `Limits`. The 503 answers:

    queue_full             Admission.check_room, before a body is read; Admission.admit, before its texts are queued
    not_ready              a model is still being opened (models.Registry.get, GET /ready)
    shutting_down          the compute threads have been stopped (batching.Batcher.run)
    too_slow               an admitted request was not computed within answer_seconds (batching.Batcher.run)
    TOO_MANY_CONNECTIONS   refused below HTTP, when the connection is opened (protocol.Connection)
    worker_missing         a worker is being started again, and its metrics with it (workers.Worker.metrics)
    reload_failed          the new model cannot be opened, the old one keeps serving (models.reload)

All counters belong to the event loop, so there are no locks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from ..core.errors import SettingsError, did_you_mean
from .errors import ServiceError
from .metrics import Metrics

SMALL_REQUEST = 64  # texts; up to here a request may use the reserved part of the queue
TOO_MANY_CONNECTIONS = "too many open connections; try again later"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may contain, and how much the service keeps waiting.

    `elias serve --limit texts=500` changes one limit; docs/reference/http.md lists them.
    """

    texts: int = 10_000  # per request
    text_length: int = 200_000  # characters
    body_bytes: int = 16 << 20
    k: int = 1000
    labels: int = 10_000  # that one request may name
    answers: int = 200_000  # texts times k in one answer; a stream may hold more
    pairs: int = 10_000_000  # texts times named labels
    waiting_requests: int = 256  # waiting or being computed; the next one is refused
    waiting_texts: int = 8192  # one request counts for at most a quarter of it: it is computed in pieces
    waiting_bytes: int = 128 << 20  # of request bodies
    connections: int = 1024
    batch: int = 256  # texts per call of the model
    batch_characters: int = 1_000_000
    header_seconds: float = 10.0  # for the headers of a request to arrive
    body_seconds: float = 20.0
    answer_seconds: float = 60.0  # for an answer, or for one piece of a stream
    drain_seconds: float = 30.0  # after SIGTERM

    def updated(self, changes: dict[str, str]) -> Limits:
        """A copy with some limits replaced; `changes` are {name: number} as typed on the command line."""
        known = {item.name: type(getattr(self, item.name)) for item in fields(self)}
        values = {}
        for name, text in changes.items():
            if name not in known:
                raise SettingsError(f"--limit {name}: there is no such limit{did_you_mean(name, known)}")
            try:
                values[name] = known[name](text)
            except ValueError:
                raise SettingsError(f'--limit {name}={text}: "{text}" is not a number') from None
            if not values[name] > 0:
                raise SettingsError(f"--limit {name}={text}: must be above 0")
        return replace(self, **values)


class Admission:
    """Counts what is admitted and not yet answered; refuses what would exceed the limits."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.requests = self.texts = self.bytes = 0
        metrics.gauge("elias_waiting_requests", "Requests accepted and not yet answered.", lambda: self.requests)
        metrics.gauge("elias_waiting_texts", "Their texts.", lambda: self.texts)
        metrics.gauge("elias_waiting_bytes", "Their bodies.", lambda: self.bytes)

    def check_room(self) -> None:
        """Refuse before a body is read: reading it would already cost the memory."""
        if self.requests >= self.limits.waiting_requests or self.bytes >= self.limits.waiting_bytes:
            raise self._queue_full()

    @contextmanager
    def admit(self, n_texts: int, n_bytes: int) -> Iterator[None]:
        """A place in the queue for as long as the block runs.

        One request counts for at most a quarter of `waiting_texts`, because it is computed in pieces. Large requests
        may fill seven eighths of the queue; the last eighth stays free for small ones, so that a bulk client cannot
        lock out interactive use.
        """
        n_texts = min(n_texts, max(1, self.limits.waiting_texts // 4))
        eighths = 8 if n_texts <= SMALL_REQUEST else 7
        room = self.limits.waiting_texts * eighths // 8
        if self.texts + n_texts > room or self.requests >= self.limits.waiting_requests:
            raise self._queue_full()
        self.requests += 1
        self.texts += n_texts
        self.bytes += n_bytes
        try:
            yield
        finally:
            self.requests -= 1
            self.texts -= n_texts
            self.bytes -= n_bytes

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Count a body that has arrived and is being parsed; `admit` counts it from then on."""
        self.bytes += n_bytes
        try:
            yield
        finally:
            self.bytes -= n_bytes

    def _queue_full(self) -> ServiceError:
        self.metrics.refused.inc()
        return unavailable("the service is busy: its queue is full; try again after the seconds in Retry-After")


def unavailable(message: str, *, retry_after: int = 1) -> ServiceError:
    """503, with the number of seconds after which a client should try again."""
    return ServiceError(503, message, headers={"Retry-After": str(retry_after)})


def not_ready(*, retry_after: int = 2) -> ServiceError:
    return unavailable("the model is still being opened; try again in a few seconds", retry_after=retry_after)


def shutting_down() -> ServiceError:
    return unavailable("the service is shutting down")


def too_slow(seconds: float) -> ServiceError:
    return unavailable(f"no answer within {seconds:g} seconds; send fewer texts per request", retry_after=5)


def worker_missing() -> ServiceError:
    return unavailable("a worker of the service is being started again; try again in a few seconds", retry_after=5)


def reload_failed() -> ServiceError:
    # The reason names paths of the machine, so it is for the log. No Retry-After: trying again does not help.
    message = "the new model cannot be opened, so the old one keeps serving; the log of the service has the reason"
    return ServiceError(503, message, code="reload_failed")
