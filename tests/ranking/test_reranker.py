"""The answers of ELIAS++: found by network and words, ranked by the learned score, as probabilities; thresholds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elias.core.errors import InputError
from elias.core.ragged import Ragged
from elias.dataset import Dataset
from elias.evaluation.evaluate import evaluate_model
from elias.model.model import Model
from elias.ranking.linear_ranker import quality
from elias.ranking.reranker import padded, united
from helpers.processes import NEITHER, fitted, here

# -- lists ------------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 5))
def test_lists_are_united(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(-1, 8, size=(rows, width)).astype(np.int32) for width in (4, 6))
    value_of = rng.random(8).astype(np.float32)
    both, values = united(first, second, value_of[first], value_of[second])
    np.testing.assert_array_equal(values, np.where(both >= 0, value_of[both], 0))
    for row in range(rows):
        there = both[row][both[row] >= 0].tolist()
        assert sorted(there) == sorted({*first[row].tolist(), *second[row].tolist()} - {-1})
        assert (both[row, len(there) :] == -1).all(), "nobody comes last"
    assert both.shape[1] == max([1, *[(row >= 0).sum() for row in both]])


def test_lists_side_by_side() -> None:
    lists = Ragged(np.array([0, 2, 2, 5]), np.array([3, 1, 4, 1, 5], dtype=np.int32))
    assert padded(lists).tolist() == [[3, 1, -1], [-1, -1, -1], [4, 1, 5]]
    assert padded(Ragged.empty(2)).tolist() == [[-1], [-1]]


# -- answers ----------------------------------------------------------------------------------------------------------


def test_it_learns_more_than_the_network_alone(stacked_model: Model, tiny_model: Model, data: Dataset) -> None:
    plus, alone = (evaluate_model(model, data).metrics for model in (stacked_model, tiny_model))
    assert plus["P@1"] > max(60, alone["P@1"] + 5)
    assert plus["R@10"] > alone["R@10"]


def test_the_score_is_that_of_its_parts(stacked_model: Model, texts: list[str]) -> None:
    """ranker = q of the margin, words = v . x, the network's parts over all clusters; every label by the same rule."""
    plus = stacked_model.plus
    assert plus is not None
    assert stacked_model.vectorizer is not None
    found = stacked_model.predict(texts, k=20, explain=True)
    assert found.parts is not None
    assert set(found.parts) == {"cluster", "cluster_score", "edge_score", "classifier", "ranker", "words"}
    bow, there = stacked_model.vectorizer.transform(texts).toarray(), found.labels >= 0
    margins = bow @ plus.ranker.to_csr().toarray().T + plus.ranker.biases
    by_words = bow @ plus.lexical.postings.to_csr().toarray()
    expected = quality(np.take_along_axis(margins, np.maximum(found.labels, 0), axis=1), plus.fusion.loss)
    np.testing.assert_allclose(found.parts["ranker"][there], expected[there], atol=1e-4)
    words = np.take_along_axis(by_words, np.maximum(found.labels, 0), axis=1)
    np.testing.assert_allclose(found.parts["words"][there], words[there], atol=1e-4)  # 16 bits for common words
    network = replace(stacked_model, plus=None).predict(
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
    """Of the labels shown, as many are right as their probabilities say, on rows that nobody has seen."""
    assert data.test is not None
    found = evaluate_model(stacked_model, data).predictions.top(5)
    right = np.take_along_axis(data.test.labels.toarray() > 0, np.maximum(found.labels, 0), axis=1)
    assert abs(found.scores.mean() - right.mean()) < 0.1
    sure = found.scores > 0.6
    assert sure.sum() > 30
    assert right[sure].mean() > 0.6
    assert stacked_model.plus is not None
    assert stacked_model.plus.fusion.probability is not None
    assert stacked_model.plus.fusion.probability.rows == 100


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
    assert stacked_model.plus is not None
    few = replace(stacked_model, plus=replace(stacked_model.plus, by_network=3, by_words=2))
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
    assert uncalibrated.plus is not None
    assert stacked_model.gives_probabilities
    for model in (tiny_model, uncalibrated):
        assert not model.gives_probabilities
        with pytest.raises(InputError, match=r"fit it again with split\.calibration_rows=500 or more"):
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
    assert "split.calibration_rows" in done.stderr
    assert "Traceback" not in done.stderr
