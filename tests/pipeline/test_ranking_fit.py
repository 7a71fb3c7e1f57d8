"""Fits and files of the stacked ranker: kinds of score, rows held out, killed and resumed, saved and damaged."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import elias
from elias.core.defaults import FEWEST, DataSize, resolve
from elias.core.errors import InputError, ModelError
from elias.core.files import link_tree, read_tensors
from elias.core.progress import SILENT
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.dataset.rows import KIND_LABEL_TEXT
from elias.encoders.tfidf import TfIdf
from elias.model.compaction import compact
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import PART_FILES, load_model
from elias.pipeline import ranking_steps
from elias.pipeline.context import FitContext
from elias.pipeline.features_step import all_rows, reserve_rows
from elias.pipeline.fit import fit_to
from elias.pipeline.run_folder import Run
from elias.pipeline.tokens_step import tokens_step
from elias.ranking.cross_fitting import ENOUGH
from elias.ranking.inverted_index import build_inverted_index
from helpers.processes import NEITHER, STACKED, content, fitted, here, sets, start, wait_until

STACKED_STEPS = ["60-ranking", "65-held-out", "70-score-model", "80-ranking", "85-quality", "90-model"]

# -- kinds, files, what else it can be fitted on ----------------------------------------------------------------------


def test_saved_and_loaded(stacked_model: Model, texts: list[str], tmp_path: Path) -> None:
    stacked_model.save(tmp_path / "copy")
    loaded = load_model(tmp_path / "copy", threads=2)
    before, after = stacked_model.predict(texts, k=9, explain=True), loaded.predict(texts, k=9, explain=True)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)
    assert before.parts is not None
    assert after.parts is not None
    for name, values in before.parts.items():
        np.testing.assert_array_equal(after.parts[name], values)


def test_compacted_it_keeps_its_ranking_parts(stacked_model: Model, texts: list[str], tmp_path: Path) -> None:
    compact(stacked_model, precision="int8").save(tmp_path / "small")
    small = load_model(tmp_path / "small", threads=2)
    assert small.gives_probabilities
    before, after = stacked_model.predict(texts, k=1), small.predict(texts, k=1)
    assert (before.labels == after.labels).mean() > 0.95


def test_every_label_against_every_text_can_have_it_too(data: Dataset, texts: list[str]) -> None:
    kept = {key: value for key, value in STACKED.items() if not key.startswith(("clustering", "stage"))}
    settings = Settings().updated({**kept, "network.kind": "one-versus-all", "stage1.epochs": 1})
    model = elias.fit(data, settings=settings)
    assert isinstance(model, Model)
    assert model.gives_probabilities
    assert model.predict(texts, k=3, explain=True).labels.shape == (80, 3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ranking.json", {"word_candidates": 0}),
        ("ranking.json", {"network_candidates": "many"}),
        ("ranking.json", {"network_candidates": True}),
        ("ranking.json", {"knn": 1}),
        ("score_model.json", {"loss": "guess"}),
        ("score_model.json", None),
        ("linear_ranker.safetensors", None),
        ("inverted_index.safetensors", None),
        ("label_tree.safetensors", None),
        ("knn.safetensors", None),
    ],
)
def test_damaged_files_are_refused(
    stacked_folder: Path, tmp_path: Path, name: str, change: dict[str, Any] | None
) -> None:
    load_model(stacked_folder).save(tmp_path / "copy")
    path = tmp_path / "copy" / name
    if change is None:
        path.unlink()
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=name):
        load_model(tmp_path / "copy")


def test_the_network_does_not_depend_on_the_ranking_parts(data: Dataset, tmp_path: Path, stacked_folder: Path) -> None:
    """Another ranker or other words: both stages stay, bit for bit that of a fresh run with those settings."""
    run = tmp_path / "model.run"
    link_tree(stacked_folder.with_name("model.run"), run)
    (run / "log.jsonl").unlink()
    changes = {**STACKED, "linear_ranker.cost": 0.3, "inverted_index.words_per_label": 9}
    output = fit_to(data, tmp_path / "model", settings=Settings().updated(changes), force=True)
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "step" in line] == STACKED_STEPS
    fresh = fit_to(data, tmp_path / "fresh", settings=Settings().updated(changes))
    assert content(output, "*.safetensors") == content(fresh, "*.safetensors")
    off = fit_to(data, tmp_path / "model", settings=Settings().updated({**changes, "ranking.kind": "none"}), force=True)
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "step" in line][len(STACKED_STEPS) :] == ["85-quality", "90-model"]
    assert not (off / "linear_ranker.safetensors").exists()


def test_the_parts_of_the_model_have_seen_all_rows(stacked_folder: Path, stacked_model: Model) -> None:
    """The score is learned with parts that have not seen the held-out rows; the model's own have."""
    run = stacked_folder.with_name("model.run")
    held_out, every = (
        read_tensors(run / step / "linear_ranker.safetensors")[0] for step in ("60-ranking", "80-ranking")
    )
    assert len(held_out["ranker.weights"]) != len(every["ranker.weights"])
    assert stacked_model.reranker is not None
    np.testing.assert_array_equal(stacked_model.reranker.parts.ranker.weights, every["ranker.weights"])
    for name in PART_FILES[:-1]:  # training texts have a step of their own
        assert (run / "60-ranking" / name).read_bytes() != (run / "80-ranking" / name).read_bytes()
        assert (run / "80-ranking" / name).samefile(stacked_folder / name)


