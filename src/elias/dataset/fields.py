"""Which fields of a record hold its text, its labels and its id, and how a cell of labels is split.

A field that is None is recognized from the names of the fields and from the data; the reader returns the fields it
used, and a model remembers them, so that `predict` and `evaluate` read the same files that `fit` read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


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
        """From what users pass: one text field may be a plain string."""
        names = (text,) if isinstance(text, str) else None if text is None else tuple(text)
        return cls(text=names, labels=labels, id=id, separator=separator)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
