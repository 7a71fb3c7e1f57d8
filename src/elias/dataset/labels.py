"""Labels: their ids, texts, and the number that each has inside ELIAS.

    labels.tsv      id <tab> text [<tab> alternative names]       one label per line, no header

A line of one column is a label whose id is its own text. Labels of the label file come first, then those of the rows
in the order of their first occurrence. A label's number is its place in `ids`; it never changes for the life of a
model. Ids come from the user's files and go back to the user unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from ..core.errors import DataError, ModelError
from .defects import BLANK_LINE, LABEL_BY_NAME, UNLISTED_LABEL, ReadLog, place
from .files import Folder, numbered_lines

MOST_LABELS = 50_000_000  # some 5 GB of names
LABEL_TEXT_FILES = ("Y.txt", "raw/Y.txt", "raw_data/Y.txt", "output-items.txt", "lbl_X.txt", "raw/lbl_X.txt")
_NOT_IN_IDS = re.compile("[\t\n\r\0\ud800-\udfff]")
AMBIGUOUS = -1  # in place of a label number: several labels share the text


class LabelSet:
    """`ids[number]`, `texts[number]` and `alternatives[number]` (empty where a label has none), `number_of[id]`.

    `uris[number]` where the labels come from a vocabulary with URIs (empty for a label outside it), otherwise None.
    """

    def __init__(
        self,
        ids: Sequence[str],
        texts: Sequence[str] | None = None,
        alternatives: Sequence[str] | None = None,
        uris: Sequence[str] | None = None,
    ) -> None:
        self.ids: Sequence[str] = ids
        self.texts: Sequence[str] = texts if texts is not None else [""] * len(ids)
        self.alternatives: Sequence[str] = alternatives if alternatives is not None else [""] * len(ids)
        self.uris: Sequence[str] | None = uris
        assert len(self.texts) == len(self.alternatives) == len(self.ids)
        assert uris is None or len(uris) == len(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"LabelSet({len(self):,} labels{' with texts' if self.has_texts else ''})"

    @cached_property
    def number_of(self) -> dict[str, int]:
        numbers = {label_id: number for number, label_id in enumerate(self.ids)}
        if len(numbers) < len(self.ids):
            raise ModelError("labels.tsv: two labels have the same id; restore the model from a copy")
        return numbers

    def uri(self, number: int) -> str | None:
        """The URI of a label, if it has one."""
        return (self.uris[number] or None) if self.uris is not None else None

    @cached_property
    def has_texts(self) -> bool:
        return any(self.texts)

    @property
    def texts_to_show(self) -> Sequence[str]:
        """`texts`, empty where the text is the id: whoever prints both prints a name once."""
        return _OtherTexts(self.ids, self.texts)


class _OtherTexts(Sequence[str]):
    """Looked up when asked for: the names of a model are decoded one by one."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self._ids, self._texts = ids, texts

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        text = self._texts[number]
        return "" if text and text == self._ids[number] else text


