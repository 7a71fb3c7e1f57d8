"""Rankers that need the network: negatives its beam finds, or networks that have not seen the row; [tf-idf, phi]."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import elias
from elias.core.errors import DataError, ModelError
from elias.core.files import link_tree, read_tensors
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.encoders.centroids import normalize_rows
from elias.evaluation.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import load_model
from elias.pipeline.features_step import Prepared
from elias.pipeline.fit import fit_to
from elias.pipeline.ranking_steps import leaving_out
from elias.pipeline.sparse_side import found_by_network
from elias.ranking.linear_ranker import with_embedding
from elias.training.trainer import TrainingRows
from helpers.processes import STACKED, content

PAIRS = [("red", "car"), ("green", "tree"), ("old", "house"), ("new", "boat"), ("red", "rose"), ("big", "dog")]
NETWORK = ["20-clusters", "30-stage1", "40-adjacency", "50-stage2"]


@pytest.fixture(scope="module")
def data(tiny_dataset: Path) -> Dataset:
    return elias.load_dataset(tiny_dataset)


def built(run: Path) -> list[str]:
    """The steps that were built since the last call."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    (run / "log.jsonl").unlink()
    return [record["step"] for record in lines if "step" in record]


def refitted(data: Dataset, stacked_folder: Path, output: Path, members: int = 1, **changes: Any) -> Path:
    """A fit of other settings in a copy of the run of `stacked_folder`."""
    run = output.with_name(output.name + ".run")
    link_tree(stacked_folder.with_name("model.run"), run if members == 1 else run / "member-0")
    (run / "log.jsonl").unlink(missing_ok=True)
    settings = Settings().updated({**STACKED, **{f"ranker.{key}": value for key, value in changes.items()}})
    return fit_to(data, output, settings=settings, force=True, members=members)


@given(seed=st.integers(0, 10_000), n_rows=st.integers(0, 6))
def test_tf_idf_and_phi_side_by_side(seed: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    bow = sp.random(n_rows, 7, density=0.4, format="csr", dtype=np.float32, rng=rng)
    phi = rng.normal(size=(n_rows, 3)).astype(np.float32)
    phi[rng.random(n_rows) < 0.3] = 0
    joined = with_embedding(bow, phi, 0.5)
    expected = np.hstack([bow.toarray(), np.float32(0.5) * normalize_rows(phi)])
    np.testing.assert_array_equal(joined.toarray(), expected)
    assert joined.shape == (n_rows, 10)
    assert (joined.indices.dtype, joined.data.dtype) == (np.int32, np.float32)
    joined.check_format()


def test_the_beam_finds_what_predict_finds(tiny_model: Model, data: Dataset) -> None:
    assert data.test is not None
    texts = list(data.test.texts or [])
    best = tiny_model.predict(texts, k=1).labels[:, 0]
    excluded = sp.csr_matrix((np.ones(len(texts), dtype=bool), (np.arange(len(texts)), best)), shape=(len(texts), 60))
    found, rows = np.full((len(texts), 9), -1, dtype=np.int32), np.arange(3, len(texts))
    found_by_network(tiny_model.searcher, tiny_model.prepare(texts)[0], rows, excluded, found)
    assert (found[:3] == -1).all()
    names = tiny_model.labels.ids
    for row in rows:
        expected = tiny_model.predict(texts[row], k=9, block=[names[best[row]]]).labels[0]
        np.testing.assert_array_equal(found[row], expected)


def test_rows_left_out_have_no_labels_and_no_weight() -> None:
    labels = sp.csr_matrix(np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]], dtype=np.float32))
    train = TrainingRows(None, labels, labels.astype(bool), np.array([1, 2, 3], dtype=np.float32))
    empty = replace(train, labels=labels[:0])
    nobody = sp.csr_matrix((0, 3))
    prepared = Prepared(train, empty, empty, nobody, nobody, None, Path())
    left = leaving_out(prepared, np.array([True, False, False]), {"fold": 0})
    assert left.train.labels.toarray().tolist() == [[0, 0, 0], [0, 0, 0], [0, 3, 0]]
    assert left.train.labels.nnz == 1
    assert left.train.labels.dtype == np.float32
    assert left.train.weights.tolist() == [0, 2, 3]
    assert left.train.weights.dtype == np.float32
    assert left.fold == {"fold": 0}
    assert prepared.train.labels.nnz == 3


