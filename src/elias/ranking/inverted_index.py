"""The sparse side of finding: labels by the words they share with a text.

    c_l = normalised sum of tf-idf rows of the texts that have label l, its largest words only
    t_l = tf-idf row of the label's own text
    v_l = (s c_l + g t_l) / |s c_l + g t_l|      s = |sum of its rows|, g = lexical.label_text_weight
    score_l(x) = v_l . x

The index of the network finds by meaning and by what training taught it; this one finds by words, and rare labels by
their own texts. A row never is part of the v of a label it does not have, so the labels that a training row finds
here wrongly are the ones a new text would find wrongly: they are what the ranker learns from.
In: tf-idf rows with labels. Out: an inverted index, and v and t of each label.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.errors import ModelError
from ..core.files import read_tensors, write_tensors
from ..core.predictions import PAD, Predictions
from ..core.ragged import Ragged
from ..dataset.rows import KIND_LABEL_TEXT
from ..encoders.centroids import normalize_rows
from .sparse_rows import NARROW_FROM, SparseRows, csr_arrays, largest_entries, no_sums, postings_with_columns

if TYPE_CHECKING:
    from ..kernels.postings import Postings, Sums

NAME = "lexical.safetensors"
LABELS_AT_A_TIME = 4096


class Lexical:
    """Finds and scores labels by words. Holds no state of a query; any number of threads may call it."""

    def __init__(self, texts: SparseRows, shares: np.ndarray, postings: SparseRows, *, threads: int = 1) -> None:
        self.texts, self.threads = texts, threads
        self.shares = shares  # float32 [L, 2]: v = shares[:, 0] c + shares[:, 1] t
        self.postings = postings  # v of all labels, seen from the words: row = word, "words" = labels
        self._free: deque[Sums] = deque()  # of calls that have ended

    @cached_property
    def table(self) -> Postings:
        """The postings as the search reads them; columns are made when it is first asked."""
        bits = 8 if len(self.texts) >= NARROW_FROM else 16
        return postings_with_columns(self.postings, len(self.texts), bits=bits, threads=self.threads)

    def find(self, x: sp.csr_matrix, k: int, excluded: Ragged | None = None) -> Predictions:
        """The k labels with the largest v . x of each row."""
        return self.search(x, k, np.empty((x.shape[0], 0), dtype=np.int32), excluded)[0]

    def search(
        self, x: sp.csr_matrix, k: int, asked: np.ndarray, excluded: Ragged | None = None
    ) -> tuple[Predictions, np.ndarray]:
        """`find`, and v . x of the labels asked about [rows, m] (-1: nobody), from one look at the postings."""
        from ..kernels.postings import find_labels

        n_rows = x.shape[0]
        excluded = excluded or Ragged.empty(n_rows)
        labels = np.full((n_rows, k), PAD, dtype=np.int32)
        scores = np.zeros((n_rows, k), dtype=np.float32)
        asked, answers = np.ascontiguousarray(asked, dtype=np.int32), np.zeros(asked.shape, dtype=np.float32)

        def rows(start: int, stop: int) -> None:
            scratch = self.take_scratch()
            find_labels(
                start, stop, *csr_arrays(x), table, excluded.indptr, excluded.labels, scratch, labels, scores, asked,
                answers,
            )  # fmt: skip
            self.give_back(scratch)

        table = self.table
        kernels.run(rows, n_rows, self.threads)
        return Predictions(labels=labels, scores=scores), answers

    def take_scratch(self) -> Sums:
        """Memory of the size of all labels, of an earlier call where there is one."""
        try:
            return self._free.pop()
        except IndexError:
            return no_sums(len(self.texts))

    def give_back(self, scratch: Sums) -> None:
        self._free.append(scratch)

    def scores(
        self, x: sp.csr_matrix, labels: np.ndarray, both: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(v . x, t . x, c . x) of the labels at each place; `both` is v . x where it is known."""
        if both is None:
            both = self.search(x, 1, labels)[1]
        text = self.texts.products(x, labels, threads=self.threads)
        places = np.maximum(labels, 0)
        of_rows, of_text = self.shares[places, 0], self.shares[places, 1]
        rows = np.where(of_rows > 0, (both - of_text * text) / np.maximum(of_rows, 1e-12), 0.0)
        return both, text, rows.astype(np.float32)

    def save(self, folder: Path) -> None:
        named = {"texts": self.texts, "postings": self.postings}
        arrays = {key: array for prefix, rows in named.items() for key, array in rows.arrays(prefix).items()}
        write_tensors(folder / NAME, {**arrays, "shares": self.shares})

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, threads: int = 1) -> Lexical:
        path = folder / NAME
        arrays, _ = read_tensors(path)
        texts = SparseRows.from_arrays(arrays, "texts", path, n_labels, n_words)
        postings = SparseRows.from_arrays(arrays, "postings", path, n_words, n_labels)
        if "shares" not in arrays or arrays["shares"].shape != (n_labels, 2) or arrays["shares"].dtype != np.float32:
            raise ModelError(f"{path}: shares do not fit the other files of this model; restore it from a copy")
        return cls(texts, arrays["shares"], postings, threads=threads)


def build_lexical(
    bow: sp.csr_matrix, labels: sp.csr_matrix, kinds: np.ndarray, *, words_per_label: int, text_weight: float,
    threads: int = 1,
) -> Lexical:  # fmt: skip
    """The index of training rows; rows of kind label text give the labels' own texts."""
    unit = normalize_rows(bow)
    is_text = kinds == KIND_LABEL_TEXT
    texts = normalize_rows(sp.csr_matrix(_members(labels, is_text) @ unit))
    lengths, centroids = _centroids(_members(labels, ~is_text), unit, words_per_label)
    mixed = sp.csr_matrix(sp.diags(lengths) @ centroids + text_weight * texts)
    norms = _lengths(mixed)
    norms[norms == 0] = 1.0
    shares = np.stack([lengths / norms, np.full_like(norms, text_weight) / norms], axis=1).astype(np.float32)
    by_word = SparseRows.of(sp.csr_matrix(normalize_rows(mixed).T))
    return Lexical(SparseRows.of(texts), shares, by_word, threads=threads)


def _members(labels: sp.csr_matrix, chosen: np.ndarray) -> sp.csr_matrix:
    """L x rows: 1 where a chosen row has the label."""
    ones = (labels.data > 0) & np.repeat(chosen, np.diff(labels.indptr))
    members = sp.csr_matrix((ones.astype(np.float32), labels.indices, labels.indptr), shape=labels.shape).T.tocsr()
    members.eliminate_zeros()
    return sp.csr_matrix(members)


def _centroids(members: sp.csr_matrix, unit: sp.csr_matrix, most: int) -> tuple[np.ndarray, sp.csr_matrix]:
    """(s, c) of each label, some labels at a time: all words of all labels at once may be too many."""
    lengths, centroids = [], []
    for start in range(0, members.shape[0], LABELS_AT_A_TIME):
        sums = sp.csr_matrix(members[start : start + LABELS_AT_A_TIME] @ unit)
        sums.sort_indices()
        lengths.append(_lengths(sums))
        centroids.append(normalize_rows(largest_entries(sums, most)))
    return np.concatenate(lengths), sp.csr_matrix(sp.vstack(centroids, format="csr"))


def _lengths(matrix: sp.csr_matrix) -> np.ndarray:
    return np.asarray(np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()))
