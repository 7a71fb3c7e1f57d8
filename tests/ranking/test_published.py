"""The scores of the paper: q of a margin, p, and the decision tree T against scikit-learn's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from elias.ranking.features import FEATURES, Features
from elias.ranking.published import DEPTH, LEAST_LEAF, DecisionTree, fit_tree, p_of, q_of, tree_inputs


def test_q_rises_from_0_to_1() -> None:
    margins = np.array([-100, -1, 0, 0.5, 1, 3, 100], dtype=np.float32)
    hinge, logistic = q_of(margins, "squared-hinge"), q_of(margins, "logistic")
    np.testing.assert_allclose(hinge, [0, np.exp(-8), np.exp(-1), np.exp(-0.125), 1, 1, 1], rtol=1e-5)
    np.testing.assert_allclose(logistic[1:6], 1 / (1 + np.exp(-margins[1:6])), rtol=1e-5)
    assert np.isfinite(logistic).all()
    assert hinge.dtype == logistic.dtype == np.float32


def test_inputs_of_the_tree_are_p_q_their_product_and_the_count() -> None:
    values = np.random.default_rng(0).random((2, len(FEATURES), 3)).astype(np.float32)
    counts = np.array([[0, 1, 7], [1000, 123_456, 2]])
    values[:, FEATURES.index("log_count")] = np.log1p(counts)
    features = Features(np.zeros((2, 3), dtype=np.int32), np.zeros((2, 3), dtype=np.int32), values)
    named = {name: values[:, place] for place, name in enumerate(FEATURES)}
    p = named["cluster_score"] * named["edge_score"] * named["classifier"]
    q = 1 / (1 + np.exp(-named["margin"]))
    np.testing.assert_allclose(p_of(features), p, rtol=1e-6)
    np.testing.assert_allclose(tree_inputs(features, "logistic"), np.stack([p, q, p * q, counts], axis=-1), rtol=1e-5)


def pairs(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(p, q, p q, n_l) with many equal values, and whether each is right."""
    rng = np.random.default_rng(seed)
    p, q = rng.random(n).round(2), rng.random(n).round(1)
    columns = np.stack([p, q, p * q, rng.integers(0, 30, n)], axis=1)
    return columns, rng.random(n) < p * q


@given(seed=st.integers(0, 10_000), n=st.sampled_from([41, 300, 2000]))
def test_the_tree_predicts_as_scikit_learn_does(seed: int, n: int) -> None:
    columns, right = pairs(seed, n)
    right[:2] = False, True
    tree = fit_tree(columns, right)
    theirs = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0).fit(columns, right)
    asked = np.concatenate([columns, pairs(seed + 1, 200)[0]]).astype(np.float32)
    np.testing.assert_allclose(tree(asked), theirs.predict_proba(asked)[:, 1], atol=1e-6)
    again = DecisionTree.from_dict(json.loads(json.dumps(tree.as_dict())))
    np.testing.assert_array_equal(again(asked), tree(asked))
    np.testing.assert_array_equal(again(asked[:40].reshape(2, 20, 4)).ravel(), tree(asked[:40]))


@pytest.mark.parametrize(
    ("right", "share"), [(np.ones(50, bool), 1.0), (np.zeros(50, bool), 0.0), (np.ones(0, bool), 0.0)]
)
def test_pairs_of_one_class_become_one_leaf(right: np.ndarray, share: float) -> None:
    tree = fit_tree(np.zeros((len(right), 4)), right)
    assert len(tree.input) == 1
    assert tree(np.zeros((3, 2, 4), dtype=np.float32)).tolist() == [[share] * 2] * 3
    assert DecisionTree.from_dict(tree.as_dict())(np.zeros((1, 4))).tolist() == [share]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left", [0, 0, 0]),  # a circle
        ("right", [9, -1, -1]),
        ("right", [2, -1]),
        ("input", [7, -1, -1]),
        ("input", []),
        ("threshold", [0.5]),
        ("threshold", [float("nan"), 0, 0]),
        ("value", [0.5, 0.1]),
        ("value", ["a", "b", "c"]),
    ],
)
def test_nodes_that_are_no_tree_are_refused(name: str, value: list[Any]) -> None:
    whole: dict[str, Any] = {
        "input": [0, -1, -1], "threshold": [0.5, 0, 0], "left": [1, -1, -1], "right": [2, -1, -1],
        "value": [0.5, 0.1, 0.9],
    }  # fmt: skip
    found = DecisionTree.from_dict(whole)(np.array([[0.5, 0, 0, 0], [0.6, 0, 0, 0]], dtype=np.float32))
    np.testing.assert_allclose(found, [0.1, 0.9])
    with pytest.raises(ValueError, match=r"tree|could not convert|inhomogeneous"):
        DecisionTree.from_dict({**whole, name: value})
