"""Training rows that one process writes are those that another opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias.encoders.hybrid import Mixed
from elias.encoders.tokens import Tokens
from elias.training.stored_rows import open_rows, write_rows
from elias.training.trainer import TrainingRows

BOW = sp.random(5, 7, 0.4, format="csr", random_state=0, dtype=np.float32)
VECTORS = np.arange(15, dtype=np.float16).reshape(5, 3)
TOKENS = Tokens(np.arange(9, dtype=np.int32), np.array([0, 2, 3, 5, 5, 9]))


def arrays_of(prepared: Any) -> list[np.ndarray]:
    if isinstance(prepared, Mixed):
        return [*arrays_of(prepared.bow), prepared.vectors]
    if isinstance(prepared, Tokens):
        return [prepared.ids, prepared.offsets]
    return [prepared.toarray()] if sp.issparse(prepared) else [prepared]


@pytest.mark.parametrize("prepared", [BOW, VECTORS, TOKENS, Mixed(BOW, VECTORS)], ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("kinds", [None, np.array([0, 0, 0, 1, 1], dtype=np.uint8)], ids=["texts", "label texts"])
def test_rows_are_the_same_from_a_folder(prepared: Any, kinds: np.ndarray | None, tmp_path: Path) -> None:
    labels, excluded = (sp.random(5, 4, 0.5, format="csr", random_state=seed, dtype=np.float32) for seed in (1, 2))
    write_rows(TrainingRows(prepared, labels, excluded, np.linspace(0, 1, 5, dtype=np.float32), kinds), tmp_path)
    found = open_rows(tmp_path)
    assert type(found.prepared) is type(prepared)
    for ours, theirs in zip(arrays_of(found.prepared), arrays_of(prepared), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert (found.labels != labels).nnz == (found.excluded != excluded).nnz == 0
    np.testing.assert_array_equal(found.weights, np.linspace(0, 1, 5, dtype=np.float32))
    assert (found.kinds is None) == (kinds is None)
    if kinds is not None:
        np.testing.assert_array_equal(found.kinds, kinds)
