"""Networks of any size that search like a trained one, for benchmarks at sizes that no dataset here has.

    python benchmarks/generator.py MODEL DATA        fit the parameters to a trained model (benchmarks/generator.json)
    python benchmarks/generator.py --show            the generated network's quantiles beside the model's own

What the parameters hold, and what the generator does with it:

    cluster logits   mean logit of the 1st, 2nd, ... 40th cluster of a text, above the mean of all clusters: a text is
                     drawn near 40 clusters of one neighborhood with just these logits
    edge scores      mean e by rank within a cluster (as a share of kappa): every cluster has this profile
    sharing          different labels among the paths of a beam: it sets the size of a neighborhood, within which
                     clusters share labels
    classifiers      length of w and phi, bias, and mean and spread of w.phi on shortlists

`flat_network` is the worst case: equal clusters, equal edges, equal classifiers, so that no bound excludes anything.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import elias
from elias.core.embedding_table import EmbeddingTable
from elias.encoders.encoder import TrainingContext
from elias.index.label_index import LabelIndex
from elias.network.network import Network, SearchSettings
from elias.network.searcher import EncodedQuery, Searcher

PARAMETERS = Path(__file__).with_name("generator.json")
NEAR = 40  # clusters of a text whose logits are given
PROFILE = 101  # points of the profile of edge scores
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
RANKS = (1, 2, 5, 10, 20)


class GivenPhi:
    """An encoder whose inputs are phi itself: benchmarks of the search leave the encoder out."""

    kind = "given"

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.identity = torch.nn.Identity()

    def encode(self, prepared: np.ndarray, rows: np.ndarray, context: TrainingContext | None = None) -> torch.Tensor:
        return torch.from_numpy(prepared[rows])

    def module(self) -> torch.nn.Module:
        return self.identity

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Measured on one model; sizes are free."""

    logits: list[float]  # of the NEAR best clusters, above the mean of all
    edge_profile: list[float]  # mean e by rank / edges of the cluster
    distinct: float  # different labels / paths of a beam
    weight_length: float
    phi_length: float
    bias: float
    z_mean: float  # w.phi + b on shortlists
    z_spread: float


def describe(network: Network, phi: np.ndarray) -> tuple[Parameters, dict[str, list[float]]]:
    """Parameters of a network on some phi, and the quantiles that show how well they are met."""
    network = Network(
        GivenPhi(phi.shape[1]), network.clusters, network.learned_index(), network.trained_weights,
        network.classifier_biases, network.settings, threads=network.threads,
    )  # fmt: skip
    searcher = Searcher(network)
    phi_BD = torch.from_numpy(phi)
    with torch.no_grad():
        logits = network.clusters(phi_BD)
        s = searcher.cluster_scores(EncodedQuery(phi_BD, logits)).sort(dim=1, descending=True).values.numpy()
    best = logits.sort(dim=1, descending=True).values[:, :NEAR].numpy() - logits.mean(dim=1, keepdim=True).numpy()
    edges = searcher.cpu_search.edges
    lengths = np.diff(edges.indptr)
    rows = [edges.scores[a:b] for a, b in zip(edges.indptr[:-1], edges.indptr[1:], strict=True) if b - a >= PROFILE]
    grid = np.linspace(0, 1, PROFILE)
    profile = np.mean([np.interp(grid, np.linspace(0, 1, len(row)), row) for row in rows], axis=0)
    beams = network.beam(logits).numpy()
    distinct = [
        len(np.unique(np.concatenate([edges.labels[edges.indptr[c] : edges.indptr[c + 1]] for c in beam])))
        / lengths[beam].sum()
        for beam in beams[:200]
    ]
    found = searcher.search_rows(phi, np.arange(len(phi)), 100, explain=True)
    shortlist = searcher.search_rows(phi, np.arange(min(200, len(phi))), network.settings.shortlist_size, explain=True)
    assert shortlist.parts is not None
    sigma = np.clip(shortlist.parts["classifier"][shortlist.labels >= 0].astype(np.float64), 1e-12, 1 - 1e-7)
    z = np.log(sigma / (1 - sigma))
    weights = network.trained_weights.values.numpy()
    parameters = Parameters(
        logits=[round(float(x), 4) for x in best.mean(axis=0)],
        edge_profile=[round(float(x), 5) for x in profile],
        distinct=float(np.mean(distinct)),
        weight_length=float(np.linalg.norm(weights, axis=1).mean()),
        phi_length=float(np.linalg.norm(phi, axis=1).mean()),
        bias=float(network.classifier_biases.values.mean()),
        z_mean=float(z.mean()),
        z_spread=float(z.std()),
    )
    seen = {
        f"s_c at rank {', '.join(map(str, RANKS))}": [float(np.mean(s[:, r - 1])) for r in RANKS if r <= s.shape[1]],
        "e at 50 75 90 95 99 %": [float(x) for x in np.quantile(edges.scores, QUANTILES)],
        "different labels / paths": [parameters.distinct],
        "z on shortlists, 5 50 95 99 %": [float(x) for x in np.quantile(z, [0.05, 0.5, 0.95, 0.99])],
        "score at rank 1, 5, 100": [float(np.mean(found.scores[:, r - 1])) for r in (1, 5, 100)],
    }
    return parameters, seen


