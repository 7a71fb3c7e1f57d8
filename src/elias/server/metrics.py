"""Counters and histograms in the text that Prometheus reads. Touched by the event loop only, so without locks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Names = tuple[tuple[str, str], ...]


class Counter:
    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._counts: dict[Names, float] = {}

    def add(self, amount: float = 1, **names: str) -> None:
        key = tuple(names.items())
        self._counts[key] = self._counts.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.about, "counter")
        for key, count in self._counts.items() or [((), 0)]:
            yield f"{self.name}{_names(key)} {count:g}"


class Histogram:
    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name, self.about, self.bounds = name, about, bounds
        self._counts: dict[Names, list[int]] = {}
        self._sums: dict[Names, float] = {}

    def see(self, value: float, **names: str) -> None:
        key = tuple(names.items())
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(self.bounds) + 1)
            self._sums[key] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[key] += value

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.about, "histogram")
        for key, counts in self._counts.items():
            so_far = 0
            for bound, count in zip([*map(str, self.bounds), "+Inf"], counts, strict=True):
                so_far += count
                yield f"{self.name}_bucket{_names((*key, ('le', bound)))} {so_far}"
            yield f"{self.name}_sum{_names(key)} {self._sums[key]:.9g}"
            yield f"{self.name}_count{_names(key)} {so_far}"


class Gauge:
    """Read when it is asked for."""

    def __init__(self, name: str, about: str, read: Callable[[], float]) -> None:
        self.name, self.about, self.read = name, about, read

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.about, "gauge")
        yield f"{self.name} {self.read():g}"


class Metrics:
    def __init__(self) -> None:
        self.requests = Counter("elias_requests_total", "Requests by route, method and status.")
        self.seconds = Histogram("elias_request_seconds", "Time from request to the end of its answer.", SECONDS)
        self.errors = Counter("elias_errors_total", "Answers of 400 and above, by code.")
        self.texts = Counter("elias_texts_total", "Texts predicted.")
        self.batches = Histogram("elias_batch_texts", "Texts computed at a time.", TEXTS)
        self.compute = Histogram("elias_batch_seconds", "Time a batch took to compute.", SECONDS)
        self.refused = Counter("elias_refused_total", "Requests answered 503 because the queue was full.")
        self.abandoned = Counter("elias_abandoned_total", "Requests whose client went away before their turn.")
        self.reloads = Counter("elias_reloads_total", "Reloads by outcome.")
        self._more: list[Gauge] = []

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        self._more.append(Gauge(name, about, read))

    def text(self) -> str:
        known = [item for item in vars(self).values() if isinstance(item, Counter | Histogram)]
        return "".join(f"{line}\n" for item in [*known, *self._more] for line in item.lines())


def _head(name: str, about: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _names(pairs: Names) -> str:
    if not pairs:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
