"""Noise and randomness as functions of where they are used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elias.core.noise import Noise
from elias.core.rng import generator, key, permutation


def test_a_draw_depends_on_seed_stage_epoch_row_and_column_only() -> None:
    rows, columns = torch.arange(50)[:, None], torch.arange(40)[None, :]
    whole = Noise.of(1, "stage1", 2).uniform(rows, columns)
    assert torch.equal(Noise.of(1, "stage1", 2).uniform(rows[7:9], columns), whole[7:9])
    assert torch.equal(Noise.of(1, "stage1", 2).uniform(rows.int(), columns[:, 3:4]), whole[:, 3:4])
    for other in (Noise.of(2, "stage1", 2), Noise.of(1, "stage2", 2), Noise.of(1, "stage1", 3)):
        assert (other.uniform(rows, columns) != whole).float().mean() > 0.99


def test_the_numbers_of_a_key_never_change() -> None:
    """Files of half-finished runs rely on it."""
    found = Noise(12345678901234567).uniform(torch.tensor([0, 1, 10**9]), torch.tensor([0, 511, -1]))
    assert found.tolist() == [0.3018786907196045, 0.7894194722175598, 0.1800580620765686]
    assert key(0, "stage1", 3, "order") == 217717170208643391


def test_uniform_is_uniform_and_neighbors_are_independent() -> None:
    x = Noise.of(0, "s", 0).uniform(torch.arange(500)[:, None], torch.arange(400)[None, :]).double().numpy()
    assert x.min() >= 0.0
    assert x.max() < 1.0
    counts = np.histogram(x, bins=20, range=(0, 1))[0]
    assert abs(counts / counts.mean() - 1).max() < 0.05
    for a, b in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.01
    assert abs(x.mean(axis=0) - 0.5).max() < 0.08
    assert abs(x.mean(axis=1) - 0.5).max() < 0.08


def test_dropout_keeps_the_expectation_and_draws_by_row() -> None:
    x, rows, noise = torch.ones(200, 300), torch.arange(200), Noise(3)
    dropped = noise.dropout(x, rows, 0.25)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    assert torch.equal(noise.dropout(x, order, 0.25), dropped[order])
    assert noise.dropout(x, rows, 0.0) is x


def test_keys_depend_on_every_part_and_their_order() -> None:
    keys = {key(1, 2), key(2, 1), key(12), key(1, 2, 0), key("1,2"), key(1, "order"), key()}
    assert len(keys) == 7
    assert all(0 <= k < 2**63 for k in keys)


def test_generators_and_permutations_repeat() -> None:
    assert generator(1, "a").random() == generator(1, "a").random() != generator(1, "b").random()
    order = permutation(10, 0, "stage1", 0)
    assert sorted(order.tolist()) == list(range(10))
    assert np.array_equal(order, permutation(10, 0, "stage1", 0))
    assert permutation(0, 1).tolist() == []
