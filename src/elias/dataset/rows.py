"""Rows of a dataset: inputs (texts or vectors), weighted labels, ids, groups, weights and excluded pairs.

Texts can be larger than memory, so a `TextColumn` keeps them as one buffer of UTF-8 bytes with offsets, which moves
to an unlinked temporary file above `SPILL_BYTES`; it reads like a sequence of strings.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, overload

import numpy as np
import scipy.sparse as sp

KIND_TEXT = 0  # an ordinary training row
KIND_LABEL_TEXT = 1  # a label's own text used as a training row; never counted in N, n_l or propensities
SPILL_BYTES = 256 << 20  # bytes of texts that stay in memory


class TextColumn(Sequence[str]):
    """An immutable sequence of strings stored as one UTF-8 buffer."""

    def __init__(self, texts: Iterable[str]) -> None:
        held = bytearray()
        total = 0
        ends = array("q", [0])
        spill: IO[bytes] | None = None
        for text in texts:
            raw = text.encode("utf-8", "surrogatepass")  # JSON may hold lone surrogates; they must come back
            held += raw
            total += len(raw)
            ends.append(total)
            if len(held) > SPILL_BYTES:
                spill = spill or tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the column)
                spill.write(held)
                held = bytearray()
        self._ends = np.frombuffer(ends, dtype=np.int64)
        self._buffer: bytearray | mmap.mmap = held
        if spill is not None:
            spill.write(held)
            spill.flush()
            self._buffer = mmap.mmap(spill.fileno(), 0, access=mmap.ACCESS_READ)
            spill.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __repr__(self) -> str:
        return f"TextColumn({len(self):,} texts)"

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self._buffer[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        start = 0
        for block in range(1, len(self._ends), 4096):  # blocks: tolist is far faster than numpy scalars, one at a time
            for end in self._ends[block : block + 4096].tolist():
                yield self._buffer[start:end].decode("utf-8", "surrogatepass")
                start = end

    def take(self, rows: np.ndarray) -> TextColumn:
        return TextColumn(self[int(row)] for row in rows)

    def content(self) -> Iterator[bytes | memoryview]:
        """The bytes that make up this column, for hashing."""
        yield self._ends.tobytes()
        yield memoryview(self._buffer)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """(ends int64 [texts + 1], their bytes uint8), as a file can hold them; ends[0] is 0."""
        return self._ends, np.frombuffer(self._buffer, dtype=np.uint8)

    def lengths(self) -> np.ndarray:
        """Bytes of each text."""
        return np.diff(self._ends)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Rows:
    """One split of a dataset. Exactly one of `texts` and `vectors` is given."""

    texts: TextColumn | None = None
    vectors: sp.csr_matrix | np.ndarray | None = None
    labels: sp.csr_matrix  # rows x L, float32 weights > 0, indices sorted and unique in each row
    ids: list[str] | None = None  # row ids of the user, returned by predict
    groups: list[str] | None = None  # rows of one group are held out together or not at all
    weights: np.ndarray  # float32, one per row
    kinds: np.ndarray  # uint8, KIND_TEXT or KIND_LABEL_TEXT
    excluded: sp.csr_matrix  # rows x L, bool: pairs that are masked in the loss and never scored

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def __repr__(self) -> str:
        what = "texts" if self.vectors is None else "vectors"
        return f"Rows({len(self):,} {what}, {self.labels.nnz:,} positives, {self.labels.shape[1]:,} labels)"

    def take(self, rows: np.ndarray) -> Rows:
        """The given rows, in the given order."""
        return replace(
            self,
            texts=None if self.texts is None else self.texts.take(rows),
            vectors=None if self.vectors is None else self.vectors[rows],
            labels=self.labels[rows],
            ids=None if self.ids is None else [self.ids[int(row)] for row in rows],
            groups=None if self.groups is None else [self.groups[int(row)] for row in rows],
            weights=self.weights[rows],
            kinds=self.kinds[rows],
            excluded=self.excluded[rows],
        )
