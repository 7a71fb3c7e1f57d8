"""Explanations: Shapley values against permutations, sums, words, voters; odd texts and every kind of score."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from elias import Ensemble, kernels
from elias.core.predictions import Predictions
from elias.model.model import Model
from elias.ranking import explanation
from elias.ranking.explanation import COALITIONS, GROUPS, NAMES, Evidence, GroupInputs, contributions, shapley
from elias.ranking.features import FEATURES, Features, take
from elias.ranking.score_model import LearnedScore, ReferenceScores, ScoreModel
from elias.ranking.sparse_rows import SparseRows
from golden.make import MODELS, calls
from helpers.processes import NEITHER, fitted

N_INPUTS = len(explanation.GROUP_OF_INPUT)


def learned(rng: np.random.Generator, units: int = 5) -> ScoreModel:
    arrays = [rng.normal(size=size).astype(np.float32) for size in (N_INPUTS, (N_INPUTS, units), units, units)]
    spread = rng.uniform(0.5, 2.0, N_INPUTS).astype(np.float32)
    mean = rng.normal(size=N_INPUTS).astype(np.float32)
    return ScoreModel("logistic", learned=LearnedScore(mean, spread, *arrays, bias=0.7))


KINDS: dict[str, Callable[[], ScoreModel]] = {
    "learned": lambda: learned(np.random.default_rng(1)),
    "product": lambda: ScoreModel("squared-hinge"),
}


def some_features(rng: np.random.Generator, n_texts: int = 3, n_candidates: int = 7) -> Features:
    """Labels 0 to 6 in any order, the last text with a pad."""
    labels = np.stack([rng.permutation(n_candidates) for _ in range(n_texts)]).astype(np.int32)
    values = rng.uniform(0.01, 0.99, (n_texts, len(FEATURES), n_candidates)).astype(np.float32)
    values[:, FEATURES.index("log_count")] = np.log1p(rng.integers(0, 9, labels.shape))
    labels[-1, -1], values[-1, :, -1] = -1, 0
    return Features(labels, np.zeros_like(labels), values)


def shapley_by_permutations(score_of: Callable[[np.ndarray], float]) -> list[float]:
    """The definition: what a group adds to those before it, averaged over all orders. First, the score of none."""
    total, orders = np.zeros(len(GROUPS)), list(permutations(range(len(GROUPS))))
    for order in orders:
        present = np.zeros(len(GROUPS), dtype=bool)
        for group in order:
            before = score_of(present)
            present[group] = True
            total[group] += score_of(present) - before
    return [score_of(np.zeros(len(GROUPS), dtype=bool)), *(total / len(orders))]


@pytest.mark.parametrize("kind", list(KINDS))
def test_contributions_are_the_shapley_values(kind: str) -> None:
    rng, model = np.random.default_rng(0), KINDS[kind]()
    features = take(some_features(rng, 2, 4), np.array([0]))
    found = contributions([Evidence(Any, model, features)], features.labels)[0]  # type: ignore[arg-type]
    inputs = explanation.group_inputs(Evidence(Any, model, features), np.arange(4)[None])  # type: ignore[arg-type]
    absent = np.broadcast_to(inputs.absent, inputs.present.shape)
    scores = model(features)[0]
    for label in range(4):
        known: dict[bytes, float] = {}

        def score_of(present: np.ndarray, label: int = label, known: dict[bytes, float] = known) -> float:
            key = present.tobytes()
            if key not in known:
                mixed = np.where(present[inputs.groups], inputs.present[label], absent[label])
                known[key] = float(explanation._scores(model, mixed[None])[0])
            return known[key]

        np.testing.assert_allclose(found[label], shapley_by_permutations(score_of), rtol=0, atol=1e-6)
        assert found[label].sum() == pytest.approx(scores[label], abs=1e-5)
    assert np.abs(found[:, 1:]).max() > 1e-3, "something contributes"


def test_every_input_belongs_to_the_group_of_its_feature() -> None:
    """A change of one feature of one candidate changes inputs of its group only, with distances and ranks."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(FEATURES)
    assert len(COALITIONS) == 2 ** len(GROUPS)
    model = KINDS["learned"]()
    features = take(some_features(np.random.default_rng(2), 2, 6), np.array([0]))
    places = np.arange(6)[None]
    before = explanation.group_inputs(Evidence(Any, model, features), places)  # type: ignore[arg-type]
    for number, names in enumerate(GROUPS.values()):
        for name in names:
            values = features.values.copy()
            values[0, FEATURES.index(name), 2] *= 0.3
            evidence = Evidence(Any, model, features._replace(values=values))  # type: ignore[arg-type]
            changed = (explanation.group_inputs(evidence, places).present != before.present).any(axis=0)
            assert changed.any()
            assert set(before.groups[changed].tolist()) == {number}, name


