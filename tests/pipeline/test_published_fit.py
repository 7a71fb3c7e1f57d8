"""A fit with the published ranker: steps, what is held out, files, every way to use the model, ensembles."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import elias
from elias import Ensemble
from elias.cli import main
from elias.core.errors import InputError, SettingsError
from elias.core.files import link_tree, read_tensors
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.dataset.rows import KIND_TEXT
from elias.evaluation.inspect import overview
from elias.model.compaction import compact
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import load_model
from elias.pipeline.fit import fit_to
from elias.ranking.published import NAME, TREE_NAME, PublishedRanker
from helpers.processes import NEITHER, PUBLISHED, content, fitted
from helpers.serving import running
from helpers.tiny_dataset import fit_tiny

STEPS = ["60-ranking", "65-held-out", "70-calibration", "85-quality", "90-model"]
FILES = {NAME, TREE_NAME, "linear_ranker.safetensors"}


@pytest.fixture(scope="module")
def folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the published ranker, and its run beside it. Read only."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("published") / "model", PUBLISHED)


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder, threads=2)


@pytest.fixture(scope="module")
def both(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble of two."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("published") / "both", PUBLISHED, members=2)


def ranker_of(model: Model) -> PublishedRanker:
    assert isinstance(model.reranker, PublishedRanker)
    return model.reranker


def built(run: Path) -> list[str]:
    """The steps that were built since the last call."""
    if not (run / "log.jsonl").exists():
        return []
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    (run / "log.jsonl").unlink()
    return [record["step"] for record in lines if "step" in record]


def test_it_ranks_better_than_the_network_alone(model: Model, data: Dataset) -> None:
    alone, ranked = (evaluate_model(one, data).metrics for one in (replace(model, reranker=None), model))
    assert ranked["P@1"] > alone["P@1"] + 10
    assert ranked["R@100"] == alone["R@100"], "the candidates are those of the network"
    assert model.about["quality"]["metrics"]["P@1"] == pytest.approx(ranked["P@1"], abs=1e-3)
    assert model.about["quality"]["calibration_error"] is None, "scores are no probabilities"


def test_files_and_steps(folder: Path, tiny_model_folder: Path, data: Dataset, model: Model) -> None:
    """Nothing by words: no inverted index, k-NN, label tree, folds or texts; no labels held out are counted."""
    assert set(content(folder)) - set(content(tiny_model_folder)) == FILES
    run = folder.with_name("model.run")
    steps = sorted(path.name for path in run.iterdir() if path.is_dir())
    assert steps == ["05-tokens", "10-features", "20-clusters", "30-stage1", "40-adjacency", "50-stage2", *STEPS]
    rows, _ = read_tensors(run / "10-features" / "split.safetensors")
    assert len(rows["calibration"]) == 100
    assert not set(rows["calibration"]) & (set(rows["train"]) | set(rows["validation"]))
    calibration = ranker_of(model).calibration
    assert calibration is not None
    counts = np.asarray((data.train.labels[rows["train"]] > 0).sum(axis=0)).ravel()
    np.testing.assert_array_equal(calibration.counts, counts)
    assert (data.train.kinds == KIND_TEXT).all(), "label texts, which the network is trained on too, do not count"
    assert model.label_counts.sum() > counts.sum()


def test_settings_change_what_depends_on_them(folder: Path, data: Dataset, tmp_path: Path) -> None:
    link_tree(folder.with_name("model.run"), tmp_path / "model.run")
    run, output = tmp_path / "model.run", tmp_path / "model"
    built(run)
    unused = {"linear_ranker.negatives": 7, "inverted_index.candidates": 9, "score_model.folds": 2}
    cases: list[tuple[dict[str, Any], list[str], float | None]] = [
        ({"published.tree_weight": 0.3}, STEPS[2:], 0.3),
        ({"published.calibration": False}, STEPS[2:], None),
        ({"published.unretrieved_positives": True}, STEPS, 0.5),
        ({"linear_ranker.loss": "logistic"}, STEPS, 0.5),
        ({"linear_ranker.loss": "logistic", **unused}, [], 0.5),
    ]
    for changes, expected, weight in cases:
        fit_to(data, output, settings=Settings().updated({**PUBLISHED, **changes}), force=True)
        assert built(run) == expected, changes
        calibration = ranker_of(load_model(output)).calibration
        assert (None if calibration is None else calibration.weight) == weight


def test_calls(model: Model, texts: list[str], tmp_path: Path) -> None:
    """Lists of candidates, blocked labels, many labels, no texts, texts without words, thresholds."""
    names, found = model.labels.ids, model.predict(texts, k=60, explain=True)
    assert found.parts is not None
    assert list(found.parts) == ["cluster", "cluster_score", "edge_score", "classifier", "ranker", "tree"]
    assert found.explanations is None
    p = found.parts["cluster_score"] * found.parts["edge_score"] * found.parts["classifier"]
    expected = 0.5 * found.parts["tree"] + 0.5 * p * found.parts["ranker"]
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model.predict(texts, k=3).labels, found.labels[:, :3])
    asked = model.predict(texts, k=60, candidates=[names[row % 7 :: 9] for row in range(len(texts))])
    for row, label in np.argwhere(asked.labels >= 0)[::17]:
        place = found.labels[row].tolist().index(asked.labels[row, label])
        assert asked.scores[row, label] == pytest.approx(found.scores[row, place], rel=1e-4, abs=1e-7)
    assert [(row >= 0).sum() for row in asked.labels[:2]] == [len(names[0::9]), len(names[1::9])]
    blocked = model.predict(texts, k=10, block=names[:55])
    assert set(np.unique(blocked.labels)) <= {-1, *range(55, 60)}
    assert (blocked.labels[:, 5:] == -1).all(), "fewer labels than were asked for"
    assert (model.predict(texts[:2], candidates=[[], names[:1]]).labels[:, 0] == [-1, 0]).all()
    assert model.predict([], k=4, explain=True).labels.shape == (0, 4)
    empty = model.predict(["", "qqq"], k=3, explain=True)
    assert np.isfinite(empty.scores).all()
    assert empty.known_words is not None
    assert empty.known_words.tolist() == [0, 0]
    with pytest.raises(InputError, match="scores of this model are not probabilities"):
        model.predict(texts, threshold=0.5)


def test_saved_pickled_compacted_and_inspected(model: Model, texts: list[str], tmp_path: Path) -> None:
    before = model.predict(texts, k=5)
    model.save(tmp_path / "copy")
    for other in (load_model(tmp_path / "copy"), pickle.loads(pickle.dumps(model)), compact(model, drop_texts=True)):
        after = other.predict(texts, k=5)
        np.testing.assert_array_equal(after.labels, before.labels)
        np.testing.assert_array_equal(after.scores, before.scores)
    small = compact(model, precision="int8")
    small.save(tmp_path / "small")
    assert (load_model(tmp_path / "small").predict(texts, k=1).labels == before.labels[:, :1]).mean() > 0.9
    slow = replace(model, use_kernels=False).predict(texts[:20], k=5)
    assert (slow.labels == before.labels[:20]).mean() > 0.98
    np.testing.assert_allclose(slow.scores, before.scores[:20], atol=1e-3)
    assert overview(model)


def test_an_ensemble_averages_rankers_of_its_own(both: Path, texts: list[str], data: Dataset) -> None:
    whole = elias.load(both, threads=2)
    assert isinstance(whole, Ensemble)
    first, second = (both.with_name("both.run") / f"member-{number}" for number in range(2))
    assert (first / "10-features" / "done.json").samefile(second / "10-features" / "done.json")
    for name in FILES - {NAME}:
        assert (both / "member-0" / name).read_bytes() != (both / "member-1" / name).read_bytes(), name
    assert [len(group) for group in whole.groups()] == [1, 1]
    found, parts = whole.predict(texts, k=5, explain=True), [one.predict(texts, k=60) for one in whole.members]
    mean = sum(part.to_csr(60).toarray() for part in parts) / 2
    order = np.argsort(-mean, axis=1, kind="stable")[:, :5]
    np.testing.assert_allclose(found.scores, np.take_along_axis(mean, order, axis=1), rtol=1e-5)
    assert found.parts is not None
    assert {"ranker", "tree", "member"} <= set(found.parts)
    assert evaluate_model(whole, data).metrics["P@1"] > 90
    assert whole.quality is not None


def test_served(folder: Path, model: Model, texts: list[str]) -> None:
    with running({"published": folder}, lambda path: model) as service:
        answer = service.predict(texts[:2], k=2, explain=True)
        labels = [label["label"] for label in answer["results"][0]["labels"]]
        assert labels == [name for name, _ in model.predict(texts[:1], k=2).named()[0]]
        assert service.get("/v1/model").json["threshold"] is False


def test_the_command_line_explains_with_tree_ranker_and_path(
    folder: Path, model: Model, texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(folder), texts[0], "-k", "1", "--explain"]) == 0
    found = model.predict(texts[:1], k=1, explain=True)
    assert found.parts is not None
    tree, ranker, classifier = (float(found.parts[name][0, 0]) for name in ("tree", "ranker", "classifier"))
    ranked, path = capsys.readouterr().out.splitlines()[2:]
    assert ranked.strip() == f"w T + (1 - w) p q: tree T {tree:.4f}, ranker q {ranker:.4f}"
    assert path.strip().startswith("p = cluster ")
    assert path.endswith(f"x classifier {classifier:.4f}")


def test_without_rows_for_the_tree_scores_are_p_q(data: Dataset, texts: list[str], tmp_path: Path) -> None:
    settings = Settings().updated({**PUBLISHED, **NEITHER, "split.calibration_rows": 0})
    found = load_model(fit_to(data, tmp_path / "model", settings=settings))
    assert ranker_of(found).calibration is None
    assert not (tmp_path / "model.run" / "65-held-out").exists()
    answer = found.predict(texts, k=3, explain=True)
    assert answer.parts is not None
    p = answer.parts["cluster_score"] * answer.parts["edge_score"] * answer.parts["classifier"]
    np.testing.assert_allclose(answer.scores, p * answer.parts["ranker"], rtol=1e-5)


def test_vectors_need_words(data: Dataset, model: Model) -> None:
    """Sparse vectors of any length have them; dense ones are refused before anything is computed."""
    assert model.vectorizer is not None
    bow = model.vectorizer.transform(list(data.train.texts or []))
    small: dict[str, Any] = {key.replace(".", "__"): value for key, value in {**PUBLISHED, **NEITHER}.items()}
    sparse = fitted(Dataset.from_arrays(sp.csr_matrix(bow * 5.0), data.train.labels), **small)
    assert isinstance(sparse.reranker, PublishedRanker)
    found = sparse.predict(sp.csr_matrix(bow[:50] * 0.1), k=1)
    assert np.take_along_axis(data.train.labels[:50].toarray() > 0, found.labels, axis=1).mean() > 0.5
    dense = Dataset.from_arrays(bow.toarray()[:, :20], data.train.labels)
    with pytest.raises(SettingsError, match=r"ranking.kind=published: .*dense vectors have no words; set ranking.kind"):
        fitted(dense, **small)


def test_quality_without_test_rows_is_measured_on_validation_rows(data: Dataset) -> None:
    """Rows that neither network nor ranker nor T have seen."""
    alone = Dataset.from_lists(
        list(data.train.texts or []), [list(row.indices.astype(str)) for row in data.train.labels]
    )
    changes = {**PUBLISHED, **NEITHER, "split.validation_rows": 60}
    found = fitted(alone, **{key.replace(".", "__"): value for key, value in changes.items()})
    quality = found.about["quality"]
    assert (quality["rows"], quality["n_rows"]) == ("held-out", 60)
    assert "checkpoints were chosen on these rows" in quality["note"]
