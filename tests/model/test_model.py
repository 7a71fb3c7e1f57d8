"""A saved model: byte for byte the same each time, opened as it was, and refused by name of the broken file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elias
from elias.core.errors import ModelError
from elias.dataset import LabelSet
from elias.model.label_file import read_labels, write_labels
from elias.model.model import Model
from elias.model.storage import FORMAT_VERSION
from helpers.model_files import reseal
from helpers.processes import SMALL, content

FILES = [
    "config.json",
    "labels.tsv",
    "clusters.json",
    "vectorizer.json",
    "vectorizer.npy",
    "network.json",
    "index.safetensors",
    "clusters.safetensors",
    "classifiers.safetensors",
    "search.safetensors",
    "encoder/encoder.json",
    "encoder/encoder.safetensors",
]
DERIVED = ["search.safetensors"]  # made again where it is missing
SETTINGS_ALONE = ["config.json", "network.json", "encoder/encoder.json"]  # another model's would fit


def test_these_are_the_files(tiny_model_folder: Path) -> None:
    assert sorted(content(tiny_model_folder)) == sorted(FILES)


def test_saved_twice_the_bytes_are_equal(tiny_model: Model, tiny_model_folder: Path, tmp_path: Path) -> None:
    tiny_model.save(tmp_path / "once")
    elias.load(tmp_path / "once").save(tmp_path / "twice")
    assert content(tmp_path / "once") == content(tmp_path / "twice") == content(tiny_model_folder)


def test_saving_does_not_touch_the_run(tiny_model_folder: Path, tmp_path: Path) -> None:
    run = tiny_model_folder.with_name("model.run")
    before = content(run)
    model = elias.load(run / "90-model")
    model.network.classifier_weights.values += 1  # a memory map of the run's file
    model.network.encoder.tables()["words"].values.zero_()
    model.save(tmp_path / "model")
    assert content(run) == before
    assert (tmp_path / "model" / "classifiers.safetensors").read_bytes() != before["90-model/classifiers.safetensors"]


def test_an_existing_folder_is_refused(tiny_model: Model, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="exists"):
        tiny_model.save(tmp_path)


def test_a_model_outlives_its_run_folder(tiny_dataset: Path, tiny_model: Model, tmp_path: Path) -> None:
    data = elias.load_dataset(tiny_dataset)
    model = elias.fit(data, settings=elias.Settings().updated(SMALL))  # in a folder that is gone by now
    assert data.test is not None
    texts = list(data.test.texts or [])[:5]
    assert model.predict(texts).named() == tiny_model.predict(texts).named()
    model.save(tmp_path / "model")
    assert elias.load(tmp_path / "model").predict(texts).named() == model.predict(texts).named()


def test_config_says_where_it_comes_from(tiny_model_folder: Path, tiny_model: Model) -> None:
    config = json.loads((tiny_model_folder / "config.json").read_text())
    assert config["format_version"] == FORMAT_VERSION
    assert config["versions"]["elias"] == elias.__version__
    assert config["settings"]["stage2"]["epochs"] == 2
    assert config["validation"]["stage"] == "50-stage2"
    assert config["validation"]["nDCG@5"] > 30
    assert tiny_model.n_train == 400
    assert tiny_model.label_counts.sum() == 823
    assert len(tiny_model.cluster_words) == 4
    assert all(tiny_model.cluster_words)


# -- broken folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tiny_model_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))


def refused(folder: Path, name: str, *, anew: bool = False) -> str:
    """The message; it must name the file. `anew`: checksums are made anew, so that the file itself is read."""
    if anew:
        reseal(folder)
    with pytest.raises(ModelError) as error:
        elias.load(folder)
    assert name.split("/")[-1].split(".")[0] in str(error.value), error.value
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_a_file_missing_cut_short_or_full_of_nonsense(copy: Path, name: str) -> None:
    whole = (copy / name).read_bytes()
    (copy / name).unlink()
    if name not in DERIVED:
        refused(copy, name)
    for broken in (b"", whole[: len(whole) // 2], b"\x93nonsense" * 20, b"{}", b"[]", b"null"):
        (copy / name).write_bytes(broken)
        refused(copy, name)
    (copy / name).write_bytes(whole)
    elias.load(copy)


@pytest.fixture(scope="module")
def other(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of other data: fewer rows, words, labels, clusters and dimensions."""
    rows = [json.loads(line) for line in (tiny_dataset / "train.jsonl").read_text().splitlines()[:60]]
    data = elias.Dataset.from_lists([row["text"] for row in rows], [row["labels"] for row in rows])
    changes = {"clustering.clusters": 3, "encoder.dim": 8}
    model = elias.fit(data, settings=elias.Settings().updated({**SMALL, **changes}))
    folder = tmp_path_factory.mktemp("other") / "model"
    model.save(folder)
    return folder


@pytest.mark.parametrize("name", [name for name in FILES if name not in SETTINGS_ALONE])
def test_a_file_of_another_model(copy: Path, other: Path, name: str) -> None:
    shutil.copy(other / name, copy / name)
    with pytest.raises(ModelError, match=rf"{name}: (has .* bytes, not the|its content is not what)"):
        elias.load(copy)
    reseal(copy)
    with pytest.raises(ModelError, match=r"belong together|other files of this model|must rise from 0|must be from 0"):
        elias.load(copy)


