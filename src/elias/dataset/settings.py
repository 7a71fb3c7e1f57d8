"""Settings of a dataset: what its data files do not contain. Read from an optional dataset.toml.

    exclude_own_id = true      # the pair (row, label with the row's own id) is never correct
    propensity_a = 0.55        # A and B of the propensity model of the PSP metrics
    propensity_b = 1.5
    text_field = "abstract"    # names of the fields, where they are not recognized; several texts: ["title", "body"]

An unknown key is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ..core.errors import DataError, did_you_mean
from .defects import ReadLog
from .fields import Fields
from .files import numbered_lines, one_line

LARGEST_PROPENSITY = {"propensity_a": 10.0, "propensity_b": 1e6}  # beyond, powers of counts overflow


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """Every key of dataset.toml, with its default."""

    name: str = ""  # empty: the name of the folder
    exclude_own_id: bool = False
    propensity_a: float = 0.55
    propensity_b: float = 1.5
    text_field: str | tuple[str, ...] = ""  # empty: recognized, like labels, id and separator
    title_field: str = "title"  # put before a text_field that is a single name, where rows have it
    labels_field: str = ""
    id_field: str = ""
    group_field: str = "group"
    weight_field: str = "weight"
    label_separator: str = ""
    language: str = ""  # of the label texts that are taken from a SKOS file; empty: the most frequent one

    def fields(self, names: Sequence[str]) -> Fields:
        """The fields that are set, for rows with these fields."""
        text: Sequence[str] | None = self.text_field or None
        if isinstance(text, str) or self.title_field != DatasetSettings.title_field:
            body = self.text_field if isinstance(self.text_field, str) else ""
            text = [name for name in (self.title_field, body or "text") if name in names] or [body or "text"]
        return Fields.of(text, self.labels_field, self.id_field, self.label_separator or None)


def load_settings(file: Path, log: ReadLog) -> DatasetSettings:
    """dataset.toml, each problem named with its line."""
    line_of: dict[str, int] = {}
    lines = []
    for number, line in numbered_lines(file):
        lines.append(line)
        line_of.setdefault(line.split("=")[0].strip().strip("\"'"), number)
    try:
        found = tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError, OverflowError) as error:
        raise DataError(f"not TOML: {one_line(error)[:200]}", file=file) from None
    known = {field.name: field.default for field in fields(DatasetSettings)}
    good: dict[str, object] = {}
    for key, value in found.items():
        problem = _problem(key, value, known)
        if problem:
            log.defect(DataError(problem, file=file, line=line_of.get(key), field=key))
        else:
            is_number = isinstance(known[key], float)
            good[key] = float(value) if is_number else tuple(value) if isinstance(value, list) else value
    return DatasetSettings(**good)  # type: ignore[arg-type]  # _problem has checked each type


def _problem(key: str, value: object, known: dict[str, object]) -> str:
    if key not in known:
        return f"unknown setting{did_you_mean(key, known) or '; known: ' + ', '.join(known)}"
    default = known[key]
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else f"{_shown(value)} is not true or false"
    if isinstance(default, float):
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST_PROPENSITY[key]:
            return ""
        limit = f", at most {LARGEST_PROPENSITY[key]:g}" if isinstance(value, int | float) and value > 0 else ""
        return f"{str(value)[:40]} is not a number above 0{limit}"
    if key == "text_field" and isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return ""
    return "" if isinstance(value, str) and value else f"{_shown(value)} is not a text in quotes"


def _shown(value: object) -> str:
    """A value in a message, whatever its length."""
    return "a number of many digits" if isinstance(value, int) and abs(value) > 10**40 else repr(value)[:60]
