"""On a real GPU: `make test-gpu`. Skipped without one. Not run on the machine on which this was written.

What can be checked without a GPU is in tests/network/test_no_synchronization.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import elias
from elias import kernels
from elias.core.settings import Settings
from elias.dataset import load_dataset
from elias.model.evaluate import evaluate_model
from elias.network.searcher import EncodedQuery, Searcher
from elias.pipeline.fit import fit_to
from helpers.networks import make_steps, network_on
from helpers.processes import SMALL, STACKED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use"),
]
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """Sums by atomics have no fixed order; cuBLAS needs a workspace of fixed size."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_a_search_finds_what_the_cpu_finds() -> None:
    phi, answers = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)), []
    for device in (torch.device("cpu"), CUDA):
        network, _, _ = network_on(device, learned=True, n_labels=3000)
        with torch.no_grad(), kernels.reference():
            query = EncodedQuery(phi.to(device), network.clusters(phi.to(device)))
            answers.append(Searcher(network).search(query, 20, shortlist_size=200))
    np.testing.assert_allclose(answers[1].scores, answers[0].scores, rtol=1e-4, atol=1e-6)
    assert (answers[1].labels == answers[0].labels).mean() > 0.99, "but for scores that are equal to the last digits"


@pytest.mark.parametrize("kind", ["rowwise", "adamw"])
def test_two_steps_are_those_of_the_cpu(kind: str) -> None:
    ends = []
    for device in (torch.device("cpu"), CUDA):
        network, vectors, batch = network_on(device, learned=True)
        with kernels.reference():
            make_steps(network, vectors, batch, network.index.parents(), optimizer=kind)
        ends.append([table.values.cpu() for table in network.tables().values()])
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["rowwise", "adamw"])
def test_a_step_waits_for_the_gpu_only_to_learn_the_size_of_the_union(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, vectors, batch = network_on(CUDA, learned=True)
    parents, waited, nonzero = network.index.parents(), [], torch.nonzero

    def allowed(mask: torch.Tensor) -> torch.Tensor:
        waited.append(mask)
        torch.cuda.set_sync_debug_mode("default")
        try:
            return nonzero(mask)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    make_steps(network, vectors, batch, parents, optimizer=kind)  # uploads the graph
    monkeypatch.setattr(torch, "nonzero", allowed)
    torch.cuda.set_sync_debug_mode("error")
    try:
        make_steps(network, vectors, batch, parents, optimizer=kind)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waited) == 2, "one of each step"


@pytest.mark.parametrize("changes", [SMALL, STACKED])
def test_a_model_fitted_on_a_gpu_is_as_good(tiny_dataset: Path, changes: dict[str, object], tmp_path: Path) -> None:
    data = load_dataset(tiny_dataset)
    quality = []
    for device in ("cpu", "cuda"):
        path = fit_to(data, tmp_path / device, settings=Settings().updated({**changes, "run.device": device}))
        quality.append(evaluate_model(elias.load(path, threads=2), data).metrics)
    for metric in ("P@1", "nDCG@5", "R@10"):
        assert quality[1][metric] == pytest.approx(quality[0][metric], abs=2.0), metric


def test_a_resumed_fit_ends_in_the_same_bits(tiny_dataset: Path, tmp_path: Path) -> None:
    data = load_dataset(tiny_dataset)
    settings = Settings().updated({**SMALL, "run.device": "cuda", "run.checkpoint_seconds": 0})
    whole = fit_to(data, tmp_path / "whole", settings=settings)

    class Cut(Exception):
        pass

    from elias.training import stage

    with pytest.MonkeyPatch.context() as patch:
        save, saved = stage.save_checkpoint, []

        def cut(trainer: object, path: Path) -> None:
            save(trainer, path)  # type: ignore[arg-type]
            saved.append(path)
            if len(saved) == 3:
                raise Cut

        patch.setattr(stage, "save_checkpoint", cut)
        with pytest.raises(Cut):
            fit_to(data, tmp_path / "cut", settings=settings)
    resumed = fit_to(data, tmp_path / "cut", settings=settings)
    files = [path.relative_to(whole) for path in whole.rglob("*.safetensors")]
    assert files
    for name in files:
        assert (whole / name).read_bytes() == (resumed / name).read_bytes(), name
