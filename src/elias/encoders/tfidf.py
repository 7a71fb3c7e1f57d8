"""Features of texts and of labels: tf-idf rows, psi, label centroids.

    value(x, word) = (1 + ln tf) * idf(word)      idf(word) = ln((1 + N) / (1 + df)) + 1      rows of length 1
    psi(x)         = [bow(x) / |bow(x)|, phi(x) / |phi(x)|]
    centroid(l)    = s / |s|,  s = sum of x / |x| over the rows x that have label l      (zero if there are none)

In: texts, embeddings, the rows x L matrix of labels. Out: scipy CSR (float32, indices sorted) or dense arrays.
Whoever weighs a text, here or in a kernel, adds up in the same order, so the same text gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, overload

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError, ModelError
from ..core.files import read_object, write_array, write_json
from ..core.tokenize import HIGHEST_COUNT, Vocabulary, VocabularyBuilder, text_chunks

FORMAT_VERSION = 1
FILES = ("vectorizer.json", "vectorizer.npy")
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
        return cls._fit(texts, min_df, max_words)[0]

    @classmethod
    def fit_transform(
        cls, texts: Sequence[str], *, min_df: int | None = None, max_words: int = MAX_WORDS
    ) -> tuple[TfIdf, sp.csr_matrix]:
        """The same as `fit` and then `transform`, but each text is split into words only once."""
        tfidf, chunks = cls._fit(texts, min_df, max_words)
        return tfidf, tfidf._stack(chunks)

    @classmethod
    def _fit(cls, texts: Sequence[str], min_df: int | None, max_words: int) -> tuple[TfIdf, Iterable[sp.csr_matrix]]:
        if min_df is not None and min_df < 1:
            raise InputError(f"min_df is {min_df}; it must be 1 or more")
        if max_words < 1:
            raise InputError(f"max_words is {max_words}; it must be 1 or more")
        if min_df is None:
            min_df = 1 if len(texts) < FEW_TEXTS else 2
        growing = VocabularyBuilder()
        for chunk in text_chunks(texts):
            growing.add(chunk)
        words, df, chunks = growing.build(min_df, max_words)
        idf = np.log((1 + len(texts)) / (1 + df)) + 1.0
        return cls(words, idf, min_df=min_df, max_words=max_words, n_texts=len(texts)), chunks

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Texts x words, float32, rows of length 1; a text without a known word is an empty row."""
        return self._stack(self.words.count_matrix(chunk) for chunk in text_chunks(texts))

    def transform_one(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Columns (int32, rising) and values (float32) of one text: the fast path for serving."""
        ids, counts = self.words.count(text)
        values: np.ndarray = sublinear().take(counts)
        values *= self.idf.take(ids)
        if len(ids):
            values /= np.sqrt(np.add.accumulate(values * values)[-1])
        return ids, values.astype(np.float32)

    def _weigh(self, ids: np.ndarray, counts: np.ndarray, indptr: np.ndarray) -> np.ndarray:
        """The values of rows of counts; squares are added up one after the other, wherever a text is weighed."""
        values: np.ndarray = sublinear()[counts] * self.idf[ids]
        if len(values):
            rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            values /= np.sqrt(np.bincount(rows, weights=values * values))[rows]
        return np.asarray(values, dtype=np.float32)

    def _stack(self, chunks: Iterable[sp.csr_matrix]) -> sp.csr_matrix:
        data, indices, indptr, total = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)], [np.zeros(1, np.int64)], 0
        for counts in chunks:
            data.append(self._weigh(counts.indices, counts.data, counts.indptr))
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
        content = _load_json(path)
        idf = _load_array(path.with_name("vectorizer.npy"), np.float64)
        try:
            words, settings = Vocabulary(content["words"]), content["settings"]
            n_texts, min_df, max_words = (int(settings[key]) for key in ("n_texts", "min_df", "max_words"))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path}: missing or broken entry {error}; fit the vectorizer again") from error
        if idf.shape != (len(words),):
            raise ModelError(f"{path}: {len(words)} words but idf of shape {idf.shape}; fit the vectorizer again")
        return cls(words, np.array(idf), min_df=min_df, max_words=max_words, n_texts=n_texts)


@overload
def normalise_rows(matrix: sp.csr_matrix) -> sp.csr_matrix: ...
@overload
def normalise_rows(matrix: np.ndarray) -> np.ndarray: ...
def normalise_rows(matrix: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
    """A float32 copy whose rows have length 1; zero rows stay zero."""
    if isinstance(matrix, np.ndarray):
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        norms[norms == 0] = 1.0
        return np.asarray(matrix / norms[:, None], dtype=np.float32)
    sizes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(matrix.shape[0]), sizes)
    norms = np.sqrt(np.bincount(rows, weights=np.square(matrix.data, dtype=np.float64), minlength=matrix.shape[0]))
    norms[norms == 0] = 1.0
    data = (matrix.data / norms[rows]).astype(np.float32)
    return sp.csr_matrix((data, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)


def psi(bow: sp.csr_matrix | np.ndarray, phi: sp.csr_matrix | np.ndarray) -> sp.csr_matrix | np.ndarray:
    """[bow / |bow|, phi / |phi|], sparse unless both are dense."""
    if bow.shape[0] != phi.shape[0]:
        raise InputError(f"psi needs one phi for each bow: {bow.shape[0]} rows of bow, {phi.shape[0]} of phi")
    left, right = normalise_rows(bow), normalise_rows(phi)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.hstack([left, right])
    joined: sp.csr_matrix = sp.csr_matrix(sp.hstack([sp.csr_matrix(left), sp.csr_matrix(right)], format="csr"))
    joined.sort_indices()
    return joined


@overload
def label_centroids(features: sp.csr_matrix, labels: sp.csr_matrix) -> sp.csr_matrix: ...
@overload
def label_centroids(features: np.ndarray, labels: sp.csr_matrix) -> np.ndarray: ...
def label_centroids(features: sp.csr_matrix | np.ndarray, labels: sp.csr_matrix) -> sp.csr_matrix | np.ndarray:
    """L x F: for each label the normalised sum of its rows; label weights are not used, any above 0 counts."""
    if features.shape[0] != labels.shape[0]:
        raise InputError(f"{features.shape[0]} rows of features, {labels.shape[0]} of labels; pass the same rows")
    members = by_label(labels)
    if isinstance(features, np.ndarray):
        return normalise_rows(np.asarray(members @ normalise_rows(features)))
    centroids = normalise_rows(sp.csr_matrix(members @ normalise_rows(features)))
    centroids.sort_indices()
    return centroids


def by_label(labels: sp.csr_matrix) -> sp.csr_matrix:
    """Labels x rows, above 0 where the row has the label; rows rise and are listed once."""
    ones = (labels.data > 0).astype(np.float32)
    turned: sp.csr_matrix = sp.csr_matrix((ones, labels.indices, labels.indptr), shape=labels.shape).T.tocsr()
    turned.eliminate_zeros()
    turned.sum_duplicates()
    return turned


def write_csr(folder: str | Path, matrix: sp.csr_matrix) -> None:
    """Store a matrix so that `open_csr` can map it: data.npy, indices.npy, indptr.npy, and csr.json when complete."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "csr.json").unlink(missing_ok=True)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    for name, array in (("data", matrix.data), ("indices", matrix.indices), ("indptr", matrix.indptr)):
        write_array(folder / f"{name}.npy", array)
    write_json(folder / "csr.json", {"format_version": FORMAT_VERSION, "kind": "csr", "shape": list(matrix.shape)})


def open_csr(folder: str | Path) -> sp.csr_matrix:
    """The stored matrix, read-only and mapped from disk: nothing is read until it is used."""
    folder = Path(folder)
    content = _load_json(folder / "csr.json")
    data, indices, indptr = (_load_array(folder / f"{name}.npy") for name in ("data", "indices", "indptr"))
    try:
        n_rows, n_columns = (int(size) for size in content["shape"])
        whole = len(indptr) == n_rows + 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
    except (KeyError, TypeError, ValueError, IndexError):
        whole = False
    if not whole:
        raise ModelError(f"{folder}: the parts of the stored matrix do not fit together; write it again")
    matrix = sp.csr_matrix((data, indices, indptr), shape=(n_rows, n_columns))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def _load_array(path: Path, dtype: type[np.generic] | None = None) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); write it again") from error
    if array.ndim != 1 or (dtype is not None and array.dtype != dtype):
        raise ModelError(f"{path}: holds a {array.ndim}-d array of {array.dtype}; write it again")
    return array


def _load_json(path: Path) -> dict[str, Any]:
    content = read_object(path)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise ModelError(f"{path}: format_version {version!r}; this program reads {FORMAT_VERSION}")
    return content
