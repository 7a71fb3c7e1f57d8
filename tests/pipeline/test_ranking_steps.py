"""Ranking steps of unusual settings: negatives by the network, [tf-idf, phi], unseen labels, no label tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from elias.core.files import link_tree
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.encoders.centroids import normalize_rows
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import PART_FILES, load_model
from elias.pipeline import ranking_steps
from elias.pipeline.fit import fit_to
from helpers.processes import STACKED, content

PAIRS = [("red", "car"), ("green", "tree"), ("old", "house"), ("new", "boat"), ("red", "rose"), ("big", "dog")]
RANKING = ["60-ranking", "65-held-out", "70-score-model", "80-ranking", "82-texts", "85-quality", "90-model"]


def built(run: Path) -> list[str]:
    """The steps that were built since the last call."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    (run / "log.jsonl").unlink()
    return [record["step"] for record in lines if "step" in record]


def refitted(data: Dataset, stacked_folder: Path, output: Path, changes: dict[str, Any], *, members: int = 1) -> Path:
    """A fit of other settings in a copy of the run of `stacked_folder`."""
    run = output.with_name(output.name + ".run")
    own = run if members == 1 else run / "member-0"
    link_tree(stacked_folder.with_name("model.run"), own)
    (own / "log.jsonl").unlink()
    return fit_to(data, output, settings=Settings().updated({**STACKED, **changes}), force=True, members=members)


def test_the_network_finds_what_predict_finds(tiny_model: Model, data: Dataset, texts: list[str]) -> None:
    """Negatives of ordinary rows by the network: its predictions, without excluded pairs; none of label texts."""
    best = tiny_model.predict(texts, k=1).labels[:, 0]
    shape = (len(texts), len(tiny_model.labels))
    excluded = sp.csr_matrix((np.ones(len(texts), dtype=bool), (np.arange(len(texts)), best)), shape=shape)
    kinds = np.where(np.arange(len(texts)) < 3, KIND_LABEL_TEXT, KIND_TEXT).astype(np.uint8)
    inputs = tiny_model.read(texts)
    assert inputs.bow is not None
    rows = ranking_steps.RankingRows(inputs.bow, sp.csr_matrix(shape, dtype=np.float32), excluded, kinds)
    settings = Settings().updated({"linear_ranker.negatives": 9})
    prepared = tiny_model.network.encoder.prepare(inputs)
    found = ranking_steps._candidates_by_network(tiny_model.searcher, prepared, rows, settings)
    assert found.shape == (len(texts), 9)
    assert (found[:3] == -1).all()
    names = tiny_model.labels.ids
    for row in range(3, len(texts)):
        expected = tiny_model.predict(texts[row], k=9, block=[names[best[row]]]).labels[0]
        np.testing.assert_array_equal(found[row], expected)


@pytest.mark.parametrize("changes", [{"linear_ranker.negatives_from": "beam"}, {"linear_ranker.embedding": True}])
def test_it_is_trained_after_the_network(
    data: Dataset, texts: list[str], tmp_path: Path, stacked_folder: Path, changes: dict[str, Any]
) -> None:
    output, run = refitted(data, stacked_folder, tmp_path / "model", changes), tmp_path / "model.run"
    assert built(run) == RANKING, "and no stage"
    before = stacked_folder.with_name("model.run") / "80-ranking"
    for name in PART_FILES:
        same = (run / "80-ranking" / name).read_bytes() == (before / name).read_bytes()
        assert same == (name != "linear_ranker.safetensors"), name
    assert not list(run.rglob(ranking_steps.SCRATCH))
    model = load_model(output, threads=2)
    assert evaluate_model(model, data).metrics["P@1"] > 60
    assert model.gives_probabilities
    found = model.predict(texts, k=9, explain=True)
    model.save(tmp_path / "copy")
    again = load_model(tmp_path / "copy", threads=2).predict(texts, k=9)
    np.testing.assert_array_equal(again.labels, found.labels)
    np.testing.assert_array_equal(again.scores, found.scores)
    fit_to(data, output, settings=Settings().updated({**STACKED, **changes}), force=True)
    assert not (run / "log.jsonl").exists(), "finished and unchanged: nothing ran"
    other_stage = Settings().updated({**STACKED, **changes, "stage2.epochs": 1})
    fit_to(data, output, settings=other_stage, force=True)
    assert built(run) == ["50-stage2", *RANKING], "another network, another ranker"