def test_a_group_without_inputs_contributes_nothing_and_equal_groups_the_same() -> None:
    """The axioms of Shapley values: efficiency, dummy, symmetry."""
    model = ScoreModel("logistic")
    features = some_features(np.random.default_rng(3), 2, 5)
    found = contributions([Evidence(Any, model, features)], features.labels)  # type: ignore[arg-type]
    named = dict(zip(NAMES, found[0].T, strict=True))
    for name in ("label text", "label's texts", "similar texts", "popularity"):
        np.testing.assert_allclose(named[name], 0, rtol=0, atol=1e-12)
    assert (named["network"] != 0).all()
    symmetric = GroupInputs(np.array([[0.5, 0.5]]), np.array([[0.1, 0.1]]), explanation.GROUP_OF_P_Q)
    shares = dict(zip(NAMES, shapley(model, symmetric)[0], strict=True))
    assert shares["network"] == pytest.approx(shares["linear classifiers"])
    assert shares["base"] == pytest.approx(0.01)


def test_members_that_have_a_label_are_averaged() -> None:
    rng = np.random.default_rng(4)
    models, features = [learned(rng), learned(rng)], [some_features(rng, 2, 6), some_features(rng, 2, 6)]
    features[1].labels[0, 3] = 99  # this member has another candidate in place of one label
    missing = sorted(set(range(6)) - set(features[1].labels[0].tolist()))[0]
    evidence = [Evidence(Any, *pair) for pair in zip(models, features, strict=True)]  # type: ignore[arg-type]
    labels = np.array([[missing, 99, -1], [1, 0, -1]], dtype=np.int32)
    found = contributions(evidence, labels)
    one, other = (contributions([each], labels) for each in evidence)
    np.testing.assert_allclose(found[0, 0], one[0, 0])
    np.testing.assert_allclose(found[0, 1], other[0, 1])
    np.testing.assert_allclose(found[1, :2], (one[1, :2] + other[1, :2]) / 2)
    np.testing.assert_array_equal(found[:, 2], 0)


def test_many_labels_are_explained_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    features, model = some_features(np.random.default_rng(5), 4, 9), KINDS["learned"]()
    reference = ReferenceScores.of(some_features(np.random.default_rng(6), 4, 9))
    evidence = [Evidence(Any, model, features, reference)]  # type: ignore[arg-type]
    whole = contributions(evidence, features.labels)
    monkeypatch.setattr(explanation, "LABELS_AT_ONCE", 5)
    np.testing.assert_allclose(contributions(evidence, features.labels), whole, rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole.sum(axis=2), model(features, reference), rtol=0, atol=2e-5)


def test_entries_of_sparse_rows() -> None:
    rng = np.random.default_rng(0)
    for density in (0.0, 0.05, 0.5, 1.0):
        matrix = sp.random(30, 40, density=density, random_state=1, format="csr", dtype=np.float32)
        rows, columns = rng.integers(0, 30, 12), rng.integers(0, 40, 9)
        found = SparseRows.from_csr(matrix).entries(rows, columns)
        np.testing.assert_array_equal(found, matrix.toarray()[np.ix_(rows, columns)])
    assert SparseRows.empty(5, 3).entries(np.array([0, 2]), np.array([1])).tolist() == [[0], [0]]


# -- of a trained model -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["stacked_model", "ensemble"])
def model(request: pytest.FixtureRequest) -> Model | Ensemble:
    found: Model | Ensemble = request.getfixturevalue(request.param)
    return found


def explained(found: Predictions) -> list[tuple[int, int, dict[str, Any]]]:
    """(row, label, explanation) of every label; pads have none."""
    assert found.explanations is not None
    assert [len(row) for row in found.explanations] == [found.labels.shape[1]] * len(found)
    assert all(not found.explanations[row][column] for row, column in np.argwhere(found.labels < 0))
    places = np.argwhere(found.labels >= 0).tolist()
    return [(row, int(found.labels[row, column]), found.explanations[row][column]) for row, column in places]


def assert_whole(found: Predictions) -> None:
    """Every explanation has its parts, and contributions add up to the score."""
    for _, _, item in explained(found):
        assert list(item) == ["words", "texts", "contributions", "score"]
        assert tuple(item["contributions"]) == NAMES
        assert sum(item["contributions"].values()) == pytest.approx(item["score"], abs=1e-5)
        weights = [abs(word["weight"]) for word in item["words"]]
        assert weights == sorted(weights, reverse=True)
        assert len(weights) <= 6
        assert all(weights)
        similarities = [text["similarity"] for text in item["texts"]]
        assert similarities == sorted(similarities, reverse=True)
        assert len(similarities) <= 3
    assert json.loads(json.dumps(found.explanations)) == found.explanations


