"""The decision tree T against scikit-learn's, and its arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from elias.core import model_schema
from elias.core.errors import ModelError
from elias.core.schema import check_arrays
from elias.ranking.decision_tree import DEPTH, LEAST_LEAF, DecisionTree, fit_tree


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
    again = DecisionTree.from_arrays(tree.arrays())
    np.testing.assert_array_equal(again(asked), tree(asked))
    np.testing.assert_array_equal(again(asked[:40].reshape(2, 20, 4)).ravel(), tree(asked[:40]))


@pytest.mark.parametrize(
    ("right", "share"), [(np.ones(50, bool), 1.0), (np.zeros(50, bool), 0.0), (np.ones(0, bool), 0.0)]
)
def test_pairs_of_one_class_become_one_leaf(right: np.ndarray, share: float) -> None:
    tree = fit_tree(np.zeros((len(right), 4)), right)
    assert len(tree.input) == 1
    assert tree(np.zeros((3, 2, 4), dtype=np.float32)).tolist() == [[share] * 2] * 3
    assert DecisionTree.from_arrays(tree.arrays())(np.zeros((1, 4))).tolist() == [share]


def checked(nodes: dict[str, Any]) -> DecisionTree:
    """As a model reads it from its file."""
    whole = {"input": "int64", "left": "int64", "right": "int64", "threshold": "float64", "value": "float64"}
    arrays = {
        name: np.array(values, dtype=whole[name] if all(isinstance(v, int | float) for v in values) else None)
        for name, values in nodes.items()
    }
    schema = {name: model_schema.CALIBRATION_TREE[name] for name in whole}
    return DecisionTree.from_arrays(check_arrays(Path("tree"), arrays, schema, {}))


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
    found = checked(whole)(np.array([[0.5, 0, 0, 0], [0.6, 0, 0, 0]], dtype=np.float32))
    np.testing.assert_allclose(found, [0.1, 0.9])
    with pytest.raises((ModelError, ValueError), match=r"tree|input|threshold|value|left|right"):
        checked({**whole, name: value})
