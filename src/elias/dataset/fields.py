"""Which fields of a record hold its text, its labels and its id, and how a cell of labels is split.

A field that is None is recognized from the names of the fields and from the data; the reader returns the fields it
used, and a model remembers them, so that `predict` and `evaluate` read the same files that `fit` read.

Recognition (`resolve_fields`), upper and lower case alike:

    text      text with title before it; else title or name, then description, abstract, body, content, ...
    labels    labels, label; else the only one of tags, categories, subjects, classes, topics, keywords, target, ...
    id        id, _id, uid, key, sku, ...

If text or labels have no usual name, the one other column that holds sentences is the text, and the one that holds
lists or short values that repeat is the labels. If there is none, or more than one, the user is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..core.errors import DataError, did_you_mean
from ..core.tokenize import tokenize
from .label_cells import CANDIDATES, LIST_OPENINGS, named_separator

TITLES = ("title", "headline", "product_title", "product_name", "name")
BODIES = (
    "description", "product_description", "abstract", "summary", "body", "content", "contents", "document", "sentence",
    "review", "review_text", "comment", "message", "question", "query", "utterance", "tweet", "paragraph", "passage",
)  # fmt: skip
LABELS = (
    "tags", "tag", "categories", "category", "subjects", "subject", "classes", "class", "topics", "topic", "keywords",
    "keyword", "target", "targets", "genres", "genre", "intent", "sentiment", "label_ids", "label_id", "label_names",
    "label_name", "y",
)  # fmt: skip
IDS = ("id", "_id", "uid", "key", "sku", "doc_id", "docid", "document_id", "uuid", "identifier")
USUAL_NAMES = {"text", "labels", "label", *TITLES, *BODIES, *LABELS, *IDS}
MISSING_WORDS = {"", "nan", "NaN", "None", "null", "NULL", "<NA>"}  # how tables spell a value that is not there
WORDS_OF_A_SENTENCE = 3  # per piece between candidates for separators: tags have one or two
TYPED_ROWS = 200  # rows whose values tell what a column holds
FEWEST_TO_REPEAT = 20  # rows from which a column of labels must repeat a value
_NOT_LABELS = re.compile(r"https?://\S*|\d{4}-\d\d-\d\d.*|\d\d?[./]\d\d?[./]\d{2,4}|[-+]?\d+([.,]\d+)?")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Names of fields.

    Parameters
    ----------
    text
        The fields that make up the text, joined by a space in this order.
    labels
        The field of the labels.
    id
        The field of the row's own id.
    separator
        What stands between two labels of one cell; empty: a cell is one label.
    """

    text: tuple[str, ...] | None = None
    labels: str | None = None
    id: str | None = None
    separator: str | None = None

    @classmethod
    def of(
        cls, text: str | Sequence[str] | None = None, labels: str | None = None, id: str | None = None,
        separator: str | None = None,
    ) -> Fields:  # fmt: skip
        """From what users pass: one text field may be a plain string, a separator the word tab or none."""
        names = (text,) if isinstance(text, str) else None if text is None else tuple(text)
        return cls(
            text=names or None,
            labels=labels or None,
            id=id or None,
            separator=None if separator is None else named_separator(separator),
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Fields:
        """The inverse of `as_dict`, also after a way through JSON."""
        text = content.get("text")
        return cls(
            text=None if text is None else tuple(text),
            labels=content.get("labels"),
            id=content.get("id"),
            separator=content.get("separator"),
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def or_else(self, other: Fields) -> Fields:
        """These fields, and those of `other` where these are None."""
        return Fields(**{name: other.as_dict()[name] if value is None else value for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a file or an object, for `resolve_fields`.

    Parameters
    ----------
    rows
        The first rows, as mappings of column to value.
    file
        Named in errors.
    has_header
        Whether the names come from the first line of a table: that line may be missing.
    not_for_labels
        Columns with another meaning: title, group and weight of the settings.
    """

    rows: Sequence[Mapping[str, object]]
    file: Path | str
    has_header: bool = False
    not_for_labels: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(str(name) for row in self.rows[:TYPED_ROWS] for name in row))

    def values(self, name: str) -> list[object]:
        """What stands in the column in the first rows, without missing values."""
        found = (row.get(name) for row in self.rows[:TYPED_ROWS])
        return [value for value in found if not is_missing(value, words=self.has_header)]


def is_missing(value: object, *, words: bool = False) -> bool:
    """None, NaN and pandas' NA and NaT; with `words` also an empty cell, nan, None and null, as tables spell them."""
    if isinstance(value, str):
        return not value or (words and value.strip() in MISSING_WORDS)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def resolve_fields(columns: Columns, given: Fields, *, labels_needed: bool = True) -> Fields:
    """The fields to read: those given, which must exist, and the recognized ones for the rest.

    Parameters
    ----------
    columns
        Names and first values.
    given
        What the user or a model says; a text field may be several names between commas.
    labels_needed
        False for `predict`: labels stay None where none are recognized, and nothing is asked about them.

    Raises
    ------
    DataError
        For a given field that does not exist, with a suggestion, and for fields that cannot be told, in one line.
    """
    names = columns.names
    text = None if given.text is None else tuple(_existing(part, columns) for part in _listed(given.text, names))
    labels = None if given.labels is None else _existing(given.labels, columns)
    row_id = None if given.id is None else _existing(given.id, columns)
    usual = {_normal(name): name for name in reversed(names)}
    text, labels = text or _usual_text(usual, labels), labels or _usual_labels(usual, text or ())
    if columns.has_header and not given.text and not given.labels and not usual.keys() & USUAL_NAMES:
        _check_header(columns)
    row_id = row_id or next(
        (usual[name] for name in IDS if name in usual and _serves(usual[name], name, columns)), None
    )
    if text is None or (labels is None and labels_needed):
        taken = {*(text or ()), labels, row_id, *columns.not_for_labels}
        others = [name for name in names if name not in taken and _normal(name) not in IDS]
        kinds = {name: _kind(columns.values(name)) for name in others}
        if text is None and (found := [name for name, kind in kinds.items() if kind == "text"]) and len(found) == 1:
            text = (found[0],)
        if text is None and labels is not None and len(others) == 1 and kinds[others[0]] == "labels":
            text = (others[0],)  # short texts
        candidates = [name for name, kind in kinds.items() if kind == "labels" and name not in (text or ())]
        usual_candidates = [name for name in candidates if _normal(name) in LABELS]
        if labels is None and len(candidates) == 1 and len(usual_candidates) in (0, 1):
            labels = candidates[0]
    if text is None or (labels is None and labels_needed):
        raise _question(columns, text, labels if labels_needed else labels or "")
    return replace(given, text=text, labels=labels, id=row_id)


def resolve_known(columns: Columns, known: Fields, given: Fields, *, labels_needed: bool = True) -> Fields:
    """The fields of another file: those of `known` (the first split's, or a model's) where it has them.

    What is missing is `given` or recognized, as in `resolve_fields`: another format may use other names.
    """
    names = columns.names
    there = Fields(
        text=tuple(name for name in known.text or () if name in names) or None,
        labels=known.labels if known.labels in names else None,
        id=known.id if known.id in names else None,
        separator=known.separator,
    )
    return resolve_fields(columns, there.or_else(given), labels_needed=labels_needed)


def _listed(text: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names of text fields; one that does not exist may be several between commas."""
    return [
        part.strip() for name in text for part in ([name] if name in names else name.split(",")) if part.strip()
    ]  # fmt: skip


def _existing(name: str, columns: Columns) -> str:
    if name in columns.names:
        return name
    same = [other for other in columns.names if _normal(other) == _normal(name)]
    if len(same) == 1:
        return same[0]
    hint = did_you_mean(name, columns.names) or f"; there are {quoted(columns.names)}"
    raise DataError(f"no such field{hint}", file=columns.file, field=name)


def _normal(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _usual_text(usual: Mapping[str, str], labels: str | None) -> tuple[str, ...] | None:
    found = {name: column for name, column in usual.items() if column != labels}
    if "text" in found:
        return (found["title"], found["text"]) if "title" in found else (found["text"],)
    title = [found[name] for name in TITLES if name in found][:1]
    bodies = [column for name, column in reversed(found.items()) if name in BODIES]
    return (*title, *bodies) or None


def _usual_labels(usual: Mapping[str, str], text: Sequence[str]) -> str | None:
    found = {name: column for name, column in usual.items() if column not in text}
    for name in ("labels", "label"):
        if name in found:
            return found[name]
    others = [found[name] for name in LABELS if name in found]
    return others[0] if len(others) == 1 else None


def _serves(column: str, name: str, columns: Columns) -> bool:
    """Whether a column is an id: "id" always, another usual name where every row has a value and none repeats."""
    if name == "id":
        return True
    values = columns.values(column)
    return len(values) == len(columns.rows[:TYPED_ROWS]) and len({str(value) for value in values}) == len(values)


def _kind(values: Sequence[object]) -> str:
    """What a column without a usual name holds: text, labels, or something else."""
    if not values:
        return "other"
    if any(not isinstance(value, str | int | float) for value in values):
        return "labels" if all(hasattr(value, "__iter__") for value in values) else "other"
    cells = [value.strip() for value in values if isinstance(value, str)]
    if len(cells) < len(values) or all(_NOT_LABELS.fullmatch(cell) for cell in cells):
        return "other"
    if all(cell.startswith(LIST_OPENINGS) for cell in cells):
        return "labels"
    words = sum(len(tokenize(cell)) for cell in cells)
    pieces = sum(1 + sum(map(cell.count, CANDIDATES)) for cell in cells)
    if words >= WORDS_OF_A_SENTENCE * pieces:
        return "text"
    repeats = len(set(cells)) < len(cells) or pieces > len(cells) or len(cells) < FEWEST_TO_REPEAT
    return "labels" if repeats else "other"


def _check_header(columns: Columns) -> None:
    """A first line that holds values instead of names."""
    for name in columns.names:
        is_value = bool(_NOT_LABELS.fullmatch(name)) or len(tokenize(name)) > 4 or name.startswith(LIST_OPENINGS)
        if is_value or name in columns.values(name):
            shown = name if len(name) <= 40 else name[:37] + "..."
            message = f'the header line is missing: "{shown}" is a value; put the names first, such as text,labels'
            raise DataError(message, file=columns.file, line=1)


def _question(columns: Columns, text: tuple[str, ...] | None, labels: str | None) -> DataError:
    missing = "text and labels" if text is None and labels is None else "text" if text is None else "labels"
    options = {"text and labels": "--text COLUMN --labels COLUMN", "text": "--text COLUMN", "labels": "--labels COLUMN"}
    return DataError(
        f"cannot tell which field holds the {missing}; there are {quoted(columns.names)}; say {options[missing]} "
        "(text=, labels= in Python)",
        file=columns.file,
    )


def quoted(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:most]) or "none"
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")
