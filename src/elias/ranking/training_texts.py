"""Excerpts of the training texts that vote in k-NN, and their ids: what an explanation shows of them.

    excerpt    the text with single spaces, at most 200 characters of it; one that was cut ends at a word and in "…"

One buffer of UTF-8 bytes with the ends of the excerpts, memory-mapped, so a model that holds a million of them opens as
quickly as one that holds none. In: the texts and ids of the training rows. Out: `excerpt` and `id_of` by row number.
A model folder without the file (`knn.keep_texts=false`) explains with row numbers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core import model_schema
from ..core.errors import ModelError
from ..core.files import read_tensors, write_tensors
from ..core.schema import check_arrays
from ..dataset.rows import TextColumn

NAME = "training_texts.safetensors"
LONGEST = 200  # characters of an excerpt
LEAST_KEPT = 150  # characters that must be left when an excerpt is cut between words, not inside one
CUT = "…"
TEXTS, IDS = "texts", "ids"


@dataclass(frozen=True)
class Strings:
    """String i is buffer[ends[i] : ends[i + 1]] in UTF-8."""

    ends: np.ndarray  # int64 [strings + 1]
    buffer: np.ndarray  # uint8

    def __getitem__(self, row: int) -> str:
        return self.buffer[self.ends[row] : self.ends[row + 1]].tobytes().decode("utf-8", "replace")


class TrainingTexts:
    """Excerpts and ids by the row number of a training text; either may be missing."""

    def __init__(self, n_texts: int, texts: Strings | None, ids: Strings | None) -> None:
        self.n_texts, self._texts, self._ids = n_texts, texts, ids

    @classmethod
    def of(cls, texts: Sequence[str] | None, ids: Sequence[str] | None, rows: np.ndarray) -> TrainingTexts:
        """Of some rows of a dataset."""

        def column(values: Iterable[str]) -> Strings:
            return Strings(*TextColumn(values).arrays())

        numbers = rows.tolist()
        excerpts = None if texts is None else column(excerpt_of(texts[row]) for row in numbers)
        return cls(len(numbers), excerpts, None if ids is None else column(ids[row] for row in numbers))

    def excerpt(self, row: int) -> str:
        """Empty where the rows were vectors."""
        return "" if self._texts is None else self._texts[row]

    def id_of(self, row: int) -> str | None:
        return None if self._ids is None else self._ids[row]

    def save(self, folder: Path) -> None:
        arrays: dict[str, np.ndarray] = {"n_texts": np.array([self.n_texts])}
        for name, strings in ((TEXTS, self._texts), (IDS, self._ids)):
            if strings is not None:
                arrays |= {f"{name}.ends": strings.ends, f"{name}.buffer": strings.buffer}
        write_tensors(folder / NAME, arrays)

    @classmethod
    def load(cls, folder: Path, *, n_texts: int) -> TrainingTexts | None:
        """None where there is no such file; refused where it is not of a model with so many texts that vote."""
        path = folder / NAME
        if not path.exists():
            return None
        arrays, _ = read_tensors(path)
        held = check_arrays(path, arrays, model_schema.TRAINING_TEXTS, {})["n_texts"]
        if held.tolist() != [n_texts]:
            raise ModelError(
                f"{path}: does not fit knn.safetensors of this model; restore it from a copy, or delete it"
            )
        return cls(n_texts, *(_strings(arrays, name, path, n_texts) for name in (TEXTS, IDS)))


def _strings(arrays: dict[str, np.ndarray], name: str, path: Path, count: int) -> Strings | None:
    """Checked, so that no row reads beyond the buffer. That it is UTF-8 is not: what is not becomes U+FFFD."""
    if not any(key.startswith(f"{name}.") for key in arrays):
        return None
    found = check_arrays(path, arrays, model_schema.strings(name), {"texts": count})
    return Strings(found[f"{name}.ends"], found[f"{name}.buffer"])


def excerpt_of(text: str) -> str:
    """The first LONGEST characters, cut between words where there is a space to cut at."""
    start = " ".join(text[: 4 * LONGEST].split())  # most texts are much longer: splitting all of one would take long
    if len(start) <= LONGEST and len(text) <= 4 * LONGEST:
        return start
    start = start[: LONGEST - len(CUT)]
    space = start.rfind(" ")
    return (start[:space] if space >= LEAST_KEPT else start) + CUT
