"""Search against brute force and faiss, on the same classifiers in one run.

    python benchmarks/search.py [--labels 131072] [--clusters 2048] [--shortlist 2000] [--flat] [--json]
    python benchmarks/search.py --model MODEL --data DATA      the same on a trained model

Rows: ours (bounds from int8 codes, exact result), the torch definition, exact fp32 and bf16 brute force (matmul and top
100 over all labels), faiss IVF tuned to recall 0.90 of brute force, faiss HNSW (up to 200 K labels). Batches of 256 and
single queries, p50 and p99, the same number of threads. The encoder is left out. `recall` is against the exact result
of the row's own kind (model for ours and torch, w.phi + b for the others); `agrees` is the share of the model's exact
top 100 that a row finds. faiss is needed for its rows: pip install -e '.[bench]'.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from generator import encoded_texts, fitted_network, flat_network, read_parameters
from timing import batch_ms, machine, report, single_ms

import elias
from elias.core.devices import torch_threads
from elias.network.network import Network, SearchSettings
from elias.network.searcher import Searcher

K, BATCH = 100, 256


def main() -> None:
    args = arguments()
    settings = SearchSettings(beam_size=args.beam, shortlist_size=args.shortlist)
    torch.set_num_threads(1)
    if args.model:
        model = elias.load(args.model, threads=args.threads)
        phi = encoded_texts(model, elias.load_dataset(args.data), 2048)
        network = with_given_phi(model.network, settings)
        title = f"{args.model}"
    else:
        size = {"labels": args.labels, "clusters": args.clusters, "kappa": args.kappa, "dim": args.dim}
        more = {"texts": 2048, "settings": settings, "threads": args.threads}
        network, phi = flat_network(**size, **more) if args.flat else fitted_network(read_parameters(), **size, **more)
        title = "flat scores" if args.flat else "generated"
    index = network.index
    about = {
        "data": title, "labels": index.n_labels, "clusters": index.n_clusters, "edges": index.n_edges,
        "dim": phi.shape[1], "b": settings.beam_size, "K": settings.shortlist_size, "k": K, "threads": args.threads,
    }  # fmt: skip
    rows = compare(network, phi, args)
    reference = next((row for row in rows if row["row"] == "exact bf16"), None)
    for row in rows:
        if reference:
            row["batch x bf16"] = reference["batch ms"] / row["batch ms"]
            row["single x bf16"] = reference["single p50"] / row["single p50"]
    about |= machine()
    report(", ".join(f"{key} {value}" for key, value in about.items()), rows, as_json=args.json, **about)


def with_given_phi(network: Network, settings: SearchSettings) -> Network:
    from generator import GivenPhi

    return Network(
        GivenPhi(network.encoder.dim), network.clusters, network.learned_index(), network.classifier_weights,
        network.classifier_biases, settings, threads=network.threads,
    )  # fmt: skip


def compare(network: Network, phi: np.ndarray, args: argparse.Namespace) -> list[dict[str, Any]]:
    searcher, texts = Searcher(network), len(phi)
    searcher.search_rows(phi, np.arange(2), K)  # compile and make the tables

    def rows_of(i: int, size: int) -> np.ndarray:
        return (np.arange(size) + i * size) % texts

    def by_definition(i: int, size: int) -> Any:
        return searcher.search_reference(searcher.encode(phi, rows_of(i, size)), K)

    model_answer = searcher.search_rows(phi, np.arange(BATCH), K).labels
    rows = [
        measured("ours", lambda i, size: searcher.search_rows(phi, rows_of(i, size), K), args, agrees=1.0, recall=1.0),
    ]
    if not args.no_torch:
        with torch_threads(args.threads):
            few = argparse.Namespace(repeats=2, singles=20)
            rows.append(measured("torch", by_definition, few, agrees=1.0, recall=1.0))
    brute, exact = brute_force(network, phi, rows_of)
    with torch_threads(args.threads):
        for name, call in brute.items():
            few = argparse.Namespace(repeats=3, singles=30)
            rows.append(measured(name, call, few, agrees=overlap(exact, model_answer), recall=1.0))
    if not args.no_faiss:
        rows += faiss_rows(network, phi, rows_of, exact, model_answer, args)
    return rows


def measured(name: str, call: Callable[[int, int], Any], args: Any, **more: float) -> dict[str, Any]:
    batch = batch_ms(lambda i: call(i, BATCH), BATCH, args.repeats)
    p50, p99 = single_ms(lambda i: call(i, 1), args.singles)
    return {"row": name, "batch ms": batch, "single p50": p50, "single p99": p99, **more}


def brute_force(
    network: Network, phi: np.ndarray, rows_of: Callable[[int, int], np.ndarray]
) -> tuple[dict[str, Callable[[int, int], Any]], np.ndarray]:
    """w.phi + b over all labels and its top 100, in fp32 and bf16; and the exact answer."""
    weights, biases = network.trained_weights.values, network.classifier_biases.values[:, 0]
    narrow, narrow_biases = weights.bfloat16(), biases.bfloat16()
    given = torch.from_numpy(phi)

    def fp32(i: int, size: int) -> Any:
        return torch.nn.functional.linear(given[rows_of(i, size)], weights, biases).topk(K, dim=1)

    def bf16(i: int, size: int) -> Any:
        return torch.nn.functional.linear(given[rows_of(i, size)].bfloat16(), narrow, narrow_biases).topk(K, dim=1)

    return {"exact fp32": fp32, "exact bf16": bf16}, fp32(0, BATCH).indices.numpy()


def faiss_rows(
    network: Network, phi: np.ndarray, rows_of: Callable[[int, int], np.ndarray], exact: np.ndarray,
    model_answer: np.ndarray, args: argparse.Namespace,
) -> list[dict[str, Any]]:  # fmt: skip
    """Inner product with the bias as one more dimension."""
    try:
        import faiss
    except ImportError:
        raise SystemExit("faiss is not installed: pip install -e '.[bench]', or say --no-faiss") from None
    faiss.omp_set_num_threads(args.threads)
    weights, biases = network.trained_weights.values.numpy(), network.classifier_biases.values.numpy()
    table = np.ascontiguousarray(np.concatenate([weights, biases], axis=1))
    queries = np.ascontiguousarray(np.concatenate([phi, np.ones((len(phi), 1), dtype=np.float32)], axis=1))
    lists = 1024 if len(table) < 400_000 else 2048
    kinds = [f"IVF{lists},Flat" if len(table) < 400_000 else f"IVF{lists},SQ8"]
    kinds += ["HNSW32"] if len(table) <= 200_000 and not args.no_hnsw else []
    rows = []
    for kind in kinds:
        index = faiss.index_factory(table.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        index.train(table[np.random.default_rng(0).permutation(len(table))[:100_000]])
        index.add(table)
        effort = tuned(index, kind, queries[:BATCH], exact)
        found = index.search(queries[:BATCH], K)[1]
        call = lambda i, size, index=index: index.search(queries[rows_of(i, size)], K)  # noqa: E731
        scores = {"agrees": overlap(found, model_answer), "recall": overlap(found, exact)}
        rows.append(measured(f"faiss {kind} {effort}", call, args, **scores))
    return rows


def tuned(index: Any, kind: str, queries: np.ndarray, exact: np.ndarray) -> str:
    """The least effort with a recall of 0.90."""
    name = "efSearch" if kind.startswith("HNSW") else "nprobe"
    efforts = [100, 200, 400, 800, 1600, 3200] if name == "efSearch" else [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    for effort in efforts:
        if name == "efSearch":
            index.hnsw.efSearch = effort
        else:
            index.nprobe = effort
        if overlap(index.search(queries, K)[1], exact) >= 0.9:
            break
    return f"{name}={effort}"


def overlap(found: np.ndarray, truth: np.ndarray) -> float:
    """Mean share of `truth` that is in `found`."""
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, truth, strict=True)]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=2048)
    parser.add_argument("--kappa", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--beam", type=int, default=20)
    parser.add_argument("--shortlist", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flat", action="store_true", help="the worst case: equal scores everywhere")
    parser.add_argument("--model", help="a trained model instead of a generated one")
    parser.add_argument("--data", help="its dataset")
    parser.add_argument("--repeats", type=int, default=15, help="batches")
    parser.add_argument("--singles", type=int, default=500, help="single queries")
    parser.add_argument("--no-faiss", action="store_true")
    parser.add_argument("--no-hnsw", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
