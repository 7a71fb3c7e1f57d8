"""From a score to the probability that the label is right: a rising curve through isotonic means.

Isotonic regression of "is right" on the score, on rows the score was not learned from; its steps become a curve that
rises strictly, straight between the middles of the steps, so the order of labels stays what it was.

    calibration error = mean over ten bins of equally many pairs of |mean probability - share of right ones|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 10
MOST_KNOTS = 200
SLOPE = 1e-7  # share of a sigmoid that keeps the order
NO_CURVE = np.empty(0), np.empty(0), SLOPE


@dataclass(frozen=True)
class ProbabilityMap:
    scores: np.ndarray  # float64, rising
    probabilities: np.ndarray  # float64, rising, within 0 .. 1
    error: float  # calibration error, measured on rows that the curve was not drawn through
    rows: int

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        inside = np.interp(scores, self.scores, self.probabilities)
        rise = 1.0 / (
            1.0 + np.exp(np.minimum(np.maximum(-scores, -60), 60))
        )  # beyond the ends, and where two means are level
        return np.asarray((1 - SLOPE) * inside + SLOPE * rise)

    @property
    def curve(self) -> tuple[np.ndarray, np.ndarray, float]:
        """As `kernels/fuse.py` reads it."""
        return self.scores, self.probabilities, SLOPE

    def as_dict(self) -> dict[str, Any]:
        return {
            "scores": self.scores.tolist(),
            "probabilities": self.probabilities.tolist(),
            "error": self.error,
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ProbabilityMap:
        scores, probabilities = (np.asarray(content[name], np.float64) for name in ("scores", "probabilities"))
        whole = scores.shape == probabilities.shape and scores.ndim == 1 and len(scores) > 0
        inside = whole and bool(np.isfinite(scores).all() and ((probabilities >= 0) & (probabilities <= 1)).all())
        if not inside or (np.diff(scores) < 0).any() or (np.diff(probabilities) < 0).any():
            raise ValueError("the curve of probabilities is broken")
        return cls(scores, probabilities, float(content["error"]), int(content["rows"]))


def fit_probability(
    scores: np.ndarray, right: np.ndarray, there: np.ndarray, rows: np.ndarray | None = None
) -> ProbabilityMap:
    """The curve of all rows; its error from curves of one half, measured on the other.

    `rows` are their numbers, where a row can be among them more than once: it is then in one half.
    """
    half = (np.arange(len(scores)) if rows is None else np.unique(rows, return_inverse=True)[1]) % 2 == 0
    errors = []
    for part in (half, ~half):
        curve = _curve(scores[part][there[part]], right[part][there[part]])
        if there[~part].any():
            guessed = np.interp(scores[~part][there[~part]], *curve)
            errors.append(calibration_error(guessed, right[~part][there[~part]]))
    found = _curve(scores[there], right[there])
    return ProbabilityMap(*found, float(np.mean(errors)) if errors else 0.0, len(scores))


def _curve(scores: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scores, means): the middles of the steps of an isotonic regression."""
    from sklearn.isotonic import isotonic_regression

    if len(scores) == 0:
        return np.zeros(1), np.zeros(1)
    places, where, sizes = np.unique(scores.astype(np.float64), return_inverse=True, return_counts=True)
    shares = np.bincount(where, weights=right) / sizes
    fitted = isotonic_regression(shares, sample_weight=sizes, y_min=0.0, y_max=1.0)
    step = np.concatenate([[0], np.cumsum(np.diff(fitted) > 0)])  # neighbours, so that steps cannot overlap
    middles = np.bincount(step, weights=places * sizes) / np.bincount(step, weights=sizes)
    levels = fitted[np.searchsorted(step, np.arange(len(middles)))]
    if len(levels) > MOST_KNOTS:
        kept = np.unique(np.linspace(0, len(levels) - 1, MOST_KNOTS).astype(int))
        middles, levels = middles[kept], levels[kept]
    return middles, levels


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    order = np.argsort(probabilities, kind="stable")
    bins = np.array_split(order, BINS)
    gaps = [len(b) * abs(probabilities[b].mean() - right[b].mean()) for b in bins if len(b)]
    return float(sum(gaps) / max(1, len(order)))
