"""Near-duplicates: cosines against the dense product, and a split that holds them out together."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from elias import kernels
from elias.dataset import Dataset
from elias.dataset.split import reserve
from elias.encoders.centroids import normalize_rows
from elias.pipeline.near_duplicates import LEAST_COSINE, MOST, near_duplicates


def random_rows(n: int, words: int, seed: int) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    return sp.csr_matrix(sp.random_array((n, words), density=0.2, rng=rng, dtype=np.float32))


@pytest.mark.parametrize(("definition", "threads"), [(False, 1), (False, 2), (True, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_near_duplicates_are_the_rows_with_a_large_cosine(seed: int, definition: bool, threads: int) -> None:
    bow = random_rows(40, 12, seed)
    unit = normalize_rows(bow).toarray()
    cosines = unit @ unit.T
    asked = np.array([3, 0, 39, 17])
    with kernels.reference(definition):
        found = near_duplicates(bow, asked, threads=threads)
    assert sum(map(len, found)) > 0
    for row, others in zip(asked.tolist(), found, strict=True):
        clear = np.abs(cosines[row] - LEAST_COSINE) > 1e-4  # on the line rounding decides
        expected = {other for other in np.flatnonzero((cosines[row] >= LEAST_COSINE) & clear).tolist() if other != row}
        assert {other for other in others.tolist() if clear[other]} == expected
        assert len(set(others.tolist())) == len(others)
        assert row not in others


@pytest.mark.parametrize("definition", [False, True])
def test_a_form_that_was_filled_in_has_no_near_duplicates(definition: bool) -> None:
    too_many = sp.csr_matrix(np.ones((MOST + 2, 3), dtype=np.float32))
    few = sp.csr_matrix(np.ones((MOST + 1, 3), dtype=np.float32))
    with kernels.reference(definition):
        assert len(near_duplicates(too_many, np.array([0]))[0]) == 0
        assert sorted(near_duplicates(few, np.array([7]))[0].tolist()) == [*range(7), *range(8, MOST + 1)]


def test_near_duplicates_are_held_out_together() -> None:
    """Groups of three: a held-out row takes the others along, but for half of the calibration rows."""
    texts = [f"text number {number}" for number in range(120)]
    data = Dataset.from_lists(texts, [["a"]] * 120)
    group = np.arange(120) // 3
    asked: list[int] = []

    def others_of_group(rows: np.ndarray) -> list[np.ndarray]:
        asked.extend(rows.tolist())
        return [np.flatnonzero((group == group[row]) & (np.arange(120) != row)) for row in rows.tolist()]

    split = reserve(data.train, validation_rows=12, calibration_rows=21, seed=0, near_duplicates=others_of_group)
    assert (len(split.validation), len(split.calibration)) == (12, 21)
    assert (np.bincount(group[split.validation]) % 3 == 0).all()
    whole = np.bincount(group[split.calibration], minlength=40) == 3
    assert 3 * whole.sum() >= 9, "half of the calibration rows bring their near-duplicates along"
    assert len(split.calibration) - 3 * whole.sum() >= 8, "and half of them do not"
    assert sorted([*split.train, *split.validation, *split.calibration]) == list(range(120))
    assert len(asked) == 33, "only rows that may be held out are searched for"
    alone = reserve(data.train, validation_rows=12, calibration_rows=21, seed=0)
    assert (np.bincount(group[alone.validation]) % 3 != 0).any(), "without near-duplicates groups are torn"
