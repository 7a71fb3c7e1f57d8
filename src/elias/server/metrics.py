"""Counters, histograms and gauges in the text format that Prometheus reads (GET /metrics).

Only the event loop updates them, so there are no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Tags = tuple[tuple[str, str], ...]  # what Prometheus calls labels; here that word means something else


class Counter:
    """A sum per combination of tags."""

    def __init__(self, name: str, description: str) -> None:
        self.name, self.description = name, description
        self._counts: dict[Tags, float] = {}

    def inc(self, amount: float = 1, **tags: str) -> None:
        key = tuple(tags.items())
        self._counts[key] = self._counts.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        yield from _header(self.name, self.description, "counter")
        # A counter without a sample would be missing from dashboards until its first event.
        for key, count in self._counts.items() or [((), 0)]:
            yield f"{self.name}{_tags(key)} {count:g}"


class Histogram:
    """Counts per bucket, `bounds` being the upper bounds; one histogram per combination of tags."""

    def __init__(self, name: str, description: str, bounds: Sequence[float]) -> None:
        self.name, self.description, self.bounds = name, description, bounds
        self._counts: dict[Tags, list[int]] = {}
        self._sums: dict[Tags, float] = {}

    def observe(self, value: float, **tags: str) -> None:
        key = tuple(tags.items())
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(self.bounds) + 1)
            self._sums[key] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[key] += value

    def lines(self) -> Iterator[str]:
        yield from _header(self.name, self.description, "histogram")
        for key, counts in self._counts.items():
            cumulative = 0  # the format wants "at most this bound", not "in this bucket"
            for bound, count in zip([*map(str, self.bounds), "+Inf"], counts, strict=True):
                cumulative += count
                yield f"{self.name}_bucket{_tags((*key, ('le', bound)))} {cumulative}"
            yield f"{self.name}_sum{_tags(key)} {self._sums[key]:.9g}"
            yield f"{self.name}_count{_tags(key)} {cumulative}"


class Gauge:
    """A value that is read when the metrics are."""

    def __init__(self, name: str, description: str, read: Callable[[], float]) -> None:
        self.name, self.description, self.read = name, description, read

    def lines(self) -> Iterator[str]:
        yield from _header(self.name, self.description, "gauge")
        yield f"{self.name} {self.read():g}"


class Metrics:
    """Every metric of the service."""

    def __init__(self) -> None:
        self.requests = Counter("elias_requests_total", "Requests by route, method and status.")
        self.seconds = Histogram("elias_request_seconds", "Time from request to the end of its answer.", SECONDS)
        self.errors = Counter("elias_errors_total", "Answers of 400 and above, by code.")
        self.texts = Counter("elias_texts_total", "Texts predicted.")
        self.batches = Histogram("elias_batch_texts", "Texts per batch.", TEXTS)
        self.compute = Histogram("elias_batch_seconds", "Time a batch took to compute.", SECONDS)
        self.refused = Counter("elias_refused_total", "Requests answered 503 because the queue was full.")
        self.abandoned = Counter("elias_abandoned_total", "Requests whose client disconnected before their turn.")
        self.reloads = Counter("elias_reloads_total", "Reloads by outcome.")
        self._gauges: list[Gauge] = []

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        self._gauges.append(Gauge(name, description, read))

    def text(self) -> str:
        updated = [item for item in vars(self).values() if isinstance(item, Counter | Histogram)]
        return "".join(f"{line}\n" for item in [*updated, *self._gauges] for line in item.lines())


def add_up(texts: Sequence[str]) -> str:
    """The metrics of several workers as those of one service: sums, and readiness only where all are ready."""
    families: dict[str, tuple[str, dict[str, list[float]]]] = {}
    for text in texts:
        for block in text.split("# HELP ")[1:]:
            about, kind, *lines = block.splitlines()
            _, values = families.setdefault(about.split()[0], (f"# HELP {about}\n{kind}\n", {}))
            for line in lines:
                name, _, value = line.rpartition(" ")
                values.setdefault(name, []).append(float(value))
    total: list[str] = []
    for family, (head, values) in families.items():
        if len(values) > 1:
            values.pop(family, None)  # the 0 of a worker whose counter has had no event yet
        total.append(head)
        for name, parts in values.items():
            total.append(f"{name} {min(parts) if family == 'elias_ready' else sum(parts):.12g}\n")
    return "".join(total)


def _header(name: str, description: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {description}", f"# TYPE {name} {kind}"


def _tags(pairs: Tags) -> str:
    if not pairs:
        return ""
    content = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{content}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