def read_parameters() -> Parameters:
    content = json.loads(PARAMETERS.read_text())
    return Parameters(**content["parameters"])


def fitted_network(
    parameters: Parameters, *, labels: int, clusters: int, kappa: int, dim: int, texts: int, settings: SearchSettings,
    threads: int, seed: int = 0,
) -> tuple[Network, np.ndarray]:  # fmt: skip
    """A network and some phi with the parameters of a trained model."""
    rng = np.random.default_rng(seed)
    own = labels / clusters
    neighbors = int(
        np.clip(round(parameters.distinct * settings.beam_size * kappa / own), settings.beam_size, clusters)
    )
    neighbors = max(neighbors, min(NEAR, clusters), -(-kappa * clusters // labels))
    centers = _unit(rng.standard_normal((clusters, dim), dtype=np.float32))
    index, cluster_of = _edges(rng, parameters, labels, clusters, kappa, min(neighbors, clusters))
    phi, linear = _texts(rng, parameters, centers, neighbors, texts)
    weights, biases = _classifiers(rng, parameters, centers, cluster_of, phi)
    tables = (
        EmbeddingTable(torch.from_numpy(weights), threads=threads),
        EmbeddingTable(torch.from_numpy(biases), threads=threads),
    )
    return Network(GivenPhi(dim), linear, index, *tables, settings, threads=threads), phi


def _edges(
    rng: np.random.Generator, parameters: Parameters, labels: int, clusters: int, kappa: int, neighbors: int
) -> tuple[LabelIndex, np.ndarray]:
    """Own labels get a cluster's best edges, labels of its neighborhood the others."""
    kappa = min(kappa, labels)
    cut = np.linspace(0, labels, clusters + 1).astype(np.int64)
    profile = np.interp(np.linspace(0, 1, kappa), np.linspace(0, 1, PROFILE), parameters.edge_profile)
    rows, logits = np.empty((clusters, kappa), dtype=np.int32), np.empty((clusters, kappa), dtype=np.float32)
    for c in range(clusters):
        first = cut[max(0, min(c - neighbors // 2, clusters - neighbors))]
        last = cut[min(clusters, max(c - neighbors // 2, 0) + neighbors)]
        mine = np.arange(cut[c], cut[c + 1])[:kappa]
        pool = np.concatenate([np.arange(first, cut[c]), np.arange(cut[c + 1], last)])
        others = rng.choice(pool, kappa - len(mine), replace=False)
        row = np.concatenate([mine, others])
        order = np.argsort(row)
        rows[c], logits[c] = row[order], np.log(np.maximum(profile, 1e-6))[order]
    permuted = rng.permutation(labels).astype(np.int32)  # rows of a cluster are not neighbors in memory
    rows = permuted[rows]
    order = np.argsort(rows, axis=1)
    rows, logits = np.take_along_axis(rows, order, 1), np.take_along_axis(logits, order, 1)
    index = LabelIndex(
        indptr=np.arange(clusters + 1, dtype=np.int64) * kappa, labels=rows.ravel(), n_labels=labels,
        logits=logits.ravel(), beta=float(np.maximum(profile, 1e-6).sum()),
    )  # fmt: skip
    cluster_of = np.empty(labels, dtype=np.int64)
    cluster_of[permuted] = np.repeat(np.arange(clusters), np.diff(cut))
    return index, cluster_of


def _texts(
    rng: np.random.Generator, parameters: Parameters, centers: np.ndarray, neighbors: int, texts: int
) -> tuple[np.ndarray, torch.nn.Linear]:
    """phi whose nearest clusters have the given logits: a least-squares mix of their centers."""
    clusters, dim = centers.shape
    wanted = np.array(parameters.logits[: min(NEAR, clusters)], dtype=np.float32)
    phi = np.empty((texts, dim), dtype=np.float32)
    for row in range(texts):
        middle = int(rng.integers(0, clusters))
        around = np.unique(np.clip(middle + np.arange(-neighbors, neighbors), 0, clusters - 1))
        near = rng.permutation(around)[: len(wanted)]
        gram = centers[near] @ centers[near].T
        phi[row] = centers[near].T @ np.linalg.solve(gram, wanted[: len(near)])
    gain = float(np.linalg.norm(phi, axis=1).mean()) / parameters.phi_length
    linear = torch.nn.Linear(dim, clusters)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(centers * gain))
        linear.bias.zero_()
    return np.ascontiguousarray(phi / gain), linear


def _classifiers(
    rng: np.random.Generator, parameters: Parameters, centers: np.ndarray, cluster_of: np.ndarray, phi: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """w points partly to the center of the label's cluster and partly anywhere, so that z spreads as in the model."""
    labels, dim = len(cluster_of), centers.shape[1]
    weights = np.empty((labels, dim), dtype=np.float32)
    anywhere = parameters.weight_length * parameters.phi_length / np.sqrt(dim)
    cosines = np.sort(phi[:50] @ centers.T, axis=1)[:, -20:]
    along = parameters.weight_length * float(cosines.std())
    share = np.sqrt(np.clip((parameters.z_spread**2 - anywhere**2) / max(along**2 - anywhere**2, 1e-9), 0.0, 0.95))
    for start in range(0, labels, 65536):
        own = centers[cluster_of[start : start + 65536]]
        noise = _unit(rng.standard_normal(own.shape, dtype=np.float32))
        rows = _unit(share * own + np.sqrt(1 - share**2) * noise) * np.float32(parameters.weight_length)
        weights[start : start + len(rows)] = rows
    shift = parameters.weight_length * share * float(cosines.mean())
    return weights, np.full((labels, 1), parameters.z_mean - shift, dtype=np.float32)


def flat_network(
    *, labels: int, clusters: int, kappa: int, dim: int, texts: int, settings: SearchSettings, threads: int,
    seed: int = 0,
) -> tuple[Network, np.ndarray]:  # fmt: skip
    """Equal clusters, equal edges, equal classifiers: nothing can be skipped."""
    rng = np.random.default_rng(seed)
    step = labels / clusters
    starts = (np.arange(clusters) * step).astype(np.int64)
    rows = np.sort((starts[:, None] + np.arange(kappa)) % labels, axis=1).astype(np.int32)
    rows = rng.permutation(labels).astype(np.int32)[rows]
    rows.sort(axis=1)
    index = LabelIndex(
        indptr=np.arange(clusters + 1, dtype=np.int64) * kappa, labels=rows.ravel(), n_labels=labels,
        logits=np.zeros(clusters * kappa, dtype=np.float32), beta=float(kappa),
    )  # fmt: skip
    linear = torch.nn.Linear(dim, clusters)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    weights = torch.ones(labels, 1) * torch.from_numpy(rng.standard_normal((1, dim), dtype=np.float32))
    tables = (
        EmbeddingTable(weights.contiguous(), threads=threads),
        EmbeddingTable(torch.zeros(labels, 1), threads=threads),
    )
    phi = _unit(rng.standard_normal((texts, dim), dtype=np.float32))
    return Network(GivenPhi(dim), linear, index, *tables, settings, threads=threads), phi


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def encoded_texts(model: elias.Model, data: elias.Dataset, count: int) -> np.ndarray:
    """phi of test texts."""
    rows = data.splits["test"]
    prepared, n = model.prepare(rows.texts if rows.texts is not None else rows.vectors)
    return model.network.encoder.encode(prepared, np.arange(min(count, n))).detach().numpy()


def show(titles: list[str], found: list[dict[str, list[float]]]) -> None:
    for name in found[0]:
        print(name)
        for title, values in zip(titles, found, strict=True):
            print(f"  {title:<12}" + " ".join(f"{value:9.4f}" for value in values[name]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a trained model")
    parser.add_argument("data", nargs="?", help="the dataset it was trained on")
    parser.add_argument("--show", action="store_true", help="only compare what is in generator.json")
    args = parser.parse_args()
    if not args.show:
        if args.data is None:
            parser.error("name a model and its dataset, or say --show")
        model = elias.load(args.model)
        parameters, seen = describe(model.network, encoded_texts(model, elias.load_dataset(args.data), 2000))
        size = {
            "labels": len(model.labels),
            "clusters": model.network.index.n_clusters,
            "dim": model.network.encoder.dim,
        }
        size["kappa"] = round(model.network.index.n_edges / size["clusters"])
        content = {"size": size, "parameters": asdict(parameters), "model": seen}
        PARAMETERS.write_text(json.dumps(content, indent=1) + "\n")
    content = json.loads(PARAMETERS.read_text())
    settings = SearchSettings(beam_size=20, shortlist_size=2000)
    network, phi = fitted_network(read_parameters(), **content["size"], texts=1000, settings=settings, threads=2)
    show(["model", "generated"], [content["model"], describe(network, phi)[1]])


if __name__ == "__main__":
    main()