def context_of(data: Dataset, settings: Settings, folder: Path) -> FitContext:
    """What the steps of a run work with, its texts tokenized."""
    with Run(folder, SILENT) as run:
        resolved = run.freeze(settings, resolve(settings, data.size()), data.fingerprint())
        tokens = tokens_step(data, resolved, run)
        return FitContext(data, resolved, run, SILENT, torch.device("cpu"), tokens)


@pytest.mark.parametrize("label_texts", [True, False])
def test_rows_of_counted_words_are_those_of_the_texts(data: Dataset, tmp_path: Path, label_texts: bool) -> None:
    """Step 05 counts words once; tf-idf from these counts is that of the texts, label texts last."""
    context = context_of(data, Settings().updated({**STACKED, "features.label_texts": label_texts}), tmp_path)
    vectorizer, _ = TfIdf.fit_transform(list(data.train.texts or [])[:200], min_df=2, max_words=300)
    bow, rows = all_rows(context, vectorizer)
    assert len(rows) == len(data.train) + (len(data.labels) if label_texts else 0)
    expected = vectorizer.transform(list(rows.texts or []))
    assert bow.shape == expected.shape
    for ours, theirs in ((bow.indptr, expected.indptr), (bow.indices, expected.indices), (bow.data, expected.data)):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_in_blocks_are_the_same(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negatives are found for some rows at a time; label texts find none."""
    context = context_of(data, Settings().updated(STACKED), tmp_path)
    vectorizer, _ = TfIdf.fit_transform(list(data.train.texts or []), min_df=1, max_words=5000)
    (bow, rows), settings = all_rows(context, vectorizer), context.settings
    given = ranking_steps.RankingRows(bow, rows.labels, rows.excluded, rows.kinds)
    index = build_inverted_index(bow, rows.labels, rows.kinds, words_per_label=64, label_text_weight=3.0)
    made = []
    for size in (1 << 16, 7):
        monkeypatch.setattr(ranking_steps, "ROWS_AT_ONCE", size)
        made.append(ranking_steps._candidates_by_words(index, given, settings))
    np.testing.assert_array_equal(*made)
    assert (made[0][rows.kinds == KIND_LABEL_TEXT] == -1).all()
    assert (made[0][rows.kinds != KIND_LABEL_TEXT, 0] >= 0).all()


def test_logistic_ranker(data: Dataset, texts: list[str]) -> None:
    model = fitted(data, linear_ranker__loss="logistic", **{key.replace(".", "__"): v for key, v in NEITHER.items()})
    found = model.predict(texts, k=5, explain=True)
    assert found.parts is not None
    assert ((found.parts["ranker"] > 0) & (found.parts["ranker"] < 1)).all()
    assert evaluate_model(model, data).metrics["P@1"] > 40


def test_vectors_sparse_and_dense(stacked_model: Model, data: Dataset) -> None:
    """Sparse vectors, of either sign and any length, have words; dense ones have none: no stacked ranker."""
    assert stacked_model.vectorizer is not None
    rng = np.random.default_rng(0)
    bow = stacked_model.vectorizer.transform(list(data.train.texts or []))
    signs = sp.diags(rng.choice([-3.0, 3.0], size=bow.shape[1]))
    vectors = sp.csr_matrix(bow @ signs, dtype=np.float32)
    small = {key.replace(".", "__"): value for key, value in NEITHER.items()}
    sparse = fitted(Dataset.from_arrays(vectors, data.train.labels, label_ids=data.labels.ids), **small)
    assert sparse.reranker is not None
    found = sparse.predict(vectors[:50], k=3)
    assert np.isfinite(found.scores).all()
    right = np.take_along_axis(data.train.labels[:50].toarray() > 0, found.labels[:, :1], axis=1)
    assert right.mean() > 0.6
    with pytest.raises(InputError, match="dense"):
        sparse.predict(np.zeros((2, vectors.shape[1]), dtype=np.float32))
    project = rng.normal(size=(bow.shape[1], 16)).astype(np.float32)
    dense = fitted(
        Dataset.from_arrays(np.asarray(bow @ project), data.train.labels, label_ids=data.labels.ids), **small
    )
    assert dense.reranker is None
    assert not dense.gives_probabilities


@pytest.mark.parametrize("kind", ["stacked", "published"])
def test_one_label_only(kind: str) -> None:
    data = Dataset.from_lists([f"word{row} shared" for row in range(160)], [["only"]] * 150 + [[]] * 10)
    model = fitted(data, split__calibration_rows=60, ranking__kind=kind, clustering__clusters=1, stage2__epochs=0)
    found = model.predict(["word3 shared", ""], k=3)
    assert found.labels.shape == (2, 1)
    assert np.isfinite(found.scores).all()


def test_too_few_rows_to_learn_a_score_from(data: Dataset) -> None:
    """Of fewer than ENOUGH rows with a right label it would be worse than p q."""
    model = fitted(
        data, split__calibration_rows=ENOUGH - 1, **{key.replace(".", "__"): v for key, v in NEITHER.items()}
    )
    assert model.reranker is not None
    assert model.reranker.score_model.learned is None
    assert not model.gives_probabilities


# -- rows held out ----------------------------------------------------------------------------------------------------


def test_defaults_reserve_calibration_rows() -> None:
    size, one_draw = DataSize(rows=20_000, labels=1000, pairs=60_000), Settings().updated({"score_model.folds": 0})
    for rows, held_out in ((20_000, 1500), (8000, 1000), (48_000, 3000)):
        assert resolve(one_draw, replace(size, rows=rows)).split.calibration_rows == held_out
    for rows, drawn in ((20_000, 5000), (8000, 2666), (48_000, 8000)):
        assert resolve(Settings(), replace(size, rows=rows)).split.calibration_rows == drawn
    assert resolve(Settings(), replace(size, rows=4 * FEWEST)).split.calibration_rows == 4 * FEWEST // 3
    assert resolve(Settings(), replace(size, rows=4 * FEWEST - 1)).split.calibration_rows == 0
    assert resolve(Settings(), replace(size, dense_dim=9)).split.calibration_rows == 0
    assert resolve(Settings().updated({"ranking.kind": "none"}), size).split.calibration_rows == 0
    own = resolve(Settings(), replace(size, own_validation=900)).split
    assert (own.calibration_rows, own.validation_rows) == (450, 450)
    few = resolve(Settings(), replace(size, own_validation=1)).split
    assert (few.calibration_rows, few.validation_rows) == (0, 1), "one row of a file is for validation"
    once = resolve(Settings(), replace(size, own_validation=900))
    assert resolve(once, replace(size, own_validation=900)) == once


@pytest.mark.parametrize("own", [1, 2, 150, 400])
def test_a_validation_file_serves_both(own: int, tmp_path: Path) -> None:
    texts, labels = [f"text {row}" for row in range(300)], [["a"], ["b"], ["c"]] * 100
    data = Dataset.from_lists(
        texts, labels, validation_texts=[f"other {row}" for row in range(own)], validation_labels=[["a"]] * own
    )
    parts = reserve_rows(context_of(data, Settings().updated({"run.threads": 2}), tmp_path))
    assert len(parts["train"]) == 300, "no training row is held out"
    assert not set(parts["validation"].tolist()) & set(parts["calibration"].tolist())
    assert len(parts["validation"]) >= 1
    assert len(parts["calibration"]) == (own // 2 if own // 2 >= FEWEST else 0)
    for part in ("validation", "calibration"):
        assert len(np.unique(parts[part])) == len(parts[part])
        assert set(parts[part].tolist()) <= set(range(own))


def test_fitted_with_a_validation_file(data: Dataset, texts: list[str], tmp_path: Path) -> None:
    assert data.test is not None
    names = [[data.labels.ids[label] for label in row.indices] for row in data.test.labels]
    train = [[data.labels.ids[label] for label in row.indices] for row in data.train.labels]
    both = Dataset.from_lists(list(data.train.texts or []), train, validation_texts=texts, validation_labels=names)
    settings = Settings().updated({**STACKED, **NEITHER, "split.calibration_rows": 60})
    model = load_model(fit_to(both, tmp_path / "model", settings=settings))
    assert model.reranker is not None
    assert model.reranker.score_model.calibration is not None
    assert model.reranker.score_model.calibration.rows == 60
    assert not (tmp_path / "model.run" / "80-ranking").exists(), "no training row was held out: it would be the same"
    assert model.about["settings"]["split"]["validation_rows"] == 20


# -- killed -----------------------------------------------------------------------------------------------------------


def test_killed_in_every_ranking_step_it_is_the_same_model(
    stacked_folder: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    moments: list[Callable[[], bool]] = [
        (run / "60-ranking.part" / "inverted_index.safetensors").exists,
        (run / "65-held-out.part" / "begun.json").exists,
        (run / "70-score-model.part" / "begun.json").exists,
        (run / "80-ranking.part" / "label_tree.safetensors").exists,
        (run / "90-model.part" / "begun.json").exists,
    ]
    for moment in moments:
        process = start("fit", tiny_dataset, "-o", output, *sets(STACKED))
        wait_until(moment, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not output.exists()
    done = here("fit", tiny_dataset, "-o", output, *sets(STACKED))
    assert done.returncode == 0, done.stderr
    assert content(output) == content(stacked_folder)
    assert not list(tmp_path.rglob("*.part"))


def test_switched_off_no_file_of_it_is_there(stacked_folder: Path, tiny_model_folder: Path) -> None:
    files = {"ranking.json", "score_model.json", *PART_FILES}
    assert set(content(stacked_folder)) - set(content(tiny_model_folder)) == files
