"""What a fold knows: nothing of the rows it holds out, and no label with their ids where texts are labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elias.core.files import read_object, read_tensors
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.pipeline.features_step import known_in_fold, unknown_labels
from elias.pipeline.fit import fit_to
from helpers.processes import STACKED

N = 240


def related_items(*, exclude_own_id: bool) -> Dataset:
    """Items in 12 families; each item has the other items of its family that are labels, in both directions."""
    ids = [f"item{row}" for row in range(N)]
    words = np.random.default_rng(0).integers(0, 60, size=(N, 8)).tolist()  # so that texts are no near-duplicates
    texts = [f"family{row % 12} " + " ".join(f"word{word}" for word in words[row]) for row in range(N)]
    labels = [[ids[other] for other in range(row % 12, 96, 12) if other != row] for row in range(N)]
    return Dataset.from_lists(texts, labels, ids=ids, exclude_own_id=exclude_own_id)


@pytest.mark.parametrize("exclude_own_id", [True, False])
def test_a_new_text_is_no_label_yet(exclude_own_id: bool, tmp_path: Path) -> None:
    data = related_items(exclude_own_id=exclude_own_id)
    settings = Settings().updated({**STACKED, "score_model.folds": 1, "split.calibration_rows": 60})
    fit_to(data, tmp_path / "model", settings=settings)
    fold = tmp_path / "model.run" / "fold-0"
    parts, _ = read_tensors(fold / "10-features" / "split.safetensors")
    held_out = {f"item{row}" for row in parts["calibration"]}
    unknown = {data.labels.ids[label] for label in unknown_labels(data, parts)}
    assert unknown == held_out & set(data.labels.ids)
    assert unknown

    clusters = read_tensors(fold / "20-clusters" / "clusters.safetensors")[0]["cluster_of_label"]
    outside = {data.labels.ids[label] for label in np.flatnonzero(clusters < 0)}
    assert outside == (unknown if exclude_own_id else set())
    candidates, _ = read_tensors(fold / "65-held-out" / "held_out.safetensors")
    found = {data.labels.ids[label] for label in np.unique(candidates["labels"]) if label >= 0}
    assert bool(found & unknown) != exclude_own_id

    whole = read_tensors(tmp_path / "model.run" / "20-clusters" / "clusters.safetensors")[0]["cluster_of_label"]
    assert (whole >= 0).all()  # the model knows every label
    quality = read_object(tmp_path / "model" / "config.json", "quality")["quality"]
    assert quality["n_rows"] == 60


def test_only_labels_of_held_out_rows_are_unknown() -> None:
    data = related_items(exclude_own_id=True)
    parts = {"validation": np.array([3]), "calibration": np.array([5, N - 1])}
    known = known_in_fold(data.train.labels, data, parts)
    gone = np.flatnonzero(np.diff(data.train.labels.tocsc().indptr) != np.diff(known.tocsc().indptr))
    assert sorted(data.labels.ids[label] for label in gone) == ["item3", "item5"]
    assert (known != known_in_fold(data.train.labels, data, parts)).nnz == 0
    assert known.has_sorted_indices
