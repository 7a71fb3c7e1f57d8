"""ELIAS against its rivals on one dataset: accuracy with intervals, time, memory and size, in one run.

    python benchmarks/peers.py DATASET [--peers pecos parabel bonsai ...] [--models NAME=FOLDER ...]

The rivals are PECOS XR-Linear, omikuji (Parabel-like and Bonsai-like), the napkinXC label tree, LinearSVC, k-NN, bm25s,
our inverted index alone, and a score model on the candidates of PECOS; packages get an environment of their own,
.venv-peers, made at the first run. All get the same training rows, the same tf-idf (sublinear, words of 2 texts or
more), each label's id and text as one more training text of that label, own ids as positives where the dataset
excludes them, and the same filter of own ids and excluded pairs before scoring. Each is tried with a few settings that
its documentation recommends; the best on validation rows is trained on all rows. What was done is kept in
runs/peers/DATASET and used again while the dataset, the settings and the versions stay the same; `--again` does all
anew. Models of ours are trained before (`elias fit`) and named here; times are from raw text to the 5 best labels.
`--rounds N` times single texts of all of them in turn: machines are noisy, and a ratio within a round is not.

benchmarks/results.py does the same for all datasets, trains our models too, and writes docs/results.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers.catalogue import PEERS
from peers.comparison import compare, score_rows
from peers.environment import ROOT
from peers.in_turn import ask_in_turn, folders_of
from peers.rivals import LeftOut, Measured, Race, figures_of, measure, run
from timing import machine, report

import elias
from elias.core.files import write_json
from elias.dataset.label_texts import count_label_texts

FIGURES = {  # column: (name in the JSON, factor)
    "train s": ("train_seconds", 1.0),
    "batch ms": ("batch_ms", 1.0),
    "single ms": ("single_p50_ms", 1.0),
    "train MB": ("train_peak_bytes", 1e-6),
    "predict MB": ("predict_peak_bytes", 1e-6),
    "disk MB": ("model_bytes", 1e-6),
    "busy %": ("cpu_pressure", 1.0),
}


def main() -> None:
    args = arguments()
    data = elias.load_dataset(args.data)
    if data.test is None:
        sys.exit(f"{args.data} has no test rows, so there is nothing to compare on; add a test file")
    work = args.work / data.name
    if args.again:
        shutil.rmtree(work, ignore_errors=True)
    result: dict[str, Any] = {
        "dataset": data.name, "test_rows": len(data.test), "labels": len(data.labels),
        "label_texts": args.label_texts and count_label_texts(data.train, data.labels) > 0, "threads": args.threads,
        **machine(),
    }  # fmt: skip
    race = Race(data, work, args.environment, args.threads, args.label_texts)
    rivals, result["left_out"] = rivals_of(args.peers, race)
    outputs = {PEERS[rival.name].title: rival.folder for rival in rivals}
    for name, folder in args.models:
        outputs[name] = our_output(name, folder, args, work, data.fingerprint())
    if not outputs:
        sys.exit("nothing to compare: no peer could be run and no --models were given")
    scored = {name: score_rows(np.load(folder / "predictions.npz")["labels"], data) for name, folder in outputs.items()}
    result |= compare(scored, ours=[name for name, _ in args.models])
    result["figures"] = {name: figures_of(folder) for name, folder in outputs.items()}
    result["settings"] = {PEERS[rival.name].title: rival.settings for rival in rivals}
    if args.rounds > 0:
        result["in_turn"] = in_turn(args, race, rivals)
    write_json(args.json or work / "comparison.json", result)
    show(result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--peers", nargs="*", choices=list(PEERS), default=list(PEERS), help="which ones; none: no peer"
    )
    parser.add_argument("--models", nargs="*", type=named_model, default=[], metavar="NAME=FOLDER")
    parser.add_argument(
        "--label-texts", action=argparse.BooleanOptionalAction, default=True, help="where labels have texts"
    )
    parser.add_argument("--json", type=Path, help="where the result goes; default WORK/DATASET/comparison.json")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "peers", help="matrices, models and predictions")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="do everything anew")
    parser.add_argument("--rounds", type=int, default=0, help="of single texts, all systems in turn; default: none")
    return parser.parse_args()


def named_model(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not folder or not any((Path(folder) / file).is_file() for file in ("config.json", "ensemble.json")):
        raise argparse.ArgumentTypeError(f"{text}: write NAME=FOLDER with the folder of a trained model")
    return name, Path(folder)


def rivals_of(names: list[str], race: Race) -> tuple[list[Measured], dict[str, str]]:
    """The rivals that have answers, and why others are missing."""
    found, left_out = [], {}
    for name in names:
        try:
            found.append(measure(name, race))
        except LeftOut as reason:
            left_out[name] = str(reason)
    return found, left_out


def our_output(name: str, folder: Path, args: argparse.Namespace, work: Path, fingerprint: str) -> Path:
    """Predictions and figures of a model of ours, under a hash of its files, the dataset and our own source."""
    digest = hashlib.blake2b(fingerprint.encode(), digest_size=6)
    sources = (ROOT / "src" / "elias").rglob("*.py")
    for path in [*sorted(sources), *sorted(path for path in folder.rglob("*") if path.is_file())]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    output = work / f"ours-{digest.hexdigest()}"
    if not (output / "predict.json").exists():
        output.mkdir(parents=True, exist_ok=True)
        print(f"{name}: predict", file=sys.stderr, flush=True)
        problem = run(ours("predict", args, folder, output), output / "predict.log", args.threads)
        if problem:
            sys.exit(f"{name} ({folder}): {problem}; see {output / 'predict.log'}")
    return output


def ours(step: str, args: argparse.Namespace, folder: Path, output: Path) -> list[str]:
    settings = json.dumps({"threads": args.threads})
    return [sys.executable, "-m", "peers.our_model", step, str(args.data), str(folder), str(output), settings]


def in_turn(args: argparse.Namespace, race: Race, rivals: list[Measured]) -> dict[str, dict[str, float]]:
    """Single texts of every system that has answered and answers by itself, the rivals first."""
    assert race.data.test is not None
    commands = {}
    for rival in rivals:
        peer = PEERS[rival.name]
        if not peer.base:
            settings = json.dumps({**rival.settings, "threads": args.threads})
            python = str(args.environment / "bin" / "python") if peer.package else sys.executable
            folders = [str(race.inputs("final")), str(rival.model), str(rival.folder)]
            commands[peer.title] = [python, "-m", f"peers.{peer.adapter}", "ask", *folders, settings]
    for name, folder in args.models:
        commands[name] = ours("ask", args, folder, race.work)
    print(f"single texts in turn: {', '.join(commands)}", file=sys.stderr, flush=True)
    return ask_in_turn(commands, len(race.data.test), args.rounds, folders_of(ROOT))


def show(result: dict[str, Any]) -> None:
    """Three tables: accuracy, differences to the best peer, cost."""
    title = ", ".join(f"{key} {result[key]}" for key in ("dataset", "test_rows", "labels", "label_texts", "threads"))
    around = {name: {m: spread(v) for m, v in metrics.items()} for name, metrics in result["metrics"].items()}
    report(title, [{"system": name, **cells} for name, cells in around.items()], as_json=False)
    for name, against in result["against_best_peer"].items():
        rows = [
            {"metric": m, "difference": f"{d['difference']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]",
             "verdict": d["verdict"], "best peer": d["peer"]}
            for m, d in against.items()
        ]  # fmt: skip
        report(f"{name} against the best peer", rows, as_json=False)
    costs = [
        {"system": name, **{title: scaled(figures.get(key), factor) for title, (key, factor) in FIGURES.items()}}
        for name, figures in result["figures"].items()
    ]
    report("cost (busy %: cpu_pressure while the times were taken)", costs, as_json=False)
    if "in_turn" in result:
        rows = [
            {"system": name, "p50 ms": found["p50 ms"], "of the first": found["of the first"],
             "half of the rounds": f"{found['low']:.3f} to {found['high']:.3f}"}
            for name, found in result["in_turn"].items()
        ]  # fmt: skip
        report("single texts in turn", rows, as_json=False)
    for name, reason in result["left_out"].items():
        print(f"left out: {name}: {reason}")


def spread(found: dict[str, float]) -> str:
    return f"{found['value']:.2f} ±{(found['high'] - found['low']) / 2:.2f}"


def scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


if __name__ == "__main__":
    main()
