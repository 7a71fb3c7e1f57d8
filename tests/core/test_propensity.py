"""Propensities by hand; re-ranking by them changes the order alone, as far as its strength says."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elias import Model
from elias.core.errors import InputError
from elias.core.predictions import Predictions
from elias.core.propensity import PropensityModel, propensity_of, rerank_by_propensity

COUNTS = np.array([1000, 1, 50, 3])
PROPENSITY = PropensityModel(COUNTS, 2000)


def predictions() -> Predictions:
    labels = np.array([[0, 2, 3, 1], [1, 0, -1, -1]], dtype=np.int32)
    scores = np.array([[0.9, 0.5, 0.45, 0.4], [0.6, 0.5, 0, 0]], dtype=np.float32)
    return Predictions(labels=labels, scores=scores, parts={"cluster": labels * 10})


def test_propensities_agree_with_those_by_hand() -> None:
    got = PropensityModel(np.asarray([0, 7]), 1000, 0.5, 0.4).propensities()
    scale = (math.log(1000) - 1) * 1.4**0.5
    assert got.tolist() == pytest.approx([1 / (1 + scale * 0.4**-0.5), 1 / (1 + scale * 7.4**-0.5)])
    assert PropensityModel(np.asarray([0, 1]), 1).propensities().tolist() == [1.0, 1.0]  # Cc below 0
    assert PropensityModel(np.asarray([0]), 0).propensities().tolist() == [1.0]
    with pytest.raises(InputError, match=r"b must be above 0"):
        PropensityModel(np.asarray([0]), 10, 0.5, 0.0)


def test_a_and_b_come_from_the_dataset_of_the_model() -> None:
    model: Any = SimpleNamespace(label_counts=COUNTS, n_train=2000, about={"dataset": {"propensity_a": 0.6}})
    assert (propensity_of(model).a, propensity_of(model).b) == (0.6, 1.5)
    model.about = {}
    assert (propensity_of(model).a, propensity_of(model).b) == (0.55, 1.5)


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_order_is_that_of_the_weighted_score(strength: float) -> None:
    found = rerank_by_propensity(predictions(), PROPENSITY, strength, 4)
    weights = (1 / PROPENSITY.propensities()) ** strength
    for row, before in zip(range(2), predictions().labels, strict=True):
        there = [label for label in before.tolist() if label >= 0]
        score_of = dict(zip(before.tolist(), predictions().scores[row].tolist(), strict=True))
        expected = sorted(there, key=lambda label: -score_of[label] * weights[label])
        assert found.labels[row, : len(there)].tolist() == expected
        assert found.scores[row, : len(there)].tolist() == [score_of[label] for label in expected], "scores stay"
        assert (found.labels[row, len(there) :] == -1).all()
    assert found.parts is not None
    np.testing.assert_array_equal(found.parts["cluster"], np.where(found.labels >= 0, found.labels * 10, -10))
    assert (found.labels[0, 0] == 0) == (strength < 1), "the popular label leads until rare ones weigh enough"


def test_predict_re_ranks_a_deeper_list(tiny_model: Model) -> None:
    text = ["some words"]
    plain, same = tiny_model.predict(text, k=3), tiny_model.predict(text, k=3, rare=0.0)
    assert plain.named() == same.named()
    deep = tiny_model.predict(text, k=100)
    expected = rerank_by_propensity(deep, propensity_of(tiny_model), 0.5, 3)
    assert tiny_model.predict(text, k=3, rare=0.5).named() == expected.named()
    with pytest.raises(InputError, match=r"rare=2.0: give a number from 0"):
        tiny_model.predict(text, rare=2)
