"""The label vocabulary: ids, texts, and the number each label has inside ELIAS.

A label's number is its place in `ids`; it never changes for the life of a model. Ids come from the
user's files and go back to the user unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property


class LabelSet:
    """`ids[number]`, `texts[number]` and `alternatives[number]` (empty where a label has none), `number_of[id]`."""

    def __init__(
        self, ids: Sequence[str], texts: Sequence[str] | None = None, alternatives: Sequence[str] | None = None
    ) -> None:
        self.ids: Sequence[str] = ids
        self.texts: Sequence[str] = texts if texts is not None else [""] * len(ids)
        self.alternatives: Sequence[str] = alternatives if alternatives is not None else [""] * len(ids)
        assert len(self.texts) == len(self.alternatives) == len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"LabelSet({len(self):,} labels{' with texts' if self.has_texts else ''})"

    @cached_property
    def number_of(self) -> dict[str, int]:
        return {label_id: number for number, label_id in enumerate(self.ids)}

    @cached_property
    def has_texts(self) -> bool:
        return any(self.texts)
