"""Arrays that programs pass by mistake: one InputError each, never an index outside of memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from attacks.bases import make_vector_models, vectors
from attacks.run import cases, is_failure, run_cases
from elias.core.errors import EliasError, InputError


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    make_vector_models(folder / "models")
    return folder


def failures(count: int, seed: int, bases: Path) -> list[str]:
    found = run_cases(list(cases("arrays", ["arrays"], count, seed)), bases)
    assert len(found) == count
    return [f"{one['seed']}: {one['did']}: {one['said'][-300:]}" for one in found if is_failure(one)]


def test_odd_arrays_are_refused_or_used(bases: Path) -> None:
    assert failures(150, 0, bases) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_thousands_of_odd_arrays(bases: Path) -> None:
    assert failures(int(os.environ.get("ATTACKS", "3000")), 1, bases) == []


@pytest.mark.parametrize(
    "break_it",
    [
        lambda m: m.indices.__setitem__(0, 10**6),  # crashed the process
        lambda m: m.indices.__setitem__(0, -5),
        lambda m: m.indptr.__setitem__(-1, 0),  # scipy's own check lets this pass
        lambda m: m.indptr.__setitem__(3, 10**6),
    ],
)
def test_a_matrix_that_points_outside_is_refused(break_it: Any, bases: Path) -> None:
    x, y = vectors()
    for broken, other in ((y.copy(), x), (sp.csr_matrix(x), y)):
        break_it(broken)
        with pytest.raises(InputError, match="not a whole sparse matrix"):
            elias.Dataset.from_arrays(*((other, broken) if other is x else (broken, other)))
    with pytest.raises(InputError, match="vectors: not a whole sparse matrix"):
        elias.load(bases / "models" / "sparse").predict(broken)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"weights": np.ones((60, 1))}, r"weights has the shape \(60, 1\)"),
        ({"weights": np.full(60, 1e30)}, r"row 0 has the weight 1e\+30; weights must be finite numbers above 0, from"),
        ({"vectors": vectors()[0] * np.float32(1e37)}, r"row \d+, column \d+"),
        ({"label_ids": 3}, "label_ids is int; pass a list"),
    ],
)
def test_arguments_are_named(arguments: dict[str, Any], says: str) -> None:
    x, y = vectors()
    with pytest.raises(EliasError, match=says):
        elias.Dataset.from_arrays(**{"vectors": x, "labels": y, **arguments})


def test_a_loss_that_is_not_finite_stops_the_fit() -> None:
    from attacks.bases import VECTOR_SETTINGS

    x, y = vectors()
    settings = {
        **VECTOR_SETTINGS, "stage1.weight_decay": 0.0, "stage1.learning_rate_classifiers": 1e30,
        "stage1.learning_rate_clusters": 1e30,
    }  # fmt: skip
    with pytest.raises(
        EliasError, match=r"stage1, epoch \d+, step \d+: the loss is not a finite number.*learning_rate_"
    ):
        elias.fit(elias.Dataset.from_arrays(x, y), settings=settings)
