"""Very many texts: `elias predict` against `elias predict --engine ray` on the same cores, and a process killed midway.

    python benchmarks/many_texts.py MODEL DATA [--texts 1000000] [--words 12] [--files 8] [--kill] [--work FOLDER]

The texts are random pieces of the dataset's test texts, some words each, in several .jsonl files. Both commands write
jsonl with 5 labels per text. `ratio` is the throughput of Ray by that of `elias predict`. With --kill, one process of
the pool is killed (SIGKILL) once a third of the output is there. Answers of both are compared line by line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import zip_longest
from pathlib import Path

import numpy as np
from timing import machine, report

import elias

ACTOR = "ray::"  # how Ray names the processes of a pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("runs/many-texts"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    inputs = write_texts(args.data, args.work / f"texts-{args.texts}", args.texts, args.words, args.files)
    plain, pooled = args.work / "plain.jsonl", args.work / "ray"
    plain.unlink(missing_ok=True)
    shutil.rmtree(pooled, ignore_errors=True)
    command = [sys.executable, "-m", "elias", "predict", str(args.model), *map(str, inputs), "-k", "5", "--quiet"]
    before = seconds_of([*command, "-o", str(plain)])
    killed: list[int] = []
    with_ray = seconds_of(
        [*command, "-o", str(pooled), "--engine", "ray", "--format", "jsonl"],
        watch=(lambda: kill_one(pooled, args.texts, killed)) if args.kill else None,
    )
    parts = sorted(pooled.glob("*.jsonl"))
    row = {
        "texts": args.texts, "predict s": before, "ray s": with_ray, "ratio": before / with_ray,
        "killed": len(killed), "lines that differ": differing(plain, parts),
    }  # fmt: skip
    report(f"{args.texts:,} texts of {args.words} words, {machine()}", [row], as_json=args.json, **machine())


def write_texts(data: Path, folder: Path, count: int, words: int, files: int) -> list[Path]:
    """The files, made once."""
    paths = [folder / f"{number:02d}.jsonl" for number in range(files)]
    if all(path.exists() for path in paths):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    test = elias.load_dataset(data).test
    assert test is not None
    assert test.texts is not None
    split = [text.split() for text in test.texts]
    rng = np.random.default_rng(0)
    for path, numbers in zip(paths, np.array_split(np.arange(count), files), strict=True):
        part = path.with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            for number, which in zip(numbers.tolist(), rng.integers(0, len(split), len(numbers)), strict=True):
                start = int(rng.integers(0, max(1, len(split[which]) - words)))
                piece = " ".join(split[which][start : start + words])
                file.write(json.dumps({"id": f"text-{number}", "text": piece}) + "\n")
        part.rename(path)
    return paths


def seconds_of(command: list[str], watch: object = None) -> float:
    started = time.perf_counter()
    process = subprocess.Popen(command)
    while process.poll() is None:
        if callable(watch):
            watch()
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:5])} ... ended with {process.returncode}")
    return time.perf_counter() - started


def kill_one(output: Path, count: int, killed: list[int]) -> None:
    """Kill the busiest process of the pool once a third of the blocks is written."""
    if killed or sum(1 for _ in output.glob("*.jsonl")) * 20_000 < count // 3:
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended
            if name.startswith(ACTOR) and "MapWorker" in name:
                os.kill(int(folder.name), signal.SIGKILL)
                killed.append(int(folder.name))
                return


def differing(plain: Path, parts: list[Path]) -> int:
    """Lines that are not the same, or missing."""

    def lines() -> object:
        for part in parts:
            with part.open("rb") as file:
                yield from file

    with plain.open("rb") as file:
        return sum(one != other for one, other in zip_longest(file, lines()))  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
