"""The label vocabulary while it grows: labels of the label file first, then those of the rows as they appear.

labels.tsv: id <tab> text [<tab> alternative names], one label a line, no header. A line of one column is a label
whose id is its own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..core.errors import DataError
from .labels import LabelSet
from .lines import numbered_lines
from .log import BLANK_LINE, LABEL_BY_NAME, UNLISTED_LABEL, Log, place

MOST_LABELS = 50_000_000  # some 5 GB of names
_NOT_IN_IDS = re.compile("[\t\n\r\0\ud800-\udfff]")


class Vocabulary:
    """Label id -> number. Ids that are not known are looked up as label texts, then added."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.alternatives: list[str] = []
        self.numbers: dict[str, int] = {}
        self.listed = 0  # the first `listed` labels come from a label file
        self._number_of_text: dict[str, int] | None = None  # -1 where two labels share a text

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, label: str, text: str = "", alternatives: str = "") -> int:
        number = len(self.ids)
        self.numbers[label] = number
        self.ids.append(label)
        self.texts.append(text)
        self.alternatives.append(alternatives)
        return number

    def list_numbers(self, count: int, texts: Iterable[str] | None = None) -> None:
        """The vocabulary of a layout that only numbers its labels: "0", "1", ..."""
        if count > MOST_LABELS:
            raise DataError(f"{count:,} labels; at most {MOST_LABELS:,} can be numbered, is the file damaged?")
        for number, text in zip(range(count), texts if texts is not None else [""] * count, strict=True):
            self.add(str(number), text)
        self.listed = count

    def close_list(self) -> None:
        """What was added so far is the label file."""
        self.listed = len(self.ids)

    def number(self, label: str, file: Path | str, line: int | None) -> int:
        """The number of a label met in a row."""
        number = self.numbers.get(label)
        if number is not None:
            return number
        problem = id_problem(label)
        if problem:
            raise DataError(f"label {label!r} {problem}", file=file, line=line)
        if self.listed:
            number = self._by_text(label, file, line)
            if number is not None:
                return number
            self.log.note(UNLISTED_LABEL, place(file, line, f'"{label}"'))
        return self.add(label)

    def _by_text(self, label: str, file: Path | str, line: int | None) -> int | None:
        if self._number_of_text is None:
            self._number_of_text = {}
            for number, text in enumerate(self.texts[: self.listed]):
                if text:
                    self._number_of_text[text] = -1 if text in self._number_of_text else number
        found = self._number_of_text.get(label)
        if found is None:
            return None
        if found < 0:
            raise DataError(f'label "{label}" is the text of several labels; use the id', file=file, line=line)
        self.log.note(LABEL_BY_NAME, place(file, line, f'"{label}" is "{self.ids[found]}"'))
        return found

    def label_set(self) -> LabelSet:
        return LabelSet(self.ids, self.texts, self.alternatives)


def id_problem(label: str) -> str:
    """Why a text cannot be a label id, or nothing. Ids must survive a line of labels.tsv."""
    if not label.strip():
        return "is empty"
    found = _NOT_IN_IDS.search(label)
    if found is None:
        return ""
    if found.group() in "\t\n\r\0":
        return "contains a tab, a line break or NUL; replace them by spaces"
    return "contains half of a surrogate pair; it is not valid Unicode"


def read_label_file(file: Path, vocabulary: Vocabulary) -> None:
    """labels.tsv into an empty vocabulary."""
    first_seen: dict[str, int] = {}
    log = vocabulary.log
    for line, text in numbered_lines(file, log):
        if not text.strip():
            log.note(BLANK_LINE, place(file, line))
            continue
        label, *rest = text.split("\t")
        if problem := id_problem(label):
            log.defect(DataError(f"label {label!r} {problem}", file=file, line=line))
        elif label in first_seen:
            log.defect(DataError(f'label "{label}" is already in line {first_seen[label]}', file=file, line=line))
        else:
            first_seen[label] = line
            vocabulary.add(label, rest[0].strip() if rest else label, "; ".join(rest[1:]).strip())
    vocabulary.close_list()
