"""Ranking steps of unusual settings: unseen labels, no label tree, no k-NN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias.core.files import link_tree
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.model.evaluate import evaluate_model
from elias.model.model import Model
from elias.model.storage import load_model
from elias.pipeline.fit import fit_to
from helpers.processes import STACKED

PAIRS = [("red", "car"), ("green", "tree"), ("old", "house"), ("new", "boat"), ("red", "rose"), ("big", "dog")]
RANKING = ["60-ranking", "65-held-out", "70-score-model", "80-ranking", "85-quality", "90-model"]


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


@pytest.mark.parametrize(("changes", "name"), [({"label_tree.trees": 0}, "label_tree"), ({"knn.neighbors": 0}, "knn")])
def test_parts_that_are_left_out(
    data: Dataset, tmp_path: Path, stacked_folder: Path, changes: dict[str, Any], name: str
) -> None:
    """Fewer features for the score; the network stays as it is."""
    output, run = refitted(data, stacked_folder, tmp_path / "model", changes), tmp_path / "model.run"
    assert built(run) == RANKING, "and no stage"
    assert not (output / f"{name}.safetensors").exists()
    summary = json.loads((output / "ranking.json").read_text())
    assert not summary["label_trees" if name == "label_tree" else name]
    without, whole = load_model(output, threads=2), load_model(stacked_folder, threads=2)
    assert without.reranker is not None
    assert whole.reranker is not None
    sizes = [
        (len(one.parts.trees) if name == "label_tree" else one.parts.knn.neighbors)
        for one in (without.reranker, whole.reranker)
    ]
    assert sizes[0] == 0 < sizes[1]
    assert evaluate_model(without, data).metrics["P@1"] > 60
