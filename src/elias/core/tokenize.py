"""Tokenization: the words of a text, in any language, and their counts (the bag of words).

    text -> NFKC -> lower case -> words = runs of letters, marks and digits
    counts[row, word] = how often the word occurs in the text

Scripts written without spaces (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar): each character, with its
combining marks, is one word. A word of more than `LONGEST_WORD` characters (a key, a base64 block) is ignored.
Everything else, NUL and lone surrogates included, separates words.

In: texts. Out: lists of words, or a sparse matrix of counts whose columns are the words of a `Vocabulary`.

Plain Python on purpose: on package descriptions, `str.split` for ASCII and `re` for the rest took less than half
the time of the Rust tokenizers with the same definition of a word, on one core instead of two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat

import numpy as np
import scipy.sparse as sp

LONGEST_WORD = 64
HIGHEST_COUNT = 65_535  # counts are clipped here, to fit uint16
CHUNK_CHARACTERS = 4_000_000  # of texts counted at once: bounds the memory of their word lists

# Blocks of the scripts without spaces, as a regular expression character class.
_SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b"  # Han: iteration mark, numerals
    "\u3041-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U0001aff0-\U0001afff\U0001b000-\U0001b16f"  # historic Kana
    "\U00020000-\U0003ffff"  # Han
)


@cache
def _ascii_table() -> bytes:
    """Maps an ASCII byte to its lower case, and all but letters and digits to a space."""
    return bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))


@cache
def _astral() -> re.Pattern[str]:
    return re.compile("[\U00010000-\U0010ffff]")


@cache
def _spaceless() -> re.Pattern[str]:
    return re.compile(f"[{_SPACELESS}]")


@cache
def _marks(astral: bool) -> str:
    """Every combining mark, or only those below U+10000, as ranges of a character class."""
    # Planes 2 to 13 have none (Han, unassigned); searching them delays the first emoji by 0.15 s.
    searched = chain(range(0x20000), range(0xE0000, 0xE1000)) if astral else range(0x10000)
    codes = [code for code in searched if unicodedata.category(chr(code))[0] == "M"]
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _finder(astral: bool, spaceless: bool) -> Callable[[str], list[str]]:
    """The function that finds the words of a normalized text without `_`.

    The rare ranges slow the pattern down at every space, so it has only those that the text needs.
    """
    marks = _marks(astral)
    if not spaceless:
        return re.compile(rf"[\w{marks}]+").findall
    one, run = rf"(?=\w)[{_SPACELESS}][{marks}]*", rf"(?:(?![{_SPACELESS}])[\w{marks}])+"
    return re.compile(rf"{one}|{run}|[{marks}]+").findall


def _split(text: str) -> list[str]:
    if text.isascii():
        return text.encode("ascii").translate(_ascii_table()).decode("ascii").split()
    text = unicodedata.normalize("NFKC", text).lower().replace("_", " ")
    return _finder(_astral().search(text) is not None, _spaceless().search(text) is not None)(text)


def tokenize(text: str) -> list[str]:
    """The words of a text, in order, repeats included."""
    return [word for word in _split(text) if len(word) <= LONGEST_WORD]


def text_chunks(texts: Sequence[str], characters: int = CHUNK_CHARACTERS) -> Iterator[list[str]]:
    """The texts in order, in lists of about `characters` characters."""
    chunk: list[str] = []
    held = 0
    for text in texts:
        chunk.append(text)
        held += len(text) + 16
        if held >= characters:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def count_ids(ids: np.ndarray, lengths: np.ndarray, n_words: int) -> sp.csr_matrix:
    """Counts, rows x words, of concatenated word ids, `lengths` of them per row; an id of -1 is an unknown word.

    Sorting row * n_words + id makes equal words of a row neighbors: much faster than one Counter per row.
    """
    keys = np.repeat(np.arange(len(lengths), dtype=np.int64) * n_words, lengths)
    keys += ids
    if (ids < 0).any():
        keys = keys[ids >= 0]
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    counts = np.minimum(np.diff(starts, append=len(keys)), HIGHEST_COUNT).astype(np.uint16)
    keys = keys[starts]
    edges = np.arange(len(lengths) + 1, dtype=np.int64) * n_words
    indptr = np.searchsorted(keys, edges)
    keys -= np.repeat(edges[:-1], np.diff(indptr))
    matrix = sp.csr_matrix((counts, keys.astype(np.int32), indptr), shape=(len(lengths), n_words))
    matrix.has_sorted_indices = True
    return matrix


class Vocabulary:
    """A fixed list of words; the id of a word is its place in the list."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def token_ids(self, text: str) -> np.ndarray:
        """The id of each word of a text (int32), in order; -1 for a word that is not in the vocabulary."""
        return np.array(list(map(self._numbers.get, _split(text), repeat(-1))), dtype=np.int32)

    def count(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids (int32, ascending) and counts of the known words of one text: a row of `count_matrix`, faster."""
        numbers = self.token_ids(text)
        numbers.sort()
        numbers = numbers[numbers.searchsorted(0) :]
        first = np.ones(len(numbers), dtype=bool)
        np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
        starts = first.nonzero()[0]
        counts = np.full(len(starts), len(numbers))
        counts[:-1] = starts[1:]
        counts -= starts
        return numbers[starts], np.minimum(counts, HIGHEST_COUNT)

    def count_matrix(self, texts: Sequence[str]) -> sp.csr_matrix:
        """How often each known word occurs in each text, uint16; meant for one chunk of texts."""
        lists = [_split(text) for text in texts]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        flat = map(self._numbers.get, chain.from_iterable(lists), repeat(-1))
        ids = np.fromiter(flat, dtype=np.int64, count=int(lengths.sum()))
        return count_ids(ids, lengths, len(self))


class VocabularyBuilder:
    """Collects the words of texts while counting them, so that texts are tokenized once; `build` keeps the frequent."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._counted: list[sp.csr_matrix] = []

    def add(self, texts: Sequence[str]) -> None:
        """Count one chunk of texts; words not seen before get the next numbers."""
        lists = [_split(text) for text in texts]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        numbers = self._numbers
        for word in dict.fromkeys(chain.from_iterable(lists)):
            numbers.setdefault(word, len(numbers))
        flat = map(numbers.__getitem__, chain.from_iterable(lists))
        ids = np.fromiter(flat, dtype=np.int64, count=int(lengths.sum()))
        self._counted.append(count_ids(ids, lengths, len(numbers)))

    def build(self, min_df: int, max_words: int) -> tuple[Vocabulary, np.ndarray, Iterator[sp.csr_matrix]]:
        """(vocabulary, document frequencies, counts of the chunks in order over these words).

        Words that occur in at least `min_df` texts, at most `max_words` of them, by falling document frequency, then
        alphabetically. The chunks are released as they are read, so their iterator works once.
        """
        df = np.zeros(len(self._numbers), dtype=np.int64)
        for counted in self._counted:
            df[: counted.shape[1]] += np.bincount(counted.indices, minlength=counted.shape[1])
        kept = [
            (-texts, word, number)
            for (word, number), texts in zip(self._numbers.items(), df.tolist(), strict=True)
            if texts >= min_df and len(word) <= LONGEST_WORD
        ]
        kept = sorted(kept)[:max_words]
        order = np.fromiter((number for _, _, number in kept), dtype=np.int64, count=len(kept))
        new_number = np.full(len(df), -1, dtype=np.int32)
        new_number[order] = np.arange(len(order), dtype=np.int32)
        chunks, self._counted = self._counted, []
        return Vocabulary(word for _, word, _ in kept), df[order], _renumbered(chunks, new_number, len(kept))


def _renumbered(chunks: list[sp.csr_matrix], new_number: np.ndarray, n_words: int) -> Iterator[sp.csr_matrix]:
    chunks.reverse()
    while chunks:
        old = chunks.pop()  # freed as soon as it is used
        indices = new_number[old.indices]
        known = indices >= 0
        indptr = np.concatenate(([0], np.cumsum(known)))[old.indptr]
        matrix = sp.csr_matrix((old.data[known], indices[known], indptr), shape=(old.shape[0], n_words))
        matrix.sort_indices()
        yield matrix
