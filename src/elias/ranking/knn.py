"""k-nearest-neighbor votes: the training texts nearest to a text, by their strongest words, vote for their labels.

    N(x)       the k training texts with the largest sums s_i over the strongest words of x
    vote_l     sum of s_i^2 over the texts of N(x) that have label l, divided by the sum of s_i^2 over all of N(x)
    nearest_l  the largest s_i among them

The linear ranker and the inverted index sum up all texts of a label, in which one near-duplicate of the text at hand is
lost. Here each training text counts by itself.
In: tf-idf rows with labels. Out: the votes for each candidate label.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core import model_schema
from ..core.files import read_tensors, write_tensors
from ..core.predictions import PAD
from ..core.schema import check_arrays
from ..core.scratch import ScratchPool
from ..dataset.rows import KIND_LABEL_TEXT
from ..encoders.centroids import normalize_rows
from .sparse_rows import SparseRows, csr_arrays, largest_entries, new_sums, postings_with_columns

if TYPE_CHECKING:
    from ..kernels.knn import TrainingTexts, VoteScratch

NAME = "knn.safetensors"


class KNN:
    """Training texts, each by its largest words. Holds no state of a query; any number of threads may call it.

    `neighbors` is k; `budget` limits the (word, text) pairs that are read for one text.
    """

    def __init__(
        self, postings: SparseRows, indptr: np.ndarray, labels: np.ndarray, *, n_labels: int, neighbors: int,
        budget: int, threads: int = 1,
    ) -> None:  # fmt: skip
        self.postings = postings  # row = word, "words" = texts
        self.indptr, self.labels = indptr, labels  # of each text
        self.n_labels, self.neighbors, self.budget, self.threads = n_labels, neighbors, budget, threads
        self._scratch = ScratchPool(lambda size: _new_scratch(n_labels, len(indptr) - 1))

    @cached_property
    def table(self) -> TrainingTexts:
        """As the kernels read it."""
        from ..kernels.knn import TrainingTexts

        postings = postings_with_columns(self.postings, self.n_texts, share=0)
        return TrainingTexts(postings, self.indptr, self.labels, self.budget, min(self.neighbors, self.n_texts))

    @property
    def n_texts(self) -> int:
        return len(self.indptr) - 1

    def votes(self, x: sp.csr_matrix, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(vote, nearest) of the labels at each place [B, m]; 0 at PAD."""
        labels = np.ascontiguousarray(labels, dtype=np.int32)
        vote, nearest = np.zeros(labels.shape, dtype=np.float32), np.zeros(labels.shape, dtype=np.float32)
        if not kernels.serve():
            self._votes_reference(x, labels, vote, nearest)
            return vote, nearest
        from ..kernels.knn import vote_rows

        fixed = (*csr_arrays(x), self.table, labels)

        def rows(start: int, stop: int) -> None:
            scratch = self._scratch.take()
            vote_rows(start, stop, *fixed, scratch, vote, nearest)
            self._scratch.give_back(scratch)

        kernels.run(rows, len(labels), self.threads)
        return vote, nearest

    def _votes_reference(self, x: sp.csr_matrix, labels: np.ndarray, vote: np.ndarray, nearest: np.ndarray) -> None:
        for row, (texts, sums) in enumerate(zip(*self._nearest_reference(x), strict=True)):
            near, sums = texts[texts >= 0], sums[texts >= 0].astype(np.float64)
            total = float(np.square(sums).sum())
            if total == 0.0:
                continue
            votes, best = np.zeros(self.n_labels), np.zeros(self.n_labels)
            for text, similarity in zip(near, sums, strict=True):
                own = self.labels_of(text)
                votes[own] += similarity**2 / total
                best[own] = np.maximum(best[own], similarity)
            real = labels[row] >= 0
            vote[row, real], nearest[row, real] = votes[labels[row, real]], best[labels[row, real]]

    def nearest_texts(self, x: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        """N(x) of each row by falling s_i, and s_i [B, k]: the texts that `votes` counts. PAD and 0 after the last."""
        if not kernels.serve():
            return self._nearest_reference(x)
        from ..kernels.knn import neighbor_rows

        table, given = self.table, csr_arrays(x)
        found = np.empty((x.shape[0], table.most), dtype=np.int32)
        sums = np.empty(found.shape, dtype=np.float32)

        def rows(start: int, stop: int) -> None:
            scratch = self._scratch.take()
            neighbor_rows(start, stop, *given, table, scratch, found, sums)
            self._scratch.give_back(scratch)

        kernels.run(rows, x.shape[0], self.threads)
        return found, sums

    def _nearest_reference(self, x: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
        texts, most = self.postings.to_csr(), min(self.neighbors, self.n_texts)
        found = np.full((x.shape[0], most), PAD, dtype=np.int32)
        similarities = np.zeros(found.shape, dtype=np.float32)
        for row in range(x.shape[0]):
            words, values = x[row].indices, x[row].data
            order = np.argsort(-values, kind="stable")
            lengths = np.cumsum(np.diff(texts.indptr)[words[order]])
            used = order[(lengths <= self.budget) | (np.arange(len(order)) == 0)]  # the strongest word always counts
            sums = np.asarray(values[used] @ texts[words[used]]).ravel() if len(used) else np.zeros(self.n_texts)
            near = np.argsort(-sums, kind="stable")[:most]
            near = near[sums[near] > 0]
            found[row, : len(near)], similarities[row, : len(near)] = near, sums[near]
        return found, similarities

    def labels_of(self, text: int) -> np.ndarray:
        """The labels that a training text votes for."""
        own: np.ndarray = self.labels[self.indptr[text] : self.indptr[text + 1]]
        return own

    def new_scratch(self) -> VoteScratch:
        return _new_scratch(self.n_labels, self.n_texts)

    @classmethod
    def empty(cls, n_labels: int, n_words: int) -> KNN:
        """Without texts: all votes are 0."""
        postings = SparseRows.empty(0, n_words)
        return cls(postings, np.zeros(1, np.int64), np.zeros(0, np.int32), n_labels=n_labels, neighbors=0, budget=0)

    def save(self, folder: Path) -> None:
        numbers = {"neighbors": np.array([self.neighbors]), "budget": np.array([self.budget])}
        lists = {"indptr": self.indptr, "labels": self.labels}
        write_tensors(folder / NAME, {**self.postings.arrays("texts"), **lists, **numbers})

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, threads: int = 1) -> KNN:
        path, sizes = folder / NAME, {"labels": n_labels, "words": n_words}
        arrays = check_arrays(path, read_tensors(path)[0], model_schema.KNN, sizes)
        postings = SparseRows.from_arrays(arrays, "texts", sizes["texts"])
        numbers = {name: int(arrays[name][0]) for name in ("neighbors", "budget")}
        return cls(postings, arrays["indptr"], arrays["labels"], n_labels=n_labels, **numbers, threads=threads)


def build_knn(
    bow: sp.csr_matrix, labels: sp.csr_matrix, kinds: np.ndarray, *, neighbors: int, words_per_text: int, budget: int,
    threads: int = 1,
) -> KNN:  # fmt: skip
    """The texts of some rows; label texts do not vote."""
    texts = np.flatnonzero(kinds != KIND_LABEL_TEXT)
    unit = largest_entries(normalize_rows(sp.csr_matrix(bow[texts])), words_per_text)
    own = sp.csr_matrix(labels[texts])
    own = sp.csr_matrix((own.data > 0, own.indices, own.indptr), shape=own.shape)
    own.eliminate_zeros()
    sizes = {"n_labels": labels.shape[1], "neighbors": neighbors, "budget": budget}
    postings = SparseRows.from_csr(sp.csr_matrix(unit.T))
    return KNN(postings, own.indptr.astype(np.int64), own.indices.astype(np.int32), **sizes, threads=threads)


def _new_scratch(n_labels: int, n_texts: int) -> VoteScratch:
    from ..kernels.knn import VoteScratch

    votes, nearest = np.zeros(n_labels, dtype=np.float32), np.zeros(n_labels, dtype=np.float32)
    return VoteScratch(new_sums(n_texts), votes, nearest)
