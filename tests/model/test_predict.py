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
    ) -> list[prediction.Answer]:
        found.append(len(members))
        labels = np.full((len(rows), request.k), -1, dtype=np.int32)
        scores = np.zeros((len(rows), request.k), dtype=np.float32)
        labels[:, 0], scores[:, 0] = LABEL, SCORE
        parts = dict.fromkeys(PARTS, scores.copy()) if request.explain else None
        return [prediction.Answer(Predictions(labels=labels, scores=scores, parts=parts))] * len(members)

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


# -- texts without evidence -------------------------------------------------------------------------------------------

BLANK = ["", "  ", "qqqqq zzzzz"]  # no word of these is known


def base_rates(model: Predictor, k: int, left_out: Sequence[int] = ()) -> list[tuple[str, float]]:
    order = [n for n in np.argsort(-model.label_counts, kind="stable").tolist() if n not in left_out][:k]
    return [(model.labels.ids[n], float(np.float32(model.label_counts[n] / model.n_train))) for n in order]


@pytest.mark.parametrize("fixture", ["stacked_model", "ensemble"])
def test_texts_without_a_known_word_are_given_base_rates(
    fixture: str, texts: list[str], request: pytest.FixtureRequest
) -> None:
    model: Predictor = request.getfixturevalue(fixture)
    found, alone = model.predict([*texts[:9], *BLANK, *texts[9:]], k=7), model.predict(texts, k=7)
    assert found.known_words is not None
    assert found.known_words.dtype == np.int32
    assert found.known_words.tolist()[9:12] == [0, 0, 0]
    assert model.first.vectorizer is not None
    known = {word for word in texts[0].split() if word in set(model.first.vectorizer.words.words)}
    assert found.known_words[0] == len(known) > 0
    for row in found.named()[9:12]:
        assert [name for name, _ in row] == [name for name, _ in base_rates(model, 7)]
        assert [score for _, score in row] == pytest.approx([score for _, score in base_rates(model, 7)])
    others = np.r_[0:9, 12 : len(texts) + 3]
    np.testing.assert_array_equal(found.labels[others], alone.labels)
    np.testing.assert_array_equal(found.scores[others], alone.scores)
    assert model.predict("", k=2).named()[0] == found.named()[9][:2], "alone as in a batch"


@pytest.mark.parametrize("fixture", ["stacked_model", "ensemble"])
def test_excluded_labels_and_candidates_hold_for_them_too(fixture: str, request: pytest.FixtureRequest) -> None:
    model: Predictor = request.getfixturevalue(fixture)
    best = [model.labels.number_of[name] for name, _ in base_rates(model, 4)]
    names = [model.labels.ids[number] for number in best]
    blocked = model.predict(BLANK, k=3, block=names[:2])
    assert [[name for name, _ in row] for row in blocked.named()] == [
        [name for name, _ in base_rates(model, 3, best[:2])]
    ] * 3
    allowed = model.predict(BLANK, k=3, allow=[names[3], names[1]], block=[names[1]])
    assert [[name for name, _ in row] for row in allowed.named()] == [[names[3]]] * 3
    lists = model.predict(BLANK, k=3, candidates=[[names[3], names[0]], [names[2]], []])
    assert [[name for name, _ in row] for row in lists.named()] == [[names[0], names[3]], [names[2]], []]
    assert model.predict(BLANK, k=9, threshold=0.9).named() == [[], [], []], "nothing is that certain"
    assert (model.predict(BLANK, k=9, rare=0.5).labels >= 0).all()


@pytest.mark.parametrize("fixture", ["stacked_model", "ensemble"])
def test_they_are_explained_by_nothing(fixture: str, texts: list[str], request: pytest.FixtureRequest) -> None:
    model: Predictor = request.getfixturevalue(fixture)
    found, alone = model.predict(["", texts[0]], k=4, explain=True), model.predict(texts[0], k=4, explain=True)
    assert found.parts is not None
    assert alone.parts is not None
    assert (found.parts["cluster"][0] == -1).all()
    for name in PARTS:
        if name != "cluster":
            assert (found.parts[name][0] == 0).all(), name
        np.testing.assert_array_equal(found.parts[name][1], alone.parts[name][0])
    assert [record["score"] for record in found.records()[0]] == found.scores[0].tolist()


def test_where_scores_are_no_probabilities_they_are_answered_like_any_other(tiny_model: Model) -> None:
    found = tiny_model.predict(BLANK, k=3)
    assert found.known_words is not None
    assert found.known_words.tolist() == [0, 0, 0]
    assert not np.isclose(found.scores[0], [score for _, score in base_rates(tiny_model, 3)]).any()


def test_an_encoder_that_reads_the_text_itself_is_asked_unless_it_is_empty(
    stacked_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked_model.network.encoder, "kind", "hybrid", raising=False)
    inputs = stacked_model.read(BLANK)
    blank = stacked_model._without_evidence(inputs, prediction.known_words(inputs))
    assert blank is not None
    assert blank.tolist() == [True, True, False]


def test_a_batch_in_which_every_word_is_known_pays_nothing(
    stacked_model: Model, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(prediction, "_with_base_rates", never)
    found = stacked_model.predict(texts)
    assert found.known_words is not None
    assert found.known_words.min() > 0


def test_the_command_line_says_so(stacked_folder: Path, texts: list[str]) -> None:
    done = here("predict", stacked_folder, "qqqqq zzzzz", texts[0], "-k", "2")
    lines = done.stdout.splitlines()
    assert lines[0] == "qqqqq zzzzz (no known words)"
    assert "(no known words)" not in "".join(lines[1:])