def test_explaining_changes_no_label_and_no_score(model: Model | Ensemble, texts: list[str]) -> None:
    names = model.labels.ids
    options: list[dict[str, Any]] = [
        {}, {"k": 1}, {"k": 60}, {"allow": names[5:9]}, {"candidates": [names[:3]] * len(texts)}, {"rare": 0.7},
        {"threshold": 0.2}, {"rare": 1.0, "threshold": 0.1}, {"block": names[:30]}, {"candidates": [[]] * len(texts)},
    ]  # fmt: skip
    for each in options:
        plain, found = model.predict(texts, **each), model.predict(texts, explain=True, **each)
        np.testing.assert_array_equal(plain.labels, found.labels)
        np.testing.assert_array_equal(plain.scores, found.scores)
        assert plain.explanations is None
        assert_whole(found)


def test_the_score_is_the_one_before_calibration(stacked_model: Model, texts: list[str]) -> None:
    ranker = stacked_model.reranker
    assert ranker is not None
    raw = replace(ranker, score_model=replace(ranker.score_model, calibration=None))
    for more in ({}, {"allow": stacked_model.labels.ids[:8]}):
        uncalibrated = replace(stacked_model, reranker=raw).predict(texts, k=8, **more)
        found = stacked_model.predict(texts, k=8, explain=True, **more)
        np.testing.assert_array_equal(found.labels, uncalibrated.labels)
        scores = [item["score"] for _, _, item in explained(found)]
        np.testing.assert_allclose(scores, uncalibrated.scores[uncalibrated.labels >= 0], rtol=0, atol=1e-5)


def test_in_an_ensemble_it_is_the_mean_of_the_members(ensemble: Ensemble, texts: list[str]) -> None:
    assert all(member.reranker is not None for member in ensemble.members)
    each = [
        {
            (row, label): item["score"]
            for row, label, item in explained(member.predict(texts, k=len(member.labels), explain=True))
        }
        for member in ensemble.members
    ]
    for row, label, item in explained(ensemble.predict(texts, k=5, explain=True)):
        scores = [own[row, label] for own in each if (row, label) in own]
        assert item["score"] == pytest.approx(np.mean(scores), abs=1e-5)


def test_words_are_those_of_the_linear_evidence(stacked_model: Model, texts: list[str]) -> None:
    ranker, vectorizer = stacked_model.reranker, stacked_model.vectorizer
    assert ranker is not None
    assert vectorizer is not None
    assert ranker.score_model.learned is not None
    spread = ranker.score_model.learned.spread
    v = ranker.parts.inverted_index.postings.to_csr().toarray()  # words x labels
    w = ranker.parts.ranker.to_csr().toarray()  # labels x words
    x = vectorizer.transform(texts).toarray()
    checked = 0
    for row, label, item in explained(stacked_model.predict(texts, k=3, explain=True)):
        weights = x[row] * (v[:, label] / spread[FEATURES.index("combined")])
        weights += x[row] * (w[label] / spread[FEATURES.index("margin")])
        order = np.argsort(-np.abs(weights), kind="stable")[:6]
        assert [word["word"] for word in item["words"]] == [vectorizer.words.words[n] for n in order if weights[n]]
        np.testing.assert_allclose([word["weight"] for word in item["words"]], weights[order][weights[order] != 0],
                                   rtol=1e-4, atol=2e-6)  # fmt: skip
        checked += len(item["words"])
    assert checked > 100


def test_texts_are_those_that_vote(stacked_model: Model, data: elias.Dataset, texts: list[str]) -> None:
    """The nearest one is the feature `nearest`, and every one has the label."""
    ranker = stacked_model.reranker
    assert ranker is not None
    assert stacked_model.vectorizer is not None
    assert data.train.texts is not None
    assert data.train.ids is not None
    found = stacked_model.predict(texts, k=5, explain=True)
    bow = stacked_model.vectorizer.transform(texts)
    nearest = ranker.parts.knn.votes(bow, found.labels)[1]
    near = iter(nearest[found.labels >= 0])
    labels = data.train.labels
    seen = 0
    for _, label, item in explained(found):
        similarity = next(near)
        assert [text["similarity"] for text in item["texts"][:1]] == pytest.approx(
            [similarity] if similarity else [], abs=1e-6
        )
        for text in item["texts"]:
            row = text["row"]
            assert label in labels[row].indices
            assert text["id"] == data.train.ids[row]
            assert text["text"] == data.train.texts[row]
            seen += 1
    assert seen > 100


