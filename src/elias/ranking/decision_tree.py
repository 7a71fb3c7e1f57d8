"""A decision tree T: the calibration of the published ranker.

    T(p, q, p q, n_l) = share of right pairs in the leaf

Grown by scikit-learn on pairs (text, label) of held-out rows with the target "is right", stored as arrays: no pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

DEPTH = 5  # as in the authors' program
LEAST_LEAF = 20  # pairs


@dataclass(frozen=True)
class DecisionTree:
    """Node n goes to left[n] if input[n] <= threshold[n], else to right[n]; input -1: a leaf with value[n]."""

    input: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """The value of the leaf that each row of [..., inputs] ends in."""
        flat = inputs.reshape(-1, inputs.shape[-1])
        node, rows = np.zeros(len(flat), dtype=np.int64), np.arange(len(flat))
        while (inner := self.input[node] >= 0).any():
            at = node[inner]
            goes_left = flat[rows[inner], self.input[at]] <= self.threshold[at]
            node[inner] = np.where(goes_left, self.left[at], self.right[at])
        return self.value[node].reshape(inputs.shape[:-1]).astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a safetensors file."""
        return {name: np.ascontiguousarray(values) for name, values in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DecisionTree:
        """The inverse of `arrays`, of arrays that were checked (`core/schema.py`); ValueError for what is no tree."""
        tree = cls(**{name: arrays[name] for name in ("input", "threshold", "left", "right", "value")})
        nodes, inner = np.arange(len(tree.input)), tree.input >= 0
        if not len(nodes):
            raise ValueError("it has no node")
        for side in (tree.left, tree.right):  # children come after their parents, so that a walk ends
            if (side[inner] <= nodes[inner]).any() or (side[inner] >= len(nodes)).any():
                raise ValueError("its nodes do not form a tree")
        return tree


def fit_tree(inputs: np.ndarray, right: np.ndarray) -> DecisionTree:
    """T from pairs [n, 4] and whether each is right."""
    from sklearn.tree import DecisionTreeClassifier

    if right.all() or not right.any():
        share = float(right.mean()) if len(right) else 0.0
        return DecisionTree(np.array([-1]), np.zeros(1), np.array([-1]), np.array([-1]), np.array([share]))
    grown = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0).fit(inputs, right)
    made = grown.tree_
    column = np.where(made.children_left < 0, -1, made.feature)
    counts = made.value[:, 0, :]
    shares = counts[:, 1] / counts.sum(axis=1)
    return DecisionTree(column, made.threshold, made.children_left, made.children_right, shares)
