"""One sparse vector of words per label, for products with texts: classifiers of the linear ranker, texts of labels.

    product(x, l) = w_l . x + b_l

Also its transpose, from words to labels, as the kernels read it: `Postings`. A file may hold coded rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.files import give_back

if TYPE_CHECKING:
    from ..kernels.inverted_index import Postings, Rows, Sums

COLUMN_SHARE = 16  # a word that more than 1 / 16 of the labels have becomes a column in memory
QUANTIZED_FROM = 16_384  # labels from which tables are quantized further; those of fewer fit into the caches anyway
LARGEST_CODE = 32767


@dataclass(frozen=True)
class SparseRows:
    """Row l is words[indptr[l] : indptr[l + 1]] with their weights, and a bias."""

    indptr: np.ndarray  # int64 [L + 1]
    words: np.ndarray  # int32
    weights: np.ndarray  # float32; coded: int16, in steps of the row
    biases: np.ndarray  # float32 [L]
    n_words: int
    steps: np.ndarray | None = None  # float32 [L] of coded rows

    def coded(self) -> SparseRows:
        """Less space: weights as 16-bit codes in steps of their row. Kernels of queries read `decoded` rows."""
        if self.steps is not None:
            return self
        sizes, largest = np.diff(self.indptr), np.zeros(len(self), dtype=np.float32)
        if len(self.weights):
            largest[sizes > 0] = np.maximum.reduceat(np.abs(self.weights), self.indptr[:-1][sizes > 0])
        steps = np.where(largest > 0, largest / np.float32(LARGEST_CODE), np.float32(1)).astype(np.float32)
        codes = np.rint(self.weights / np.repeat(steps, sizes)).astype(np.int16)
        return replace(self, weights=codes, steps=steps)

    def decoded(self) -> SparseRows:
        if self.steps is None:
            return self
        weights = self.weights * np.repeat(self.steps, np.diff(self.indptr))
        return replace(self, weights=weights, steps=None)

    @classmethod
    def from_csr(cls, matrix: sp.csr_matrix, biases: np.ndarray | None = None) -> SparseRows:
        n_labels, n_words = matrix.shape
        given = np.zeros(n_labels, dtype=np.float32) if biases is None else biases.astype(np.float32)
        indptr, words = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        return cls(indptr, words, matrix.data.astype(np.float32), given, n_words)

    @classmethod
    def empty(cls, n_words: int, n_rows: int = 0) -> SparseRows:
        """No rows, or rows without a word."""
        words, weights = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return cls(np.zeros(n_rows + 1, dtype=np.int64), words, weights, np.zeros(n_rows, dtype=np.float32), n_words)

    def __len__(self) -> int:
        return len(self.biases)

    def products(self, x: sp.csr_matrix, labels: np.ndarray, *, threads: int = 1) -> np.ndarray:
        """[B, m]: w_l . x + b_l of the labels at each place, 0 at PAD."""
        if self.steps is not None:
            return self.decoded().products(x, labels, threads=threads)
        if not kernels.serve():
            scores = np.asarray((x @ self.to_csr().T).todense()) + self.biases
            picked = np.take_along_axis(scores, np.maximum(labels, 0).astype(np.int64), axis=1)
            return np.where(labels >= 0, picked, 0).astype(np.float32)
        from ..kernels.inverted_index import products

        out = np.empty(labels.shape, dtype=np.float32)
        labels = np.ascontiguousarray(labels, dtype=np.int32)

        def rows(start: int, stop: int) -> None:
            scratch = np.zeros(self.n_words, dtype=np.float32)
            products(start, stop, labels, *csr_arrays(x), self.table, scratch, out)

        kernels.run(rows, len(labels), threads)
        return out

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[rows, columns]: the weights at these places, 0 where there are none. Words rise within each row.

        Binary search in all rows at once: the rows of an inverted index can be long.
        """
        if len(self.words) == 0:
            return np.zeros((len(rows), len(columns)), dtype=np.float32)
        ends, last = self.indptr[rows + 1][:, None], len(self.words) - 1
        low = np.repeat(self.indptr[rows][:, None], len(columns), axis=1)
        high = np.repeat(ends, len(columns), axis=1)
        while (open_ := low < high).any():  # low becomes the first place whose word is not smaller
            middle = (low + high) // 2
            smaller = open_ & (self.words[np.minimum(middle, last)] < columns)
            low, high = np.where(smaller, middle + 1, low), np.where(smaller, high, middle)
        at = np.minimum(low, last)
        weights = self.weights[at] if self.steps is None else self.weights[at] * self.steps[rows][:, None]
        return np.where((low < ends) & (self.words[at] == columns), weights, np.float32(0.0))

    @property
    def table(self) -> Rows:
        """As the kernels read it."""
        from ..kernels.inverted_index import Rows

        return Rows(self.indptr, self.words, self.weights, self.biases)

    def to_csr(self) -> sp.csr_matrix:
        if self.steps is not None:
            return self.decoded().to_csr()
        return sp.csr_matrix((self.weights, self.words, self.indptr), shape=(len(self), self.n_words))

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """For a safetensors file, each name with the prefix."""
        named = {"indptr": self.indptr, "words": self.words, "weights": self.weights, "biases": self.biases}
        named |= {} if self.steps is None else {"steps": self.steps}
        return {f"{prefix}.{name}": array for name, array in named.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str, n_words: int) -> SparseRows:
        """The inverse of `arrays`, of arrays that were checked (`core/schema.py`)."""
        indptr, words, weights, biases = (arrays[f"{prefix}.{n}"] for n in ("indptr", "words", "weights", "biases"))
        return cls(indptr, words, weights, biases, n_words, arrays.get(f"{prefix}.steps"))


