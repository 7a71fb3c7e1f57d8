"""A decision tree as arrays: the paper's calibrator, without a pickle.

Grown by scikit-learn on (p, q, p q, n_l) with the target "is right"; a leaf answers with the share of right ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DEPTH = 5
LEAST_LEAF = 20  # pairs
N_COLUMNS = 4  # p, q, p q, n_l


@dataclass(frozen=True)
class Tree:
    """Node n goes to left[n] if column[n] <= threshold[n], else to right[n]; column -1: a leaf with value[n]."""

    column: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        """The value of the leaf that each row of [..., columns] comes to."""
        flat = columns.reshape(-1, columns.shape[-1])
        node, rows = np.zeros(len(flat), dtype=np.int64), np.arange(len(flat))
        while (inner := self.column[node] >= 0).any():
            at = node[inner]
            goes_left = flat[rows[inner], self.column[at]] <= self.threshold[at]
            node[inner] = np.where(goes_left, self.left[at], self.right[at])
        return self.value[node].reshape(columns.shape[:-1]).astype(np.float32)

    def as_dict(self) -> dict[str, Any]:
        return {name: values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Tree:
        tree = cls(
            np.asarray(content["column"], dtype=np.int64),
            np.asarray(content["threshold"], dtype=np.float64),
            np.asarray(content["left"], dtype=np.int64),
            np.asarray(content["right"], dtype=np.int64),
            np.asarray(content["value"], dtype=np.float64),
        )
        nodes, inner = np.arange(len(tree.column)), tree.column >= 0
        whole = len(nodes) > 0 and all(values.shape == nodes.shape for values in vars(tree).values())
        if not whole or (tree.column >= N_COLUMNS).any() or not np.isfinite([tree.threshold, tree.value]).all():
            raise ValueError("its nodes are not those of a tree")
        for side in (tree.left, tree.right):  # children come later, so that a walk ends
            if (side[inner] <= nodes[inner]).any() or (side[inner] >= len(nodes)).any():
                raise ValueError("its nodes do not form a tree")
        return tree


def fit_tree(columns: np.ndarray, right: np.ndarray) -> Tree:
    from sklearn.tree import DecisionTreeClassifier

    if right.all() or not right.any():
        share = float(right.mean()) if len(right) else 0.0
        return Tree(np.array([-1]), np.zeros(1), np.array([-1]), np.array([-1]), np.array([share]))
    grown = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0).fit(columns, right)
    made = grown.tree_
    column = np.where(made.children_left < 0, -1, made.feature)
    counts = made.value[:, 0, :]
    return Tree(column, made.threshold, made.children_left, made.children_right, counts[:, 1] / counts.sum(axis=1))
