"""Texts as token numbers: cut once, kept as two flat arrays that can be memory-mapped.

    text i  ->  ids[offsets[i] : offsets[i + 1]]

Shapes: B batch, W longest text of the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ..core.errors import ModelError, RunError
from ..core.files import read_json, remove, replacing, write_json

TEXTS_AT_ONCE = 2048
TOKENS_AT_ONCE = 8192  # of a forward pass without gradients, padding included
MOST_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Tokens:
    """Token numbers of many texts; every text has at least one token."""

    ids: np.ndarray  # int32, all texts one after the other
    offsets: np.ndarray  # int64, texts + 1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def take(self, rows: np.ndarray) -> Tokens:
        """Some texts alone, in memory."""
        lengths, starts = self.lengths(rows), self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Tokens(np.asarray(self.ids[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]), offsets)

    def padded(self, rows: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray]:
        """(ids int64 [B, W], mask bool [B, W]) of some texts, filled up on the right."""
        lengths_B = self.lengths(rows)
        mask_BW = np.arange(lengths_B.max(initial=1))[None, :] < lengths_B[:, None]
        starts_B = self.offsets[rows] - np.concatenate([[0], np.cumsum(lengths_B)[:-1]])
        ids_BW = np.full(mask_BW.shape, pad, dtype=np.int64)
        ids_BW[mask_BW] = self.ids[np.arange(lengths_B.sum()) + np.repeat(starts_B, lengths_B)]
        return ids_BW, mask_BW

    def batches(self, rows: np.ndarray) -> list[np.ndarray]:
        """Positions in `rows`, texts of like length together, so that little is padding. The same every time."""
        lengths = self.lengths(rows)
        order = np.argsort(-lengths, kind="stable")  # largest batch first: if it fits into memory, all do
        found, at = [], 0
        while at < len(order):
            size = max(1, min(MOST_ROWS_AT_ONCE, TOKENS_AT_ONCE // int(lengths[order[at]])))
            found.append(order[at : at + size])
            at += size
        return found


def tokenize_texts(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    pad: int,
    folder: Path | None,
    progress: Callable[[int, int], None],
) -> Tokens:
    """Cut every text once. With a folder the arrays are written to `folder/tokens`, or opened if they are there."""
    if folder is None:
        pieces: list[np.ndarray] = []
        offsets = _cut(texts, tokenizer, pad, pieces.append, progress)
        return Tokens(np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int32), offsets)
    place = folder / "tokens"
    key = fingerprint(texts, tokenizer.to_str())
    if not (place / "about.json").is_file() or read_json(place / "about.json", RunError)["key"] != key:
        with replacing(place) as part:
            part.mkdir(parents=True)
            with open(part / "ids.int32", "wb") as out:
                offsets = _cut(texts, tokenizer, pad, lambda ids: out.write(ids.astype("<i4").tobytes()), progress)
            np.save(part / "offsets.npy", offsets, allow_pickle=False)
            write_json(part / "about.json", {"key": key, "texts": len(texts), "tokens": int(offsets[-1])})
    return _open_tokens(place)


def forget_tokens(folder: Path) -> None:
    """Remove what `tokenize_texts` wrote to a folder."""
    remove(folder / "tokens")


def fingerprint(texts: Sequence[str], *parts: str | bytes) -> str:
    """Changes when a text, the order of texts, or another part changes."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\xff")
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"\xff")  # no UTF-8 text holds this byte
    return digest.hexdigest()


def _open_tokens(place: Path) -> Tokens:
    offsets = np.load(place / "offsets.npy", allow_pickle=False)
    count = int(offsets[-1])
    ids = np.memmap(place / "ids.int32", dtype="<i4", mode="r", shape=(count,)) if count else np.empty(0, np.int32)
    return Tokens(ids, offsets)


def _cut(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    pad: int,
    keep: Callable[[np.ndarray], object],
    progress: Callable[[int, int], None],
) -> np.ndarray:
    """Token numbers go to `keep` piece by piece; the offsets come back."""
    lengths = np.zeros(len(texts) + 1, dtype=np.int64)
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        piece = [_encodable(text) for text in texts[start : start + TEXTS_AT_ONCE]]
        try:
            rows = [encoding.ids or [pad] for encoding in tokenizer.encode_batch_fast(piece)]
            ids = np.fromiter((number for row in rows for number in row), dtype=np.int32)  # beyond 2^31: an error
        except Exception as problem:  # tokenizers raises nothing narrower, here for a vocabulary without [UNK]
            said = " ".join(str(problem).split())
            message = f"tokenizer.json of the encoder does not cut a text into tokens ({said}); restore it from a copy"
            raise ModelError(message) from None
        lengths[start + 1 : start + 1 + len(rows)] = [len(row) for row in rows]
        keep(ids)
        progress(start + len(rows), len(texts))
    return np.cumsum(lengths)


def _encodable(text: str) -> str:
    """Half a surrogate pair, which JSON can hold and UTF-8 cannot, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
