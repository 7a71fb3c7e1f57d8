"""Whole runs on generated data of the sizes of the paper: time and peak memory of every step, and what grows too fast.

    python benchmarks/paper_size.py amazontitles-131k [--factor 64 32 16 8] [--work runs/paper-size]
    python benchmarks/paper_size.py amazon-670k --epochs 1          the first epoch of each stage, the rest extrapolated
    python benchmarks/paper_size.py ... --write                     also docs/experiments/paper-size.md, its tables

For each factor: `make_dataset.py`, then three processes of their own, load, fit and evaluate. Each is done once: what
has been measured is kept in WORK/NAME-FACTOR/measured.json, and a fit that was killed continues. Seconds of a step are
those of its done.json. CPU seconds, which other jobs on the machine change less, and the peak are samples of the
process while it ran, ten per second; the peak is of resident memory, memory-mapped pages included. `growth` is the
exponent e of CPU seconds ~ rows^e, fitted over the factors, of steps that took a second at least.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import make_dataset
import numpy as np
from timing import machine

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "experiments" / "paper-size.md"
SAMPLE_SECONDS = 0.1
LONGEST_GAP = 10  # seconds between two samples of one process
NOTABLE = 1.1  # growth above which a step is worth a look
GB = 1e9


class Sample(NamedTuple):
    """What a process uses."""

    time: float
    resident: int  # bytes
    cpu: float  # seconds since its start


@dataclass(frozen=True)
class Case:
    """One size, with the settings of its fit."""

    name: str
    factor: float
    folder: Path
    epochs: int | None
    settings: Sequence[str]
    threads: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def run(self) -> Path:
        return self.folder / "model.run"


def measure(case: Case) -> dict[str, Any]:
    """Everything about a case; what was measured by an earlier call is not measured again."""
    case.folder.mkdir(parents=True, exist_ok=True)
    file = case.folder / "measured.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    asked = {"epochs": case.epochs, "settings": list(case.settings), "threads": case.threads}
    if found and found["asked"] != asked:
        raise SystemExit(f"{case.folder}: measured with {found['asked']}, not with {asked}; choose another --work")
    found["asked"] = asked
    stages: dict[str, Callable[[Case], dict[str, Any]]] = {
        "data": generate, "load": load, "fit": fit, "evaluate": evaluate,
    }  # fmt: skip
    for stage, call in stages.items():
        if stage not in found:
            print(f"{case.name} / {case.factor:g}: {stage}", file=sys.stderr, flush=True)
            found[stage] = call(case)
            file.write_text(json.dumps(found, indent=1) + "\n")
    return found


def generate(case: Case) -> dict[str, Any]:
    started = time.monotonic()
    content = make_dataset.make(case.name, case.data, factor=case.factor)
    return {**content, "seconds": time.monotonic() - started}


def load(case: Case) -> dict[str, Any]:
    code = "import elias, sys; data = elias.load_dataset(sys.argv[1]); print(data.fingerprint())"
    seconds, trace, _ = watched([sys.executable, "-c", code, str(case.data)], case, "load")
    return {"seconds": seconds, "cpu": trace[-1].cpu, "peak": max(one.resident for one in trace)}


def fit(case: Case) -> dict[str, Any]:
    settings = list(case.settings)
    if case.epochs is not None:
        names = ("stage1.epochs", "stage2.epochs", "score_model.continued_epochs")
        settings += [f"{name}={case.epochs}" for name in names]
    options = [word for item in settings for word in ("--set", item)]
    command = ["fit", str(case.data), "-o", str(case.model), "--threads", str(case.threads), *options]
    watched([sys.executable, "-m", "elias", *command], case, "fit")
    trace = read_trace(case, "fit")
    steps = steps_of(case.run, trace)
    size = sum(path.stat().st_size for path in case.model.rglob("*") if path.is_file())
    return {
        "steps": steps,
        "seconds": busy_seconds(trace),
        "cpu": trace[-1].cpu,
        "peak": max(one.resident for one in trace),
        "model": size,
    }


def evaluate(case: Case) -> dict[str, Any]:
    command = [sys.executable, "-m", "elias", "evaluate", str(case.model), str(case.data), "--json"]
    seconds, trace, output = watched(command, case, "evaluate")
    found = json.loads(output)
    rows = case_rows(case)
    return {
        "seconds": seconds, "peak": max(one.resident for one in trace), "cpu": trace[-1].cpu,
        "ms per text": 1000 * seconds / rows,
        "metrics": {name: found[name] for name in ("P@1", "P@3", "P@5")},
    }  # fmt: skip


def case_rows(case: Case) -> int:
    statistics = json.loads((case.data / "generator" / "statistics.json").read_text())
    return int(statistics["reached"]["test"]["rows"])


# -- processes that are watched ---------------------------------------------------------------------------------------


def watched(command: list[str], case: Case, what: str) -> tuple[float, list[Sample], str]:
    """(seconds, samples of a process, its standard output); the samples are appended to a file."""
    trace: list[Sample] = []
    path = str(ROOT / "src")
    environment = {**os.environ, "PYTHONPATH": path}
    started = time.monotonic()
    with open(case.folder / f"{what}.log", "ab") as log, open(case.folder / f"{what}.memory.jsonl", "a") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        try:
            output: list[str] = []
            reader = threading.Thread(target=lambda: output.append(process.stdout.read() if process.stdout else ""))
            reader.start()
            while process.poll() is None:
                if (found := sample(process.pid)) is not None:
                    trace.append(found)
                    print(json.dumps(found), file=file, flush=True)
                time.sleep(SAMPLE_SECONDS)
            reader.join()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}; see {case.folder / (what + '.log')}")
    return time.monotonic() - started, trace, "".join(output)


def sample(process: int) -> Sample | None:
    """Memory and CPU time of a process now."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    except (OSError, IndexError):  # it has just ended
        return None
    seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return Sample(time.time(), pages * os.sysconf("SC_PAGE_SIZE"), seconds)


