"""Smaller models: rows in fewer bytes, fewer edges; saved, opened, and refused where they make no sense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elias
from elias.core.errors import InputError
from elias.model.compaction import compact
from elias.model.model import Model
from helpers.processes import elias as run
from helpers.processes import one_line


def texts_of(dataset: Path) -> list[str]:
    return list(elias.load_dataset(dataset).splits["test"].texts or [])


@pytest.mark.parametrize(("precision", "bytes_a_value"), [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_a_model_in_fewer_bytes(
    tiny_model: Model, tiny_dataset: Path, tmp_path: Path, precision: str, bytes_a_value: int
) -> None:
    texts = texts_of(tiny_dataset)
    smaller = compact(tiny_model, precision=precision)
    smaller.save(tmp_path / "small")
    opened = elias.load(tmp_path / "small")
    found = opened.predict(texts, k=10, explain=True)
    np.testing.assert_array_equal(found.labels, smaller.predict(texts, k=10).labels)
    whole = tiny_model.predict(texts, k=10)
    assert (found.labels[:, 0] == whole.labels[:, 0]).mean() > 0.95
    np.testing.assert_allclose(found.scores, whole.scores, rtol=0.2)
    candidates = opened.predict(texts[:3], k=4, allow=tiny_model.labels.ids[:9])
    assert (candidates.labels < 9).all()
    size = (tmp_path / "small" / "classifiers.safetensors").stat().st_size
    rows = len(tiny_model.labels) * tiny_model.network.encoder.dim
    assert rows * bytes_a_value < size < rows * bytes_a_value + 8 * len(tiny_model.labels) + 1000
    opened.save(tmp_path / "again")
    for name in ("classifiers.safetensors", "search.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "small" / name).read_bytes()


def test_pruning_keeps_every_label_reachable(tiny_model: Model) -> None:
    pruned = compact(tiny_model, prune=1)
    index = pruned.network.index
    assert index.n_edges < tiny_model.network.index.n_edges
    assert set(index.labels.tolist()) == set(tiny_model.network.index.labels.tolist())
    assert compact(tiny_model, prune=10**6).network.index.n_edges == tiny_model.network.index.n_edges


def test_pruning_by_edge_score(tiny_model: Model) -> None:
    before = tiny_model.network.learned_index()
    limit = float(np.median(before.edge_scores()))
    smaller = compact(tiny_model, prune_below=limit)
    index, strict = smaller.network.index, before.prune(below=limit)
    assert 0 < strict.n_edges <= index.n_edges < before.n_edges
    assert set(index.labels.tolist()) == set(before.labels.tolist())
    done = smaller.about["compacted"]
    assert (done["edges"], done["edges_cut"]) == (index.n_edges, before.n_edges - index.n_edges)
    assert done["labels_kept_reachable"] == before.n_reachable() - strict.n_reachable()
    everything = compact(tiny_model, prune_below=1.0).network.index
    assert everything.n_edges >= before.n_reachable(), "each label's strongest edge stays"
    assert compact(tiny_model, prune_below=0.0).network.index.n_edges == before.n_edges


def test_what_makes_no_sense(tiny_model: Model) -> None:
    with pytest.raises(InputError, match=r"float16.*must be one of"):
        compact(tiny_model, precision="float16")
    with pytest.raises(InputError, match="prune=0"):
        compact(tiny_model, prune=0)
    with pytest.raises(InputError, match=r"prune_below=1\.5: edge scores are from 0 to 1"):
        compact(tiny_model, prune_below=1.5)
    with pytest.raises(InputError, match="prune_below=nan"):
        compact(tiny_model, prune_below=float("nan"))
    with pytest.raises(InputError, match="int8 already"):
        compact(compact(tiny_model, precision="int8"), precision="bfloat16")


def test_the_command(tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    options = ("--precision", "bfloat16", "--prune", "20", "--prune-below", "0.2", "--data", tiny_dataset)
    done = run("compact", tiny_model_folder, "-o", small, *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "P@1" in done.stdout
    edges = elias.load(tiny_model_folder).network.index.n_edges
    cut = edges - elias.load(small).network.index.n_edges
    assert cut > 0
    assert lines[2].startswith(f"cut {cut:,} of {edges:,} edges ({100 * cut / edges:.1f} %); ")
    assert lines[2].endswith(" labels would have become unreachable and keep their strongest edge")
    assert [line.split()[0] for line in lines[-3:]] == ["before", "after", "change"]
    assert run("predict", small, "some text").returncode == 0
    again = run("compact", tiny_model_folder, "-o", small)
    assert again.returncode == 2
    assert one_line(again.stderr)
