"""Calibration: from a score to the probability that the label is right, by isotonic regression.

Isotonic regression of "is right" on the score, on rows the score model was not trained on. Its steps become a strictly
rising curve, linear between the middles of the steps, so that the order of labels is kept. Its
error is the calibration error of `core/metrics.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.metrics import calibration_error

MOST_KNOTS = 200
SLOPE = 1e-7  # share of a sigmoid in the curve: keeps the order where the steps are level
NO_CURVE = np.empty(0), np.empty(0), SLOPE


@dataclass(frozen=True)
class IsotonicCalibration:
    scores: np.ndarray  # float64, ascending
    probabilities: np.ndarray  # float64, ascending, within 0 .. 1
    error: float  # calibration error on rows that the curve was not fitted to
    rows: int  # number of texts it was fitted to

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        inside = np.interp(scores, self.scores, self.probabilities)
        rise = 1.0 / (1.0 + np.exp(np.clip(-scores, -60, 60)))
        return np.asarray((1 - SLOPE) * inside + SLOPE * rise)

    @property
    def curve(self) -> tuple[np.ndarray, np.ndarray, float]:
        """As `kernels/score_model.py` reads it."""
        return self.scores, self.probabilities, SLOPE

    def as_dict(self) -> dict[str, Any]:
        curve = {"scores": self.scores.tolist(), "probabilities": self.probabilities.tolist()}
        return {**curve, "error": self.error, "rows": self.rows}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> IsotonicCalibration:
        """The inverse of `as_dict`, of values that were checked (`core/schema.py`); ValueError for no curve."""
        scores, probabilities = content["scores"], content["probabilities"]
        if not len(scores) or (np.diff(scores) < 0).any() or (np.diff(probabilities) < 0).any():
            raise ValueError("the calibration curve is empty or falls")
        return cls(scores, probabilities, float(content["error"]), content["rows"])


def fit_calibration(
    scores: np.ndarray, right: np.ndarray, used: np.ndarray, rows: np.ndarray | None = None
) -> IsotonicCalibration:
    """The curve of all pairs that are `used` [texts, m]; its error from curves of one half, measured on the other.

    `rows`: numbers of the texts, where a text can be among them more than once: it is then in one half.
    """
    crossed, halves = cross_calibrated(scores, right, used, rows), _halves(scores, rows)
    errors = [
        calibration_error(crossed[half][used[half]], right[half][used[half]]) for half in halves if used[half].any()
    ]
    fitted = _curve(scores[used], right[used])
    return IsotonicCalibration(*fitted, float(np.mean(errors)) if errors else 0.0, len(scores))


def cross_calibrated(
    scores: np.ndarray, right: np.ndarray, used: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """Probabilities of all pairs [texts, m], each by the curve of the half of the texts that its text is not in."""
    found = np.empty(scores.shape)
    first, second = _halves(scores, rows)
    for half, other in ((first, second), (second, first)):
        found[half] = np.interp(scores[half], *_curve(scores[other][used[other]], right[other][used[other]]))
    return found


def _halves(scores: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Every second text, and the others (masks)."""
    half = (np.arange(len(scores)) if rows is None else np.unique(rows, return_inverse=True)[1]) % 2 == 0
    return half, ~half


def _curve(scores: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scores, means): the middles of the steps of an isotonic regression."""
    from sklearn.isotonic import isotonic_regression

    if len(scores) == 0:
        return np.zeros(1), np.zeros(1)
    places, where, sizes = np.unique(scores.astype(np.float64), return_inverse=True, return_counts=True)
    shares = np.bincount(where, weights=right) / sizes
    fitted = isotonic_regression(shares, sample_weight=sizes, y_min=0.0, y_max=1.0)
    step = np.concatenate([[0], np.cumsum(np.diff(fitted) > 0)])
    middles = np.bincount(step, weights=places * sizes) / np.bincount(step, weights=sizes)
    levels = fitted[np.searchsorted(step, np.arange(len(middles)))]
    if len(levels) > MOST_KNOTS:
        kept = np.unique(np.linspace(0, len(levels) - 1, MOST_KNOTS).astype(int))
        middles, levels = middles[kept], levels[kept]
    return middles, levels
