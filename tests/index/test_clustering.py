"""Balanced clustering: the kernel, its definition and a recursive one in plain numpy agree; and what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from elias import kernels
from elias.core.errors import InputError
from elias.core.rng import generator
from elias.core.sparse_files import open_csr, write_csr
from elias.encoders.centroids import normalize_rows
from elias.index.clustering import balanced_clusters


def random_rows(n_rows: int, n_columns: int, seed: int, density: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density)
    return normalize_rows(values.astype(np.float32))


def unit(vector: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def slow_clusters(rows: np.ndarray, n_clusters: int, seed: int, iterations: int = 20) -> np.ndarray:
    """The definition, recursively, in float64."""
    rows = rows.astype(np.float64)
    clusters = np.full(len(rows), -1)

    def divide(labels: list[int], first_cluster: int, count: int, node: int) -> None:
        if count == 1:
            clusters[labels] = first_cluster
            return
        size, larger = divmod(len(labels), count)
        n_left = count // 2 * size + larger * (count // 2) // count
        left, right = labels[:n_left], labels[n_left:]
        if left and right:
            pair = generator("clustering", seed, node).choice(len(labels), 2, replace=False)
            centers = [unit(rows[labels[place]]) for place in pair]
            for iteration in range(iterations):
                scores = (rows @ (centers[0] - centers[1])).astype(np.float32)
                ranked = sorted(labels, key=lambda label: (-scores[label], label))
                chosen = sorted(ranked[:n_left])
                if iteration and chosen == left:
                    break
                left, right = chosen, sorted(ranked[n_left:])
                centers = [unit(rows[left].sum(axis=0)), unit(rows[right].sum(axis=0))]
        divide(left, first_cluster, count // 2, 2 * node)
        divide(right, first_cluster + count // 2, count - count // 2, 2 * node + 1)

    divide(list(range(len(rows))), 0, n_clusters, 1)
    return clusters


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n_labels", "n_clusters"), [(2, 2), (9, 3), (40, 8), (57, 7), (30, 1), (3, 5)])
def test_kernel_and_definition_are_the_recursive_formula(n_labels: int, n_clusters: int, seed: int) -> None:
    rows = random_rows(n_labels, 6, seed)
    got = balanced_clusters(sp.csr_matrix(rows), n_clusters, seed=seed)
    assert got.dtype == np.int32
    assert got.tolist() == slow_clusters(rows, n_clusters, seed).tolist()
    for centroids in (rows, sp.csr_matrix(rows)):
        with kernels.reference():
            assert balanced_clusters(centroids, n_clusters, seed=seed).tolist() == got.tolist()
    few = balanced_clusters(sp.csr_matrix(rows), n_clusters, seed=seed, iterations=2)
    assert few.tolist() == slow_clusters(rows, n_clusters, seed, iterations=2).tolist()


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 90), st.integers(1, 40), st.integers(0, 3), st.booleans())
def test_sizes_differ_by_at_most_one(n_labels: int, n_clusters: int, seed: int, duplicates: bool) -> None:
    rows = random_rows(n_labels, 5, seed, density=0.3)
    if duplicates:
        rows = rows[np.arange(n_labels) // 7 * 7]
    members = np.random.default_rng(seed).random(n_labels) < 0.8
    clusters = balanced_clusters(sp.csr_matrix(rows), n_clusters, seed=seed, members=members)
    assert ((clusters >= 0) == members).all()
    sizes = np.bincount(clusters[members], minlength=n_clusters)
    assert len(sizes) == n_clusters
    assert sizes.max() - sizes.min() <= 1


def test_depends_on_the_seed_and_not_on_threads() -> None:
    rows = sp.csr_matrix(random_rows(500, 20, seed=1))
    one = balanced_clusters(rows, 37, seed=5, threads=1)
    assert np.array_equal(one, balanced_clusters(rows, 37, seed=5, threads=1))
    assert np.array_equal(one, balanced_clusters(rows, 37, seed=5, threads=4))
    assert not np.array_equal(one, balanced_clusters(rows, 37, seed=6, threads=1))


def test_labels_out_of_the_mask_change_nothing() -> None:
    rows = random_rows(80, 10, seed=2)
    members = np.arange(80) % 3 != 0
    changed = rows.copy()
    changed[~members] = 1.0
    got = balanced_clusters(sp.csr_matrix(rows), 8, seed=0, members=members)
    assert np.array_equal(got, balanced_clusters(sp.csr_matrix(changed), 8, seed=0, members=members))


def test_recovers_planted_clusters() -> None:
    rng = np.random.default_rng(0)
    planted = np.repeat(np.arange(2), 50)[rng.permutation(100)]
    rows = np.eye(2, 30)[planted] + 0.05 * rng.standard_normal((100, 30))
    clusters = balanced_clusters(normalize_rows(rows), 2, seed=0)
    assert len({(a, b) for a, b in zip(planted, clusters, strict=True)}) == 2
    topics = np.repeat(np.arange(16), 32)  # a hierarchy: 4 groups of 4 topics
    centers = np.eye(4, 40)[np.arange(16) // 4] + 0.7 * np.eye(16, 40, k=4)
    rows = centers[topics] + 0.02 * rng.standard_normal((512, 40))
    clusters = balanced_clusters(sp.csr_matrix(normalize_rows(rows)), 16, seed=0)
    share = np.mean([np.bincount(clusters[topics == topic]).max() / 32 for topic in range(16)])
    assert share > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_dense_is_sparse(seed: int) -> None:
    rows = random_rows(150, 12, seed, density=0.4)
    rows[::10] = 0.0
    rows[5:30] = rows[5]
    sparse = balanced_clusters(sp.csr_matrix(rows), 11, seed=seed)
    assert np.array_equal(sparse, balanced_clusters(rows, 11, seed=seed))
    assert np.array_equal(sparse, balanced_clusters(np.asfortranarray(rows.astype(np.float64)), 11, seed=seed))


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_equal_labels_are_cut_by_number(value: float) -> None:
    rows = np.full((10, 4), value, dtype=np.float32)
    for centroids in (rows, sp.csr_matrix(rows)):
        assert balanced_clusters(centroids, 5, seed=0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_mapped_centroids_and_progress(tmp_path: Path) -> None:
    rows = sp.csr_matrix(random_rows(60, 10, seed=4))
    write_csr(tmp_path, rows)
    seen: list[tuple[int, int]] = []
    mapped = balanced_clusters(open_csr(tmp_path), 6, seed=0, progress=lambda done, levels: seen.append((done, levels)))
    assert np.array_equal(mapped, balanced_clusters(rows, 6, seed=0))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_bad_arguments_are_named() -> None:
    rows = random_rows(10, 4, seed=0)
    with pytest.raises(InputError, match="n_clusters is 0"):
        balanced_clusters(rows, 0, seed=0)
    with pytest.raises(InputError, match="threads is 0"):
        balanced_clusters(rows, 2, seed=0, threads=0)
    with pytest.raises(InputError, match="members must be one bool"):
        balanced_clusters(rows, 2, seed=0, members=np.ones(9, dtype=bool))
    rows[3, 1] = np.nan
    with pytest.raises(InputError, match="not finite"):
        balanced_clusters(sp.csr_matrix(rows), 2, seed=0)


def test_importing_the_module_does_not_import_numba() -> None:
    code = "import sys, elias.index.clustering; sys.exit('numba' in sys.modules)"
    source = str(Path(__file__).resolve().parents[2] / "src")
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}).returncode == 0


@pytest.mark.slow
def test_131072_labels_take_less_than_a_minute() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "benchmarks" / "clustering.py"), "--json"]
    done = subprocess.run(command, env={"PYTHONPATH": str(root / "src")}, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["seconds"] < 60
    assert result["largest"] - result["smallest"] <= 1
