"""bfloat16 classifiers in training: rounding by kernel and by torch, means that are kept, whole fits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elias
from elias.core.embedding_table import EmbeddingTable
from elias.core.rounding import as_array, as_tensor, average_rounded, rounded_reference
from elias.kernels.rounding import noise_of_row, rounded
from elias.network.quantization import QuantizedRows
from helpers.processes import SMALL
from helpers.tables import KINDS, SHAPE, random_steps, reference_step, table_of

SEEDS = st.integers(0, 10_000)


def half(kind: str, seed: int = 0, threads: int = 1, **constants: float) -> EmbeddingTable:
    table = table_of(kind, seed, threads, **constants)
    return EmbeddingTable(table.values.bfloat16(), table.optimizer, threads=threads)


@settings(max_examples=50)
@given(SEEDS)
def test_kernel_and_torch_round_to_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(4, 9)) * 10.0 ** rng.uniform(-44, 38, (4, 9))).astype(np.float32)
    values[0, :5] = [0.0, -0.0, np.inf, -np.inf, 1.0]
    rows, noise = rng.integers(0, 2**40, 4), int(rng.integers(0, 2**32))
    by_torch = as_array(rounded_reference(torch.from_numpy(values), torch.from_numpy(rows), noise))
    by_kernel = [[rounded(values[i, d], noise_of_row(noise, rows[i]), d) for d in range(9)] for i in range(4)]
    np.testing.assert_array_equal(by_torch, np.array(by_kernel, dtype=np.uint16))
    down = (values.view(np.uint32) >> 16).astype(np.int64)
    assert set((by_torch - down).ravel()) <= {0, 1}, "one of the two neighbors"
    exact = as_tensor(down.astype(np.uint16)).float()
    again = rounded_reference(exact, torch.from_numpy(rows), noise)
    np.testing.assert_array_equal(as_array(again), down, "a bfloat16 stays as it is")


def test_rounding_is_right_on_average() -> None:
    value = torch.full((20_000, 4), 1.0 + 2.0**-7 * 0.3)  # 0.3 of the way between two bfloat16
    drawn = rounded_reference(value, torch.arange(20_000), 12345).double()
    assert set(drawn.unique().tolist()) == {1.0, 1.0 + 2.0**-7}
    np.testing.assert_allclose((drawn.mean(dim=0) - 1.0) / 2.0**-7, 0.3, atol=0.015)
    other = rounded_reference(value, torch.arange(20_000), 12346).double()
    assert abs(float(((drawn > 1.0) & (other > 1.0)).double().mean()) - 0.09) < 0.01, "steps are independent"


@settings(max_examples=30)
@given(SEEDS, st.sampled_from(KINDS), st.sampled_from([0.0, 0.01, 0.9]))
def test_steps_agree_with_their_definition(seed: int, kind: str, decay: float) -> None:
    """The float32 before rounding may differ in its last bit, and then a neighbor is drawn."""
    by_kernel, by_torch = half(kind, seed, decay=decay, epsilon=1e-6), half(kind, seed, decay=decay, epsilon=1e-6)
    for rows, gradients, rate in random_steps(seed, 3):
        by_kernel.apply(rows, gradients, rate)
        by_torch.begin_step(rate)
        reference_step(by_torch, rows, gradients, rate)
        np.testing.assert_allclose(by_kernel.values.float(), by_torch.values.float(), rtol=2.0**-6, atol=1e-4)
        by_torch.restore({name: tensor.clone() for name, tensor in by_kernel.tensors().items()})
    assert by_kernel.values.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_small_steps_and_decay_add_up(kind: str) -> None:
    """Each changes a value by a hundredth of the spacing, where rounding to nearest would never move."""
    shape = (2000, 8)
    table = EmbeddingTable(torch.ones(shape).bfloat16(), dataclasses.replace(half(kind).optimizer, decay=0.01))
    exact = EmbeddingTable(torch.ones(shape), table.optimizer)
    for _ in range(100):
        for each in (table, exact):
            each.apply(torch.arange(1000), torch.ones(1000, 8), 5e-5)
    table.flush()
    exact.flush()
    np.testing.assert_allclose(table.values[:1000].double().mean(), exact.values[:1000].double().mean(), atol=2e-4)
    np.testing.assert_allclose(table.values[1000:].double().mean(), exact.values[1000:].double().mean(), atol=2e-4)
    flushed = table.values.clone()
    table.flush()
    assert torch.equal(flushed, table.values), "a row without pending decay is not rounded again"


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_interruptions_change_nothing(kind: str) -> None:
    tables = [half(kind, threads=threads) for threads in (1, 2, 5)]
    for number, step in enumerate(random_steps(4, 8)):
        for table in tables:
            table.apply(*step)
        if number == 3:
            fresh = EmbeddingTable(torch.zeros(SHAPE).bfloat16(), tables[2].optimizer, threads=5)
            fresh.restore({name: tensor.clone() for name, tensor in tables[2].tensors().items()})
            fresh.key, tables[2] = tables[2].key, fresh
    for table in tables:
        table.flush()
    assert all(torch.equal(tables[0].values, table.values) for table in tables[1:])
    other = half(kind)
    other.key = 7
    for step in random_steps(4, 8):
        other.apply(*step)
    other.flush()
    assert not torch.equal(other.values, tables[0].values), "another seed rounds otherwise"


def test_running_means_are_right_on_average() -> None:
    rng = np.random.default_rng(0)
    values = [torch.from_numpy(rng.normal(3.0, 0.01, (500, 16)).astype(np.float32)).bfloat16() for _ in range(12)]
    means = []
    for threads in (1, 3):
        mean = values[0].clone()
        for count, each in enumerate(values[1:], start=2):
            average_rounded(mean, each, 1.0 / count, 77 + count, threads=threads)
        means.append(mean)
    assert torch.equal(*means)
    wanted = torch.stack([each.double() for each in values]).mean(dim=0)
    assert abs(float((means[0].double() - wanted).mean())) < 2e-4
    assert float((means[0].double() - wanted).abs().max()) < 0.05


OPTIONS: list[dict[str, Any]] = [
    {"network.precision": "bfloat16"},
    {"network.precision": "bfloat16", "network.kind": "one-versus-all"},
    {"network.precision": "bfloat16", **{f"stage{n}.optimizer": "adamw" for n in (1, 2)}},
]


@pytest.mark.parametrize("changes", OPTIONS)
def test_fit_predict_save_load(tiny_dataset: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    small = dict(SMALL)
    if "network.kind" in changes:
        small = {key: value for key, value in small.items() if key not in ("clustering.clusters", "stage2.epochs")}
    data, options = elias.load_dataset(tiny_dataset), elias.Settings().updated({**small, **changes})
    model = elias.fit(data, settings=options, run_dir=tmp_path / "run")
    is_half = changes.get("network.precision") == "bfloat16"
    assert isinstance(model.network.classifier_weights, QuantizedRows) == is_half
    texts = [data.splits["test"].texts[row] for row in range(40)]
    found = model.predict(texts, k=5)
    model.save(tmp_path / "model")
    again = elias.load(tmp_path / "model").predict(texts, k=5)
    np.testing.assert_array_equal(found.labels, again.labels)
    np.testing.assert_array_equal(found.scores, again.scores)
    truth = data.splits["test"].labels[:40].toarray()
    assert truth[np.arange(40), found.labels[:, 0]].mean() >= 0.25
