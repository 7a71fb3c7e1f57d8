"""The torch path (what a GPU runs; here on the CPU) against that of another checkout, in one run.

    python benchmarks/torch_path.py --against OTHER/src [--labels 131072] [--batch 64] [--rounds 3] [--json]

Search of one batch, one training step, and the memory of a step, on the same generated network, by both checkouts in
turns, each in a process of its own with `kernels.reference()`. The medians of all rounds are divided. A step is
equations (1) to (8), backward, and the optimizer; phi is given, and its gradient is computed.

`step MB` is the peak of the resident memory during a step minus what the process held before it. It is measured in a
process of its own in which the C library returns freed memory at once (MALLOC_MMAP_THRESHOLD_), so that nothing hides
in what was freed earlier. `union MB` is the size of the classifiers of the batch and their gradient, 2 x U x d floats;
`beyond MB` is `step MB` without them. A path whose whole step is smaller than that holds neither, and all of it counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MEASURES = {"search ms": "search", "step ms": "step", "step MB": "memory"}
OURS = Path(__file__).resolve().parents[1] / "src"


def main() -> None:
    args = arguments()
    if args.child:
        print(json.dumps(measure(args)))
        return
    from timing import machine, report

    sources = {"other": args.against, "this": OURS} if args.against else {"this": OURS}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in sources}
    for _ in range(args.rounds):
        for name, source in sources.items():
            for what in MEASURES.values():
                for key, value in run_child(args, Path(source), what).items():
                    found[name].setdefault(key, []).append(value)
    rows: list[dict[str, Any]] = [
        {"path": name, **{key: float(np.median(values)) for key, values in of.items()}} for name, of in found.items()
    ]
    for row in rows:
        holds_union = row["step MB"] > row["union MB"]
        row["beyond MB"] = row["step MB"] - row["union MB"] if holds_union else row["step MB"]
    if args.against:
        columns = [key for key in rows[0] if key not in ("path", "union MB", "loss")]
        rows.append({"path": "other / this", **{key: rows[0][key] / rows[1][key] for key in columns}})
    size = {name: getattr(args, name) for name in ("labels", "clusters", "kappa", "dim", "shortlist", "batch")}
    about = {**size, "threads": args.threads, "rounds": args.rounds, **machine()}
    report(", ".join(f"{key} {value}" for key, value in about.items()), rows, as_json=args.json, **about)


def run_child(args: argparse.Namespace, source: Path, what: str) -> dict[str, float]:
    """One measurement by the checkout whose src folder is `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": str(args.threads)}
    if what == "memory":
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    command = [sys.executable, __file__, "--child", what, *sys.argv[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(args: argparse.Namespace) -> dict[str, float]:
    import torch
    from generator import fitted_network, read_parameters
    from train_step import peak_memory, random_batch, reset_peak, step

    from elias import kernels
    from elias.core.settings import StageSettings
    from elias.network.network import SearchSettings
    from elias.network.searcher import EncodedQuery, Searcher
    from elias.training.trainer import Optimizer

    torch.set_num_threads(args.threads)
    network, phi = fitted_network(
        read_parameters(), labels=args.labels, clusters=args.clusters, kappa=args.kappa, dim=args.dim,
        texts=args.batch * (args.steps + 2), settings=SearchSettings(beam_size=20, shortlist_size=args.shortlist),
        threads=args.threads,
    )  # fmt: skip
    taken: list[float] = []
    with kernels.reference():
        if args.child == "search":
            searcher = Searcher(network)
            for number in range(args.steps + 2):
                rows = torch.from_numpy(phi[number * args.batch : (number + 1) * args.batch])
                with torch.no_grad():
                    query = EncodedQuery(rows, network.clusters(rows))
                started = time.perf_counter()
                searcher.search(query, 100)
                taken.append(time.perf_counter() - started)
            return {"search ms": float(np.median(taken[2:])) * 1000}
        optimizer = Optimizer(network, StageSettings(epochs=1, batch_size=args.batch, optimizer="rowwise"))
        parents, grown, union, losses = network.learned_index().parents(), [], [], []
        for number in range(args.steps + 2):
            batch = random_batch(network, args.batch, number)
            given = torch.from_numpy(phi[batch.rows]).requires_grad_()
            if args.child == "memory":
                steps_before = network.trained_weights.state["steps"].clone()
                held = reset_peak()
                losses.append(step(network, optimizer, given, batch, parents, number, at_once=True))
                grown.append(peak_memory("VmHWM") - held)
                stepped = int((network.trained_weights.state["steps"] != steps_before).sum())
                union.append(2 * 4 * args.dim * stepped)
                continue
            started = time.perf_counter()
            losses.append(step(network, optimizer, given, batch, parents, number, at_once=True))
            taken.append(time.perf_counter() - started)
    if args.child == "memory":
        return {"step MB": float(np.median(grown[2:])) / 1e6, "union MB": float(np.median(union[2:])) / 1e6}
    return {"step ms": float(np.median(taken[2:])) * 1000, "loss": losses[-1]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the src folder of another checkout")
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=2048)
    parser.add_argument("--kappa", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--shortlist", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", choices=list(MEASURES.values()), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
