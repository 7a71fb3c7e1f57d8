"""How time, memory and model size grow with the number of labels: C ~ L / 100 and C ~ sqrt(L).

    python benchmarks/scale.py [--labels 16384 65536 262144 1048576 3000000] [--dim 128] [--json]

For each size, in a process of its own: a generated network takes a few training steps, is saved, opened in a fresh
process, and answers its first query and then more of them. `kappa` is 10 L / C up to 1000, b = 20, K = 2000.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generator import fitted_network, read_parameters
from timing import machine, peak_bytes, report

import elias
from elias.core.settings import StageSettings
from elias.dataset import LabelSet
from elias.encoders.dense import DenseEncoder
from elias.network.network import Network, SearchSettings
from elias.training.trainer import Optimizer

BATCH = 256


def main() -> None:
    args = arguments()
    if args.one:
        print(json.dumps(measure(args)))
        return
    if args.open:
        print(json.dumps(open_and_search(args)))
        return
    rows = []
    for labels in args.labels:
        for rule in args.rules:
            size = ["--one", "--labels", str(labels), "--rules", rule, "--dim", str(args.dim)]
            rows.append(child([*size, "--threads", str(args.threads), "--steps", str(args.steps)]))
    report(f"d = {args.dim}, {args.threads} threads, {machine()}", rows, as_json=args.json, **machine())


def child(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(args: argparse.Namespace) -> dict[str, Any]:
    labels, rule = args.labels[0], args.rules[0]
    clusters = 2 ** int(np.ceil(np.log2(labels / 100 if rule == "L/100" else np.sqrt(labels))))
    kappa = int(min(1000 if rule == "L/100" else 10 * labels / clusters, 10 * labels / clusters, labels))
    network, phi = fitted_network(
        read_parameters(), labels=labels, clusters=clusters, kappa=kappa, dim=args.dim, texts=2048,
        settings=SearchSettings(beam_size=20, shortlist_size=2000, training_shortlist_size=500), threads=args.threads,
    )  # fmt: skip
    network.encoder = DenseEncoder(args.dim, radius=float(np.linalg.norm(phi, axis=1).mean()), dropout=0.5)
    row = {"labels": labels, "C": clusters, "rule": rule, "kappa": kappa}
    row["step ms"] = train(network, phi, args)
    row["train peak GB"] = round(peak_bytes() / 1e9, 2)
    folder = Path(tempfile.mkdtemp(prefix="elias-scale-"))
    try:
        np.save(folder / "phi.npy", phi)
        save(network, folder / "model")
        row["model GB"] = round(sum(f.stat().st_size for f in (folder / "model").rglob("*") if f.is_file()) / 1e9, 3)
        del network
        row |= child(["--open", str(folder), "--threads", str(args.threads)])
    finally:
        shutil.rmtree(folder)
    return row


def train(network: Network, phi: np.ndarray, args: argparse.Namespace) -> float:
    """Median milliseconds of a step of BATCH rows, whole: encoder head, search, loss, optimizer."""
    from train_step import random_batch

    from elias.core.embedding_table import GradientBuffer
    from elias.core.noise import Noise
    from elias.encoders.encoder import TrainingContext

    optimizer = Optimizer(network, StageSettings(epochs=1, batch_size=BATCH))
    parents, taken = network.learned_index().parents(), []
    for number in range(args.steps):
        batch = random_batch(network, BATCH, number)
        batch = type(batch)(batch.rows % len(phi), *list(vars(batch).values())[1:])
        started = time.perf_counter()
        buffer = GradientBuffer(rates=optimizer.immediate_rates(0.01))
        loss = network.loss(phi, batch, parents, TrainingContext(buffer, Noise(1), torch.from_numpy(batch.rows)), 0.05)
        loss.backward()
        optimizer.step(buffer, 0.01, number, last=False)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken[1:])) * 1000


def save(network: Network, folder: Path) -> None:
    labels = network.index.n_labels
    for table in network.tables().values():
        table.flush()
    about = {"dataset": {"features": network.encoder.dim, "name": "generated", "exclude_own_id": False}, "settings": {}}
    elias.Model(
        network=network,
        labels=LabelSet([f"label-{number}" for number in range(labels)]),
        label_counts=np.ones(labels, dtype=np.int64),
        stage1_clusters=np.zeros(labels, dtype=np.int32),
        cluster_words=[[] for _ in range(network.index.n_clusters)],
        vectorizer=None,
        n_train=labels,
        about=about,
    ).save(folder)


def open_and_search(args: argparse.Namespace) -> dict[str, Any]:
    """A fresh process: open, first answer, then single queries and batches."""
    from elias.model.ensemble import load

    folder = Path(args.open)
    phi = np.load(folder / "phi.npy")
    started = time.perf_counter()
    model = load(folder / "model", threads=args.threads)
    opened = time.perf_counter()
    model.predict(phi[:1], k=5)
    first = time.perf_counter()
    singles = []
    for i in range(1, 400):
        begun = time.perf_counter()
        model.predict(phi[i : i + 1], k=5)
        singles.append(time.perf_counter() - begun)
    model.predict(phi[:BATCH], k=100)
    begun = time.perf_counter()
    for start in range(0, 2048, BATCH):
        model.predict(phi[start : start + BATCH], k=100)
    batch = (time.perf_counter() - begun) / 2048
    return {
        "open s": opened - started, "first answer ms": (first - opened) * 1000,
        "single p50 ms": float(np.median(singles)) * 1000, "batch ms": batch * 1000,
        "serve peak GB": round(peak_bytes() / 1e9, 2),
    }  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[16_384, 65_536, 262_144, 1_048_576, 3_000_000])
    parser.add_argument("--rules", nargs="+", default=["L/100", "sqrt(L)"], choices=["L/100", "sqrt(L)"])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--open", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