def test_kernels_and_definitions_explain_the_same(stacked_model: Model, texts: list[str]) -> None:
    asked = [*texts[:20], "", "xylophone"]
    options = {"k": 4, "allow": stacked_model.labels.ids[:4], "explain": True}
    fast = stacked_model.predict(asked, **options)
    slow = replace(stacked_model, use_kernels=False).predict(asked, **options)
    theirs = {(row, label): item for row, label, item in explained(slow)}
    for row, label, item in explained(fast):
        other = theirs[row, label]
        assert [text["row"] for text in item["texts"]] == [text["row"] for text in other["texts"]]
        assert [word["word"] for word in item["words"]] == [word["word"] for word in other["words"]]
        assert item["score"] == pytest.approx(other["score"], abs=1e-3)


def test_texts_without_known_words_or_neighbors(model: Model | Ensemble) -> None:
    found = model.predict(["", "xylophone zzz", "日本 qq"], k=4, explain=True)
    assert_whole(found)
    assert all(item["words"] == item["texts"] == [] for _, _, item in explained(found))
    assert model.predict([], k=4, explain=True).explanations == []


def test_without_neighbors_there_are_no_texts(stacked_model: Model, texts: list[str]) -> None:
    ranker = stacked_model.reranker
    assert ranker is not None
    parts = ranker.parts
    nobody = replace(parts, knn=type(parts.knn).empty(len(parts.counts), parts.inverted_index.n_words), texts=None)
    for definition in (False, True):
        less = replace(stacked_model, reranker=replace(ranker, parts=nobody), use_kernels=not definition)
        found = less.predict(texts[:5], k=3, explain=True)
        assert_whole(found)
        assert all(item["texts"] == [] for _, _, item in explained(found))


def test_without_stored_texts_there_are_row_numbers(stacked_model: Model, texts: list[str]) -> None:
    ranker = stacked_model.reranker
    assert ranker is not None
    private = replace(stacked_model, reranker=replace(ranker, parts=replace(ranker.parts, texts=None)))
    shown = private.predict(texts, k=3, explain=True)
    kept = stacked_model.predict(texts, k=3, explain=True)
    for (_, _, less), (_, _, more) in zip(explained(shown), explained(kept), strict=True):
        assert less["texts"] == [{**text, "id": None, "text": ""} for text in more["texts"]]


def test_the_network_alone_has_no_explanations(tiny_model: Model, texts: list[str]) -> None:
    found = tiny_model.predict(texts, k=3, explain=True)
    assert found.explanations is None
    assert found.parts is not None
    assert "explanation" not in found.records()[0][0]


def test_vectors() -> None:
    """Dense ones have no words, so no stacked ranker; columns of sparse ones are named by their numbers."""
    rng = np.random.default_rng(0)
    labels = sp.csr_matrix((rng.random((120, 6)) < 0.4).astype(np.float32))
    rows = (rng.random((120, 10)) * (rng.random((120, 10)) < 0.5)).astype(np.float32)
    dense = fitted(elias.Dataset.from_arrays(rows, labels), **NEITHER)
    assert dense.predict(rows[:2], k=2, explain=True).explanations is None
    names = [f"r{number}" for number in range(120)]
    sparse = fitted(elias.Dataset.from_arrays(sp.csr_matrix(rows), labels, ids=names), **NEITHER)
    found = sparse.predict(sp.csr_matrix(rows[:4]), k=2, explain=True)
    assert_whole(found)
    shown = [item for _, _, item in explained(found)]
    assert {word["word"] for item in shown for word in item["words"]} <= {str(column) for column in range(10)}
    assert any(item["words"] for item in shown)
    for text in [text for item in shown for text in item["texts"]]:
        assert (text["id"], text["text"]) == (f"r{text['row']}", "")


@pytest.mark.parametrize("kind", ["product", "tree"])
def test_the_published_ranker_has_none(kind: str) -> None:
    """Its parts say it all."""
    model = elias.load(MODELS / kind, threads=2)
    assert model.predict(**calls()["explained"]).explanations is None
    assert model.predict([], explain=True).explanations is None


@pytest.mark.parametrize("kind", ["stacked", "ensemble"])
def test_the_golden_models(kind: str) -> None:
    """Candidate lists too; the folders were made without training texts."""
    model = elias.load(MODELS / kind, threads=2)
    for name in ("explained", "candidates", "allow"):
        assert_whole(model.predict(**calls()[name]))


def test_definitions_find_the_neighbors_of_the_kernel(stacked_model: Model, texts: list[str]) -> None:
    assert stacked_model.vectorizer is not None
    assert stacked_model.reranker is not None
    knn, bow = stacked_model.reranker.parts.knn, stacked_model.vectorizer.transform([*texts, "", "xylophone"])
    found, sums = knn.nearest_texts(bow)
    with kernels.reference():
        expected, similarities = knn.nearest_texts(bow)
    np.testing.assert_allclose(sums, similarities, rtol=1e-5, atol=1e-7)
    assert (found == expected).mean() > 0.95, "all but near-ties"
    assert (found[-2:] == -1).all()
