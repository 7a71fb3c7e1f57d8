"""Labels by name: the words of a search in any order, in the id or the text of a label.

Case and accents do not count. A word of the search matches a label that has

    the same word, or a word that starts with it                 "fict" finds "Science fiction"
    a word that contains it, where too few labels start so       "office" finds "libreoffice"

and a label is found if every word of the search matches it. Best first: labels of no other words, labels that start
with a word of the search, labels with all its words, with words that start so, with words that contain it; then by
number of training rows.

An inverted index: words in sorted order, each with its labels. The words with a common prefix follow one another, so
their labels are one slice of an array, and a search is a few passes over arrays of one entry per label.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..dataset.labels import LabelSet

MAX_WORDS = 12  # of a search
MAX_CONTAINING = 10_000  # words of the labels that contain a word of the search, however common it is
MIN_CONTAINED = 3  # letters; two letters of an alphabet are part of too many words
_WORDS = re.compile(r"[^\s\-_./:,;()\[\]{}\"'|<>]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")


class Hits(NamedTuple):
    total: int
    labels: Sequence[int]


class LabelSearch:
    """Finds labels by name.

    `_labels[_starts[w] : _starts[w + 1]]` are the labels with word w; `_words` has all words, each between line ends.
    """

    def __init__(self, labels: LabelSet, counts: np.ndarray) -> None:
        numbers: defaultdict[str, int] = defaultdict()  # of words, in the order of their first occurrence
        numbers.default_factory = numbers.__len__
        words, ends = array("i"), array("q")  # per label first the words of its id, then those of its text
        for names in zip(labels.ids, labels.texts, strict=True):
            for name in names:
                words.extend(map(numbers.__getitem__, words_of(name)))
                ends.append(len(words))
        in_order = sorted(numbers)
        self._words = "\n" + "".join([f"{word}\n" for word in in_order])
        self._word_starts = np.cumsum([1, *(len(word) + 1 for word in in_order)])
        place_of = np.empty(len(numbers), dtype=np.int32)
        place_of[[numbers[word] for word in in_order]] = np.arange(len(numbers), dtype=np.int32)
        word_F = place_of[np.array(words, dtype=np.int32)]
        lengths = np.diff(np.array(ends, dtype=np.int64), prepend=0)
        label_F = np.repeat(np.arange(len(counts), dtype=np.int32), lengths.reshape(-1, 2).sum(axis=1))
        self._labels = label_F[np.argsort(word_F, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(word_F, minlength=len(numbers)))])
        # For the order: number of words and first word of each id and text; a position in the order of counts.
        self._lengths = lengths.reshape(-1, 2).astype(np.int32)
        firsts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        has_word = lengths > 0
        first_words = np.full(len(lengths), -1, dtype=np.int32)
        first_words[has_word] = word_F[firsts[has_word]]
        self._first_words = first_words.reshape(-1, 2)
        self._by_count = np.lexsort((np.arange(len(counts)), -counts))
        self._place_by_count = np.empty(len(counts), dtype=np.int64)
        self._place_by_count[self._by_count] = np.arange(len(counts))

    def find(self, search: str, limit: int) -> Hits:
        """The best `limit` labels, and how many match in all. Without a word: the labels with the most rows."""
        wanted = words_of(search)[:MAX_WORDS]
        if not wanted:
            return Hits(len(self._by_count), self._by_count[:limit].tolist())
        spans = [(self._place(word), self._place(word + "\U0010ffff")) for word in wanted]  # of words that start so
        prefixes = [self._with(first, end) for first, end in spans]
        found = np.flatnonzero(np.logical_and.reduce(prefixes))
        if len(found) < limit:
            parts = [mask | self._containing(word) for mask, word in zip(prefixes, wanted, strict=True)]
            found = np.flatnonzero(np.logical_and.reduce(parts))
        if not len(found):
            return Hits(0, [])
        rank = 4 - np.logical_and.reduce([mask[found] for mask in prefixes]).astype(np.int64)
        firsts = self._first_words[found]
        for first, end in spans:
            rank[((firsts >= first) & (firsts < end)).any(axis=1) & (rank < 4)] = 1
        whole = np.logical_and.reduce(
            [self._with(first, first + (first < end and self._word(first) == word))[found]
             for (first, end), word in zip(spans, wanted, strict=True)]
        )  # fmt: skip
        rank[whole] = np.minimum(rank[whole], 2)
        rank[whole & (self._lengths[found] == len(wanted)).any(axis=1)] = 0
        keys = rank * len(self._by_count) + self._place_by_count[found]
        best = np.argpartition(keys, limit)[:limit] if limit < len(keys) else np.arange(len(keys))
        return Hits(len(found), found[best[np.argsort(keys[best])]].tolist())

    def _word(self, place: int) -> str:
        return self._words[self._word_starts[place] : self._word_starts[place + 1] - 1]

    def _place(self, word: str) -> int:
        """The place of the first word that is not smaller."""
        return bisect_left(range(len(self._starts) - 1), word, key=self._word)

    def _with(self, first: int, end: int) -> np.ndarray:
        """Which labels have one of the words first to end."""
        found = np.zeros(len(self._by_count), dtype=np.bool_)
        found[self._labels[self._starts[first] : self._starts[end]]] = True
        return found

    def _containing(self, word: str) -> np.ndarray:
        """Which labels have a word with this one inside."""
        found = np.zeros(len(self._by_count), dtype=np.bool_)
        if len(word) < MIN_CONTAINED and word.isascii():
            return found
        places, at = list[int](), self._words.find(word)
        while at >= 0 and len(places) < MAX_CONTAINING:
            places.append(at)
            at = self._words.find(word, self._words.find("\n", at))
        words = np.searchsorted(self._word_starts, places, side="right") - 1
        for start, end in zip(self._starts[words].tolist(), self._starts[words + 1].tolist(), strict=True):
            found[self._labels[start:end]] = True
        return found


def words_of(text: str) -> list[str]:
    """The words of a name, without case and accents."""
    folded = text.casefold()
    if not folded.isascii():
        folded = _ACCENTS.sub("", unicodedata.normalize("NFKD", folded))
    return _WORDS.findall(folded)
