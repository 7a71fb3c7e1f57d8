"""Tf-idf: texts as sparse rows of length 1.

    value(x, word) = (1 + ln tf) * idf(word) / length of the row        idf(word) = ln((1 + N) / (1 + df)) + 1

In: texts. Out: scipy CSR (float32, indices sorted). Training, a file of texts and a single query go through the same
function, which adds squares in the order of the words, so the same text has the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ..core import model_schema
from ..core.errors import InputError, ModelError
from ..core.files import read_json, write_array, write_json
from ..core.schema import REMEDY, check_arrays, check_object
from ..core.sparse_files import open_vector
from ..core.tokenize import HIGHEST_COUNT, TokenCounts, Vocabulary, text_chunks

FORMAT_VERSION = 1
FILES = ("vectorizer.json", "vectorizer.npy")
FEW_AT_ONCE = 4  # texts that are counted one by one: sooner than all together
NO_WORDS = np.zeros(0, np.int32), np.zeros(0, np.float32)
FEW_TEXTS = 1000  # below, a word of a single text is worth keeping
MAX_WORDS = 500_000


@cache
def sublinear() -> np.ndarray:
    """1 + ln tf for every tf; a table, so that one text and a million texts see the same bits."""
    table: np.ndarray = 1.0 + np.log(np.arange(HIGHEST_COUNT + 1).clip(1).astype(np.float64))
    return table


class TfIdf:
    """Turns texts into rows of tf-idf values. Made by `fit`, `fit_transform` or `load`; never changes."""

    def __init__(self, words: Vocabulary, idf: np.ndarray, *, min_df: int, max_words: int, n_texts: int) -> None:
        assert idf.shape == (len(words),)
        assert idf.dtype == np.float64
        self.words, self.idf = words, idf
        self.min_df, self.max_words, self.n_texts = min_df, max_words, n_texts

    @property
    def n_features(self) -> int:
        return len(self.words)

    @classmethod
    def fit(cls, texts: Sequence[str], *, min_df: int | None = None, max_words: int = MAX_WORDS) -> TfIdf:
        """Learn words and idf. `min_df` None: a word needs 2 texts, or 1 if there are fewer than `FEW_TEXTS`."""
        return cls.fit_counts(TokenCounts.of(texts), min_df=min_df, max_words=max_words)

    @classmethod
    def fit_transform(
        cls, texts: Sequence[str], *, min_df: int | None = None, max_words: int = MAX_WORDS
    ) -> tuple[TfIdf, sp.csr_matrix]:
        """The same as `fit` and then `transform`, but each text is tokenized only once."""
        tokens = TokenCounts.of(texts)
        tfidf = cls.fit_counts(tokens, min_df=min_df, max_words=max_words)
        return tfidf, tfidf.transform_counts(tokens)

    @classmethod
    def fit_counts(cls, tokens: TokenCounts, *, min_df: int | None = None, max_words: int = MAX_WORDS) -> TfIdf:
        """`fit` of texts that are tokenized already."""
        if min_df is not None and min_df < 1:
            raise InputError(f"min_df is {min_df}; it must be 1 or more")
        if max_words < 1:
            raise InputError(f"max_words is {max_words}; it must be 1 or more")
        if min_df is None:
            min_df = 1 if len(tokens) < FEW_TEXTS else 2
        words, df = tokens.vocabulary(min_df, max_words)
        idf = np.log((1 + len(tokens)) / (1 + df)) + 1.0
        return cls(words, idf, min_df=min_df, max_words=max_words, n_texts=len(tokens))

    def transform_counts(self, tokens: TokenCounts) -> sp.csr_matrix:
        """`transform` of texts that are tokenized already."""
        return self._stack([tokens.over(self.words)])

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Texts x words, float32, rows of length 1; a text without a known word is an empty row."""
        if len(texts) <= FEW_AT_ONCE:
            rows = [self.transform_one(text) for text in texts]
            ends = np.array([0, *accumulate(len(ids) for ids, _ in rows)])
            ids, values = rows[0] if len(rows) == 1 else map(np.concatenate, zip(NO_WORDS, *rows, strict=True))
            return csr_without_checks(values, ids, ends, (len(rows), self.n_features))
        return self._stack(self.words.count_matrix(chunk) for chunk in text_chunks(texts))

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Columns (int32, ascending) and values (float32) of one text, without a matrix around them."""
        ids, counts = self.words.count(text)
        return ids, self._values(ids, counts, np.array([0, len(ids)]))

    def _values(self, ids: np.ndarray, counts: np.ndarray, indptr: np.ndarray) -> np.ndarray:
        """Tf-idf values of rows of word counts (CSR)."""
        values: np.ndarray = sublinear().take(counts)
        values *= self.idf.take(ids)
        if len(values):
            rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            # bincount adds one square after the other; np.sum would add in pairs, in an order that depends on length.
            values /= np.sqrt(np.bincount(rows, weights=values * values)).take(rows)
        return values.astype(np.float32)

    def _stack(self, chunks: Iterable[sp.csr_matrix]) -> sp.csr_matrix:
        data, indices, indptr, total = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)], [np.zeros(1, np.int64)], 0
        for counts in chunks:
            data.append(self._values(counts.indices, counts.data, counts.indptr))
            indices.append(counts.indices)
            indptr.append(counts.indptr[1:].astype(np.int64) + total)
            total += len(counts.indices)
        ends = np.concatenate(indptr)
        shape = (len(ends) - 1, self.n_features)
        matrix = sp.csr_matrix((np.concatenate(data), np.concatenate(indices), ends), shape=shape)
        matrix.has_sorted_indices = True
        return matrix

    def save(self, folder: str | Path) -> None:
        """Write vectorizer.npy (idf), then vectorizer.json (settings, words), into the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_array(folder / "vectorizer.npy", self.idf)
        settings = {"min_df": self.min_df, "max_words": self.max_words, "n_texts": self.n_texts}
        content = {"format_version": FORMAT_VERSION, "kind": "tf-idf", "settings": settings}
        write_json(folder / "vectorizer.json", {**content, "words": self.words.words}, indent=None)

    @classmethod
    def load(cls, folder: str | Path) -> TfIdf:
        """Read what `save` wrote."""
        path = Path(folder) / "vectorizer.json"
        content = check_object(path, read_json(path), model_schema.VECTORIZER)
        words = Vocabulary(content["words"])
        if words.repeats:
            raise ModelError(f"{path}: a word is there twice; restore the file from a copy")
        path = path.with_name("vectorizer.npy")
        arrays = {"idf": open_vector(path, np.float64)}
        idf = np.array(check_arrays(path, arrays, model_schema.IDF, {"words": len(words)})["idf"])
        # A large array too: one wrong value would spoil whole rows of every text with the word.
        low, high = model_schema.IDF["idf"].low, model_schema.IDF["idf"].high
        wrong = np.flatnonzero(~((idf >= low) & (idf <= high)))
        if len(wrong):
            value, place = idf[wrong[0]], int(wrong[0])
            raise ModelError(f'{path}: "idf" has the value {value} at [{place}], not from {low} to {high}; {REMEDY}')
        return cls(words, idf, **content["settings"])


def csr_without_checks(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> sp.csr_matrix:
    """A CSR matrix of arrays that are known to be one.

    The checks of scipy's constructor take longer than everything else that happens to a single text before the search.
    """
    matrix = sp.csr_matrix.__new__(sp.csr_matrix)
    vars(matrix).update(data=data, indices=indices, indptr=indptr, _shape=shape, maxprint=50)  # maxprint: of its repr
    return matrix
