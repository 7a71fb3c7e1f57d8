"""Candidates by words: an inverted index from words to labels.

    c_l = normalized sum of the tf-idf rows of the texts that have label l, its largest words only       centroid
    t_l = tf-idf row of the label's own text                                                             label text
    v_l = (s c_l + g t_l) / |s c_l + g t_l|      s = |sum of its rows|, g = the weight of a label text   combined
    score_l(x) = v_l . x

The network finds labels by what training taught it; the inverted index finds them by shared words, and rare labels by
their own texts. A training row is no part of the v of a label it does not have, so the labels that it retrieves here
wrongly are those a new text would retrieve wrongly: they are the negatives of the linear ranker.
In: tf-idf rows with labels. Out: `InvertedIndex`, which searches and scores.
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
from ..core.predictions import PAD, Predictions
from ..core.ragged import Ragged
from ..core.schema import check_arrays
from ..core.scratch import ScratchPool
from ..dataset.rows import KIND_LABEL_TEXT
from ..encoders.centroids import normalize_rows
from .sparse_rows import QUANTIZED_FROM, SparseRows, csr_arrays, largest_entries, new_sums, postings_with_columns

if TYPE_CHECKING:
    from ..kernels.inverted_index import Postings

NAME = "inverted_index.safetensors"
LABELS_AT_ONCE = 4096


class InvertedIndex:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, label_texts: SparseRows, mixture: np.ndarray, postings: SparseRows, *, threads: int = 1) -> None:
        self.label_texts, self.threads = label_texts, threads  # t of every label
        self.mixture = mixture  # float32 [L, 2]: v = mixture[:, 0] c + mixture[:, 1] t
        self.postings = postings  # v of all labels, transposed: row = word, "words" = labels
        self._sums = ScratchPool(lambda size: new_sums(len(label_texts)))

    @property
    def n_words(self) -> int:
        return len(self.postings)

    @cached_property
    def table(self) -> Postings:
        """The postings as the kernels read them; columns of common words are made at the first call."""
        bits = 8 if len(self.label_texts) >= QUANTIZED_FROM else 16
        return postings_with_columns(self.postings, len(self.label_texts), bits=bits, threads=self.threads)

    def search(self, x: sp.csr_matrix, k: int, excluded: Ragged | None = None) -> Predictions:
        """The k labels with the largest combined score above 0 of each row."""
        return self.search_and_score(x, k, np.empty((x.shape[0], 0), dtype=np.int32), excluded)[0]

    def search_and_score(
        self, x: sp.csr_matrix, k: int, asked: np.ndarray, excluded: Ragged | None = None
    ) -> tuple[Predictions, np.ndarray]:
        """`search`, and the combined score of the labels `asked` for [B, m], from one pass over the postings."""
        excluded = excluded or Ragged.empty(x.shape[0])
        if not kernels.serve():
            return self._search_reference(x, k, asked, excluded)
        from ..kernels.inverted_index import search_rows

        labels = np.full((x.shape[0], k), PAD, dtype=np.int32)
        scores = np.zeros((x.shape[0], k), dtype=np.float32)
        asked, answers = np.ascontiguousarray(asked, dtype=np.int32), np.zeros(asked.shape, dtype=np.float32)
        fixed = (*csr_arrays(x), self.table, excluded.indptr, excluded.labels)

        def rows(start: int, stop: int) -> None:
            sums = self._sums.take()
            search_rows(start, stop, *fixed, sums, labels, scores, asked, answers)
            self._sums.give_back(sums)

        kernels.run(rows, x.shape[0], self.threads)
        return Predictions(labels=labels, scores=scores), answers

    def _search_reference(
        self, x: sp.csr_matrix, k: int, asked: np.ndarray, excluded: Ragged
    ) -> tuple[Predictions, np.ndarray]:
        scores_BL = np.asarray((x @ self.postings.to_csr()).todense(), dtype=np.float32)
        answers = np.take_along_axis(scores_BL, np.maximum(asked, 0).astype(np.int64), axis=1)
        scores_BL[excluded.rows, excluded.labels] = 0.0
        labels = np.full((x.shape[0], k), PAD, dtype=np.int32)
        scores = np.zeros((x.shape[0], k), dtype=np.float32)
        for row, all_scores in enumerate(scores_BL):
            best = np.argsort(-all_scores, kind="stable")[:k]  # ties to the lower label
            best = best[all_scores[best] > 0]
            labels[row, : len(best)], scores[row, : len(best)] = best, all_scores[best]
        return Predictions(labels=labels, scores=scores), np.where(asked >= 0, answers, 0).astype(np.float32)

    def scores(
        self, x: sp.csr_matrix, labels: np.ndarray, combined: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(combined, label-text, centroid score) of the labels at each place; pass `combined` where it is known."""
        if combined is None:
            combined = self.search_and_score(x, 1, labels)[1]
        text = self.label_texts.products(x, labels, threads=self.threads)
        places = np.maximum(labels, 0)
        of_centroid, of_text = self.mixture[places, 0], self.mixture[places, 1]
        rest = combined - of_text * text  # centroids are not stored: v . x = a (c . x) + b (t . x) is solved for c . x
        centroid = np.where(of_centroid > 0, rest / np.maximum(of_centroid, 1e-12), 0.0)
        return combined, text, centroid.astype(np.float32)

    def save(self, folder: Path) -> None:
        named = {"label_texts": self.label_texts, "postings": self.postings}
        arrays = {key: array for prefix, rows in named.items() for key, array in rows.arrays(prefix).items()}
        write_tensors(folder / NAME, {**arrays, "mixture": self.mixture})

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, threads: int = 1) -> InvertedIndex:
        path, sizes = folder / NAME, {"labels": n_labels, "words": n_words}
        arrays = check_arrays(path, read_tensors(path)[0], model_schema.INVERTED_INDEX, sizes)
        label_texts = SparseRows.from_arrays(arrays, "label_texts", n_words)
        postings = SparseRows.from_arrays(arrays, "postings", n_labels)
        return cls(label_texts, arrays["mixture"], postings, threads=threads)


