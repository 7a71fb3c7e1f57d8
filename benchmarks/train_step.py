"""One training step, kernels against the torch path, on the same network and batch in one run.

    python benchmarks/train_step.py [--labels 131072] [--clusters 2048] [--shortlist 2000] [--batch 64] [--json]

A step is equations (1) to (8), backward, and the optimizer (row-wise, and AdamW on edges and biases) on touched rows.
The encoder is left out: phi is given, and its gradient is computed. Both paths start from the same weights and make
the same step; `loss` shows it. The torch path runs with the same number of threads. `step MB` is what a step needs at
its peak beyond what the process holds before it; the union of the classifiers (U x d) and its gradient are in it.
Another checkout: PYTHONPATH=OTHER/src python benchmarks/train_step.py.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from generator import fitted_network, read_parameters
from timing import machine, peak_bytes, report

from elias import kernels
from elias.core.devices import torch_threads
from elias.core.embedding_table import EmbeddingTable, GradientBuffer
from elias.core.noise import Noise
from elias.core.ragged import Ragged
from elias.core.settings import StageSettings
from elias.encoders.encoder import TrainingContext
from elias.network.network import Batch, Network, SearchSettings
from elias.training.trainer import Optimizer


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    rows = [measure("kernels", args)]
    if not args.no_torch:
        rows.append(measure("torch", args))
        for row in rows:
            row["x torch"] = rows[1]["step ms"] / row["step ms"]
    about = {**vars(args), **machine(), "peak GB": round(peak_bytes() / 1e9, 2)}
    about.pop("json")
    report(", ".join(f"{key} {value}" for key, value in about.items()), rows, as_json=args.json, **about)


def measure(path: str, args: argparse.Namespace) -> dict[str, Any]:
    settings = SearchSettings(beam_size=args.beam, shortlist_size=args.shortlist)
    network, phi = fitted_network(
        read_parameters(), labels=args.labels, clusters=args.clusters, kappa=args.kappa, dim=args.dim,
        texts=args.batch * (args.steps + 2), settings=settings, threads=args.threads,
    )  # fmt: skip
    if args.precision == "bfloat16":
        network.classifier_weights = EmbeddingTable(network.trained_weights.values.bfloat16(), threads=args.threads)
    optimizer = Optimizer(network, StageSettings(epochs=1, batch_size=args.batch, optimizer=args.optimizer))
    parents = network.learned_index().parents()
    batches = [random_batch(network, args.batch, i) for i in range(args.steps + 2)]
    taken, losses, grown = [], [], []
    with kernels.reference(path == "torch"), torch_threads(args.threads if path == "torch" else 1):
        for number, batch in enumerate(batches):
            given = torch.from_numpy(phi[batch.rows]).requires_grad_()
            held = reset_peak()
            started = time.perf_counter()
            losses.append(step(network, optimizer, given, batch, parents, number, at_once=path == "kernels"))
            taken.append(time.perf_counter() - started)
            grown.append(peak_memory("VmHWM") - held)
    return {
        "path": path, "step ms": float(np.median(taken[2:])) * 1000, "step MB": float(np.median(grown[2:])) / 1e6,
        "loss": losses[-1],
    }  # fmt: skip


def reset_peak() -> int:
    """Forget the peak so far; returns the bytes that the process holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory("VmRSS")


def peak_memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def step(
    network: Network, optimizer: Optimizer, phi: torch.Tensor, batch: Batch, parents: np.ndarray, number: int,
    *, at_once: bool,
) -> float:  # fmt: skip
    buffer = GradientBuffer(rates=optimizer.immediate_rates(1.0) if at_once else {})
    context = TrainingContext(buffer, Noise(1), torch.from_numpy(batch.rows))
    with patch.object(network.encoder, "encode", lambda prepared, rows, context: phi):
        loss = network.loss(None, batch, parents, context, 0.05)
    loss.backward()
    optimizer.step(buffer, 1.0, number, last=False)
    return float(loss.detach())


def random_batch(network: Network, size: int, number: int) -> Batch:
    """Rows with 2 to 8 positives each."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(2, 9, size)
    rows = [np.sort(rng.choice(network.index.n_labels, length, replace=False)) for length in lengths]
    positives = Ragged(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.concatenate(rows).astype(np.int32)
    )
    weights = np.ones(len(positives.labels), dtype=np.float32)
    return Batch(np.arange(size) + number * size, positives, weights, Ragged.empty(size), np.ones(size, np.float32))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=2048)
    parser.add_argument("--kappa", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--beam", type=int, default=20)
    parser.add_argument("--shortlist", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--optimizer", default="rowwise", choices=["rowwise", "adamw"])
    parser.add_argument("--no-torch", action="store_true", help="the kernels alone")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
