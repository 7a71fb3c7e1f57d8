"""From a dataset to a model: unusual data, unusual settings, what is run again, and what is held out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import elias
from elias.core.defaults import resolve
from elias.core.errors import DataError, InputError, RunError, SettingsError
from elias.core.files import FolderLock, read_tensors
from elias.core.progress import SILENT
from elias.dataset import Dataset
from elias.model.model import Model
from elias.pipeline import fit as fitting
from elias.pipeline.context import FitContext
from elias.pipeline.features_step import all_rows, features_step
from elias.pipeline.fit import check_output, fit_to
from elias.pipeline.run_folder import Run
from elias.pipeline.tokens_step import tokens_step
from helpers.processes import SMALL, content

TEXTS = ["red apple", "green apple", "red car", "green car", "old house", "new house", "red house", "green grass"] * 5
LABELS = [
    ["fruit", "red"],
    ["fruit"],
    ["vehicle", "red"],
    ["vehicle"],
    ["building"],
    ["building"],
    ["red"],
    ["plant"],
] * 5


def settings(**changes: Any) -> elias.Settings:
    return elias.Settings().updated({**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}})


def fitted(data: Dataset, **changes: Any) -> Model:
    """A model that has been asked something."""
    model = elias.fit(data, settings=settings(**changes))
    inputs: Any = ["red apple", "", "unknown words"] if data.train.texts is not None else data.train.vectors[:3]  # type: ignore[index]
    found = model.predict(inputs, k=3)
    assert found.labels.shape == (3, min(3, len(data.labels)))
    assert np.isfinite(found.scores).all()
    return model


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["one"], [["a"]]),
        (["one", "two"], [["a"], ["a"]]),
        (["one", "two"], [["a"], ["b"]]),
        (["one", "", "  "], [["a"], ["b"], []]),
        (["same"] * 30, [["a"], ["b"], ["c"]] * 10),
        (TEXTS, [[]] * 39 + [["a"]]),
        (TEXTS, [[f"label {number}" for number in range(50)]] * 40),
        (["ü" * 50, "日本語 テキスト", "🙂 🙂"], [["a"], ["b"], ["c"]]),
    ],
)
def test_small_and_strange_data(texts: list[str], labels: list[list[str]]) -> None:
    model = fitted(Dataset.from_lists(texts, labels))
    assert len(model.labels) == len({label for row in labels for label in row})


def test_labels_without_a_training_row_are_never_suggested() -> None:
    names = {name: f"about {name}" for name in ["fruit", "red", "vehicle", "building", "plant", "ghost"]}
    model = fitted(Dataset.from_lists(TEXTS, LABELS, label_texts=names))
    ghost = model.labels.number_of["ghost"]
    assert (model.stage1_clusters[ghost], model.label_counts[ghost]) == (-1, 0)
    found = model.predict(TEXTS[:8], k=6)
    assert ghost not in found.labels
    assert (found.labels[:, 5] == -1).all()
    assert model.predict(["red"], candidates=[["ghost"]]).named() == [[("ghost", 0.0)]]


def test_a_label_whose_only_rows_are_held_out() -> None:
    labels = [[*row, f"own {number}"] for number, row in enumerate(LABELS)]
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS)]
    model = fitted(Dataset.from_lists(texts, labels), split__validation_rows=10, split__calibration_rows=5)
    held_out = [name for name in model.labels.ids if model.stage1_clusters[model.labels.number_of[name]] == -1]
    assert len(held_out) == 15
    assert all(name.startswith("own") for name in held_out)


def test_more_clusters_than_labels_and_batches_larger_than_the_data() -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    model = fitted(data, clustering__clusters=16, stage1__batch_size=1000, stage2__batch_size=1000)
    assert model.searcher.index.n_clusters == 16
    fitted(data, clustering__clusters=1, stage1__batch_size=1, stage2__batch_size=7, index__kappa=1, index__beam_size=1)
    fitted(data, index__shortlist_size=1, index__parent_slots=0, encoder__dim=300)


HOW = [
    pytest.param({}, id="both stages"),
    pytest.param({"stage2__epochs": 0}, id="stage 1"),
    pytest.param({"stage1__accumulate": 3, "stage2__accumulate": 3}, id="accumulated"),
    pytest.param({"stage1__optimizer": "adamw", "stage2__optimizer": "adamw"}, id="adamw"),
    pytest.param({"run__kernels": False}, id="definitions"),
    pytest.param({"network__kind": "one-versus-all"}, id="one-versus-all"),
]


def heads_above_tails(data: Dataset, changes: dict[str, Any]) -> float:
    """By how much the log-odds of "heads" are above those of "tails", which only weights tell apart."""
    kept = dict(SMALL)
    epochs = {"stage1__epochs": 8, "stage2__epochs": 8, "split__validation_rows": 0, **changes}
    if "network__kind" in changes:  # without clusters there is no second stage
        del kept["clustering.clusters"], kept["stage2.epochs"], epochs["stage2__epochs"]
    named = {key.replace("__", "."): value for key, value in epochs.items()}
    model = elias.fit(data, settings=elias.Settings().updated({**kept, **named}))
    found = dict(model.predict(["toss a coin"], k=len(data.labels)).named()[0])
    heads, tails = (math.log(found[name] / (1 - found[name])) for name in ("heads", "tails"))
    return heads - tails


@pytest.mark.parametrize("changes", HOW)
def test_rows_of_more_weight_count_for_more(changes: dict[str, Any]) -> None:
    """Half of the coins are heads, half are tails; the texts are the same."""
    texts, labels = [*TEXTS, *["toss a coin"] * 40], [*LABELS, *[["heads"], ["tails"]] * 20]
    heads_heavy, tails_heavy = [1.0] * 40 + [5.0, 0.2] * 20, [1.0] * 40 + [0.2, 5.0] * 20
    assert heads_above_tails(Dataset.from_lists(texts, labels, weights=heads_heavy), changes) > 0.3
    assert heads_above_tails(Dataset.from_lists(texts, labels, weights=tails_heavy), changes) < -0.3


@pytest.mark.parametrize("changes", HOW)
def test_labels_of_more_weight_are_learned_more(changes: dict[str, Any]) -> None:
    """Every coin is heads and tails, each with a weight."""
    texts = [*TEXTS, *["toss a coin"] * 40]
    others = [[(label, 1.0) for label in row] for row in LABELS]
    heads_heavy, tails_heavy = [("heads", 1.0), ("tails", 0.1)], [("heads", 0.1), ("tails", 1.0)]
    assert heads_above_tails(Dataset.from_lists(texts, [*others, *[heads_heavy] * 40]), changes) > 0.3
    assert heads_above_tails(Dataset.from_lists(texts, [*others, *[tails_heavy] * 40]), changes) < -0.3


def test_vectors_dense_and_sparse() -> None:
    rng = np.random.default_rng(0)
    labels = sp.csr_matrix((rng.random((50, 12)) < 0.2).astype(np.float32))
    for vectors in (rng.normal(size=(50, 9)), sp.random(50, 30, density=0.2, format="csr", random_state=0)):
        data = Dataset.from_arrays(vectors, labels, test_vectors=vectors[:5], test_labels=labels[:5])
        model = fitted(data, clustering__again_after=1)
        assert model.vectorizer is None
        assert model.cluster_words == [[]] * 4
        with pytest.raises(SettingsError, match="needs"):
            elias.fit(data, settings=settings(encoder__kind="transformer"))
    with pytest.raises(SettingsError, match="bag needs texts or sparse vectors"):
        elias.fit(Dataset.from_arrays(rng.normal(size=(50, 9)), labels), settings=settings(encoder__kind="bag"))
    with pytest.raises(SettingsError, match="vectors needs vectors"):
        elias.fit(Dataset.from_lists(TEXTS, LABELS), settings=settings(encoder__kind="vectors"))


def test_nothing_to_learn() -> None:
    with pytest.raises(DataError, match="no training row has a label"):
        elias.fit(Dataset.from_lists(["a", "b"], [[], []], label_texts={"x": "x"}), settings=settings())
    data = Dataset.from_lists(["one", "two"], [["a"], []])
    for seed in range(10):
        try:
            elias.fit(data, settings=settings(split__validation_rows=1, split__seed=seed))
        except DataError as error:
            assert "split.validation_rows=0" in str(error)  # noqa: PT017
            break
    else:
        raise AssertionError("the labeled row was never held out")
    with pytest.raises(DataError, match=r"features\.min_df=1"):
        elias.fit(Dataset.from_lists(["one", "two"], [["a"], ["b"]]), settings=settings(features__min_df=2))


# -- stages -----------------------------------------------------------------------------------------------------------


def test_stages_without_epochs_keep_their_start(tmp_path: Path) -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    model = elias.fit(data, settings=settings(stage1__epochs=0, stage2__epochs=0), run_dir=tmp_path / "none")
    assert model.network.edges is None
    assert model.about["validation"] == {}
    assert sorted(path.name for path in (tmp_path / "none").glob("??-*")) == [
        "05-tokens",
        "10-features",
        "20-clusters",
        "30-stage1",
        "85-quality",
        "90-model",
    ]
    start = model.predict(["red apple"], k=1).named()[0][0][0]
    assert start in {"fruit", "red"}  # centroids know that much
    assert elias.fit(data, settings=settings(stage1__epochs=0, stage2__epochs=1)).network.edges is not None


def test_no_validation_rows(tmp_path: Path) -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    model = elias.fit(data, settings=settings(split__validation_rows=0), run_dir=tmp_path)
    assert model.about["validation"] == {}
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len([record for record in records if "loss" in record]) == 4
    assert not [record for record in records if "validation" in record]


def test_a_validation_file_is_used_and_nothing_else_held_out(tmp_path: Path) -> None:
    data = Dataset.from_lists(TEXTS, LABELS, validation_texts=TEXTS[:9], validation_labels=LABELS[:9])
    model = elias.fit(data, settings=settings(split__validation_rows=5), run_dir=tmp_path)
    parts, _ = read_tensors(tmp_path / "10-features" / "split.safetensors")
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 40, "validation": 5, "calibration": 0}
    assert model.about["validation"]["stage"] == "50-stage2"


def test_held_out_rows_are_held_out_of_everything(tmp_path: Path) -> None:
    """Words, clusters and classifiers are the same whatever the held-out rows say."""
    texts = [f"{text} word{number}" for number, text in enumerate(TEXTS)]
    wanted = settings(split__validation_rows=8, split__calibration_rows=6)
    elias.fit(Dataset.from_lists(texts, LABELS), settings=wanted, run_dir=tmp_path)
    parts, _ = read_tensors(tmp_path / "10-features" / "split.safetensors")
    assert sorted(np.concatenate(list(parts.values()))) == list(range(40))
    words = json.loads((tmp_path / "10-features" / "vectorizer.json").read_text())["words"]
    for name, rows in parts.items():
        assert all((f"word{row}" in words) == (name == "train") for row in rows)


def test_own_ids_are_never_predicted(tmp_path: Path) -> None:
    """Each text names its own id and its label; the pair (text, own id) is learned from and never an answer."""
    names = [f"p{number}" for number in range(20)]
    rows = [(names[row % 20], names[(row + 1) % 20], row) for row in range(160)]
    texts = [f"{own} is like {label} and {row}" for own, label, row in rows]
    labels = [[label] for _, label, _ in rows]
    data = Dataset.from_lists(texts, labels, ids=[own for own, _, _ in rows], exclude_own_id=True)
    assert data.train.excluded.nnz == 160
    model = elias.fit(data, settings=settings(stage2__epochs=6), run_dir=tmp_path)
    assert model.exclude_own_id
    assert model.about["validation"]["P@1"] > 50
    for own, row in zip(names, model.predict(texts[:20], k=20, ids=names).named(), strict=True):
        assert own not in {name for name, _ in row}


@pytest.mark.parametrize("own_ids", [True, False])
def test_own_ids_teach_their_labels_and_do_not_count(tmp_path: Path, own_ids: bool) -> None:
    names = [f"p{number}" for number in range(20)]
    texts = [f"{names[row % 20]} is like {names[(row + 1) % 20]} and {row}" for row in range(160)]
    labels = [[names[(row + 1) % 20]] for row in range(160)]
    data = Dataset.from_lists(texts, labels, ids=[names[row % 20] for row in range(160)], exclude_own_id=True)
    wanted = settings().updated({"features.own_ids": own_ids, "run.threads": 1})
    used = resolve(wanted, data.size())
    with Run(tmp_path / "run", SILENT) as run:
        run.freeze(wanted, used, data.fingerprint())
        context = FitContext(data, used, run, SILENT, torch.device("cpu"), tokens_step(data, used, run))
        features = features_step(context)
        rows = len(features.train)
        assert features.train.labels.nnz == (2 if own_ids else 1) * rows
        assert features.train.excluded.nnz == (0 if own_ids else rows)
        assert features.label_counts.sum() == rows, "n_l counts the rows as they are"
        assert features.validation.labels.nnz == len(features.validation) == features.validation.excluded.nnz
        assert all_rows(context, features.vectorizer)[1].labels.nnz == (2 if own_ids else 1) * 160


# -- the run folder ---------------------------------------------------------------------------------------------------


def test_only_what_changed_runs_again(tiny_dataset: Path, tmp_path: Path) -> None:
    data, output = elias.load_dataset(tiny_dataset), tmp_path / "model"
    run = tmp_path / "model.run"

    def built() -> list[str]:
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        (run / "log.jsonl").unlink()
        return [record["step"] for record in lines if "step" in record]

    fit_to(data, output, settings=settings())
    first = ["05-tokens", "10-features", "20-clusters"]
    assert built() == [*first, "30-stage1", "40-adjacency", "50-stage2", "85-quality", "90-model"]
    with pytest.raises(RunError, match="exists"):
        fit_to(data, output, settings=settings())
    before = content(output)
    fit_to(data, output, settings=settings(), force=True)
    assert not (run / "log.jsonl").exists()  # finished and unchanged: nothing ran
    assert content(output) == before
    changed = settings(stage2__epochs=1)
    fit_to(data, output, settings=changed, force=True)
    assert built() == ["50-stage2", "85-quality", "90-model"]
    assert content(output) != before
    fit_to(data, tmp_path / "fresh", settings=changed)
    assert content(output, "*.safetensors") == content(tmp_path / "fresh", "*.safetensors")
    for path in tmp_path.iterdir():
        assert path.name in ("model", "model.run", "fresh", "fresh.run")


def test_force_replaces_models_only(tmp_path: Path) -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("")
    with pytest.raises(RunError, match="not a model"):
        fit_to(data, tmp_path / "photos", force=True)
    assert (tmp_path / "photos" / "one.jpg").exists()
    for name in (".", "..", ""):
        with pytest.raises(InputError, match="not a name"):
            fit_to(data, name, force=True)


@pytest.mark.parametrize("members", [1, 2])
def test_output_is_checked_and_put_in_place_under_the_lock(
    members: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands with one -o: with the lock, a run checks whether the other has put a model there, then links."""
    data, output, run = Dataset.from_lists(TEXTS, LABELS), tmp_path / "model", tmp_path / "model.run"
    looked: list[bool] = []

    def is_locked() -> bool:
        try:
            with FolderLock(run):
                return False
        except RunError:
            return True

    def check(place: Path, *, force: bool) -> None:
        looked.append(run.exists() and is_locked())
        check_output(place, force=force)

    monkeypatch.setattr(fitting, "check_output", check)
    fit_to(data, output, settings=settings(), members=members)
    assert looked == [False, True]
    assert not is_locked()
    looked.clear()
    with FolderLock(run), pytest.raises(RunError, match="is writing here"):
        fit_to(data, output, settings=settings(), members=members, force=True)

    def put_there(place: Path, *, force: bool) -> None:
        if looked:
            check_output(place, force=force)  # it exists by now
        looked.append(True)

    monkeypatch.setattr(fitting, "check_output", put_there)
    with pytest.raises(RunError, match="exists"):
        fit_to(data, output, settings=settings(), members=members)


def test_threads_and_device_are_frozen(tmp_path: Path) -> None:
    data = Dataset.from_lists(TEXTS, LABELS)
    elias.fit(data, settings=settings(run__threads=1), run_dir=tmp_path)
    frozen = json.loads((tmp_path / "settings.json").read_text())
    assert frozen["resolved"]["run"]["threads"] == 1
    assert frozen["given"]["run"]["device"] == "auto"
    assert frozen["resolved"]["run"]["device"] != "auto"
    with pytest.raises(InputError, match="cannot be used here"):
        elias.fit(data, settings=settings(run__device="warp"))