def test_another_format_is_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    for version in (FORMAT_VERSION + 1, 0, None, "1"):
        config["format_version"] = version
        config["versions"]["elias"] = "9.9"
        (copy / "config.json").write_text(json.dumps(config))
        message = refused(copy, "config.json")
        assert f"format_version {version}" in message
        assert "elias 9.9" in message


def test_edges_that_lead_nowhere(copy: Path) -> None:
    from elias.core.files import read_tensors, write_tensors

    arrays, about = read_tensors(copy / "index.safetensors")
    for change in (
        {"labels": arrays["labels"] + np.int32(30)},
        {"labels": arrays["labels"] - np.int32(30)},
        {"indptr": arrays["indptr"][::-1].copy()},
        {"indptr": arrays["indptr"] + 1},
        {"logits": arrays["logits"][:-1]},
        {"logits": arrays["logits"].astype(np.float64)},
    ):
        write_tensors(copy / "index.safetensors", {**arrays, **change}, about)
        refused(copy, "index.safetensors", anew=True)
    write_tensors(copy / "index.safetensors", arrays, {"beta": "x"})
    assert "beta" in refused(copy, "index.safetensors", anew=True)


def test_without_the_search_file_the_answers_are_the_same(copy: Path, tiny_model: Model, tiny_dataset: Path) -> None:
    texts = list(elias.load_dataset(tiny_dataset).splits["test"].texts or [])
    whole = tiny_model.predict(texts, k=20)
    (copy / "search.safetensors").unlink()
    found = elias.load(copy).predict(texts, k=20)
    np.testing.assert_array_equal(found.labels, whole.labels)
    np.testing.assert_array_equal(found.scores, whole.scores)


def test_a_search_file_of_other_weights_is_refused(copy: Path) -> None:
    from elias.core.files import read_tensors, write_tensors

    arrays, about = read_tensors(copy / "search.safetensors")
    for change in (
        {"codes": -arrays["codes"]},
        {"edge_labels": arrays["edge_labels"][::-1].copy()},
        {"edge_scores": arrays["edge_scores"] * np.float32(0.5)},
        {"facts": arrays["facts"][:-1]},
        {"edge_labels": arrays["edge_labels"] + np.int32(10**9)},
    ):
        write_tensors(copy / "search.safetensors", {**arrays, **change}, about)
        refused(copy, "search.safetensors", anew=True)
    (copy / "search.safetensors").unlink()  # it is made again
    elias.load(copy)


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    for folder, message in ((tmp_path / "nothing", "there is no model folder"), (tmp_path, "no config.json")):
        with pytest.raises(ModelError, match=message):
            elias.load(folder)


# -- labels.tsv -------------------------------------------------------------------------------------------------------


def test_any_label_survives(tmp_path: Path) -> None:
    ids = [
        "plain",
        "tab\there",
        "line\nbreak",
        "back\\slash",
        "\\n",
        "ends\\",
        "ü 日本 \U0001f600",
        "\x85\u2028",
        "\r",
        "\ud800",
    ]
    texts = [f"text of {label}" for label in ids]
    write_labels(tmp_path / "l", LabelSet(ids, texts), np.arange(len(ids)), np.arange(len(ids)) - 1)
    labels, counts, clusters = read_labels(tmp_path / "l")
    assert labels.ids == ids
    assert labels.texts == [*texts[:-1], "text of ?"]  # which answers in UTF-8 could not hold
    assert counts.tolist() == list(range(len(ids)))
    assert clusters[0] == -1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text.replace("training_count", "count"), ":1: the header"),
        (lambda text: text.replace("b\t", "b"), ":3: needs id, text"),
        (lambda text: text.replace("\t2\t", "\t²\t"), ":3: needs id, text"),
        (lambda text: text[:-3], ":3: needs id, text"),
    ],
)
def test_broken_label_files(tmp_path: Path, spoil: Callable[[str], str], message: str) -> None:
    path = tmp_path / "labels.tsv"
    write_labels(path, LabelSet(["a", "b"]), np.array([1, 2]), np.array([0, 10]))
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ModelError, match=message):
        read_labels(path)


# -- own ids ----------------------------------------------------------------------------------------------------------


def test_own_ids_are_left_out_only_where_the_data_said_so(tiny_model: Model, tiny_dataset: Path) -> None:
    data = elias.load_dataset(tiny_dataset)
    assert data.test is not None
    texts = list(data.test.texts or [])[:10]
    best = [row[0][0] for row in tiny_model.predict(texts, k=1).named()]
    assert [row[0][0] for row in tiny_model.predict(texts, k=1, ids=best).named()] == best
    about = {**tiny_model.about, "dataset": {**tiny_model.about["dataset"], "exclude_own_id": True}}
    strict = replace(tiny_model, about=about)
    for found in (
        strict.predict(texts, k=60, ids=best),
        strict.predict(texts, k=60, ids=best, allow=sorted(set(best))),
    ):
        for own, row in zip(best, found.named(), strict=True):
            assert own not in [name for name, _ in row]
            assert len(row) >= len(set(best)) - 1
    assert strict.predict(texts, k=1, ids=["no label"] * 10).named() == tiny_model.predict(texts, k=1).named()
