"""Propensity-aware prediction: rare labels first, as far as one wants.

    order by score_l * (1 / propensity_l)^strength      strength 0: as predicted; 1: each hit counts as PSP counts it

Labels that annotators rarely find weigh more, so PSP rises and, in the end, P falls (docs/results.md). Only the order
changes: a score stays the score, or the probability, of its label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from .errors import InputError
from .metrics import propensities
from .predictions import Predictions

DEPTH = 100  # predictions that are put into another order, at least


class Counted(Protocol):
    """A model that knows how often its labels occur."""

    @property
    def predict(self) -> Callable[..., Predictions]: ...

    @property
    def label_counts(self) -> np.ndarray: ...
    @property
    def n_train(self) -> int: ...
    @property
    def about(self) -> dict[str, dict[str, float]]: ...


def check_strength(strength: float) -> None:
    if not 0.0 <= strength <= 1.0:
        raise InputError(f"rare={strength}: give a number from 0 (as predicted) to 1 (rare labels first)")


def predict_by_propensity(model: Counted, inputs: Any, k: int, strength: float, **options: Any) -> Predictions:
    """`model.predict` with rare labels first."""
    check_strength(strength)
    return rerank_by_propensity(model.predict(inputs, max(k, DEPTH), **options), model, strength, k)


def rerank_by_propensity(found: Predictions, model: Counted, strength: float, k: int) -> Predictions:
    """The k best of what was found once rare labels weigh more."""
    settings = model.about.get("dataset", {})
    a, b = float(settings.get("propensity_a", 0.55)), float(settings.get("propensity_b", 1.5))
    weights = (1.0 / propensities(model.label_counts, model.n_train, a, b)) ** strength
    there = found.labels >= 0
    keys = np.where(there, -found.scores * weights[np.maximum(found.labels, 0)], np.inf)
    order = np.lexsort((found.labels, keys), axis=1)[:, :k]
    parts = found.parts and {name: np.take_along_axis(values, order, axis=1) for name, values in found.parts.items()}
    labels, scores = (np.take_along_axis(values, order, axis=1) for values in (found.labels, found.scores))
    return replace(found, labels=labels, scores=scores, parts=parts)
