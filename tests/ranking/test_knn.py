"""k-NN votes against dense sums, text by text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias import kernels
from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.encoders.centroids import normalize_rows
from elias.ranking.knn import KNN, NAME, build_knn

N_WORDS, N_LABELS = 9, 6


def tf_idf(rng: np.random.Generator, n_rows: int) -> sp.csr_matrix:
    """Rows with values that have no ties; some are empty."""
    dense = rng.random((n_rows, N_WORDS)) * (rng.random((n_rows, N_WORDS)) < rng.choice([0.0, 0.3, 0.8], (n_rows, 1)))
    return sp.csr_matrix(dense.astype(np.float32))


def dense_votes(
    x: np.ndarray, texts: np.ndarray, labels: np.ndarray, neighbors: int, words_per_text: int, budget: int
) -> tuple[np.ndarray, np.ndarray]:
    """(vote, nearest) of every label for one text."""
    texts = texts / np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-30)
    kept = np.where(np.argsort(np.argsort(-texts, axis=1), axis=1) < words_per_text, texts, 0.0)
    order = [word for word in np.argsort(-x) if x[word] > 0]
    lengths = np.cumsum([(kept[:, word] > 0).sum() for word in order])
    chosen = [word for place, word in enumerate(order) if place == 0 or lengths[place] <= budget]
    s = kept[:, chosen] @ x[chosen] if chosen else np.zeros(len(kept))
    near = [text for text in np.argsort(-s, kind="stable")[:neighbors] if s[text] > 0]
    squares = s[near] ** 2
    vote = squares @ labels[near] / squares.sum() if near else np.zeros(labels.shape[1])
    nearest = (s[near][:, None] * labels[near]).max(axis=0, initial=0.0)
    return vote, nearest


@given(
    seed=st.integers(0, 100_000), n_texts=st.integers(1, 12), neighbors=st.integers(1, 14), words=st.integers(1, 9),
    budget=st.integers(1, 60),
)  # fmt: skip
def test_votes_are_those_of_the_nearest_texts(seed: int, n_texts: int, neighbors: int, words: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    bow, x = tf_idf(rng, n_texts), tf_idf(rng, 3)
    labels = sp.csr_matrix((rng.random((n_texts, N_LABELS)) < 0.4).astype(np.float32))
    sizes = {"neighbors": neighbors, "words_per_text": words, "budget": budget}
    knn = build_knn(bow, labels, np.full(n_texts, KIND_TEXT, dtype=np.uint8), **sizes, threads=2)
    asked = np.tile(np.array([*range(N_LABELS), -1], dtype=np.int32), (3, 1))
    expected = [dense_votes(row, bow.toarray(), labels.toarray(), neighbors, words, budget) for row in x.toarray()]
    for definition in (False, False, True):  # twice: scratch is zero between calls
        with kernels.reference(definition):
            vote, nearest = knn.votes(x, asked)
        for row, (votes, similarities) in enumerate(expected):
            np.testing.assert_allclose(vote[row], [*votes, 0.0], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(nearest[row], [*similarities, 0.0], rtol=1e-4, atol=1e-6)


def some_texts() -> KNN:
    rng = np.random.default_rng(0)
    bow = normalize_rows(sp.csr_matrix(rng.random((5, N_WORDS)).astype(np.float32)))
    labels = sp.csr_matrix(np.eye(5, N_LABELS, dtype=np.float32))
    kinds = np.array([KIND_TEXT] * 4 + [KIND_LABEL_TEXT], dtype=np.uint8)
    return build_knn(bow, labels, kinds, neighbors=3, words_per_text=64, budget=1000)


def test_label_texts_do_not_vote() -> None:
    knn = some_texts()
    assert knn.n_texts == 4
    vote, nearest = knn.votes(sp.csr_matrix(np.ones((1, N_WORDS), dtype=np.float32)), np.array([[0, 1, 2, 3, 4, 5]]))
    assert vote[0, 4:].tolist() == nearest[0, 4:].tolist() == [0.0, 0.0]
    assert (vote[0, :4] > 0).sum() == 3
    assert vote.sum() == pytest.approx(1.0)


def test_a_label_of_value_0_gets_no_vote() -> None:
    """A dataset may hold explicit zeros."""
    labels = sp.csr_matrix(np.array([[1.0, 2.0]], dtype=np.float32))
    labels.data[0] = 0.0
    texts = sp.csr_matrix(np.ones((1, N_WORDS), dtype=np.float32))
    knn = build_knn(texts, labels, np.zeros(1, dtype=np.uint8), neighbors=1, words_per_text=9, budget=99)
    assert knn.votes(texts, np.array([[0, 1]]))[0].tolist() == [[0.0, 1.0]]


def test_without_texts_all_votes_are_0() -> None:
    x, labels = sp.csr_matrix(np.ones((2, N_WORDS), dtype=np.float32)), np.zeros((2, 3), dtype=np.int32)
    for definition in (False, True):
        with kernels.reference(definition):
            vote, nearest = KNN.empty(N_LABELS, N_WORDS).votes(x, labels)
        assert vote.tolist() == nearest.tolist() == [[0.0] * 3] * 2


def test_saved_and_loaded_it_votes_the_same(tmp_path: Path) -> None:
    knn, x = some_texts(), sp.csr_matrix(np.random.default_rng(1).random((4, N_WORDS)).astype(np.float32))
    asked = np.tile(np.arange(N_LABELS), (4, 1))
    knn.save(tmp_path)
    loaded = KNN.load(tmp_path, n_labels=N_LABELS, n_words=N_WORDS)
    assert (loaded.neighbors, loaded.budget) == (3, 1000)
    for ours, theirs in zip(knn.votes(x, asked), loaded.votes(x, asked), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    some_texts().save(tmp_path)
    with pytest.raises(ModelError, match=f'{NAME}: "labels" has the value'):
        KNN.load(tmp_path, n_labels=2, n_words=N_WORDS)
    with pytest.raises(ModelError, match=f'{NAME}: "texts.indptr" has the shape'):
        KNN.load(tmp_path, n_labels=N_LABELS, n_words=N_WORDS + 1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indptr", lambda a: a[::-1]),
        ("indptr", lambda a: a.astype(np.int32)),
        ("indptr", None),
        ("labels", lambda a: a - 100),
        ("labels", lambda a: a[:-1]),
        ("neighbors", lambda a: 0 * a),
        ("neighbors", lambda a: a[:0]),
        ("budget", None),
    ],
)
def test_damaged_arrays_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    some_texts().save(tmp_path)
    arrays = {key: np.array(array) for key, array in read_tensors(tmp_path / NAME)[0].items()}
    if change is None:
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    write_tensors(tmp_path / NAME, arrays)
    with pytest.raises(ModelError, match=rf"{NAME}: .*restore the whole folder"):
        KNN.load(tmp_path, n_labels=N_LABELS, n_words=N_WORDS)
