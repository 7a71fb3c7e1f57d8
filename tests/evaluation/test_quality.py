"""What a model is worth, as numbers and as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.predictions import Predictions
from elias.evaluation.baselines import MOST_FREQUENT, NEAREST
from elias.evaluation.quality import MeasuredRows, advice, format_quality, measure


def quality(p1: float = 50.0, nearest: float = 40.0, **changes: Any) -> dict[str, Any]:
    def metrics(value: float) -> dict[str, float]:
        return {"P@1": value, "P@5": 20.0, "nDCG@5": value, "R@100": 78.4}

    baselines = {NEAREST: metrics(nearest), MOST_FREQUENT: metrics(6.1)}
    found = {"rows": "held-out", "n_rows": 1250, "metrics": metrics(p1), "calibration_error": 0.011}
    return {**found, "baselines": baselines, "note": "", **changes}


def test_measured_by_hand() -> None:
    """Right labels that are no candidate stay in the denominators; excluded pairs and rows without labels do not."""
    labels = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=np.float32))
    excluded = sp.csr_matrix(np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool))
    rows = MeasuredRows("held-out", labels, excluded)
    found = Predictions(
        labels=np.array([[0, 2], [3, -1], [1, 2]], np.int32),
        scores=np.array([[0.9, 0.4], [0.2, 0.0], [1.0, 1.0]], np.float32),
    )
    baseline = {NEAREST: np.array([[3, 1, 0]] * 3)}
    measured = measure(rows, found, baseline, gives_probabilities=True)
    assert (measured.n_rows, measured.rows) == (2, "held-out")
    assert measured.metrics["P@1"] == 50.0
    assert measured.metrics["R@100"] == pytest.approx(100 * (1 / 2 + 0) / 2)
    assert measured.baselines[NEAREST]["P@1"] == 50.0, "3 is excluded in row 0, so 1 is first"
    assert measured.baselines[NEAREST]["R@100"] == 50.0
    # Three pairs, each in a bin of its own: 0.2 wrong, 0.4 wrong, 0.9 right.
    assert measured.calibration_error == pytest.approx((0.2 + 0.4 + 0.1) / 3, abs=1e-5)
    assert measure(rows, found, baseline, gives_probabilities=False).calibration_error is None


def test_the_table() -> None:
    lines = format_quality(quality(note="of these rows")).splitlines()
    assert lines[0].split() == ["on", "1,250", "held-out", "rows", "P@1", "P@5", "nDCG@5", "R@100"]
    assert lines[1].split() == ["this", "model", "50.0", "20.0", "50.0", "78.4"]
    assert lines[2].startswith("nearest texts (tf-idf)")
    assert lines[3].startswith("most frequent labels")
    assert len({len(line) for line in lines[:4]}) == 1, "columns are aligned"
    assert lines[4].startswith("calibration error 0.011: ")
    assert "about 60 % are right" in lines[4]
    assert lines[5] == "of these rows"
    assert "60 %" not in format_quality(quality(calibration_error=0.2))
    assert "calibration" not in format_quality(quality(calibration_error=None))
    assert format_quality(None) == "quality: not measured"


def test_a_model_that_beats_no_baseline_says_so() -> None:
    many = np.full(1000, 20)
    assert advice(quality(), many) == []
    assert advice(None, many) == []
    for counts, remedy in (
        (many, "More rows help most"),
        (np.full(1000, 2), "1,000 labels have 2.0 training rows each"),
        (np.array([500, 400, 0]), "For 2 labels a linear classifier"),
    ):
        (sentence,) = advice(quality(38.0, 40.2), counts)
        assert sentence.startswith("The model does not beat nearest texts: P@1 38.0 against 40.2. ")
        assert remedy in sentence
    assert advice(quality(100.0, 100.0), many) == [], "nothing is better than that"
    (few,) = advice(quality(n_rows=9), many)
    assert "9 rows are few" in few
