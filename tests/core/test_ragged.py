"""Labels per row in CSR form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.predictions import PAD
from elias.core.ragged import Ragged


@pytest.mark.parametrize("lists", [[], [[]], [[3, 1], [], [4, 1, 5]]])
def test_lists_come_back_padded(lists: list[list[int]]) -> None:
    ragged = Ragged.of([np.array(labels, dtype=np.int64) for labels in lists])
    width = max(1, max(map(len, lists), default=1))
    assert ragged.padded().shape == (len(lists), width)
    assert ragged.padded().tolist() == [labels + [PAD] * (width - len(labels)) for labels in lists]
    assert ragged.rows.tolist() == [row for row, labels in enumerate(lists) for _ in labels]
    assert (len(ragged), ragged.labels.dtype) == (len(lists), np.int32)


def test_rows_of_a_matrix_in_any_order() -> None:
    matrix = sp.csr_matrix(np.float32([[0, 2, 0], [0, 0, 0], [1, 0, 3]]))
    ragged, values = Ragged.from_rows(matrix, np.array([2, 1, 0, 2]))
    assert ragged.indptr.tolist() == [0, 2, 2, 3, 5]
    assert ragged.labels.tolist() == [0, 2, 1, 0, 2]
    assert values.tolist() == [1, 3, 2, 1, 3]


def test_no_labels_in_any_row() -> None:
    assert Ragged.empty(2).padded().tolist() == [[PAD], [PAD]]
