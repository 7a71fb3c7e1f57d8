"""A whole fit through a recipe, with a tiny BERT on generated texts: steps, starts, an ensemble, what is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias.core.files import read_json, read_tensors
from elias.core.recipes import read_recipe
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.encoders import load_encoder
from elias.pipeline.fit import fit_to
from elias.training import initialization
from helpers.tiny_bert import DIM, _no_network, tiny_bert

__all__ = ["_no_network", "tiny_bert"]  # fixtures

RECIPE = "lf-amazontitles-131k-program"


@pytest.fixture(scope="module")
def data() -> Dataset:
    texts = [f"w{row % 12} w{12 + row % 7} w{20 + row % 11}" for row in range(120)]
    labels = [[f"label {row % 12}", f"label {12 + row % 7}"] for row in range(120)]
    return Dataset.from_lists(texts, labels)


def shrunken(tiny_bert: Path) -> dict[str, Any]:
    """What a shrunken run overrides: the encoder, C, epochs, and sizes of batches and of held-out parts."""
    return {
        "encoder.model": str(tiny_bert), "clustering.clusters": 4, "clustering.again_after": 1,
        "stage1.epochs": 2, "stage2.epochs": 2, "stage1.batch_size": 16, "stage2.batch_size": 16,
        "split.validation_rows": 10, "ranking.kind": "none", "run.threads": 1,
    }  # fmt: skip


@pytest.fixture(scope="module")
def fitted(data: Dataset, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble of two."""
    settings = Settings().updated({**read_recipe(RECIPE), **shrunken(tiny_bert)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initialization, "phi_by_label", _never)
        return fit_to(data, tmp_path_factory.mktemp("recipe") / "model", settings=settings, members=2)


def _never(*_: Any) -> None:
    raise AssertionError("nothing starts from centroids")


def array(folder: Path, file: str, name: str) -> np.ndarray:
    return read_tensors(folder / file)[0][name]


def test_the_model_answers_and_knows_its_recipe(fitted: Path) -> None:
    found = elias.load(fitted).predict(["w1 w13 w21", "unknown"], k=3)
    assert (found.labels >= 0).all()
    settings = read_json(fitted / "member-0" / "config.json")["settings"]
    assert settings["run"]["recipe"] == RECIPE
    assert (settings["encoder"]["head"], settings["stage2"]["accumulated"]) == ("none", "all")
    assert read_json(fitted / "member-0" / "encoder" / "encoder.json")["head"] == "none"
    assert array(fitted / "member-0", "classifiers.safetensors", "weights").shape == (19, DIM)


def test_labels_are_clustered_twice_and_only_the_clusters_are_kept(fitted: Path, tiny_bert: Path) -> None:
    """22: one epoch on clusters of tf-idf; 24: clusters of [tf-idf, phi] of it; 30: afresh, on these."""
    run = fitted.with_name("model.run") / "member-0"
    first, second = (
        array(run / name, "clusters.safetensors", "cluster_of_label") for name in ("20-clusters", "24-clusters")
    )
    assert not np.array_equal(first, second)
    short, stage1 = (read_json(run / name / "stage.json")["history"] for name in ("22-first-stage", "30-stage1"))
    assert ([record["epoch"] for record in short], len(stage1)) == ([1], 2)
    index = array(run / "30-stage1" / "network", "index.safetensors", "labels")
    clusters = np.repeat(np.arange(4), np.diff(array(run / "30-stage1" / "network", "index.safetensors", "indptr")))
    assert np.array_equal(second[index], clusters)
    begun = load_encoder(run / "10-features" / "encoder")
    word = "embeddings.word_embeddings.weight"
    pretrained = array(tiny_bert, "model.safetensors", word)
    assert np.array_equal(begun.transformer.state_dict()[word].numpy(), pretrained)  # type: ignore[attr-defined]
    for name in ("22-first-stage", "30-stage1"):
        learned = array(run / name / "network" / "encoder" / "transformer", "model.safetensors", word)
        assert not np.array_equal(learned, pretrained)


def test_members_share_nothing_that_depends_on_the_network(fitted: Path) -> None:
    run = fitted.with_name("model.run")
    one, other = run / "member-0", run / "member-1"
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    shared = {path.parts[0] for path in files if (one / path).stat().st_ino == (other / path).stat().st_ino}
    assert shared <= {"05-tokens", "10-features"}
    for file, name in (
        ("24-clusters/clusters.safetensors", "cluster_of_label"),
        ("30-stage1/network/clusters.safetensors", "weight"),
        ("30-stage1/network/classifiers.safetensors", "weights"),
        ("50-stage2/network/classifiers.safetensors", "weights"),
        ("50-stage2/network/encoder/transformer/model.safetensors", "embeddings.word_embeddings.weight"),
    ):
        assert not np.array_equal(array(one, file, name), array(other, file, name)), file


def test_fit_takes_a_recipe(data: Dataset, tiny_bert: Path) -> None:
    changes = {**shrunken(tiny_bert), "clustering.again_after": 0, "stage1.epochs": 0, "stage2.epochs": 0}
    model = elias.fit(data, recipe=RECIPE, settings=changes)
    settings = model.about["settings"]
    assert (settings["run"]["recipe"], settings["stage1"]["epochs"], settings["index"]["beta"]) == (RECIPE, 0, 150)
