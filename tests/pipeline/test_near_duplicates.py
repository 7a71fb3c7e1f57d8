"""Near twins: cosines against the dense product, and a split that holds them out together."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from elias.dataset import Dataset
from elias.dataset.split import reserve
from elias.encoders.centroids import normalize_rows
from elias.pipeline.near_duplicates import LEAST_COSINE, MOST_TWINS, near_twins


def rows_of(n: int, words: int, seed: int) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((n, words), density=0.2, rng=rng, dtype=np.float32)
    return sp.csr_matrix(matrix)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_twins_are_the_rows_with_a_large_cosine(seed: int, threads: int) -> None:
    bow = rows_of(40, 12, seed)
    unit = normalize_rows(bow).toarray()
    cosines = unit @ unit.T
    asked = np.array([3, 0, 39, 17])
    for row, twins in zip(asked.tolist(), near_twins(bow, asked, threads=threads), strict=True):
        clear = np.abs(cosines[row] - LEAST_COSINE) > 1e-5  # on the line rounding decides
        expected = {other for other in np.flatnonzero((cosines[row] >= LEAST_COSINE) & clear).tolist() if other != row}
        assert {twin for twin in twins.tolist() if clear[twin]} == expected


def test_a_form_that_was_filled_in_has_no_twins() -> None:
    same = sp.csr_matrix(np.ones((MOST_TWINS + 2, 3), dtype=np.float32))
    few = sp.csr_matrix(np.ones((MOST_TWINS + 1, 3), dtype=np.float32))
    assert len(near_twins(same, np.array([0]))[0]) == 0
    assert len(near_twins(few, np.array([0]))[0]) == MOST_TWINS


def test_twins_are_held_out_together() -> None:
    """Families of three: whoever is held out takes the others along, but for half of the calibration rows."""
    texts = [f"text number {number}" for number in range(120)]
    data = Dataset.from_lists(texts, [["a"]] * 120)
    family = np.arange(120) // 3
    asked: list[int] = []

    def near_duplicates(rows: np.ndarray) -> list[np.ndarray]:
        asked.extend(rows.tolist())
        return [np.flatnonzero((family == family[row]) & (np.arange(120) != row)) for row in rows.tolist()]

    split = reserve(data.train, validation_rows=12, calibration_rows=21, seed=0, near_duplicates=near_duplicates)
    assert (len(split.validation), len(split.calibration)) == (12, 21)
    assert (np.bincount(family[split.validation]) % 3 == 0).all()
    whole = np.bincount(family[split.calibration], minlength=40) == 3
    assert 3 * whole.sum() >= 9, "half of the calibration rows bring their twins along"
    assert len(split.calibration) - 3 * whole.sum() >= 8, "and half of them do not"
    assert sorted([*split.train, *split.validation, *split.calibration]) == list(range(120))
    assert len(asked) == 33, "only rows that may be held out are looked at"
    alone = reserve(data.train, validation_rows=12, calibration_rows=21, seed=0)
    assert (np.bincount(family[alone.validation]) % 3 != 0).any(), "without twins families are torn"
