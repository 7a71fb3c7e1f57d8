"""labels.tsv of a saved model: id, text, training count, stage-1 cluster. Row number = label number.

Labels of a vocabulary with URIs have their URI as a fifth column.

A tab, line break or backslash inside an id or text is written as \\t, \\n, \\r, \\\\ so that every id survives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from ..core.errors import ModelError
from ..core.files import check_regular, replacing, unreadable
from ..core.schema import SMALL
from ..dataset.labels import LabelSet, without_halves

HEADER = "id\ttext\ttraining_count\tstage1_cluster"
HEADER_WITH_URIS = f"{HEADER}\turi"
MOST_ROWS = 2**31 - 1
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_BACK = {escaped: plain for plain, escaped in _ESCAPES.items()}


def write_labels(path: Path, labels: LabelSet, counts: np.ndarray, clusters: np.ndarray) -> None:
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="\n", errors="surrogatepass") as out:
        out.write((HEADER if labels.uris is None else HEADER_WITH_URIS) + "\n")
        columns = zip(labels.ids, labels.texts, counts, clusters, strict=True)
        for number, (label_id, text, count, cluster) in enumerate(columns):
            uri = "" if labels.uris is None else f"\t{_escaped(labels.uris[number])}"
            out.write(f"{_escaped(label_id)}\t{_escaped(text)}\t{int(count)}\t{int(cluster)}{uri}\n")


def read_labels(path: Path) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    """(labels, training counts, stage-1 clusters). Names are decoded when they are asked for: millions open at once."""
    check_regular(path)
    try:
        raw = path.read_bytes()
        raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as problem:
        raise ModelError(f"{path}: not UTF-8 ({problem}); the file is damaged") from None
    except OSError as problem:
        raise ModelError(unreadable(path, problem)) from None
    header = raw.split(b"\n", 1)[0].decode("utf-8", "replace")
    if header not in (HEADER, HEADER_WITH_URIS):
        raise ModelError(f'{path}:1: the header must be "{HEADER}"; this is not a label file of elias')
    content = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    if len(ends) == 0 or ends[-1] != len(content) - 1:
        ends = np.append(ends, len(content))
    starts, ends = ends[:-1] + 1, ends[1:]
    tabs = np.flatnonzero(content == ord("\t"))
    n_tabs = header.count("\t")
    tabs = tabs[n_tabs:]
    _check(path, np.searchsorted(tabs, ends) - np.searchsorted(tabs, starts) == n_tabs)
    first, second, third = tabs.reshape(-1, n_tabs).T[:3]
    uris = None
    if header == HEADER_WITH_URIS:
        fourth = tabs[n_tabs - 1 :: n_tabs]
        uris = _Column(raw, fourth + 1, ends)
        ends = fourth  # of the cluster
    counts, are_counts = _numbers(content, second + 1, third)
    negative = (third + 1 < ends) & (content[np.minimum(third + 1, len(content) - 1)] == ord("-"))
    clusters, are_clusters = _numbers(content, third + 1 + negative, ends)
    _check(path, are_counts & are_clusters)
    labels = LabelSet(_Column(raw, starts, first), _Texts(raw, first + 1, second), uris=uris)
    if len(raw) <= SMALL:  # of more labels, the first look-up by id finds it
        check_repeated(path, labels)
    clusters = np.clip(np.where(negative, -clusters, clusters), -2, MOST_ROWS)
    return labels, counts, clusters.astype(np.int32)


def check_repeated(path: Path, labels: LabelSet) -> None:
    """Refuse an id that two labels have."""
    seen: dict[str, int] = {}
    for number, label_id in enumerate(labels.ids):
        if label_id in seen:
            lines = f"{seen[label_id] + 2} and {number + 2}"
            raise ModelError(f'{path}: lines {lines} have the same id "{label_id}"; restore it from a copy')
        seen[label_id] = number


def check_numbers(path: Path, counts: np.ndarray, clusters: np.ndarray, n_clusters: int) -> None:
    """Refuse stage-1 clusters that the index does not have."""
    wrong = np.flatnonzero((clusters < -1) | (clusters >= n_clusters))
    if len(wrong):
        raise ModelError(
            f"{path}:{wrong[0] + 2}: cluster {clusters[wrong[0]]}, but the index has {n_clusters} clusters; restore it "
            "from a copy"
        )
    most = int(counts.max(initial=0))
    if most > MOST_ROWS:
        raise ModelError(f"{path}:{int(counts.argmax()) + 2}: a training count of {most}; restore it from a copy")


class _Column(Sequence[str]):
    """One field of every line, decoded when it is asked for."""

    def __init__(self, raw: bytes, starts: np.ndarray, ends: np.ndarray) -> None:
        self._raw, self._starts, self._ends = raw, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return self._decoded(self._raw[self._starts[place] : self._ends[place]])

    def _decoded(self, raw: bytes) -> str:
        return _plain(raw.decode("utf-8", "surrogatepass"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class _Texts(_Column):
    """Texts of labels. They are shown and never looked up, so what no answer could hold is replaced."""

    def _decoded(self, raw: bytes) -> str:
        return without_halves(super()._decoded(raw))


def _check(path: Path, is_good: np.ndarray) -> None:
    bad = np.flatnonzero(~is_good)
    if len(bad):
        raise ModelError(
            f"{path}:{bad[0] + 2}: needs id, text, count and cluster (and a URI if the header has it); it is damaged"
        )


def _numbers(content: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decimal numbers at some places of a text, and whether each is one."""
    values, good = np.zeros(len(starts), dtype=np.int64), (ends > starts) & (ends - starts <= 18)
    for offset in range(int(np.clip((ends - starts).max(initial=0), 0, 18))):
        inside = good & (starts + offset < ends)
        digits = content[np.minimum(starts + offset, len(content) - 1)].astype(np.int64) - ord("0")
        good &= ~inside | ((digits >= 0) & (digits <= 9))
        values = np.where(inside, 10 * values + digits, values)
    return values, good


def _escaped(text: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda found: _ESCAPES[found[0]], text)


def _plain(text: str) -> str:
    return re.sub(r"\\[\\tnr]", lambda found: _BACK[found[0]], text) if "\\" in text else text
