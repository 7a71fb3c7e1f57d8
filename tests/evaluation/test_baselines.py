"""Baselines: their formulas, what they may see, blocks and threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.evaluation import baselines
from elias.evaluation.baselines import MOST_FREQUENT, NEAREST, SeenRows, baseline_labels, nearest_texts


def random_rows(n_texts: int, n_names: int, *, n_labels: int = 30, n_words: int = 60) -> tuple[SeenRows, sp.csr_matrix]:
    """Texts, then the texts of the first labels; and rows to ask for."""
    rng = np.random.default_rng(0)
    vectors = sp.random(n_texts + n_names, n_words, density=0.15, format="csr", random_state=1, dtype=np.float32)
    labels = (rng.random((n_texts, n_labels)) < 0.1).astype(np.float32)
    names = np.eye(n_names, n_labels, dtype=np.float32)
    kinds = np.array([KIND_TEXT] * n_texts + [KIND_LABEL_TEXT] * n_names, dtype=np.uint8)
    asked = sp.random(23, n_words, density=0.15, format="csr", random_state=2, dtype=np.float32)
    return SeenRows(vectors, sp.csr_matrix(np.concatenate([labels, names])), kinds), sp.csr_matrix(asked)


def expected_scores(seen: SeenRows, asked: np.ndarray) -> np.ndarray:
    """The formula, dense."""
    vectors, labels = np.asarray(sp.csr_matrix(seen.vectors).todense()), np.asarray(seen.labels.todense())
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (asked, vectors)]
    cosines = unit[0] @ unit[1].T
    is_text = seen.kinds == KIND_TEXT
    votes = np.zeros((len(asked), labels.shape[1]))
    for row, similar in enumerate(cosines[:, is_text]):
        nearest = np.argsort(-similar, kind="stable")[: baselines.NEIGHBORS]
        weights = similar[nearest]
        votes[row] = weights @ labels[is_text][nearest] / max(weights.sum(), 1e-12)
    return np.asarray(votes + cosines[:, ~is_text] @ labels[~is_text])


@pytest.mark.parametrize("n_names", [0, 12])
@pytest.mark.parametrize("dense", [False, True])
def test_nearest_texts_are_those_of_the_formula(n_names: int, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, asked = random_rows(80, n_names)
    monkeypatch.setattr(baselines, "PAIRS_AT_ONCE", 7 * 80)  # several blocks
    wanted = expected_scores(seen, asked.toarray())
    given = SeenRows(seen.vectors.toarray(), seen.labels, seen.kinds) if dense else seen  # type: ignore[union-attr]
    found = nearest_texts(given, asked.toarray() if dense else asked, 9, threads=2)
    for row in range(asked.shape[0]):
        numbers = found[row][found[row] >= 0]
        best = np.sort(wanted[row])[::-1][: len(numbers)]
        np.testing.assert_allclose(wanted[row][numbers], best, atol=1e-5)
        assert len(numbers) == min(9, (wanted[row] > 0).sum())


def test_most_frequent_labels_do_not_count_label_texts() -> None:
    labels = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]], np.float32))
    kinds = np.array([KIND_TEXT] * 3 + [KIND_LABEL_TEXT] * 2, dtype=np.uint8)
    seen = SeenRows(sp.csr_matrix(np.eye(5, dtype=np.float32)), labels, kinds)
    found = baseline_labels(seen, sp.csr_matrix(np.eye(5, dtype=np.float32)[:2]))
    assert set(found) == {NEAREST, MOST_FREQUENT}
    assert found[MOST_FREQUENT][:, :5].tolist() == [[1, 0, 2, -1, -1]] * 2  # n_l 2, 1, 1; label 3 has no row


def test_of_very_many_rows_so_many_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, asked = random_rows(80, 0)
    before = nearest_texts(seen, asked, 5)
    monkeypatch.setattr(baselines, "MOST_SEEN", 40)
    after = nearest_texts(seen, asked, 5)
    assert (after[:, 0] >= 0).all()
    assert (after != before).any()
    np.testing.assert_array_equal(after, nearest_texts(seen, asked, 5, threads=2))


def test_a_row_without_a_word_has_no_nearest_text() -> None:
    seen, _ = random_rows(80, 12)
    empty = sp.csr_matrix((2, 60), dtype=np.float32)
    assert (nearest_texts(seen, empty, 5) == -1).all()
    assert nearest_texts(seen, sp.csr_matrix((0, 60), dtype=np.float32), 5).shape == (0, 5)
