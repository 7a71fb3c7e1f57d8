"""Propensities of labels, and predictions re-ranked by them.

    p_l   = 1 / (1 + Cc (n_l + B)^-A),   Cc = (ln N - 1) (B + 1)^A         n_l of N training rows have label l
    order by  score_l * (1 / p_l)^strength       strength 0: as predicted; 1: each hit counts as PSP counts it

The propensity of a label is the estimated probability that an annotator noted it where it is relevant (Jain, Prabhu,
Varma 2016). Rare labels have small propensities, so re-ranking moves them up: PSP rises and, in the end, P falls.
Only the order changes: a score stays the score, or the probability, of its label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from .errors import InputError
from .predictions import Predictions

DEPTH = 100  # predictions to re-rank, at least: from k alone no new label could come up
DEFAULT_A, DEFAULT_B = 0.55, 1.5


@dataclass(frozen=True)
class PropensityModel:
    """Training frequencies of all labels, and A and B of the formula: settings of the dataset, never guessed."""

    label_counts: np.ndarray  # n_l
    n_train: int  # N
    a: float = DEFAULT_A
    b: float = DEFAULT_B

    def __post_init__(self) -> None:
        if self.a < 0 or self.b <= 0:
            message = f"propensity a = {self.a}, b = {self.b}: a must not be negative and b must be above 0"
            raise InputError(message)

    def propensities(self) -> np.ndarray:
        """p_l of every label, above 0 and at most 1."""
        # ln N - 1 is negative for fewer than 3 training rows; without the bound p would exceed 1.
        scale = max(0.0, (np.log(max(self.n_train, 1)) - 1.0) * (self.b + 1.0) ** self.a)
        counts = np.asarray(self.label_counts, dtype=np.float64)
        return np.asarray(1.0 / (1.0 + scale * (counts + self.b) ** -self.a))


class CountedLabels(Protocol):
    """A model that keeps the training frequencies of its labels."""

    @property
    def label_counts(self) -> np.ndarray: ...
    @property
    def n_train(self) -> int: ...
    @property
    def about(self) -> dict[str, dict[str, float]]: ...


def propensity_of(model: CountedLabels) -> PropensityModel:
    """The propensity model of the dataset that a model was trained on."""
    dataset = model.about.get("dataset", {})
    a, b = float(dataset.get("propensity_a", DEFAULT_A)), float(dataset.get("propensity_b", DEFAULT_B))
    return PropensityModel(model.label_counts, model.n_train, a, b)


def check_strength(strength: float) -> None:
    if not 0.0 <= strength <= 1.0:
        raise InputError(f"rare={strength}: give a number from 0 (as predicted) to 1 (rare labels first)")


def rerank_by_propensity(found: Predictions, propensity: PropensityModel, strength: float, k: int) -> Predictions:
    """The k best of each row by score_l * (1 / p_l)^strength."""
    weights = (1.0 / propensity.propensities()) ** strength
    is_label = found.labels >= 0
    # Ties go to the lower label number, so that runs agree; pads sort last.
    keys = np.where(is_label, -found.scores * weights[np.maximum(found.labels, 0)], np.inf)
    order = np.lexsort((found.labels, keys), axis=1)[:, :k]
    parts = found.parts and {name: np.take_along_axis(values, order, axis=1) for name, values in found.parts.items()}
    labels, scores = (np.take_along_axis(values, order, axis=1) for values in (found.labels, found.scores))
    return replace(found, labels=labels, scores=scores, parts=parts)