def read_trace(case: Case, what: str) -> list[Sample]:
    lines = (case.folder / f"{what}.memory.jsonl").read_text().splitlines()
    return [Sample(*json.loads(line)) for line in lines]


def busy_seconds(trace: Sequence[Sample]) -> float:
    """Seconds that a process was alive, over all its starts."""
    gaps = np.diff([one.time for one in trace])
    return float(gaps[gaps < LONGEST_GAP].sum())


# -- steps of a run ---------------------------------------------------------------------------------------------------


def steps_of(run: Path, trace: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """{step: seconds, peak, and for a stage of training its epochs}, those of the folds first; from the logs."""
    times, held, cpu = (np.array([one[column] for one in trace]) for column in range(3))
    found: dict[str, dict[str, Any]] = {}
    for log in [*sorted(run.glob("fold-*/log.jsonl")), run / "log.jsonl"]:
        prefix = "" if log.parent == run else f"{log.parent.name}/"
        records = [json.loads(line) for line in log.read_text().splitlines()]
        epochs: dict[str, dict[int, float]] = {}
        for record in records:
            if "epoch" in record and "stage" in record:
                epochs.setdefault(record["stage"], {})[record["epoch"]] = record["seconds"]
            if "step" not in record:
                continue
            name, seconds, ended = record["step"], record["seconds"], record["time"]
            during = held[(times >= ended - seconds - SAMPLE_SECONDS) & (times <= ended + SAMPLE_SECONDS)]
            used = np.interp([ended - seconds, ended], times, cpu)
            step = {"seconds": seconds, "cpu": float(used[1] - used[0])}
            step["peak"] = int(during.max()) if len(during) else None
            if name in epochs:  # seconds of an epoch count from the start of the stage
                totals = [epochs[name][epoch] for epoch in sorted(epochs[name])]
                step |= {"epochs": len(totals), "epoch": totals[-1] / len(totals)}
            found[prefix + name] = step
    return found


def full_epochs(case: Case) -> dict[str, int]:
    """Epochs of each stage with the default settings."""
    from elias import Settings, load_dataset
    from elias.core.defaults import resolve

    changes = dict(item.split("=", 1) for item in case.settings)
    resolved = resolve(Settings().updated(changes), load_dataset(case.data).size())
    continued = resolved.score_model.folds and resolved.score_model.continued_epochs
    one, two = resolved.stage1.epochs or 0, resolved.stage2.epochs or 0
    return {"stage1": one, "fold stage2": two, "stage2": continued or two}


def extrapolated(case: Case, steps: dict[str, dict[str, Any]]) -> float:
    """Seconds of the whole fit, had every stage run its default number of epochs at the measured seconds per epoch."""
    wanted, more = full_epochs(case), 0.0
    for name, step in steps.items():
        if "epochs" in step:
            kind = "stage1" if "stage1" in name else "fold stage2" if name.startswith("fold") else "stage2"
            more += (wanted[kind] - step["epochs"]) * step["epoch"]
    return sum(step["seconds"] for step in steps.values()) + more


# -- tables -----------------------------------------------------------------------------------------------------------


def growth(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """e of value ~ size^e, by least squares of the logarithms; None for fewer than two values above 0."""
    pairs = [(math.log(size), math.log(value)) for size, value in zip(sizes, values, strict=True) if value > 0]
    return None if len(pairs) < 2 else float(np.polyfit(*zip(*pairs, strict=True), 1)[0])


def tables(title: str, cases: Sequence[Case], found: Sequence[dict[str, Any]]) -> str:
    """What was measured, as Markdown: sizes and results, then step x size."""
    rows = [one["data"]["reached"]["train"]["rows"] for one in found]
    heads = [f"1/{case.factor:g}" if case.factor != 1 else "full" for case in cases]
    lines = [f"### {title}", "", line("", heads), line("---", ["---"] * len(heads))]

    def add(title: str, values: Sequence[str]) -> None:
        lines.append(line(title, values))

    trains = [one["data"]["reached"]["train"] for one in found]
    add("training rows", [f"{value:,}" for value in rows])
    add("labels", [f"{train['labels']:,}" for train in trains])
    for stage in ("load", "fit", "evaluate"):
        add(f"{stage}, s (CPU s)", [f"{one[stage]['seconds']:.1f} ({one[stage]['cpu']:.1f})" for one in found])
        add(f"{stage}, peak GB", [f"{one[stage]['peak'] / GB:.2f}" for one in found])
    if any(case.epochs is not None for case in cases):
        whole = [extrapolated(case, one["fit"]["steps"]) for case, one in zip(cases, found, strict=True)]
        add("fit with all epochs, extrapolated, s", [f"{value:.0f}" for value in whole])
    add("model, GB", [f"{one['fit']['model'] / GB:.3f}" for one in found])
    add("evaluate, ms per text", [f"{one['evaluate']['ms per text']:.2f}" for one in found])
    add("P@1", [f"{one['evaluate']['metrics']['P@1']:.2f}" for one in found])
    add("P@1 of the generator's own best", [f"{one['data']['best']['P@1']:.2f}" for one in found])
    add("P@5", [f"{one['evaluate']['metrics']['P@5']:.2f}" for one in found])
    add("P@5 of the generator's own best", [f"{one['data']['best']['P@5']:.2f}" for one in found])
    lines += ["", "Seconds of each step (CPU seconds, peak GB):", "", line("", [*heads, "growth"])]
    lines.append(line("---", ["---"] * (len(heads) + 1)))
    for step in dict.fromkeys(name for one in found for name in one["fit"]["steps"]):
        own = [one["fit"]["steps"].get(step) for one in found]
        there = [(count, it["cpu"]) for count, it in zip(rows, own, strict=True) if it and it["cpu"] >= 1]
        exponent = growth([count for count, _ in there], [cpu for _, cpu in there])
        mark = "" if exponent is None else f"{exponent:.2f}" + (" !" if exponent > NOTABLE else "")
        add(step, [*map(cell, own), mark])
    return "\n".join(lines) + "\n"


def line(title: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([title, *cells])} |".replace("|  |", "| |")


def cell(step: dict[str, Any] | None) -> str:
    if step is None:
        return ""
    peak = "" if step["peak"] is None else f", {step['peak'] / GB:.2f}"
    return f"{step['seconds']:.2f} ({step['cpu']:.1f}{peak})"


def write_page(name: str, content: str, page: Path) -> None:
    """Put the tables of a dataset in their place on the page: between two comments, or at its end."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    block = f"{begin}\n{content}{end}\n"
    text = page.read_text(encoding="utf-8") if page.exists() else "# Data of the paper's sizes\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end) + "\n", re.DOTALL)
    text = pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text.rstrip()}\n\n{block}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=make_dataset.SIZES)
    parser.add_argument("--factor", type=float, nargs="+", default=[1.0], help="sizes: 1/f of the rows and labels")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "paper-size", help="datasets, models, figures")
    parser.add_argument("--epochs", type=int, help="of each stage; the time of all of them is extrapolated")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--title", help="of the tables (default: the name of the size)")
    parser.add_argument("--write", nargs="?", type=Path, const=PAGE, metavar="PAGE", help=f"default: {PAGE.name}")
    args = parser.parse_args()
    cases = [
        Case(args.size, factor, args.work / f"{args.size}-{factor:g}", args.epochs, args.settings, args.threads)
        for factor in args.factor
    ]
    found = [measure(case) for case in cases]
    content = tables(args.title or args.size, cases, found)
    print(content)
    about = machine()
    print(f"{about['cores']} cores, {args.threads} threads, CPU pressure {about['cpu_pressure']} %")
    if args.write:
        write_page(args.title or args.size, content, args.write)


if __name__ == "__main__":
    main()
