"""Golden answers: small committed models of every kind answer as they did when they were made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from golden.make import ANSWERS, KINDS, MODELS, calls

TOLERANCE = 1e-6
LARGEST = 2 << 20  # bytes of a model


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(kind: str) -> dict[str, Any]:
    return dict(json.loads((ANSWERS / f"{kind}.json").read_text()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", list(calls()))
def test_answers_are_what_they_were(kind: str, expected: dict[str, Any], name: str, threads: int) -> None:
    found = elias.load(MODELS / kind, threads=threads).predict(**calls()[name])
    wanted = expected[name]
    np.testing.assert_array_equal(found.labels, wanted["labels"])
    np.testing.assert_allclose(found.scores, wanted["scores"], rtol=0, atol=TOLERANCE)
    assert sorted(found.parts or {}) == sorted(wanted["parts"])
    for part, values in (found.parts or {}).items():
        np.testing.assert_allclose(values, wanted["parts"][part], rtol=0, atol=TOLERANCE, err_msg=part)


def test_models_are_small(kind: str) -> None:
    files = [path for path in (MODELS / kind).rglob("*") if path.is_file()]
    assert files
    assert sum({path.stat().st_ino: path.stat().st_size for path in files}.values()) < LARGEST


def test_golden_answers_tell_labels_apart(expected: dict[str, Any]) -> None:
    """Answers that were all the same, or all zero, would compare equal to anything."""
    plain = expected["plain"]
    assert len({tuple(row) for row in plain["labels"]}) > 20
    assert len({score for row in plain["scores"] for score in row}) > 50


def test_every_kind_has_answers() -> None:
    assert sorted(path.stem for path in Path(ANSWERS).glob("*.json")) == sorted(KINDS)
