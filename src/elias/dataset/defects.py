"""What a reader came across: notes are counted and kept, defects are raised or collected.

A note is something with a documented treatment that does not stop the reading (a row without labels, a label
repeated within a row). A defect is a `DataError`: it names the file, the line, the field, the value and the remedy.
`ReadLog()` raises the first defect; `ReadLog(limit=20)` collects them, so that one pass over a broken folder reports
many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import DataError

NO_LABELS = "row without labels (kept; has no positives)"
EMPTY_TEXT = "empty text (kept)"
REPEATED_LABEL = "label repeated within a row (counted once, with its largest weight)"
ZERO_WEIGHT = "label with weight 0 in a row (left out: not relevant)"
REPEATED_ROW_ID = "row id used more than once in a split (kept)"
BLANK_LINE = "blank line (skipped)"
UNLISTED_LABEL = "label used in rows but not in the label file (added)"
LABEL_BY_NAME = "label given by its text instead of its id (resolved)"
UNTRAINED_LABEL = "label without a training text (kept; cannot be learned from texts)"
UNSEEN_LABEL = "label of test or validation never seen in training (kept; stays in the metrics)"
EXCLUDED_POSITIVE = "positive that is also an excluded pair (removed from the labels)"
FILTER_UNKNOWN_LABEL = "filter pair whose label is not in the label set (has no effect)"
UNREAD_FIELD = "field that is not read"
MISSING_VALUE = "cell with nan, None or null (read as missing)"
NOT_SEPARATED = "label that contains a character that could separate labels (kept whole, as the data suggest)"
UNREAD_FILE = "file that is not read"
FIELDS_SHOWN = 12  # in the note on fields that are not read
LABEL_UIDS_REPEATED = "label uid used more than once (label numbers are the ids instead)"


@dataclass(frozen=True)
class Note:
    """Something that was skipped, repaired or worth knowing: what, how often, and where first."""

    kind: str
    count: int
    example: str

    @property
    def examples(self) -> str:
        """The first place, and how many more there are; all fields that are not read."""
        is_list = self.kind == UNREAD_FIELD
        return self.example if is_list or self.count == 1 else f"{self.example} and {self.count - 1:,} more"

    def __str__(self) -> str:
        return f"{self.kind}: {self.examples}"


class EnoughDefects(Exception):
    """The limit of collected defects is reached. Never leaves this package."""


class ReadLog:
    """Counts notes; raises the first defect, or collects up to `limit` of them."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._notes: dict[str, tuple[int, str]] = {}
        self._unread: dict[str, None] = {}
        self.defects: list[DataError] = []

    def note(self, kind: str, place: str, count: int = 1) -> None:
        so_far, first = self._notes.get(kind, (0, place))
        self._notes[kind] = (so_far + count, first)

    def unread(self, names: Iterable[str]) -> None:
        """Fields of a file that nothing reads: one note lists those of all files."""
        self._unread |= dict.fromkeys(names)
        if self._unread:
            shown = ", ".join(f'"{name}"' for name in list(self._unread)[:FIELDS_SHOWN])
            more = f" and {len(self._unread) - FIELDS_SHOWN:,} more" if len(self._unread) > FIELDS_SHOWN else ""
            self._notes[UNREAD_FIELD] = (len(self._unread), shown + more)

    def defect(self, error: DataError) -> None:
        if self._limit is None:
            raise error
        error.__context__ = None  # the decoder's error and the traceback would keep the line, which may be long
        self.defects.append(error.with_traceback(None))
        if len(self.defects) >= self._limit:
            raise EnoughDefects

    @property
    def notes(self) -> list[Note]:
        return [Note(kind, count, first) for kind, (count, first) in self._notes.items()]


def place(file: Path | str, line: int | None = None, what: str = "") -> str:
    """Where a note was made: `train.jsonl:14: label "x"`."""
    name = file.name if isinstance(file, Path) else file
    where = name if line is None else f"{name}:{line}"
    return f"{where}: {what}" if what else where
