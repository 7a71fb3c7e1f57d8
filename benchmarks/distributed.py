"""A training step in one process and in several, and the memory that each holds.

    python benchmarks/distributed.py [--labels 670091] [--ranks 1 2] [--batch 512] [--rounds 3] [--json]
    python benchmarks/distributed.py --labels 3000000 --clusters 16384 --rounds 1 --steps 2

The network is generated (`generator.py`), every process makes the classifiers of its own labels only. A step is
equations (1) to (8), backward, the exchange between the processes, and the optimizer (row-wise, AdamW on edges and
biases); the encoder is left out: phi is given. Every process has one thread. The batch is that of all processes
together. Rounds alternate between the numbers of processes, so that what else the machine does hits all of them;
`step ms` is the median over the steps of all rounds, `CPU ms` what the busiest process computes in a step (gloo
included, waiting not), which other work on the machine disturbs less, `peak GB` the most that one process has held.
Processes talk through gloo on the loopback device.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from generator import NEAR, GivenPhi, _classifiers, _edges, _texts, _unit, read_parameters
from timing import machine, peak_bytes, report
from train_step import random_batch, step

from elias.core.distributed import Ranks, launched_ranks
from elias.core.embedding_table import EmbeddingTable
from elias.core.ragged import Ragged
from elias.core.settings import StageSettings
from elias.network.network import Batch, Network, SearchSettings
from elias.network.sharding import own_labels
from elias.training.trainer import Optimizer

WARM_UP = 2  # steps that are not counted


def main() -> None:
    args = arguments()
    if "RANK" in os.environ:
        with launched_ranks() as ranks:
            taken, busy, loss = measure(ranks, args)
            numbers = ranks.numbers(peak_bytes(), *(round(1e9 * seconds) for seconds in busy))
            peak, *nanoseconds = (max(values) for values in zip(*numbers, strict=True))
            if ranks.is_first:
                print(
                    json.dumps({"seconds": taken, "cpu": [1e-9 * n for n in nanoseconds], "loss": loss, "peak": peak})
                )
        return
    found: dict[int, list[dict[str, Any]]] = {size: [] for size in args.ranks}
    for _ in range(args.rounds):
        for size in args.ranks:
            found[size].append(launch(size))
    rows = []
    for size, rounds in found.items():
        row: dict[str, Any] = {"processes": size}
        for column, name in {"step ms": "seconds", "CPU ms": "cpu"}.items():
            row[column] = 1000 * float(np.median([value for one in rounds for value in one[name]]))
            row[column.replace("ms", "ratio")] = (rows[0] if rows else row)[column] / row[column]
        rows.append({**row, "peak GB": max(one["peak"] for one in rounds) / 1e9, "loss": rounds[0]["loss"]})
    about = {**vars(args), **machine()}
    about.pop("json")
    report(", ".join(f"{key} {value}" for key, value in about.items()), rows, as_json=args.json, **about)


def launch(size: int) -> dict[str, Any]:
    """This script once more in so many processes, as torchrun starts them; what rank 0 says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = []
    for rank in range(size):
        own = {**shared, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}}
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=environment, stdout=subprocess.PIPE))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a process ended with {[process.returncode for process in processes]}")
    result: dict[str, Any] = json.loads(said[0])
    return result


def measure(ranks: Ranks, args: argparse.Namespace) -> tuple[list[float], list[float], float]:
    """Seconds of each step, those that this process computed, and the loss of the last."""
    torch.set_num_threads(1)
    network, phi = network_of(ranks, args)
    optimizer = Optimizer(network, StageSettings(epochs=1, batch_size=args.batch, optimizer="rowwise"))
    parents = network.learned_index().parents()
    taken, busy = [], []
    for number in range(WARM_UP + args.steps):
        batch = share_of(random_batch(network, args.batch, number), ranks)
        given = torch.from_numpy(phi[batch.rows]).requires_grad_()
        ranks.wait()
        started, computed = time.perf_counter(), time.process_time()
        loss = step(network, optimizer, given, batch, parents, number, at_once=True)
        taken.append(time.perf_counter() - started)
        busy.append(time.process_time() - computed)
    return taken[WARM_UP:], busy[WARM_UP:], float(ranks.sum(torch.tensor(loss)))


def network_of(ranks: Ranks, args: argparse.Namespace) -> tuple[Network, np.ndarray]:
    """`fitted_network` with the classifiers of this rank's labels."""
    settings = SearchSettings(beam_size=20, shortlist_size=2000)
    parameters, rng = read_parameters(), np.random.default_rng(0)
    wanted = round(parameters.distinct * settings.beam_size * args.kappa / (args.labels / args.clusters))
    least = max(settings.beam_size, min(NEAR, args.clusters), -(-args.kappa * args.clusters // args.labels))
    neighbors = int(np.clip(wanted, least, args.clusters))
    centers = _unit(rng.standard_normal((args.clusters, args.dim), dtype=np.float32))
    index, cluster_of = _edges(rng, parameters, args.labels, args.clusters, args.kappa, neighbors)
    phi, linear = _texts(rng, parameters, centers, neighbors, args.batch * (args.steps + WARM_UP))
    weights, biases = _classifiers(rng, parameters, centers, cluster_of[own_labels(args.labels, ranks)], phi)
    tables = EmbeddingTable(torch.from_numpy(weights)), EmbeddingTable(torch.from_numpy(biases))
    network = Network(GivenPhi(args.dim), linear, index, *tables, settings)
    network.ranks = ranks
    return network, phi


def share_of(batch: Batch, ranks: Ranks) -> Batch:
    """The rows of this rank."""
    part = ranks.share(len(batch.rows))
    bounds = batch.positives.indptr[part.start : part.stop + 1]
    pairs = slice(bounds[0], bounds[-1])
    positives = Ragged(bounds - bounds[0], batch.positives.labels[pairs])
    n_rows = part.stop - part.start
    return Batch(batch.rows[part], positives, batch.positive_weights[pairs], Ragged.empty(n_rows), batch.weights[part])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=670_091)
    parser.add_argument("--clusters", type=int, default=8192)
    parser.add_argument("--kappa", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