@pytest.mark.parametrize("changes", [{"negatives_from": "beam"}, {"embedding": True, "embedding_scale": 0.5}])
def test_it_is_trained_after_the_network(
    data: Dataset, tmp_path: Path, stacked_folder: Path, changes: dict[str, Any]
) -> None:
    output, run = refitted(data, stacked_folder, tmp_path / "model", **changes), tmp_path / "model.run"
    assert built(run) == ["12-words", "14-words", "60-ranker", "62-ranker", "70-fusion", "90-model"], "and no stage"
    assert content(run / "12-words", "lex*") == content(run / "12-ranker", "lex*")
    assert content(output, "lex*") == content(run / "14-words", "lex*")
    assert content(output, "ranker*") == content(run / "62-ranker", "ranker*") != content(run / "14-ranker", "ranker*")
    model = load_model(output, threads=2)
    assert evaluate_model(model, data).metrics["P@1"] > 60
    assert model.gives_probabilities
    assert data.test is not None
    texts = list(data.test.texts or [])
    found = model.predict(texts, k=9, explain=True)
    model.save(tmp_path / "copy")
    again = load_model(tmp_path / "copy", threads=2).predict(texts, k=9)
    np.testing.assert_array_equal(again.labels, found.labels)
    np.testing.assert_array_equal(again.scores, found.scores)
    refitted_again = {**STACKED, **{f"ranker.{key}": value for key, value in changes.items()}}
    fit_to(data, output, settings=Settings().updated(refitted_again), force=True)
    assert not (run / "log.jsonl").exists(), "finished and unchanged: nothing ran"


def test_the_margin_is_that_of_both(data: Dataset, tmp_path: Path, stacked_folder: Path) -> None:
    """ranker = q of w . [tf-idf, scale phi / |phi|] + b, with no weight of phi dropped."""
    output = refitted(data, stacked_folder, tmp_path / "model", embedding=True, embedding_scale=0.5, loss="logistic")
    model = load_model(output, threads=2)
    plus = model.plus
    assert plus is not None
    assert plus.embedding == 0.5
    assert model.vectorizer is not None
    assert data.test is not None
    texts = list(data.test.texts or [])
    n_words = model.vectorizer.n_features
    weights = plus.ranker.to_csr().toarray()
    assert weights.shape == (60, n_words + 16)
    assert (np.abs(weights[:, n_words:]) > 0).all()
    words = np.abs(weights[:, :n_words])
    assert (words[words > 0] >= 0.1).all()
    phi = model.searcher.encode(model.prepare(texts)[0], np.arange(len(texts))).phi_BD.numpy()
    x = np.hstack([model.vectorizer.transform(texts).toarray(), 0.5 * normalize_rows(phi)])
    margins = x @ weights.T + plus.ranker.biases
    found = model.predict(texts, k=5, explain=True)
    assert found.parts is not None
    expected = 1 / (1 + np.exp(-np.take_along_axis(margins, found.labels, axis=1)))
    np.testing.assert_allclose(found.parts["ranker"], expected, atol=1e-4)
    given_labels = model.predict(texts, k=60, allow=model.labels.ids[:20], explain=True)
    assert given_labels.parts is not None
    labels = given_labels.labels[:, :20]
    expected = 1 / (1 + np.exp(-np.take_along_axis(margins, labels, axis=1)))
    np.testing.assert_allclose(given_labels.parts["ranker"][:, :20], expected, atol=1e-4)
    path = output / "plus.json"
    for wrong in (-1.0, "long", True):
        path.write_text(json.dumps({**json.loads(path.read_text()), "embedding": wrong}))
        with pytest.raises(ModelError, match="embedding must be a number"):
            load_model(output)


def test_out_of_fold(data: Dataset, tmp_path: Path, stacked_folder: Path) -> None:
    """Networks that have not seen a row find its negatives; they are steps of the run like all others."""
    output, run = (
        refitted(data, stacked_folder, tmp_path / "model", negatives_from="out-of-fold"),
        tmp_path / "model.run",
    )
    folds = [f"{name}-fold{number}" for number in range(2) for name in NETWORK]
    assert built(run) == ["12-words", "14-words", *folds, "60-ranker", "62-ranker", "70-fusion", "90-model"]
    assert evaluate_model(load_model(output), data).metrics["P@1"] > 60
    assert content(run / "20-clusters-fold0") != content(run / "20-clusters-fold1")
    rankers = [
        read_tensors(run / step / "ranker.safetensors")[0]["ranker.weights"] for step in ("12-ranker", "60-ranker")
    ]
    assert len(rankers[0]) != len(rankers[1])
    changes = {**STACKED, "linear_ranker.negatives_from": "out-of-fold", "linear_ranker.tolerance": 0.05}
    fit_to(data, output, settings=Settings().updated(changes), force=True)
    assert built(run) == ["60-ranker", "62-ranker", "70-fusion", "90-model"], "the folds stay"


