"""ELIAS against its peers on one dataset: accuracy with intervals, time, memory and size, in one run.

    python benchmarks/peers.py DATASET [--peers pecos parabel bonsai napkinxc] [--models NAME=FOLDER ...]

The peers are PECOS XR-Linear, omikuji (Parabel-like and Bonsai-like) and the napkinXC label tree; they get an
environment of their own, .venv-peers, made at the first run. All get the same training rows, the same tf-idf
(sublinear, words of 2 texts or more), each label's id and text as one more training text of that label, and the same
filter of own ids and excluded pairs. Predictions are kept in runs/peers/DATASET and used again while the dataset,
the settings and the versions stay the same; `--again predict` predicts and times anew, `--again train` does all anew.
Models of ours are trained before (`elias fit`) and named here; times are from raw text to the 5 best labels.
`--rounds N` times single texts of all of them in turn: machines are noisy, and a ratio within a round is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from peers.catalogue import PEERS
from peers.comparison import compare, score_rows
from peers.environment import ROOT, Environment, available
from peers.in_turn import ask_in_turn, folders_of
from peers.shared_data import key_of, shared_data
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
    label_texts = count_label_texts(data.train, data.labels) > 0 if args.label_texts is None else args.label_texts
    work = args.work / data.name
    result: dict[str, Any] = {
        "dataset": data.name, "test_rows": len(data.test), "labels": len(data.labels), "label_texts": label_texts,
        "label_ids": args.label_ids,
        "threads": args.threads, **machine(),
    }  # fmt: skip
    outputs, result["left_out"] = peers_of(args, data, work, label_texts) if args.peers else ({}, {})
    for name, folder in args.models:
        outputs[name] = our_output(name, folder, args, work, data.fingerprint())
    if not outputs:
        sys.exit("nothing to compare: no peer could be run and no --models were given")
    scored = {name: score_rows(np.load(folder / "predictions.npz")["labels"], data) for name, folder in outputs.items()}
    result |= compare(scored, ours=[name for name, _ in args.models])
    result["figures"] = {name: figures_of(folder) for name, folder in outputs.items()}
    if args.rounds > 0:
        result["in_turn"] = in_turn(args, data, work, outputs, label_texts)
    write_json(args.json or work / "comparison.json", result)
    show(result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--peers", nargs="*", choices=list(PEERS), default=list(PEERS), help="which ones; none: no peer"
    )
    parser.add_argument("--models", nargs="*", type=named_model, default=[], metavar="NAME=FOLDER")
    parser.add_argument("--label-texts", action=argparse.BooleanOptionalAction, help="default: where labels have texts")
    ids = "the label's id before its text, for the peers; default: yes"
    parser.add_argument("--label-ids", action=argparse.BooleanOptionalAction, default=True, help=ids)
    parser.add_argument("--json", type=Path, help="where the result goes; default WORK/DATASET/comparison.json")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "peers", help="matrices, models and predictions")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", choices=["predict", "train"], help="what to do anew although it is there")
    parser.add_argument("--rounds", type=int, default=0, help="of single texts, all systems in turn; default: none")
    return parser.parse_args()


def named_model(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not folder or not any((Path(folder) / file).is_file() for file in ("config.json", "ensemble.json")):
        raise argparse.ArgumentTypeError(f"{text}: write NAME=FOLDER with the folder of a trained model")
    return name, Path(folder)


def peers_of(
    args: argparse.Namespace, data: elias.Dataset, work: Path, label_texts: bool
) -> tuple[dict[str, Path], dict[str, str]]:
    """The output folder of each peer, and why others are missing."""
    environment = Environment(args.environment)
    names, left_out = available(args.peers, environment)
    matrices = shared_data(data, work, label_texts=label_texts, label_ids=args.label_ids)
    seconds = json.loads((matrices / "data.json").read_text())["seconds"]
    outputs = {}
    for name in names:
        peer = PEERS[name]
        key = key_of(matrices.name, peer.settings, environment.versions_of(peer), args.threads)
        output = work / f"{name}-{key}"
        settings = json.dumps({**peer.settings, "threads": args.threads})
        module = [str(environment.python), "-m", f"peers.{peer.adapter}"]
        forget(output, args.again)
        for step in ("train", "predict"):
            if not (output / f"{step}.json").exists():
                output.mkdir(parents=True, exist_ok=True)
                print(f"{peer.title}: {step}", file=sys.stderr, flush=True)
                problem = run([*module, step, str(matrices), str(output), settings], output / f"{step}.log")
                if problem:
                    left_out[name] = f"{step} failed: {problem}"
                    break
        else:
            write_json(output / "about.json", {"title": peer.title, "vectorize_seconds": seconds})
            outputs[peer.title] = output
    return outputs, left_out


def our_output(name: str, folder: Path, args: argparse.Namespace, work: Path, fingerprint: str) -> Path:
    """Predictions and figures of a model of ours, under a hash of its files, the dataset and our own source."""
    digest = hashlib.blake2b(fingerprint.encode(), digest_size=6)
    sources = (ROOT / "src" / "elias").rglob("*.py")
    for path in [*sorted(sources), *sorted(path for path in folder.rglob("*") if path.is_file())]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    output = work / f"ours-{digest.hexdigest()}"
    forget(output, args.again)
    if not (output / "predict.json").exists():
        output.mkdir(parents=True, exist_ok=True)
        print(f"{name}: predict", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "peers.our_model", str(folder), str(args.data), str(output), str(args.threads)]
        problem = run(command, output / "predict.log")
        if problem:
            sys.exit(f"{name} ({folder}): {problem}; see {output / 'predict.log'}")
    return output


def in_turn(
    args: argparse.Namespace, data: elias.Dataset, work: Path, outputs: dict[str, Path], label_texts: bool
) -> dict[str, dict[str, float]]:
    """Single texts of every system that has answered, the peers first."""
    assert data.test is not None
    commands = {}
    matrices = shared_data(data, work, label_texts=label_texts, label_ids=args.label_ids)
    for peer in PEERS.values():
        if peer.title in outputs:
            settings = json.dumps({**peer.settings, "threads": args.threads})
            module = [str(args.environment / "bin" / "python"), "-m", f"peers.{peer.adapter}"]
            commands[peer.title] = [*module, "ask", str(matrices), str(outputs[peer.title]), settings]
    for name, folder in args.models:
        ours = [sys.executable, "-m", "peers.our_model", str(folder), str(args.data), "ask", str(args.threads)]
        commands[name] = ours
    print(f"single texts in turn: {', '.join(commands)}", file=sys.stderr, flush=True)
    return ask_in_turn(commands, len(data.test), args.rounds, folders_of(ROOT))


def forget(output: Path, again: str | None) -> None:
    """Remove what is to be done anew, and what a training that was cut has left."""
    cut = (output / "model").exists() and not (output / "train.json").exists()
    if again == "train" or cut:
        shutil.rmtree(output, ignore_errors=True)
    elif again == "predict":
        (output / "predict.json").unlink(missing_ok=True)


def run(command: list[str], log: Path) -> str | None:
    """Run a step with its output in a log; the last line of it if it fails."""
    environment = {**os.environ, "PYTHONPATH": folders_of(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    log.write_text(done.stdout + done.stderr)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return None if done.returncode == 0 else (said or [f"exit code {done.returncode}"])[-1]


def figures_of(output: Path) -> dict[str, float]:
    """Times, memory and size of one system. Vectorizing counts as training, as it does in ours."""
    found: dict[str, float] = {}
    for name in ("train.json", "predict.json"):
        if (output / name).exists():
            found |= json.loads((output / name).read_text())
    if (output / "about.json").exists():
        found["train_seconds"] += json.loads((output / "about.json").read_text())["vectorize_seconds"]
    return found


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
