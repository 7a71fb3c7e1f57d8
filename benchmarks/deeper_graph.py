"""A level more: root -> nodes -> clusters -> labels. What it would be worth, before it is built.

    python benchmarks/deeper_graph.py --labels 1000000 10000000 30000000 [--dim 64] [--nodes-size 64] [--beam-nodes 32]
    python benchmarks/deeper_graph.py --model MODEL --data DATA [--nodes-size 16] [--beam-nodes 4 8]

The first form measures time. Two levels score all C clusters of a text, three the nodes above them and then the
clusters of the best nodes alone; what follows, edges and classifiers, is the same. Networks are generated: int8
classifiers, the edge scores and cluster logits of `generator.json`, edges to random labels, so that no row is near
another in memory. C ~ L / 100, the rule, and fewer clusters with longer rows, to find the best of two levels.

The second measures what three levels lose on a trained network. A node is a run of consecutive clusters: recursive
2-means numbers clusters that are alike one after the other. Node scores are learned: a linear layer on phi is fitted
on training texts to the share of softmax(W_C phi) that falls into each node. `agrees`: the share of the 100 best labels
of two levels that three levels find.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch
from generator import NEAR, PROFILE, Parameters, read_parameters
from numba import njit
from timing import batch_ms, machine, report, single_ms

import elias
from elias import kernels
from elias.core.metrics import evaluate
from elias.core.propensity import PropensityModel
from elias.kernels.beam_search import (
    Classifiers,
    Edges,
    beam_of,
    bound_scores,
    exact_scores,
    keep_largest,
    keep_possible,
    length_bound,
    search_rows,
    shortlist_of,
    write_best,
)
from elias.model.evaluate import labels_by_model
from elias.network.cpu_search import empty_result, facts_of, new_scratch
from elias.network.searcher import Searcher

ALPHA, BEAM, SHORTLIST, K, BATCH, TEXTS = 10.0, 20, 2000, 100, 256, 1024
NONE = np.empty(0, dtype=np.int32)


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.model:
        rows = losses(args)
        report(f"{args.model}, {machine()}", rows, as_json=args.json, **machine())
        return
    rows = []
    for labels in args.labels:
        rule = 2 ** int(np.ceil(np.log2(labels / 100)))
        for clusters in (rule >> 6, rule >> 5, rule >> 4, rule >> 2, rule):
            rows += times(read_parameters(), labels, clusters, args)
    report(f"d = {args.dim}, {args.threads} threads, {machine()}", rows, as_json=args.json, **machine())


# -- time -------------------------------------------------------------------------------------------------------------


def times(parameters: Parameters, labels: int, clusters: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of two levels and of three."""
    rng = np.random.default_rng(0)
    kappa = 10 * labels // clusters
    edges, classifiers = generated(rng, parameters, labels, clusters, kappa, args.dim)
    w_CD = rng.standard_normal((clusters, args.dim), dtype=np.float32)
    w_GD = rng.standard_normal((clusters // args.nodes_size, args.dim), dtype=np.float32)
    phi_ND = rng.standard_normal((TEXTS, args.dim), dtype=np.float32)
    near = np.stack([near_clusters(rng, clusters) for _ in range(TEXTS)])
    logits_NT = np.array(parameters.logits[:NEAR], dtype=np.float32)[None].repeat(TEXTS, axis=0)
    scratches = [new_scratch(labels, BEAM * kappa) for _ in range(args.threads)]
    result, bottom = empty_result(BATCH, K), np.zeros(BATCH + 1, dtype=np.int64)

    def two(texts: np.ndarray) -> None:
        logits_BC = (torch.from_numpy(phi_ND[texts]) @ torch.from_numpy(w_CD).T).numpy()
        np.put_along_axis(logits_BC, near[texts], logits_NT[texts] + 4, axis=1)  # random vectors have no near ones

        def rows(start: int, stop: int) -> None:
            scratch = scratches.pop()
            search_rows(start, stop, phi_ND[texts], logits_BC, ALPHA, BEAM, SHORTLIST, edges, classifiers, bottom,
                        NONE, scratch, result)  # fmt: skip
            scratches.append(scratch)

        kernels.run(rows, len(texts), args.threads)

    def three(texts: np.ndarray) -> None:
        logits_BG = (torch.from_numpy(phi_ND[texts]) @ torch.from_numpy(w_GD).T).numpy()
        np.put_along_axis(logits_BG, near[texts] // args.nodes_size, np.float32(20), axis=1)

        def rows(start: int, stop: int) -> None:
            scratch = scratches.pop()
            search_three(start, stop, phi_ND[texts], logits_BG, w_CD, near[texts], logits_NT[texts] + 4, ALPHA,
                         args.beam_nodes[0], args.nodes_size, BEAM, SHORTLIST, edges, classifiers, scratch,
                         result)  # fmt: skip
            scratches.append(scratch)

        kernels.run(rows, len(texts), args.threads)

    found = []
    for name, search in (("two levels", two), ("three levels", three)):
        batch = batch_ms(partial(_batch, search, BATCH), BATCH, 12, seconds=30)
        p50, p99 = single_ms(partial(_batch, search, 1), 200, seconds=15)
        found.append({"labels": labels, "C": clusters, "kappa": kappa, "levels": name, "batch ms": batch,
                      "single p50": p50, "single p99": p99})  # fmt: skip
    return found


def _batch(search: Any, size: int, number: int) -> None:
    search((np.arange(size) + number * size) % TEXTS)


def near_clusters(rng: np.random.Generator, clusters: int) -> np.ndarray:
    """NEAR clusters of one neighborhood."""
    middle = int(rng.integers(0, clusters))
    around = np.unique(np.clip(middle + np.arange(-2 * NEAR, 2 * NEAR), 0, clusters - 1))
    return rng.permutation(around)[:NEAR]


def generated(
    rng: np.random.Generator, parameters: Parameters, labels: int, clusters: int, kappa: int, dim: int
) -> tuple[Edges, Classifiers]:
    """Edges to random labels with falling scores, and int8 classifiers."""
    profile = np.interp(np.linspace(0, 1, kappa), np.linspace(0, 1, PROFILE), parameters.edge_profile)
    scores = np.broadcast_to(profile.astype(np.float32), (clusters, kappa)).reshape(-1).copy()
    targets = rng.integers(0, labels, clusters * kappa, dtype=np.int32)
    codes = rng.integers(-127, 128, (labels, dim), dtype=np.int8)
    scales = np.full(labels, parameters.z_spread / (73 * np.sqrt(dim)), dtype=np.float32)
    biases = np.full(labels, parameters.z_mean, dtype=np.float32)
    facts = facts_of(scales, biases, np.zeros(labels, dtype=np.float32))
    return (
        Edges(np.arange(clusters + 1, dtype=np.int64) * kappa, targets, scores),
        Classifiers(codes, scales, biases, codes, facts),
    )


@njit(nogil=True)
def best_of(values, out):  # type: ignore[no-untyped-def]
    """The places of the largest values, largest first."""
    count = 0
    for place in range(len(values)):
        if count == len(out) and not values[place] > values[out[count - 1]]:
            continue
        at = count if count < len(out) else count - 1
        while at > 0 and values[place] > values[out[at - 1]]:
            out[at] = out[at - 1]
            at -= 1
        out[at] = place
        count = min(count + 1, len(out))


@njit(nogil=True, fastmath=True)
def cluster_logits(phi, w_CD, nodes, size, out):  # type: ignore[no-untyped-def]
    """Of the clusters of some nodes."""
    for i in range(len(nodes)):
        for j in range(size):
            row, total = w_CD[nodes[i] * size + j], np.float32(0)
            for d in range(len(phi)):
                total += row[d] * phi[d]
            out[i * size + j] = total


@njit(nogil=True)
def search_three(  # type: ignore[no-untyped-def]
    start, stop, phi_BD, logits_BG, w_CD, near_BT, given_BT, alpha, beam_nodes, size, beam, shortlist, edges,
    classifiers, scratch, result,
):  # fmt: skip
    """`search_rows` with a beam over the nodes first."""
    nodes, logits = np.empty(beam_nodes, dtype=np.int64), np.empty(beam_nodes * size, dtype=np.float32)
    clusters_T, scores_T = np.empty(beam, dtype=np.int64), np.empty(beam, dtype=np.float32)
    none, k = np.empty(0, dtype=np.int32), result.labels.shape[1]
    for row in range(start, stop):
        phi = phi_BD[row]
        best_of(logits_BG[row], nodes)
        cluster_logits(phi, w_CD, nodes, size, logits)
        for i in range(beam_nodes):  # the given logits of the near clusters, as with two levels
            for j in range(len(near_BT[row])):
                if near_BT[row, j] // size == nodes[i]:
                    logits[i * size + near_BT[row, j] % size] = given_BT[row, j]
        beam_of(logits, alpha, clusters_T, scores_T)
        for t in range(beam):
            clusters_T[t] = nodes[clusters_T[t] // size] * size + clusters_T[t] % size
        count = shortlist_of(none, shortlist, clusters_T, scores_T, edges, scratch)
        if count > k:
            bound_scores(0, count, phi, length_bound(phi), classifiers, scratch)
            count = keep_possible(0, count, k, scratch)
        exact_scores(0, count, phi, classifiers, scratch)
        if count > k:
            count = keep_largest(0, count, k, scratch.low_at, scratch)
        write_best(0, count, row, clusters_T, scores_T, scratch, result)


# -- recall -----------------------------------------------------------------------------------------------------------


def losses(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Metrics of a trained network with two levels, and with three."""
    model, data = elias.load(args.model, threads=args.threads), elias.load_dataset(args.data)
    test = data.splits["test"]
    train_ND = torch.from_numpy(encode(model, data.train.texts or []))
    phi_ND = torch.from_numpy(encode(model, test.texts or []))
    searcher, truth = Searcher(model.network), labels_by_model(model, data, test)
    propensity = PropensityModel(
        model.label_counts, model.n_train, data.settings.propensity_a, data.settings.propensity_b
    )
    with torch.no_grad():
        logits_NC, train_NC = model.network.clusters(phi_ND), model.network.clusters(train_ND)
    n_clusters = logits_NC.shape[1]
    layer = fitted_nodes(train_ND, train_NC, args.nodes_size)
    node_of = torch.arange(n_clusters) // args.nodes_size
    rows, reference = [], None
    for beam_nodes in (n_clusters // args.nodes_size, *args.beam_nodes):
        with torch.no_grad():
            best = layer(phi_ND).topk(beam_nodes, dim=1).indices
        explored = torch.zeros((len(phi_ND), n_clusters // args.nodes_size), dtype=torch.bool)
        explored.scatter_(1, best, True)
        logits = logits_NC.masked_fill(~explored[:, node_of], -1e9).contiguous().numpy()
        search, settings = searcher.cpu_search, model.network.settings
        found = [
            search.search(phi_ND[i : i + BATCH].numpy(), logits[i : i + BATCH], K, settings).labels
            for i in range(0, len(phi_ND), BATCH)
        ]
        labels = np.concatenate(found)
        reference = labels if reference is None else reference
        metrics = evaluate(labels, truth, propensity)
        agrees = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(labels, reference, strict=True)])
        rows.append({"nodes": n_clusters // args.nodes_size, "explored": beam_nodes, "P@1": metrics["P@1"],
                     "nDCG@5": metrics["nDCG@5"], "R@100": metrics["R@100"], "agrees": float(agrees)})  # fmt: skip
    return rows


def encode(model: elias.Model, texts: Any) -> np.ndarray:
    prepared = model.network.encoder.prepare(model.read_texts(list(texts)))
    with torch.no_grad():
        return model.network.encoder.encode(prepared, np.arange(len(texts))).numpy()


def fitted_nodes(phi_ND: torch.Tensor, logits_NC: torch.Tensor, size: int, steps: int = 600) -> torch.nn.Linear:
    """A linear layer whose softmax is the share of softmax(W_C phi) in each node."""
    share_NG = torch.softmax(logits_NC, dim=1).reshape(len(logits_NC), -1, size).sum(dim=2)
    layer = torch.nn.Linear(phi_ND.shape[1], share_NG.shape[1])
    optimizer, generator = torch.optim.AdamW(layer.parameters(), lr=1e-2), torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(0, len(phi_ND), (1024,), generator=generator)
        loss = torch.nn.functional.cross_entropy(layer(phi_ND[rows]), share_NG[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[1_000_000, 10_000_000, 30_000_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--nodes-size", type=int, default=64, help="clusters per node")
    parser.add_argument("--beam-nodes", type=int, nargs="+", default=[32], help="nodes that are explored")
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
