"""Two unlearned baselines, so that the figures of a model can be read: most frequent labels, and nearest texts.

    most frequent labels    the same labels for every text, by n_l
    nearest texts           score_l(x) = sum over the 20 nearest training texts i that have l of cos(x, x_i)
                                         / sum over all 20 of cos(x, x_i)
                                         + cos(x, t_l)                       t_l: the text of l, where it has one

Cosines are of tf-idf rows (or of the user's own vectors), over the 50 strongest words of x. Ties go to the lower label.
A baseline sees the rows that the model was trained on and nothing else.

In: `SeenRows` and the rows to answer. Out: label numbers, rows x k, best first, PAD where there are fewer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.predictions import PAD
from ..dataset.rows import KIND_LABEL_TEXT

MOST_FREQUENT, NEAREST = "most frequent labels", "nearest texts"
NEIGHBORS = 20
STRONGEST = 50  # words of a text that are looked up: the weak ones are in most texts and would take most of the time
MOST_SEEN = 300_000  # training rows that are searched; of more, so many at random
PAIRS_AT_ONCE = 1 << 22  # similarities held at once, per thread
DEPTH = 110  # labels per row: 100 are scored, and pairs that the data excludes are removed first

Matrix = sp.csr_matrix | np.ndarray


class SeenRows(NamedTuple):
    """Rows that a model was trained on."""

    vectors: Matrix  # tf-idf, or the user's own vectors
    labels: sp.csr_matrix
    kinds: np.ndarray  # KIND_TEXT or KIND_LABEL_TEXT


def baseline_labels(seen: SeenRows, asked: Matrix, *, threads: int = 1) -> dict[str, np.ndarray]:
    """The answers of both baselines to the rows of `asked`, int32 [rows, DEPTH] each."""
    frequent = most_frequent_labels(seen, DEPTH)
    every = np.full((asked.shape[0], DEPTH), PAD, dtype=np.int32)
    every[:, : len(frequent)] = frequent
    return {NEAREST: nearest_texts(seen, asked, DEPTH, threads=threads), MOST_FREQUENT: every}


def most_frequent_labels(seen: SeenRows, k: int) -> np.ndarray:
    """At most k labels by falling n_l."""
    texts = seen.labels[np.flatnonzero(seen.kinds != KIND_LABEL_TEXT)]
    counts = np.bincount(texts.indices, minlength=texts.shape[1])
    order = np.argsort(-counts, kind="stable")[:k]
    return np.asarray(order[counts[order] > 0])


def nearest_texts(seen: SeenRows, asked: Matrix, k: int, *, threads: int = 1) -> np.ndarray:
    """The k best labels of each row by similar training texts and label texts."""
    found = np.full((asked.shape[0], k), PAD, dtype=np.int32)
    is_text = seen.kinds != KIND_LABEL_TEXT
    texts, label_texts = np.flatnonzero(is_text), np.flatnonzero(~is_text)
    if len(texts) > MOST_SEEN:
        texts = np.sort(np.random.default_rng(0).choice(texts, MOST_SEEN, replace=False))
    labels = sp.csr_matrix((seen.labels > 0).astype(np.float32))
    # Words x texts, each row of it the postings of a word.
    columns, names = (_transposed(_unit_rows(seen.vectors[rows])) for rows in (texts, label_texts))
    votes_of, name_of = sp.csr_matrix(labels[texts]), sp.csr_matrix(labels[label_texts])
    asked = _unit_rows(asked)

    def answer(start: int) -> None:
        block = _strongest(asked[start : start + size], STRONGEST)
        similar = _top(sp.csr_matrix(block @ columns), NEIGHBORS)
        total = np.asarray(similar.sum(axis=1)).ravel()
        similar = sp.csr_matrix(sp.diags(1.0 / np.maximum(total, 1e-12)) @ similar)
        scores = sp.csr_matrix(similar @ votes_of)
        if len(label_texts):
            scores = sp.csr_matrix(scores + sp.csr_matrix(block @ names) @ name_of)
        for row, (numbers, _) in enumerate(_best(scores, k)):
            found[start + row, : len(numbers)] = numbers

    size = max(1, PAIRS_AT_ONCE // max(1, len(texts), len(label_texts)))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(answer, range(0, asked.shape[0], size)))
    return found


def _unit_rows(matrix: Matrix) -> Matrix:
    """Rows of length 1 (float32); rows of zeros stay."""
    if sp.issparse(matrix):
        matrix = sp.csr_matrix(matrix, dtype=np.float32)
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        return sp.csr_matrix(sp.diags((1.0 / np.maximum(lengths, 1e-12)).astype(np.float32)) @ matrix)
    rows = np.asarray(matrix, dtype=np.float32)
    unit: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _transposed(matrix: Matrix) -> Matrix:
    return sp.csr_matrix(matrix.T) if sp.issparse(matrix) else np.ascontiguousarray(matrix.T)


def _strongest(matrix: Matrix, words: int) -> Matrix:
    return _top(sp.csr_matrix(matrix), words) if sp.issparse(matrix) else matrix


def _top(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """The k largest values above 0 of each row."""
    rows = list(_best(matrix, k))
    ends = np.concatenate([[0], np.cumsum([len(columns) for columns, _ in rows])]).astype(np.int64)
    columns = np.concatenate([np.zeros(0, np.int32), *(columns for columns, _ in rows)])
    values = np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)])
    return sp.csr_matrix((values, columns, ends), shape=matrix.shape)


def _best(matrix: sp.csr_matrix, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(columns, values) of the k largest values above 0 of each row, largest first, ties to the lower column."""
    found = []
    for start, stop in zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True):
        values, columns = matrix.data[start:stop], matrix.indices[start:stop]
        if len(values) > k:
            least = np.partition(values, len(values) - k)[len(values) - k]
            values, columns = values[kept := values >= least], columns[kept]
        order = np.lexsort((columns, -values))[:k]
        order = order[values[order] > 0]
        found.append((columns[order], values[order]))
    return found