def stacked(parts: Sequence[SparseRows]) -> SparseRows:
    """The rows of all, one after the other."""
    sizes = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    words, weights, biases = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "weights", "biases")
    )
    return SparseRows(indptr, words, weights, biases, parts[0].n_words)


def csr_arrays(x: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr, words, values) of the types that kernels are compiled for, whatever the types of the matrix."""
    return (
        x.indptr.astype(np.int64, copy=False),
        x.indices.astype(np.int32, copy=False),
        x.data.astype(np.float32, copy=False),
    )


def new_sums(n_labels: int) -> Sums:
    """Scratch of one thread."""
    from ..kernels.inverted_index import Sums

    sums, seen = np.zeros(n_labels, dtype=np.float32), np.zeros(n_labels, dtype=np.bool_)
    return Sums(sums, seen, np.empty(n_labels, dtype=np.int32))


def postings_with_columns(
    rows: SparseRows, n_labels: int, *, share: int | None = None, bits: int = 16, threads: int = 1
) -> Postings:
    """Rows are words; one that more than 1 / share of the labels have gets a column (0: none; default COLUMN_SHARE).

    `bits`: of a label in a column, 8 or 16.
    """
    from ..kernels.inverted_index import Postings, fill_columns

    chosen = np.flatnonzero(np.diff(rows.indptr) * (COLUMN_SHARE if share is None else share) > n_labels)
    column_of = np.full(len(rows), -1, dtype=np.int32)
    column_of[chosen] = np.arange(len(chosen), dtype=np.int32)
    integer = np.dtype(f"int{bits}")
    codes, steps = np.zeros((len(chosen), n_labels), dtype=integer), np.zeros(len(chosen), dtype=np.float32)
    table = Postings(rows.indptr, rows.words.view(np.uint32), rows.weights, column_of, codes, steps)
    kernels.run(fill_columns, len(chosen), threads, chosen, table)
    give_back(rows.words, rows.weights)  # the lists of words with a column are not read again
    return table


def exact_columns(rows: SparseRows, share: int) -> Postings:
    """The transpose: a word that more than 1 / share of the labels have is a column of its weights and no list."""
    from ..kernels.inverted_index import Postings
    from ..kernels.transpose import labels_of_words, transpose

    sizes = labels_of_words(rows.words, rows.n_words)
    chosen = np.flatnonzero(sizes * share > len(rows))
    column_of = np.full(rows.n_words, -1, dtype=np.int32)
    column_of[chosen] = np.arange(len(chosen), dtype=np.int32)
    columns = np.zeros((len(chosen), len(rows)), dtype=np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.where(column_of < 0, sizes, 0))]).astype(np.int64)
    lists, listed = np.empty(indptr[-1], dtype=np.uint32), np.empty(indptr[-1], dtype=np.float32)
    transpose(rows.indptr, rows.words, rows.weights, column_of, indptr[:-1].copy(), lists, listed, columns)
    return Postings(indptr, lists, listed, column_of, columns, np.ones(len(chosen), dtype=np.float32))


def coded_columns(postings: Postings, kind: np.dtype) -> tuple[Postings, np.ndarray]:
    """(the postings with numbers of `kind`, the step of each word); float32: as they are, in steps of 1."""
    steps = np.ones(len(postings.column_of), dtype=np.float32)
    if kind == np.float32:
        return postings, steps
    sizes, in_column = np.diff(postings.indptr), np.flatnonzero(postings.column_of >= 0)
    largest = np.zeros(len(steps), dtype=np.float32)
    if len(postings.weights):
        largest[sizes > 0] = np.maximum.reduceat(np.abs(postings.weights), postings.indptr[:-1][sizes > 0])
    largest[in_column] = np.abs(postings.codes[postings.column_of[in_column]]).max(axis=1, initial=0)
    steps[largest > 0] = largest[largest > 0] / np.iinfo(kind).max
    weights = np.rint(postings.weights / np.repeat(steps, sizes)).astype(kind)
    columns = np.empty(postings.codes.shape, dtype=kind)
    columns[postings.column_of[in_column]] = np.rint(
        postings.codes[postings.column_of[in_column]] / steps[in_column, None]
    )
    return postings._replace(weights=weights, codes=columns), steps


def largest_entries(matrix: sp.csr_matrix, most: int, *, threads: int = 1) -> sp.csr_matrix:
    """Only the `most` largest entries of each row by absolute value; of equal ones the lower columns."""
    sizes = np.diff(matrix.indptr)
    indptr = np.concatenate([[0], np.cumsum(np.minimum(sizes, most))]).astype(matrix.indptr.dtype)
    if kernels.serve():
        from ..kernels.sparse_rows import keep_largest

        indices, data = np.empty(indptr[-1], matrix.indices.dtype), np.empty(indptr[-1], matrix.data.dtype)
        given = matrix.indptr, matrix.indices, matrix.data
        kernels.run(keep_largest, len(sizes), threads, *given, indptr, indices, data)
        return sp.csr_matrix((data, indices, indptr), shape=matrix.shape)
    rows = np.repeat(np.arange(matrix.shape[0]), sizes)
    order = np.lexsort((-np.abs(matrix.data), rows))
    within = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], sizes)
    kept = np.sort(order[within < most])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)