def test_the_margin_is_that_of_both(data: Dataset, texts: list[str], tmp_path: Path, stacked_folder: Path) -> None:
    """ranker = q of w . [tf-idf, phi / |phi|] + b, with no weight of phi dropped."""
    changes = {"linear_ranker.embedding": True, "linear_ranker.loss": "logistic"}
    model = load_model(refitted(data, stacked_folder, tmp_path / "model", changes), threads=2)
    assert model.reranker is not None
    assert model.reranker.parts.sees_phi
    assert model.vectorizer is not None
    n_words, ranker = model.vectorizer.n_features, model.reranker.parts.ranker
    weights = ranker.to_csr().toarray()
    assert weights.shape == (60, n_words + 16)
    assert (np.abs(weights[:, n_words:]) > 0).all()
    words = np.abs(weights[:, :n_words])
    assert (words[words > 0] >= 0.1).all()
    inputs = model.read(texts)
    phi = model.searcher.encode(model.network.encoder.prepare(inputs), np.arange(len(texts))).phi_BD.numpy()
    assert inputs.bow is not None
    margins = np.hstack([inputs.bow.toarray(), normalize_rows(phi)]) @ weights.T + ranker.biases
    q = 1 / (1 + np.exp(-margins))
    found = model.predict(texts, k=5, explain=True)
    assert found.parts is not None
    np.testing.assert_allclose(found.parts["ranker"], np.take_along_axis(q, found.labels, axis=1), atol=1e-4)
    allowed = model.predict(texts, k=60, allow=model.labels.ids[:20], explain=True)
    assert allowed.parts is not None
    expected = np.take_along_axis(q, allowed.labels[:, :20], axis=1)
    np.testing.assert_allclose(allowed.parts["ranker"][:, :20], expected, atol=1e-4)


def test_members_have_a_ranker_each_where_it_needs_the_network(
    data: Dataset, tmp_path: Path, stacked_folder: Path
) -> None:
    changes = {"linear_ranker.negatives_from": "beam", "linear_ranker.negatives": 9}
    output = refitted(data, stacked_folder, tmp_path / "both", changes, members=2)
    first, second = (tmp_path / "both.run" / f"member-{number}" for number in range(2))
    assert (first / "10-features" / "done.json").samefile(second / "10-features" / "done.json")
    assert content(first / "60-ranking", "linear*") != content(second / "60-ranking", "linear*")
    assert content(first / "60-ranking", "inverted*") == content(second / "60-ranking", "inverted*")
    model = elias.load(output)
    assert isinstance(model, elias.Ensemble)
    assert [len(group) for group in model.groups()] == [1, 1], "no parts are shared"
    for run in (first, second):
        built(run)
    fit_to(data, output, settings=Settings().updated({**STACKED, **changes}), force=True, members=2)
    for run in (first, second):
        assert not (run / "log.jsonl").exists(), "finished and unchanged: nothing ran"


def test_labels_without_a_training_row_are_found_by_their_texts() -> None:
    """Only by words: no edge leads to them and the ranker knows nothing but its bias of -1."""
    texts = [f"{color} {thing} {row % 7}" for row in range(120) for color, thing in [PAIRS[row % 6]]]
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
        assert model.reranker is not None
        number = model.labels.number_of["unseen"]
        assert (model.label_counts[number], model.stage1_clusters[number]) == (0, -1)
        assert model.reranker.parts.ranker.biases[number] == -1.0
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


@pytest.mark.parametrize(
    ("changes", "name"), [({"label_tree.enabled": False}, "label_tree"), ({"knn.neighbors": 0}, "knn")]
)
def test_parts_that_are_left_out(
    data: Dataset, tmp_path: Path, stacked_folder: Path, changes: dict[str, Any], name: str
) -> None:
    """Fewer features for the score; the network stays as it is."""
    output, run = refitted(data, stacked_folder, tmp_path / "model", changes), tmp_path / "model.run"
    assert built(run) == RANKING, "and no stage"
    assert not (output / f"{name}.safetensors").exists()
    assert json.loads((output / "ranking.json").read_text())[name] is False
    without, whole = load_model(output, threads=2), load_model(stacked_folder, threads=2)
    assert without.reranker is not None
    assert whole.reranker is not None
    sizes = [
        (len(one.parts.tree.parents) if name == "label_tree" else one.parts.knn.neighbors)
        for one in (without.reranker, whole.reranker)
    ]
    assert sizes[0] == 0 < sizes[1]
    assert evaluate_model(without, data).metrics["P@1"] > 60
