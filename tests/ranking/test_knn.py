"""Votes of the nearest training texts against dense sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias.core.errors import ModelError
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.encoders.centroids import normalize_rows
from elias.ranking.knn import NAME, Neighbours, build_neighbours

N_WORDS, N_LABELS = 9, 6


def tf_idf(rng: np.random.Generator, n_rows: int) -> sp.csr_matrix:
    """Rows with values that have no ties; some are empty."""
    dense = rng.random((n_rows, N_WORDS)) * (rng.random((n_rows, N_WORDS)) < rng.choice([0.0, 0.3, 0.8], (n_rows, 1)))
    return sp.csr_matrix(dense.astype(np.float32))


def votes_by_hand(
    x: np.ndarray, texts: np.ndarray, labels: np.ndarray, most: int, words_per_text: int, budget: int
) -> tuple[np.ndarray, np.ndarray]:
    """(vote, closest) of every label for one text."""
    texts = texts / np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-30)
    kept = np.where(np.argsort(np.argsort(-texts, axis=1), axis=1) < words_per_text, texts, 0.0)
    order = [word for word in np.argsort(-x) if x[word] > 0]
    lengths = np.cumsum([(kept[:, word] > 0).sum() for word in order])
    chosen = [word for place, word in enumerate(order) if place == 0 or lengths[place] <= budget]
    s = kept[:, chosen] @ x[chosen] if chosen else np.zeros(len(kept))
    nearest = [text for text in np.argsort(-s, kind="stable")[:most] if s[text] > 0]
    squares = s[nearest] ** 2
    vote = squares @ labels[nearest] / squares.sum() if nearest else np.zeros(labels.shape[1])
    closest = (s[nearest][:, None] * labels[nearest]).max(axis=0, initial=0.0)
    return vote, closest


@given(
    seed=st.integers(0, 100_000), n_texts=st.integers(1, 12), most=st.integers(1, 14), words=st.integers(1, 9),
    budget=st.integers(1, 60),
)  # fmt: skip
def test_votes_are_those_of_the_nearest_texts(seed: int, n_texts: int, most: int, words: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    bow, x = tf_idf(rng, n_texts), tf_idf(rng, 3)
    labels = sp.csr_matrix((rng.random((n_texts, N_LABELS)) < 0.4).astype(np.float32))
    sizes = {"most": most, "words_per_text": words, "budget": budget}
    texts = build_neighbours(bow, labels, np.full(n_texts, KIND_TEXT, dtype=np.uint8), **sizes, threads=2)
    asked = np.tile(np.array([*range(N_LABELS), -1], dtype=np.int32), (3, 1))
    for _ in range(2):  # the memory of a query is clean afterwards
        vote, closest = texts.votes(x, asked)
    for row in range(3):
        by_hand = votes_by_hand(x[row].toarray()[0], bow.toarray(), labels.toarray(), most, words, budget)
        np.testing.assert_allclose(vote[row], [*by_hand[0], 0.0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(closest[row], [*by_hand[1], 0.0], rtol=1e-4, atol=1e-6)


def some_texts() -> Neighbours:
    rng = np.random.default_rng(0)
    bow = normalize_rows(sp.csr_matrix(rng.random((5, N_WORDS)).astype(np.float32)))
    labels = sp.csr_matrix(np.eye(5, N_LABELS, dtype=np.float32))
    kinds = np.array([KIND_TEXT] * 4 + [KIND_LABEL_TEXT], dtype=np.uint8)
    return build_neighbours(bow, labels, kinds, most=3, words_per_text=64, budget=1000)


def test_label_texts_do_not_vote() -> None:
    texts = some_texts()
    assert texts.n_texts == 4
    vote, closest = texts.votes(sp.csr_matrix(np.ones((1, N_WORDS), dtype=np.float32)), np.array([[4, 5]]))
    assert vote.tolist() == closest.tolist() == [[0.0, 0.0]]


def test_without_texts_nobody_votes() -> None:
    vote, closest = Neighbours.nobody(N_LABELS, N_WORDS).votes(sp.csr_matrix(np.ones((2, N_WORDS))), np.zeros((2, 3)))
    assert not vote.any()
    assert not closest.any()


def test_saved_and_loaded_it_votes_the_same(tmp_path: Path) -> None:
    texts, x = some_texts(), sp.csr_matrix(np.random.default_rng(1).random((4, N_WORDS)).astype(np.float32))
    asked = np.tile(np.arange(N_LABELS), (4, 1))
    texts.save(tmp_path)
    loaded = Neighbours.load(tmp_path, n_labels=N_LABELS, n_words=N_WORDS)
    for ours, theirs in zip(texts.votes(x, asked), loaded.votes(x, asked), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    some_texts().save(tmp_path)
    with pytest.raises(ModelError, match=f"{NAME}: labels of texts do not fit"):
        Neighbours.load(tmp_path, n_labels=2, n_words=N_WORDS)
    with pytest.raises(ModelError, match=f"{NAME}: texts does not fit"):
        Neighbours.load(tmp_path, n_labels=N_LABELS, n_words=N_WORDS + 1)