class LabelSetBuilder:
    """A label set that grows while rows are read. A label that is not an id is looked up as a text, then added."""

    def __init__(self, log: ReadLog) -> None:
        self.log = log
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.alternatives: list[str] = []
        self.uris: dict[int, str] = {}  # of labels from a vocabulary (skos.py)
        self.other_names: dict[str, int] = {}  # notations and texts by which rows may name them; or AMBIGUOUS
        self.used_names: dict[str, int] = {}  # those that rows did use
        self.numbers: dict[str, int] = {}
        self.listed = 0  # the first `listed` labels come from a label file
        self._number_of_text: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, label: str, text: str = "", alternatives: str = "") -> int:
        number = len(self.ids)
        self.numbers[label] = number
        self.ids.append(label)
        self.texts.append(without_halves(text))
        self.alternatives.append(without_halves(alternatives))
        return number

    def add_numbers(self, count: int, texts: Iterable[str] | None = None) -> None:
        """The labels of a layout that only numbers them: "0", "1", ..."""
        if count > MOST_LABELS:
            raise DataError(f"{count:,} labels; at most {MOST_LABELS:,} can be numbered, is the file damaged?")
        for number, text in zip(range(count), texts if texts is not None else [""] * count, strict=True):
            self.add(str(number), text)
        self.end_label_file()

    def end_label_file(self) -> None:
        """What was added so far is the label file; a label that rows add from here on is noted."""
        self.listed = len(self.ids)

    def number(self, label: str, file: Path | str, line: int | None) -> int:
        """The number of a label that occurs in a row."""
        number = self.numbers.get(label)
        if number is not None:
            return number
        problem = id_problem(label)
        if problem:
            raise DataError(f"label {label!r} {problem}", file=file, line=line)
        number = self.other_names.get(label)
        if number is not None:
            if number == AMBIGUOUS:
                raise DataError(f'label "{label}" names several concepts; use the URI', file=file, line=line)
            self.numbers[label] = self.used_names[label] = number
            return number
        if self.listed:
            number = self._by_text(label, file, line)
            if number is not None:
                return number
            self.log.note(UNLISTED_LABEL, place(file, line, f'"{label}"'))
        return self.add(label)

    def _by_text(self, label: str, file: Path | str, line: int | None) -> int | None:
        if self._number_of_text is None:  # only rows that name labels by text pay for this table
            self._number_of_text = {}
            for number, text in enumerate(self.texts[: self.listed]):
                if text:
                    self._number_of_text[text] = AMBIGUOUS if text in self._number_of_text else number
        found = self._number_of_text.get(label)
        if found is None:
            return None
        if found == AMBIGUOUS:
            raise DataError(f'label "{label}" is the text of several labels; use the id', file=file, line=line)
        self.log.note(LABEL_BY_NAME, place(file, line, f'"{label}" is "{self.ids[found]}"'))
        return found

    def label_set(self) -> LabelSet:
        uris = [self.uris.get(number, "") for number in range(len(self))] if self.uris else None
        return LabelSet(self.ids, self.texts, self.alternatives, uris)


def id_problem(label: str) -> str:
    """Why a text cannot be a label id; empty if it can. An id must survive as a cell of labels.tsv."""
    if not label.strip():
        return "is empty"
    found = _NOT_IN_IDS.search(label)
    if found is None:
        return ""
    if found.group() in "\t\n\r\0":
        return "contains a tab, a line break or NUL; replace them by spaces"
    return "contains half of a surrogate pair; it is not valid Unicode"


def without_halves(text: str) -> str:
    """Half a surrogate pair, which JSON files can hold and answers in UTF-8 cannot, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def read_label_file(file: Path, labels: LabelSetBuilder) -> None:
    """labels.tsv into an empty label set."""
    first_seen: dict[str, int] = {}
    log = labels.log
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
            labels.add(label, rest[0].strip() if rest else label, "; ".join(rest[1:]).strip())
    labels.end_label_file()


def read_column_labels(folder: Folder, n_labels: int, log: ReadLog) -> LabelSetBuilder:
    """Labels of a layout whose labels are the columns of a matrix.

    Names come from labels.tsv (in column order) or Y.txt (one text per line); without them a label's id is its number.
    """
    labels = LabelSetBuilder(log)
    label_file = folder.find("labels.tsv")
    text_file = None if label_file else folder.find(*LABEL_TEXT_FILES)
    if label_file is not None:
        read_label_file(label_file, labels)
    elif text_file is not None:
        texts = [text for _, text in numbered_lines(text_file)]
        if len(texts) == n_labels:
            labels.add_numbers(n_labels, texts)
        else:
            raise DataError(f"{len(texts):,} lines, the label matrix has {n_labels:,} columns", file=text_file)
    else:
        labels.add_numbers(n_labels)
    if len(labels) != n_labels:
        raise DataError(f"{len(labels):,} labels, the label matrix has {n_labels:,} columns", file=label_file)
    return labels
