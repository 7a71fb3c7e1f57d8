"""Time of clustering 131,072 labels with about 200 values each in 40,000 columns.

python benchmarks/clustering.py [--labels N] [--clusters N] [--threads N] [--dense COLUMNS] [--json]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp

from elias.encoders.centroids import normalize_rows
from elias.index.clustering import balanced_clusters


def random_centroids(n_labels: int, n_columns: int, values: int, seed: int) -> sp.csr_matrix:
    """Labels in topics: half of a label's words come from its topic, half from a long-tailed common list."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, n_columns - 500, n_labels // 64 + 1)
    own = topics[rng.integers(0, len(topics), n_labels)][:, None] + rng.integers(0, 500, (n_labels, values // 2))
    common = (n_columns * rng.random((n_labels, values - values // 2)) ** 3).astype(np.int64)
    indices = np.concatenate([own, common], axis=1).astype(np.int32)
    indptr = np.arange(n_labels + 1, dtype=np.int32) * values
    data = rng.random(n_labels * values, dtype=np.float32)
    matrix = sp.csr_matrix((data, indices.ravel(), indptr), shape=(n_labels, n_columns))
    matrix.sum_duplicates()
    return normalize_rows(matrix)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=40_000)
    parser.add_argument("--values", type=int, default=200)
    parser.add_argument("--dense", type=int, default=0, metavar="COLUMNS", help="dense centroids instead")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    centroids: sp.csr_matrix | np.ndarray
    if options.dense:
        rng = np.random.default_rng(options.seed)
        centroids = normalize_rows(rng.standard_normal((options.labels, options.dense), dtype=np.float32))
    else:
        centroids = random_centroids(options.labels, options.columns, options.values, options.seed)
    balanced_clusters(centroids[:64], 4, seed=0)  # compile, or read the compiled kernels, outside the measurement
    start = time.perf_counter()
    clusters = balanced_clusters(
        centroids, options.clusters, seed=options.seed, iterations=options.iterations, threads=options.threads
    )
    seconds = time.perf_counter() - start
    sizes = np.bincount(clusters, minlength=options.clusters)
    result = {
        "seconds": round(seconds, 2), "labels": options.labels, "clusters": options.clusters,
        "threads": options.threads, "largest": int(sizes.max()), "smallest": int(sizes.min()),
    }  # fmt: skip
    print(json.dumps(result) if options.json else "  ".join(f"{key} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
