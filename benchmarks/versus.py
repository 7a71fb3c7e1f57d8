"""Two checkouts of this repository against each other on the same machine, in turn: prediction, command, fit.

    git worktree add ../old COMMIT
    python benchmarks/versus.py ../old --old-model ../old/models/debian --new-model models/debian
    python benchmarks/versus.py ../old --fit datasets/debian-packages --set stage1.epochs=1 --set stage2.epochs=1

Machines are noisy: both sides are measured in alternating rounds, and the figure is the median of the ratios new / old.

    one text     `predict` of one text, one thread
    batch        `predict` of 1,024 texts, two threads
    command      `elias predict MODEL TEXT` as a process, from its start to its end
    fit          `elias fit` as a process, once each in turn; settings are given by --set (--old-set where names differ)
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
BATCH, ONE_BY_ONE = 1024, 100  # texts; the worker below has the second number too

WORKER = """
import json, sys, time
import elias
folder, threads, texts = sys.argv[1], int(sys.argv[2]), json.load(open(sys.argv[3]))
model = elias.load(folder, threads=threads)
for text in texts[:100]:
    model.predict([text])
model.predict(texts)
print("ready", flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    if line.strip() == "one":
        for text in texts[:100]:
            model.predict([text])
    else:
        model.predict(texts)
    print(time.perf_counter() - started, flush=True)
"""


class Side:
    """One checkout with its model."""

    def __init__(self, checkout: Path, model: Path | None) -> None:
        self.model = model
        self.environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
        # The command moved from elias.cli to elias.
        main = (checkout / "src" / "elias" / "__main__.py").exists()
        self.command = [sys.executable, "-m", "elias" if main else "elias.cli"]

    def worker(self, threads: int, texts: Path) -> Callable[[str], float]:
        """A process with the model loaded; calling it runs one round and returns its seconds."""
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.model), str(threads), str(texts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        if stdout.readline().strip() != "ready":
            sys.exit(f"the worker of {self.model} did not start")

        def measure(what: str) -> float:
            stdin.write(what + "\n")
            stdin.flush()
            return float(stdout.readline())

        return measure

    def run(self, *arguments: str) -> float:
        """Seconds of a command."""
        started = time.perf_counter()
        subprocess.run([*self.command, *arguments], check=True, env=self.environment, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started


def report(name: str, unit: str, old: list[float], new: list[float], scale: float) -> None:
    ratios = sorted(b / a for a, b in zip(old, new, strict=True))
    quarter = len(ratios) // 4
    line = {
        "what": name, "unit": unit, "old": round(scale * statistics.median(old), 4),
        "new": round(scale * statistics.median(new), 4), "ratio": round(statistics.median(ratios), 3),
        "half of the rounds between": [round(ratios[quarter], 3), round(ratios[-1 - quarter], 3)],
        "rounds": len(ratios),
    }  # fmt: skip
    print(json.dumps(line), flush=True)


def predictions(old: Side, new: Side, texts: Path, rounds: int) -> None:
    for name, threads, per_round in (("one", 1, ONE_BY_ONE), ("batch", 2, BATCH)):
        workers = [side.worker(threads, texts) for side in (old, new)]
        seconds = [[worker(name) for worker in workers] for _ in range(rounds)]
        title = f"{name if name == 'batch' else 'one text'}, {threads} thread{'s' if threads > 1 else ''}"
        report(title, "ms per text", [a for a, _ in seconds], [b for _, b in seconds], 1e3 / per_round)
    text = json.loads(texts.read_text())[0]
    seconds = [[side.run("predict", str(side.model), text) for side in (old, new)] for _ in range(max(3, rounds // 4))]
    report("elias predict MODEL TEXT", "s", [a for a, _ in seconds[1:]], [b for _, b in seconds[1:]], 1)


def fits(old: Side, new: Side, data: Path, settings: list[str], old_settings: list[str], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as work:
        seconds: list[list[float]] = []
        for _ in range(rounds):
            row = []
            for name, side, chosen in (("old", old, old_settings or settings), ("new", new, settings)):
                output = Path(work) / name
                options = [word for setting in chosen for word in ("--set", setting)]
                row.append(side.run("fit", str(data), "-o", str(output), "--quiet", *options))
                shutil.rmtree(output)
                shutil.rmtree(output.with_name(output.name + ".run"))
            seconds.append(row)
        report("elias fit", "s", [a for a, _ in seconds], [b for _, b in seconds], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--old-model", type=Path, help="a model that the other checkout reads")
    parser.add_argument("--new-model", type=Path, help="the same model for this checkout")
    parser.add_argument(
        "--data", type=Path, default=HERE / "datasets" / "debian-packages", help="its test texts are asked"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--fit", type=Path, metavar="DATA", help="time fits of this dataset instead of predictions")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--old-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = parser.parse_args()
    old, new = Side(args.old, args.old_model), Side(HERE, args.new_model)
    if args.fit:
        fits(old, new, args.fit, args.set, args.old_set, min(args.rounds, 3))
        return
    if not args.old_model or not args.new_model:
        parser.error("give --old-model and --new-model, or --fit")
    with gzip.open(args.data / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(BATCH), strict=False)]
    with tempfile.TemporaryDirectory() as work:
        texts = Path(work) / "texts.json"
        texts.write_text(json.dumps([f"{row.get('title', '')} {row['text']}" for row in rows]))
        predictions(old, new, texts, args.rounds)


if __name__ == "__main__":
    main()