def test_out_of_fold_needs_rows_on_both_sides() -> None:
    settings = Settings().updated({**STACKED, "linear_ranker.negatives_from": "out-of-fold", "split.calibration_rows": 0,
                                   "clustering.clusters": 1, "split.validation_rows": 0})  # fmt: skip
    with pytest.raises(DataError, match=r"without fold \d no labelled row is left"):
        elias.fit(Dataset.from_lists(["one", "two"], [["a"], []]), settings=settings)


def test_members_share_the_words_and_have_a_ranker_each(data: Dataset, tmp_path: Path, stacked_folder: Path) -> None:
    output = refitted(data, stacked_folder, tmp_path / "both", members=2, negatives_from="beam", negatives=9)
    first, second = (tmp_path / "both.run" / f"member-{number}" for number in range(2))
    for step in ("12-words", "14-words"):
        assert (first / step / "lexical.safetensors").samefile(second / step / "lexical.safetensors")
    assert content(first / "60-ranker", "ranker*") != content(second / "60-ranker", "ranker*")
    for run in (first, second):
        built(run)
    settings = Settings().updated({**STACKED, "linear_ranker.negatives_from": "beam", "linear_ranker.negatives": 9})
    fit_to(data, output, settings=settings, force=True, members=2)
    for run in (first, second):
        assert not (run / "log.jsonl").exists(), "finished and unchanged: nothing ran"


def test_labels_without_a_training_row_are_found_by_their_texts(tmp_path: Path) -> None:
    """Only by words: no edge leads to them and the ranker knows nothing but its bias of -1."""
    texts = [f"{colour} {thing} {row % 7}" for row in range(120) for colour, thing in [PAIRS[row % 6]]]
    labels = [[thing] for row in range(120) for _, thing in [PAIRS[row % 6]]]
    names = {**{thing: f"a {thing}" for _, thing in PAIRS}, "unseen": "yellow submarine", "without": ""}
    texts[:4] = [f"{text} yellow submarine" for text in texts[:4]]  # or no text would hold the words
    data = Dataset.from_lists(texts, labels, label_texts=names)
    changes = {**STACKED, "clustering.clusters": 2, "split.calibration_rows": 30, "features.min_df": 1}
    asked = ["yellow submarine", "red car"]
    found = {}
    for is_on in (True, False):
        settings = Settings().updated({**changes, "inverted_index.unseen_labels": is_on})
        model = elias.fit(data, settings=settings)
        assert isinstance(model, Model)
        assert model.plus is not None
        number = model.labels.number_of["unseen"]
        assert (model.label_counts[number], model.stage1_clusters[number]) == (0, -1)
        assert model.plus.ranker.biases[number] == -1.0
        answer = model.predict(asked, k=9, explain=True)
        assert np.isfinite(answer.scores).all()
        found[is_on] = [number in row for row in answer.labels]
        assert model.labels.number_of["without"] not in answer.labels
        if is_on:
            place = answer.labels[0].tolist().index(number)
            assert answer.parts is not None
            assert answer.parts["words"][0, place] > 0.9
            assert answer.parts["cluster"][0, place] == -1
            assert (model.predict(asked, candidates=[["unseen"]] * 2).labels[:, 0] == number).all()
    assert found == {True: [True, False], False: [False, False]}


def test_without_a_label_tree(data: Dataset, tmp_path: Path, stacked_folder: Path) -> None:
    """One more part of the score, which can be left out; the network stays as it is."""
    output, run = refitted(data, stacked_folder, tmp_path / "model", label_tree=False), tmp_path / "model.run"
    assert built(run) == ["12-ranker", "14-ranker", "70-fusion", "90-model"], "and no stage"
    assert not (output / "label_tree.safetensors").exists()
    without, whole = load_model(output, threads=2), load_model(stacked_folder, threads=2)
    assert without.plus is not None
    assert whole.plus is not None
    assert len(without.plus.tree.parents) == 0 < len(whole.plus.tree.parents)
    assert evaluate_model(without, data).metrics["P@1"] > 60
