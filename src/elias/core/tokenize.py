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


def text_chunks(texts: Iterable[str], characters: int = CHUNK_CHARACTERS) -> Iterator[list[str]]:
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

    @property
    def repeats(self) -> bool:
        """Whether a word is in the list twice."""
        return len(self._numbers) < len(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def numbers_of(self, words: Sequence[str]) -> np.ndarray:
        """The id of each of some words (int32); -1 for a word that is not in the vocabulary."""
        return np.fromiter(map(self._numbers.get, words, repeat(-1)), dtype=np.int32, count=len(words))

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


class TokenCounts:
    """Word counts of texts over all their words: texts are tokenized once, and any of them can make a vocabulary."""

    def __init__(self, words: Sequence[str], counts: sp.csr_matrix) -> None:
        assert counts.shape[1] == len(words)
        self.words, self.counts = words, counts  # uint16, texts x words

    @classmethod
    def of(cls, texts: Iterable[str]) -> TokenCounts:
        """Tokenize and count; words get numbers in the order in which they occur."""
        numbers: dict[str, int] = {}
        chunks: list[sp.csr_matrix] = []
        for chunk in text_chunks(texts):
            lists = [_split(text) for text in chunk]
            lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
            for word in dict.fromkeys(chain.from_iterable(lists)):
                numbers.setdefault(word, len(numbers))
            flat = map(numbers.__getitem__, chain.from_iterable(lists))
            ids = np.fromiter(flat, dtype=np.int64, count=int(lengths.sum()))
            chunks.append(count_ids(ids, lengths, len(numbers)))
        data = np.concatenate([np.zeros(0, np.uint16), *(chunk.data for chunk in chunks)])
        indices = np.concatenate([np.zeros(0, np.int32), *(chunk.indices for chunk in chunks)])
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(chunk.indptr) for chunk in chunks)])
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(list(numbers), sp.csr_matrix((data, indices, indptr), shape=(len(lengths), len(numbers))))

    def __len__(self) -> int:
        return int(self.counts.shape[0])

    def take(self, rows: np.ndarray) -> TokenCounts:
        """Some of the texts."""
        return TokenCounts(self.words, sp.csr_matrix(self.counts[rows]))

    def vocabulary(self, min_df: int, max_words: int) -> tuple[Vocabulary, np.ndarray]:
        """(vocabulary, document frequencies): words that occur in at least `min_df` texts, at most `max_words` of them,
        by descending document frequency, then alphabetically."""
        df = np.bincount(self.counts.indices, minlength=len(self.words))
        kept = [
            (-texts, word)
            for word, texts in zip(self.words, df.tolist(), strict=True)
            if texts >= max(1, min_df) and len(word) <= LONGEST_WORD
        ]
        kept = sorted(kept)[:max_words]
        frequencies = np.fromiter((-texts for texts, _ in kept), dtype=np.int64, count=len(kept))
        return Vocabulary(word for _, word in kept), frequencies

    def over(self, vocabulary: Vocabulary) -> sp.csr_matrix:
        """The counts over the words of a vocabulary, texts x vocabulary."""
        new_number = vocabulary.numbers_of(self.words)
        indices = new_number[self.counts.indices]
        known = indices >= 0
        indptr = np.concatenate(([0], np.cumsum(known)))[self.counts.indptr]
        shape = (len(self), len(vocabulary))
        matrix = sp.csr_matrix((self.counts.data[known], indices[known], indptr), shape=shape)
        matrix.sort_indices()
        return matrix
