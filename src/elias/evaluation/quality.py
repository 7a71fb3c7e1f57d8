"""What a model is worth: its metrics next to two baselines on the same rows, and how far its probabilities are off.

    quality = {"rows": "test" or "held-out", "n_rows": 1250,
               "metrics": {"P@1": 51.2, "P@5": 22.0, "nDCG@5": 53.1, "R@100": 78.4},      percent
               "calibration_error": 0.011,                                                0 to 1; null: no probabilities
               "baselines": {"nearest texts": {the same four}, "most frequent labels": {the same four}},
               "note": "what else a reader must know of these rows; mostly empty"}

This is `quality` in config.json and ensemble.json, and in the HTTP API; null where nothing could be measured. A fit
ends with it as a table (`format_quality`). docs/explanation/quality.md says which rows it is measured on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.metrics import calibration_error_of, evaluate
from ..core.predictions import Predictions
from ..core.propensity import PropensityModel
from .baselines import MOST_FREQUENT, NEAREST

MEASURES = ("P@1", "P@5", "nDCG@5", "R@100")
TEST, HELD_OUT = "test", "held-out"
LEAST_ROWS = 50  # of fewer, the standard error of P@1 is above 7 points
FEW_LABELS, FEW_ROWS_PER_LABEL = 200, 5


@dataclass(frozen=True, kw_only=True)
class Quality:
    rows: str  # TEST or HELD_OUT
    n_rows: int  # that have labels
    metrics: dict[str, float]
    calibration_error: float | None  # None: scores are not probabilities
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class MeasuredRows:
    """Rows with their right labels, and the pairs of them that the data excludes, rows x L."""

    name: str  # TEST or HELD_OUT
    labels: sp.csr_matrix
    excluded: sp.csr_matrix
    note: str = ""

    def __len__(self) -> int:
        """Rows that have labels."""
        return int((np.diff(self.labels.indptr) > 0).sum())


def measure(
    rows: MeasuredRows, found: Predictions, baselines: Mapping[str, np.ndarray], *, gives_probabilities: bool
) -> Quality:
    """Predictions, and the labels that baselines predict, measured on the same rows."""
    error = calibration_error_of(found.labels, found.scores, rows.labels) if gives_probabilities else None
    return Quality(
        rows=rows.name,
        n_rows=len(rows),
        metrics=_metrics(found.labels, rows),
        calibration_error=None if error is None else round(error, 5),
        baselines={name: _metrics(baselines[name], rows) for name in (NEAREST, MOST_FREQUENT) if name in baselines},
        note=rows.note,
    )


def _metrics(predicted: np.ndarray, rows: MeasuredRows) -> dict[str, float]:
    any_counts = PropensityModel(np.ones(rows.labels.shape[1], dtype=np.int64), 1)  # of metrics that are not used here
    values = evaluate(predicted, rows.labels, any_counts, ks=(1, 5), recall_ks=(100,), excluded=rows.excluded).values
    return {name: round(values[name], 3) for name in MEASURES}


def format_quality(quality: Mapping[str, Any] | None, what: str = "this model") -> str:
    """A table that a person reads, with a sentence on the probabilities."""
    if quality is None:
        return "quality: not measured"
    names = {NEAREST: "nearest texts (tf-idf)"}
    table = {what: quality["metrics"], **{names.get(name, name): row for name, row in quality["baselines"].items()}}
    title = f"on {quality['n_rows']:,} {quality['rows']} rows"
    width = max(map(len, (title, *table))) + 2
    lines = [title.ljust(width) + "".join(f"{name:>8}" for name in MEASURES)]
    lines += [name.ljust(width) + "".join(f"{row[m]:>8.1f}" for m in MEASURES) for name, row in table.items()]
    error = quality["calibration_error"]
    if error is not None:
        example = "of labels given 60 %, about 60 % are right" if error < 0.03 else "take them as rough"
        points = f"probabilities are off by {100 * error:.1f} points on average"
        lines.append(f"calibration error {error:.3f}: {points}; {example}")
    return "\n".join([*lines, *([quality["note"]] if quality.get("note") else [])])


def advice(quality: Mapping[str, Any] | None, label_counts: np.ndarray) -> Sequence[str]:
    """What to do where a model is not worth its training: one sentence per finding, mostly none."""
    if quality is None:
        return []
    found = []
    if quality["n_rows"] < LEAST_ROWS:
        spread = 50 / max(1, quality["n_rows"]) ** 0.5
        found.append(f"{quality['n_rows']} rows are few: these figures can be off by {spread:.0f} points or more.")
    ours = quality["metrics"]
    for name, theirs in quality["baselines"].items():
        lost = [m for m in ("P@1", "nDCG@5") if ours[m] <= theirs[m] and ours[m] < 100]
        if lost:
            pair = f"{lost[0]} {ours[lost[0]]:.1f} against {theirs[lost[0]]:.1f}"
            found.append(f"The model does not beat {name}: {pair}. {_remedy(label_counts)}")
            break
    return found


def _remedy(label_counts: np.ndarray) -> str:
    counts = label_counts[label_counts > 0]
    mean = float(counts.mean()) if len(counts) else 0.0
    if mean < FEW_ROWS_PER_LABEL:
        return (
            f"Its {len(counts):,} labels have {mean:.1f} training rows each on average: more rows, or fewer and "
            "broader labels, help most."
        )
    if len(counts) < FEW_LABELS:
        return (
            f"For {len(counts):,} labels a linear classifier (scikit-learn: TfidfVectorizer with LinearSVC) is simpler "
            "and often better."
        )
    return "More rows help most; check also that the texts say what the labels are about (elias check)."
