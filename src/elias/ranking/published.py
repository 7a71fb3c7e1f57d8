"""The scores of ELIAS++ as the paper has them: q of a margin, p q, and T + p q.

    q_l = sigmoid(margin)  (logistic loss)     or     exp(-max(0, 1 - margin)^3)  (squared hinge, the authors' program)
    score = p q     or     w T(p, q, p q, n_l) + (1 - w) p q

T is a decision tree grown by scikit-learn on held-out pairs with the target "is right"; a leaf answers with the share
of right ones. The paper's sum T + p q is w = 0.5 up to a factor of 2; the authors' program has 0.3 T + 0.7 p q. The
tree is stored as arrays: no pickle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.features import FEATURES
from .features import Features

DEPTH = 5
LEAST_LEAF = 20  # pairs
N_INPUTS = 4  # p, q, p q, n_l


def q_of(margins: np.ndarray, loss: str) -> np.ndarray:
    """q of the margins of a linear ranker trained with this loss."""
    if loss == "logistic":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -60, 60))), dtype=np.float32)
    return np.asarray(np.exp(-(np.maximum(0.0, 1.0 - margins) ** 3)), dtype=np.float32)


def p_of(features: Features) -> np.ndarray:
    """p = sigmoid(z) * yhat of every candidate [B, m]."""
    s, e, sigma = (features.values[:, FEATURES.index(name)] for name in ("cluster_score", "edge_score", "classifier"))
    return np.asarray(sigma * (s * e))


def tree_inputs(features: Features, loss: str) -> np.ndarray:
    """[B, m, 4]: p, q, p q and n_l."""
    p, q = p_of(features), q_of(features.values[:, FEATURES.index("margin")], loss)
    counts = np.rint(np.expm1(features.values[:, FEATURES.index("log_count")].astype(np.float64)))
    return np.stack([p, q, p * q, counts], axis=-1).astype(np.float32)


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

    def as_dict(self) -> dict[str, Any]:
        return {name: values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> DecisionTree:
        tree = cls(
            np.asarray(content["input"], dtype=np.int64),
            np.asarray(content["threshold"], dtype=np.float64),
            np.asarray(content["left"], dtype=np.int64),
            np.asarray(content["right"], dtype=np.int64),
            np.asarray(content["value"], dtype=np.float64),
        )
        nodes, inner = np.arange(len(tree.input)), tree.input >= 0
        whole = len(nodes) > 0 and all(values.shape == nodes.shape for values in vars(tree).values())
        if not whole or (tree.input >= N_INPUTS).any() or not np.isfinite([tree.threshold, tree.value]).all():
            raise ValueError("its nodes are not those of a tree")
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
