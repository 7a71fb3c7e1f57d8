"""Metrics, 95 % intervals and verdicts, from the predictions of all systems for the same test rows.

    metric   = 100 * sum over rows of what is reached / sum over rows of the best       (elias.core.metrics.per_row)
    interval = 2.5 and 97.5 percent of the metric over rows drawn again, with replacement
    paired   = the same of the difference to the best peer, both on the same draws

PSP is a ratio of two sums, so both sums are drawn, like for every metric. The best peer is the one with the highest
value of that metric on these rows. Verdict: above (interval above 0), behind (below 0) or level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elias.core.metrics import PerRow, per_row
from elias.core.propensity import PropensityModel
from elias.dataset import Dataset, Rows

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100")
DRAWS = 2000
BLOCK = 250  # draws held at once


def score_rows(predicted: np.ndarray, data: Dataset, rows: Rows | None = None) -> PerRow:
    """What each row (default: test row) adds to each metric. Own ids and other excluded pairs are taken out here, for
    everyone."""
    rows = data.test if rows is None else rows
    assert rows is not None
    propensity = PropensityModel(*data.training_counts(), data.settings.propensity_a, data.settings.propensity_b)
    return per_row(predicted, rows.labels, propensity, excluded=rows.excluded)


def drawn(systems: Mapping[str, PerRow], *, draws: int = DRAWS, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Each metric of each system on the same `draws` samples of rows."""
    n = next(iter(systems.values())).n_scored
    columns = [
        column for shares in systems.values() for name in METRICS for column in shares.shares[name]
    ]  # reached, best, reached, best ...
    stacked, rng, sums = np.stack(columns, axis=1), np.random.default_rng(seed), []
    for start in range(0, draws, BLOCK):
        size = min(BLOCK, draws - start)
        times = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)])
        sums.append(times.astype(np.float64) @ stacked)
    reached, best = np.concatenate(sums).T.reshape(len(systems), len(METRICS), 2, draws).transpose(2, 0, 1, 3)
    values = 100.0 * reached / np.maximum(best, 1e-300)
    return {name: dict(zip(METRICS, values[i], strict=True)) for i, name in enumerate(systems)}


def interval(values: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def value(shares: PerRow, metric: str) -> float:
    reached, best = shares.shares[metric]
    return 100.0 * float(reached.sum() / best.sum()) if best.sum() > 0 else 0.0


def compare(systems: Mapping[str, PerRow], ours: Sequence[str]) -> dict[str, Any]:
    """Values with intervals of every system; differences of ours to the best peer of each metric."""
    sampled = drawn(systems)
    metrics = {
        name: {metric: {"value": value(shares, metric), **interval(sampled[name][metric])} for metric in METRICS}
        for name, shares in systems.items()
    }
    peers = [name for name in systems if name not in ours]
    against = {}
    for model in ours if peers else []:
        against[model] = {}
        for metric in METRICS:
            best = max(peers, key=lambda peer: metrics[peer][metric]["value"])
            around = interval(sampled[model][metric] - sampled[best][metric])
            verdict = "above" if around["low"] > 0 else "behind" if around["high"] < 0 else "level"
            difference = metrics[model][metric]["value"] - metrics[best][metric]["value"]
            against[model][metric] = {"peer": best, "difference": difference, **around, "verdict": verdict}
    return {"metrics": metrics, "against_best_peer": against}
