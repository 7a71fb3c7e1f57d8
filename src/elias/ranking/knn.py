"""The training texts nearest to a text, by their strongest words, and how they vote for labels.

The ranker and the words of a label (`lexical`) sum up all texts that have it; a near twin of the text at hand is lost
in such a sum. Here each training text speaks for itself. Equations: `kernels/neighbours.py`.
In: tf-idf rows with labels. Out: for each label asked about, its share of the votes and its closest text.
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
from ..dataset.rows import KIND_LABEL_TEXT
from ..encoders.centroids import normalize_rows
from .sparse_rows import SparseRows, csr_arrays, largest_entries, no_sums, postings_with_columns

if TYPE_CHECKING:
    from ..kernels.neighbours import Ballot, Texts

NAME = "neighbours.safetensors"


class Neighbours:
    """Training texts, each by its largest words. Holds no state of a query; any number of threads may call it."""

    def __init__(
        self, postings: SparseRows, indptr: np.ndarray, labels: np.ndarray, *, n_labels: int, most: int, budget: int,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self.postings = postings  # row = word, "words" = texts
        self.indptr, self.labels = indptr, labels  # of each text
        self.n_labels, self.most, self.budget, self.threads = n_labels, most, budget, threads
        self._free: deque[Ballot] = deque()

    @cached_property
    def table(self) -> Texts:
        from ..kernels.neighbours import Texts

        postings = postings_with_columns(self.postings, self.n_texts, share=0)
        return Texts(postings, self.indptr, self.labels, self.budget, min(self.most, self.n_texts))

    @property
    def n_texts(self) -> int:
        return len(self.indptr) - 1

    def votes(self, x: sp.csr_matrix, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(vote, closest) of the labels at each place [rows, m]; 0 for nobody (-1)."""
        from ..kernels.neighbours import vote_rows

        labels = np.ascontiguousarray(labels, dtype=np.int32)
        vote, closest = np.empty(labels.shape, dtype=np.float32), np.empty(labels.shape, dtype=np.float32)
        given, table = csr_arrays(x), self.table

        def rows(start: int, stop: int) -> None:
            ballot = self.take()
            vote_rows(start, stop, *given, table, labels, ballot, vote, closest)
            self.give_back(ballot)

        kernels.run(rows, len(labels), self.threads)
        return vote, closest

    def take(self) -> Ballot:
        """Memory of an earlier call where there is one."""
        try:
            return self._free.pop()
        except IndexError:
            return self.new_ballot()

    def give_back(self, ballot: Ballot) -> None:
        self._free.append(ballot)

    def new_ballot(self) -> Ballot:
        from ..kernels.neighbours import Ballot

        votes, closest = np.zeros(self.n_labels, dtype=np.float32), np.zeros(self.n_labels, dtype=np.float32)
        return Ballot(no_sums(self.n_texts), votes, closest)

    @classmethod
    def nobody(cls, n_labels: int, n_words: int) -> Neighbours:
        """No texts: all votes are 0."""
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(n_words, np.float32)
        nothing = SparseRows(np.zeros(n_words + 1, np.int64), *empty, 0)
        return cls(nothing, np.zeros(1, np.int64), np.zeros(0, np.int32), n_labels=n_labels, most=0, budget=0)

    def save(self, folder: Path) -> None:
        numbers = {"most": np.array([self.most]), "budget": np.array([self.budget])}
        lists = {"indptr": self.indptr, "labels": self.labels}
        write_tensors(folder / NAME, {**self.postings.arrays("texts"), **lists, **numbers})

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, threads: int = 1) -> Neighbours:
        path = folder / NAME
        arrays, _ = read_tensors(path)
        try:
            indptr, labels = arrays["indptr"], arrays["labels"]
            most, budget = int(arrays["most"][0]), int(arrays["budget"][0])
        except (KeyError, IndexError):
            raise ModelError(f"{path}: a part is missing; restore the file from a copy") from None
        whole = (
            [indptr.dtype, labels.dtype] == [np.int64, np.int32]
            and len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(labels) and bool(np.all(np.diff(indptr) >= 0))
            and (len(labels) == 0 or (int(labels.min()) >= 0 and int(labels.max()) < n_labels))
            and most > 0 and budget > 0
        )  # fmt: skip
        if not whole:
            raise ModelError(f"{path}: labels of texts do not fit this model; restore the file from a copy")
        postings = SparseRows.from_arrays(arrays, "texts", path, n_words, len(indptr) - 1)
        return cls(postings, indptr, labels, n_labels=n_labels, most=most, budget=budget, threads=threads)


def build_neighbours(
    bow: sp.csr_matrix, labels: sp.csr_matrix, kinds: np.ndarray, *, most: int, words_per_text: int, budget: int,
    threads: int = 1,
) -> Neighbours:  # fmt: skip
    """The texts of some rows; rows of kind label text are not among them."""
    texts = np.flatnonzero(kinds != KIND_LABEL_TEXT)
    unit = largest_entries(normalize_rows(sp.csr_matrix(bow[texts])), words_per_text)
    theirs = sp.csr_matrix(labels[texts])
    theirs = sp.csr_matrix((theirs.data > 0, theirs.indices, theirs.indptr), shape=theirs.shape)
    theirs.eliminate_zeros()
    return Neighbours(
        SparseRows.of(sp.csr_matrix(unit.T)), theirs.indptr.astype(np.int64), theirs.indices.astype(np.int32),
        n_labels=labels.shape[1], most=most, budget=budget, threads=threads,
    )  # fmt: skip
