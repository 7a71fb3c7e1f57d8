"""Labels by name: every label whose id or text contains what was typed, best match first.

    exact id, id from its start, a word from its start, anywhere; then the label with more training rows
All labels are one long lower-case string, so that a search is a few calls of str.find whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..dataset.labels import LabelSet

MOST_HITS = 10_000  # looked at, however common the letters
SEPARATORS = " \t\n-_./:,;()[]\"'"


@dataclass(frozen=True)
class Hits:
    total: int
    labels: Sequence[int]


class LabelSearch:
    def __init__(self, labels: LabelSet, counts: np.ndarray) -> None:
        lines = [f"\n{_flat(label_id)}\t{_flat(text)}" for label_id, text in zip(labels.ids, labels.texts, strict=True)]
        self._all = "".join([*lines, "\n"])
        self._starts = np.cumsum([0, *map(len, lines)])[:-1]
        self._counts = counts
        self._popular = np.lexsort((np.arange(len(counts)), -counts))

    def find(self, search: str, most: int) -> Hits:
        wanted = _flat(search).strip()
        if not wanted:
            return Hits(len(self._counts), [int(label) for label in self._popular[:most]])
        ranked: dict[int, int] = {}
        for place in self._places(wanted):
            label = int(np.searchsorted(self._starts, place, side="right")) - 1
            rank = self._rank(place, len(wanted))
            ranked[label] = min(rank, ranked.get(label, rank))
            if len(ranked) >= MOST_HITS:
                break
        order = sorted(ranked, key=lambda label: (ranked[label], -int(self._counts[label]), label))
        return Hits(len(ranked), order[:most])

    def _places(self, wanted: str) -> Iterator[int]:
        """Ids from their start first: they are the best, and there may be too many of the others."""
        for pattern, shift in ((f"\n{wanted}", 1), (wanted, 0)):
            at = self._all.find(pattern)
            while at >= 0:
                yield at + shift
                at = self._all.find(pattern, at + 1)

    def _rank(self, place: int, length: int) -> int:
        before, after = self._all[place - 1], self._all[place + length]
        if before == "\n":
            return 0 if after == "\t" else 1
        return 2 if before in SEPARATORS else 3


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())
