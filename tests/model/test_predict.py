"""One way from texts to predictions: every caller ends in `predict_batch`, with kernels and by the definitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias import Ensemble
from elias.core.predictions import Predictions
from elias.dataset import Dataset
from elias.model import predict as prediction
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import load_model
from helpers.processes import here

LABEL, SCORE = 7, 0.25  # what the replaced `predict_batch` answers to everything
PARTS = ("cluster", "cluster_score", "edge_score", "classifier", "ranker", "words")
Predictor = Model | Ensemble


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many members each call of `predict_batch` had; every answer is LABEL with SCORE and nothing else."""
    found: list[int] = []

    def answer(
        members: Sequence[Model], inputs: Any, prepared: Sequence[Any], rows: np.ndarray, request: prediction.Request
    ) -> list[Predictions]:
        found.append(len(members))
        labels = np.full((len(rows), request.k), -1, dtype=np.int32)
        scores = np.zeros((len(rows), request.k), dtype=np.float32)
        labels[:, 0], scores[:, 0] = LABEL, SCORE
        parts = dict.fromkeys(PARTS, scores.copy()) if request.explain else None
        return [Predictions(labels=labels, scores=scores, parts=parts)] * len(members)

    monkeypatch.setattr(prediction, "predict_batch", answer)
    return found


@pytest.fixture(params=["network alone", "stacked", "ensemble"])
def predictor(request: pytest.FixtureRequest) -> Predictor:
    fixture = {"network alone": "tiny_model", "stacked": "stacked_model"}.get(request.param, request.param)
    found: Predictor = request.getfixturevalue(fixture)
    return found


def entries(model: Predictor, texts: list[str], data: Dataset) -> dict[str, Callable[[], Predictions]]:
    names = model.labels.ids
    return {
        "one text": lambda: model.predict(texts[0]),
        "many texts": lambda: model.predict(texts),
        "explained": lambda: model.predict(texts, explain=True),
        "candidates": lambda: model.predict(texts, candidates=[names[:9]] * len(texts)),
        "allow": lambda: model.predict(texts, allow=names[:9]),
        "block": lambda: model.predict(texts, block=names[:3]),
        "rare labels": lambda: model.predict(texts, rare=1.0),
        "evaluation": lambda: evaluate_model(model, data).predictions,
    }


def test_every_answer_is_that_of_predict_batch(
    predictor: Predictor, texts: list[str], data: Dataset, calls: list[int]
) -> None:
    for name, entry in entries(predictor, texts, data).items():
        found = entry()
        assert (found.labels[:, 0] == LABEL).all(), name
        assert (found.labels[:, 1:] == -1).all(), name
        if name != "rare labels":  # whose scores are weighted afterwards
            assert (found.scores[:, 0] == SCORE).all(), name
        # Members of the ensemble share their ranking parts: one call for both.
        assert calls == [2 if isinstance(predictor, Ensemble) else 1], name
        calls.clear()


def test_members_with_ranking_parts_of_their_own_have_a_call_each(
    ensemble_folder: Path, texts: list[str], calls: list[int]
) -> None:
    apart = Ensemble([load_model(ensemble_folder / name, threads=2) for name in ("member-0", "member-1")])
    assert (apart.predict(texts, k=3).labels[:, 0] == LABEL).all()
    assert calls == [1, 1]


def test_so_are_those_of_the_command_line(
    stacked_folder: Path, tiny_dataset: Path, texts: list[str], calls: list[int]
) -> None:
    done = here("predict", stacked_folder, texts[0], "-k", "3", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    assert [(label["label"], label["score"]) for label in json.loads(done.stdout)["labels"]] == [("label-07", SCORE)]
    done = here("evaluate", stacked_folder, tiny_dataset)
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2


@pytest.mark.parametrize("fixture", ["tiny_model_folder", "stacked_folder", "ensemble_folder"])
def test_kernels_and_definitions_agree_on_a_saved_model(
    fixture: str, texts: list[str], data: Dataset, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(fixture)
    fast, slow = (elias.load(folder, threads=2, kernels=kernels) for kernels in (True, False))
    for name, entry in entries(fast, texts, data).items():
        ours, theirs = entry(), entries(slow, texts, data)[name]()
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=0, atol=1e-4, err_msg=name)
        assert_same_up_to_ties(ours, theirs)
        for part, values in (theirs.parts or {}).items():
            assert ours.parts is not None
            same = ours.labels == theirs.labels
            np.testing.assert_allclose(ours.parts[part][same], values[same], rtol=1e-3, atol=1e-4, err_msg=part)


def assert_same_up_to_ties(ours: Predictions, theirs: Predictions) -> None:
    """Where a place has another label, its neighbor has (almost) the same score, or it is the last place."""
    assert (ours.labels == theirs.labels).mean() > 0.99
    for row, place in np.argwhere(ours.labels != theirs.labels):
        near = np.abs(theirs.scores[row] - ours.scores[row, place]) < 2e-4
        last = place == ours.labels.shape[1] - 1
        assert ours.labels[row, place] in theirs.labels[row, near] or last