def build_inverted_index(
    bow: sp.csr_matrix,
    labels: sp.csr_matrix,
    kinds: np.ndarray,
    *,
    words_per_label: int,
    label_text_weight: float,
    threads: int = 1,
) -> InvertedIndex:
    """The index of training rows; rows of kind label text are the labels' own texts."""
    unit = normalize_rows(bow)
    is_label_text = kinds == KIND_LABEL_TEXT
    texts = normalize_rows(sp.csr_matrix(_members(labels, is_label_text) @ unit))
    lengths, centroids = _centroids(_members(labels, ~is_label_text), unit, words_per_label, threads)
    mixed = sp.csr_matrix(sp.diags(lengths) @ centroids + label_text_weight * texts)
    norms = _lengths(mixed)
    norms[norms == 0] = 1.0
    mixture = np.stack([lengths / norms, np.full_like(norms, label_text_weight) / norms], axis=1).astype(np.float32)
    by_word = SparseRows.from_csr(sp.csr_matrix(normalize_rows(mixed).T))
    return InvertedIndex(SparseRows.from_csr(texts), mixture, by_word, threads=threads)


def _members(labels: sp.csr_matrix, chosen: np.ndarray) -> sp.csr_matrix:
    """L x rows: 1 where a chosen row has the label."""
    ones = (labels.data > 0) & np.repeat(chosen, np.diff(labels.indptr))
    members = sp.csr_matrix((ones.astype(np.float32), labels.indices, labels.indptr), shape=labels.shape).T.tocsr()
    members.eliminate_zeros()
    return sp.csr_matrix(members)


def _centroids(
    members: sp.csr_matrix, unit: sp.csr_matrix, most: int, threads: int
) -> tuple[np.ndarray, sp.csr_matrix]:
    """(s, c) of each label, some labels at a time: all words of all labels at once may not fit into memory."""
    lengths, centroids = [], []
    for start in range(0, members.shape[0], LABELS_AT_ONCE):
        sums = sp.csr_matrix(members[start : start + LABELS_AT_ONCE] @ unit)
        sums.sort_indices()
        lengths.append(_lengths(sums))
        centroids.append(normalize_rows(largest_entries(sums, most, threads=threads)))
    return np.concatenate(lengths), sp.csr_matrix(sp.vstack(centroids, format="csr"))


def _lengths(matrix: sp.csr_matrix) -> np.ndarray:
    return np.asarray(np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()))
