"""The stacked ranker: candidates by network and words, ranked by a learned score; thresholds, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elias import kernels
from elias.core.errors import InputError, ModelError
from elias.dataset import Dataset
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.ranking.features import FEATURES, CandidateSizes, Features
from elias.ranking.linear_ranker import q_of
from elias.ranking.reranker import NAME, Reranker
from elias.ranking.score_model import ScoreModel
from helpers.processes import NEITHER, fitted, here


def reranker_of(model: Model) -> Reranker:
    assert model.reranker is not None
    return model.reranker


# -- ranking ----------------------------------------------------------------------------------------------------------


def test_candidates_are_at_least_k_and_at_most_all_labels(stacked_model: Model) -> None:
    few = replace(reranker_of(stacked_model), network_candidates=7, word_candidates=5)
    assert [few.sizes(k) for k in (1, 7, 9, 60, 1000)] == [
        CandidateSizes(7, 5), CandidateSizes(7, 5), CandidateSizes(9, 5), CandidateSizes(60, 5), CandidateSizes(60, 5),
    ]  # fmt: skip
    assert replace(few, word_candidates=1000).sizes(1) == CandidateSizes(7, 60)


def test_candidates_are_ranked_by_score_and_explained_at_their_places(stacked_model: Model) -> None:
    """The product p q by hand; ties to the lower label, PAD and 0 behind the last candidate."""
    rng = np.random.default_rng(0)
    labels = np.array([[3, 8, 5, 1], [9, 2, -1, -1]], dtype=np.int32)
    values = rng.random((2, len(FEATURES), 4)).astype(np.float32)
    values[0, :, 1] = values[0, :, 3]  # labels 8 and 1 tie
    features = Features(labels, rng.integers(0, 4, labels.shape).astype(np.int32), values)
    ranker = replace(reranker_of(stacked_model), score_model=ScoreModel("logistic"))
    named = {name: values[:, place] for place, name in enumerate(FEATURES)}
    q = q_of(named["margin"], "logistic")
    scores = named["classifier"] * named["cluster_score"] * named["edge_score"] * q
    for definition in (False, True):
        with kernels.reference(definition):
            found = ranker.rank(features, 3, explain=True)
        assert found.parts is not None
        for row in range(2):
            real = np.flatnonzero(labels[row] >= 0)
            order = sorted(real.tolist(), key=lambda place: (-scores[row, place], labels[row, place]))[:3]
            rest = 3 - len(order)
            assert found.labels[row].tolist() == [*labels[row, order], *[-1] * rest]
            np.testing.assert_allclose(found.scores[row], [*scores[row, order], *[0] * rest], rtol=1e-6)
            assert found.parts["cluster"][row].tolist() == [*features.clusters[row, order], *[-1] * rest]
            for name, expected in (("ranker", q), ("words", named["combined"]), ("edge_score", named["edge_score"])):
                np.testing.assert_allclose(found.parts[name][row], [*expected[row, order], *[0] * rest], rtol=1e-6)


def test_kernels_and_definitions_predict_the_same(stacked_model: Model, texts: list[str]) -> None:
    odd = [*texts[:20], "", "xylophone"]
    fast = stacked_model.predict(odd, k=10, explain=True)
    slow = replace(stacked_model, use_kernels=False).predict(odd, k=10, explain=True)
    np.testing.assert_allclose(fast.scores, slow.scores, rtol=1e-2, atol=1e-4)
    same = fast.labels == slow.labels
    assert same.mean() > 0.97, "all but near-ties"
    assert fast.parts is not None
    assert slow.parts is not None
    assert fast.parts.keys() == slow.parts.keys()
    for name, values in fast.parts.items():
        np.testing.assert_allclose(values[same], slow.parts[name][same], rtol=1e-3, atol=1e-3)


# -- files ------------------------------------------------------------------------------------------------------------


def load(folder: Path, model: Model, **changes: Any) -> Reranker:
    assert model.vectorizer is not None
    parts = reranker_of(model).parts
    sizes = {"n_words": parts.inverted_index.n_words, "threads": 1}
    return Reranker.load(folder, parts.counts, **{**sizes, **changes})


def test_saved_and_loaded(stacked_model: Model, tmp_path: Path) -> None:
    whole = reranker_of(stacked_model)
    whole.save(tmp_path)
    loaded = load(tmp_path, stacked_model)
    assert (loaded.network_candidates, loaded.word_candidates) == (whole.network_candidates, whole.word_candidates)
    assert loaded.parts is not whole.parts
    for name, array in whole.parts.ranker.arrays("x").items():
        np.testing.assert_array_equal(loaded.parts.ranker.arrays("x")[name], array)
    for ours, theirs in zip(loaded.parts.trees, whole.parts.trees, strict=True):
        np.testing.assert_array_equal(ours.parents, theirs.parents)
    np.testing.assert_array_equal(loaded.parts.knn.labels, whole.parts.knn.labels)
    shared = load(tmp_path, stacked_model, parts=whole.parts)
    assert shared.parts is whole.parts, "parts of another model with the same files are not read again"


def test_parts_that_a_model_does_not_have_are_not_written(stacked_model: Model, tmp_path: Path) -> None:
    whole = reranker_of(stacked_model)
    parts = whole.parts
    n_words, n_labels = parts.inverted_index.n_words, len(parts.counts)
    less = replace(parts, trees=(), knn=type(parts.knn).empty(n_labels, n_words))
    replace(whole, parts=less).save(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {NAME, "score_model.json", "inverted_index.safetensors", "linear_ranker.safetensors"}
    loaded = load(tmp_path, stacked_model)
    assert (len(loaded.parts.trees), loaded.parts.knn.neighbors) == (0, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"network_candidates": 0}, "_candidates.* but must be a whole number"),
        ({"word_candidates": 2.5}, "_candidates.* but must be a whole number"),
        ({"word_candidates": True}, "_candidates.* but must be a whole number"),
        ({"knn": 1}, "knn.* must be true or false"),
        ({"label_trees": ...}, "label_trees"),  # missing
        ({"label_trees": 4}, "label_trees.* must be a whole number from 0 to 3"),
    ],
)
def test_a_damaged_summary_is_refused(
    stacked_model: Model, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    reranker_of(stacked_model).save(tmp_path)
    content = {**json.loads((tmp_path / NAME).read_text()), **change}
    kept = {name: value for name, value in content.items() if value is not ...}
    (tmp_path / NAME).write_text(json.dumps(kept))
    with pytest.raises(ModelError, match=problem):
        load(tmp_path, stacked_model)


# -- predictions ------------------------------------------------------------------------------------------------------


def test_it_ranks_better_than_the_network_alone(stacked_model: Model, tiny_model: Model, data: Dataset) -> None:
    stacked, alone = (evaluate_model(model, data).metrics for model in (stacked_model, tiny_model))
    assert stacked["P@1"] > max(60, alone["P@1"] + 5)
    assert stacked["R@10"] > alone["R@10"]


def test_the_score_is_that_of_its_parts(stacked_model: Model, texts: list[str]) -> None:
    """ranker = q of the margin, words = v . x, the network's parts over all clusters; every label by the same rule."""
    ranker = reranker_of(stacked_model)
    parts = ranker.parts
    assert stacked_model.vectorizer is not None
    found = stacked_model.predict(texts, k=20, explain=True)
    assert found.parts is not None
    assert set(found.parts) == {"cluster", "cluster_score", "edge_score", "classifier", "ranker", "words"}
    bow, there = stacked_model.vectorizer.transform(texts).toarray(), found.labels >= 0
    margins = bow @ parts.ranker.to_csr().toarray().T + parts.ranker.biases
    by_words = bow @ parts.inverted_index.postings.to_csr().toarray()
    expected = q_of(np.take_along_axis(margins, np.maximum(found.labels, 0), axis=1), ranker.score_model.loss)
    np.testing.assert_allclose(found.parts["ranker"][there], expected[there], atol=1e-4)
    words = np.take_along_axis(by_words, np.maximum(found.labels, 0), axis=1)
    np.testing.assert_allclose(found.parts["words"][there], words[there], atol=1e-4)  # 16 bits for common words
    network = replace(stacked_model, reranker=None).predict(
        texts, k=60, explain=True
    )  # few clusters: the beam has them all
    assert network.parts is not None
    for row in range(len(texts)):
        place = {label: column for column, label in enumerate(network.labels[row].tolist())}
        for column in np.flatnonzero(there[row]):
            for name in ("cluster_score", "edge_score", "classifier"):
                theirs = network.parts[name][row, place[found.labels[row, column]]]
                assert found.parts[name][row, column] == pytest.approx(theirs, rel=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_probabilities_are_about_right(stacked_model: Model, data: Dataset) -> None:
    """Of the labels shown, as many are right as their probabilities say, on rows that no part has seen."""
    assert data.test is not None
    found = evaluate_model(stacked_model, data).predictions.top(5)
    right = np.take_along_axis(data.test.labels.toarray() > 0, np.maximum(found.labels, 0), axis=1)
    assert abs(found.scores.mean() - right.mean()) < 0.1
    sure = found.scores > 0.6
    assert sure.sum() > 30
    assert right[sure].mean() > 0.6
    calibration = reranker_of(stacked_model).score_model.calibration
    assert calibration is not None
    assert calibration.rows == 100


def test_one_text_or_many(stacked_model: Model, texts: list[str]) -> None:
    together = stacked_model.predict(texts, k=5)
    for row in range(0, len(texts), 7):
        alone = stacked_model.predict(texts[row], k=5)
        np.testing.assert_array_equal(alone.labels[0], together.labels[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-4, atol=1e-6)


def test_texts_without_words_and_k_beyond_the_candidates(stacked_model: Model) -> None:
    odd = stacked_model.predict(["", "xylophone", "the the"], k=60, explain=True)
    assert odd.labels.shape == (3, 60)
    assert np.isfinite(odd.scores).all()
    few = replace(stacked_model, reranker=replace(reranker_of(stacked_model), network_candidates=3, word_candidates=2))
    found = few.predict(["", "xylophone"], k=2, explain=True)
    assert found.labels.shape == (2, 2)
    assert (found.labels >= 0).all()


def test_candidates_have_the_score_they_have_when_found(stacked_model: Model, texts: list[str]) -> None:
    names = stacked_model.labels.ids
    for options in ({}, {"block": names[:7]}):
        free = stacked_model.predict(texts, k=60, **options)  # type: ignore[arg-type]
        known = [dict(row) for row in free.named()]
        for found in (
            stacked_model.predict(texts, k=60, candidates=[names[3:9]] * len(texts), **options),  # type: ignore[arg-type]
            stacked_model.predict(texts, k=2, allow=names[5:8], **options),  # type: ignore[arg-type]
        ):
            for row, items in enumerate(found.named()):
                assert items
                for name, score in items:
                    assert score == pytest.approx(known[row][name], rel=1e-3, abs=1e-6)
    best = {row[0][0] for row in stacked_model.predict(texts, k=1).named()}
    blocked = stacked_model.predict(texts, k=60, block=sorted(best))
    assert not best & {name for row in blocked.named() for name, _ in row}
    assert all(row == [] for row in stacked_model.predict(texts, allow=[]).named())


def test_a_row_is_never_given_its_own_id(stacked_model: Model, texts: list[str]) -> None:
    about = {**stacked_model.about, "dataset": {**stacked_model.about["dataset"], "exclude_own_id": True}}
    strict = replace(stacked_model, about=about)
    own = [row[0][0] for row in strict.predict(texts, k=1).named()]
    free = strict.predict(texts, k=60, ids=own)
    assert free.ids == own
    for name, row in zip(own, free.named(), strict=True):
        assert name not in dict(row)
    given = strict.predict(texts, k=60, ids=own, allow=stacked_model.labels.ids[:20])
    for name, row, known in zip(own, given.named(), free.named(), strict=True):
        assert name not in dict(row)
        for label, score in row:  # the same as found freely, though the best label of all is not there to compare with
            assert score == pytest.approx(dict(known)[label], rel=1e-3, abs=1e-6)


# -- threshold --------------------------------------------------------------------------------------------------------


def test_a_threshold_leaves_out_what_is_below(stacked_model: Model, texts: list[str]) -> None:
    everything = stacked_model.predict(texts, k=10, explain=True)
    for threshold in (0.0, 0.3, 0.7, 1.0):
        found = stacked_model.predict(texts, k=10, threshold=threshold, explain=True)
        kept = (everything.scores >= threshold) & (everything.labels >= 0)
        np.testing.assert_array_equal(found.labels, np.where(kept, everything.labels, -1))
        np.testing.assert_array_equal(found.scores, np.where(kept, everything.scores, 0))
        assert found.parts is not None
        assert (found.parts["cluster"][~kept] == -1).all()
        assert (found.parts["ranker"][~kept] == 0).all()
    assert 0 < (stacked_model.predict(texts, threshold=0.5).labels >= 0).sum() < 5 * len(texts)
    allowed = stacked_model.predict(texts, allow=stacked_model.labels.ids[:9], threshold=0.5)
    assert (allowed.scores[allowed.labels >= 0] >= 0.5).all()


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan"), 70])
def test_what_is_no_probability_is_refused(stacked_model: Model, threshold: float) -> None:
    with pytest.raises(InputError, match="it is a probability; give a number from 0 to 1"):
        stacked_model.predict(["a"], threshold=threshold)


def test_without_calibration_a_threshold_is_refused(tiny_model: Model, stacked_model: Model, data: Dataset) -> None:
    uncalibrated = fitted(data, split__calibration_rows=0, **{key.replace(".", "__"): v for key, v in NEITHER.items()})
    assert uncalibrated.reranker is not None
    assert stacked_model.gives_probabilities
    for model in (tiny_model, uncalibrated):
        assert not model.gives_probabilities
        with pytest.raises(InputError, match=r"not probabilities.*leave it out"):
            model.predict(["a"], threshold=0.5)
    found = uncalibrated.predict(["a"], k=5, explain=True)
    assert found.parts is not None
    product = found.parts["cluster_score"] * found.parts["edge_score"] * found.parts["classifier"]
    np.testing.assert_allclose(found.scores, product * found.parts["ranker"], rtol=1e-5)  # p q


def test_on_the_command_line(stacked_folder: Path, tiny_model_folder: Path, texts: list[str]) -> None:
    done = here("predict", stacked_folder, texts[0], "-k", "9", "--threshold", "0.4", "--explain", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    labels = json.loads(done.stdout)["labels"]
    assert all(label["score"] >= 0.4 and {"ranker", "words"} <= label.keys() for label in labels)
    done = here("predict", tiny_model_folder, "text", "--threshold", "0.4")
    assert done.returncode != 0
    assert "not probabilities" in done.stderr
    assert "Traceback" not in done.stderr
