"""The calibrator's tree: our arrays answer as scikit-learn's tree does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from elias.ranking.published import DEPTH, LEAST_LEAF, Tree, fit_tree


def pairs(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(p, q, p q, n_l) with many equal values, and whether each is right."""
    rng = np.random.default_rng(seed)
    p, q = rng.random(n).round(2), rng.random(n).round(1)
    columns = np.stack([p, q, p * q, rng.integers(0, 30, n)], axis=1)
    return columns, rng.random(n) < p * q


@given(seed=st.integers(0, 10_000), n=st.sampled_from([41, 300, 2000]))
def test_it_answers_as_scikit_learn_does(seed: int, n: int) -> None:
    columns, right = pairs(seed, n)
    if right.all() or not right.any():
        return
    tree = fit_tree(columns, right)
    theirs = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0).fit(columns, right)
    asked = np.concatenate([columns, pairs(seed + 1, 200)[0]]).astype(np.float32)
    np.testing.assert_allclose(tree(asked), theirs.predict_proba(asked)[:, 1], atol=1e-6)
    again = Tree.from_dict(json.loads(json.dumps(tree.as_dict())))
    np.testing.assert_array_equal(again(asked), tree(asked))
    assert again(asked.reshape(2, -1, 4)).shape == (2, len(asked) // 2) if len(asked) % 2 == 0 else True


@pytest.mark.parametrize(
    ("right", "share"), [(np.ones(50, bool), 1.0), (np.zeros(50, bool), 0.0), (np.ones(0, bool), 0.0)]
)
def test_one_answer_only_is_one_leaf(right: np.ndarray, share: float) -> None:
    tree = fit_tree(np.zeros((len(right), 4)), right)
    assert len(tree.column) == 1
    assert tree(np.zeros((3, 2, 4), dtype=np.float32)).tolist() == [[share] * 2] * 3
    assert Tree.from_dict(tree.as_dict())(np.zeros((1, 4))).tolist() == [share]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left", [0, 0, 0]),  # a circle
        ("right", [9, -1, -1]),
        ("right", [2, -1]),
        ("column", [7, -1, -1]),
        ("column", []),
        ("threshold", [0.5]),
        ("threshold", [float("nan"), 0, 0]),
        ("value", [0.5, 0.1]),
        ("value", ["a", "b", "c"]),
    ],
)
def test_what_is_no_tree_is_refused(name: str, value: list[Any]) -> None:
    whole: dict[str, Any] = {
        "column": [0, -1, -1], "threshold": [0.5, 0, 0], "left": [1, -1, -1], "right": [2, -1, -1],
        "value": [0.5, 0.1, 0.9],
    }  # fmt: skip
    found = Tree.from_dict(whole)(np.array([[0.5, 0, 0, 0], [0.6, 0, 0, 0]], dtype=np.float32))
    np.testing.assert_allclose(found, [0.1, 0.9])
    with pytest.raises(ValueError, match=r"tree|could not convert|inhomogeneous"):
        Tree.from_dict({**whole, name: value})
