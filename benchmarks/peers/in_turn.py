"""Single texts of several systems in turn, so that a machine that is slow for a while is slow for all of them.

Every system is a process of its own that has its model open and waits (`answer_questions`). A round asks one after the
other for the same TEXTS texts, another one first each time. A text follows the one before it at once, as
in a service under load. What is compared is the ratio within a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

TEXTS, WARM = 50, 100  # of a round; before the first


def ask_in_turn(commands: dict[str, list[str]], n_rows: int, rounds: int, folders: str) -> dict[str, dict[str, float]]:
    """p50 in milliseconds of each system over all rounds, and its ratio to the first system: median, and the middle
    half of the rounds."""
    environment = {**os.environ, "PYTHONPATH": folders}
    asked: dict[str, Any] = {}
    try:
        for name, command in commands.items():
            asked[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=environment,
            )  # fmt: skip
            question(name, asked[name], 0, min(WARM, n_rows))
        times: dict[str, list[list[float]]] = {name: [] for name in asked}
        for turn in range(rounds):
            first = turn * TEXTS % max(1, n_rows - TEXTS)
            names = list(asked)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                times[name].append(question(name, asked[name], first, min(first + TEXTS, n_rows)))
    finally:
        for process in asked.values():
            process.kill()
            process.wait()
    medians = {name: np.array([np.median(some) for some in found]) for name, found in times.items()}
    base = next(iter(medians.values()))
    figures = {}
    for name, own in medians.items():
        low, middle, high = np.quantile(own / base, [0.25, 0.5, 0.75])
        p50 = float(np.median(np.concatenate(times[name])))
        figures[name] = {"p50 ms": p50, "of the first": float(middle), "low": float(low), "high": float(high)}
    return figures


def question(name: str, process: Any, first: int, last: int) -> list[float]:
    """Milliseconds of each text first..last."""
    with suppress(BrokenPipeError):
        process.stdin.write(f"{first} {last}\n")
        process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        sys.exit(f"{name}: its process ended; run it alone to see why: {' '.join(map(str, process.args))}")
    found: list[float] = json.loads(answer)
    return found


def answer_questions(opened: Callable[[], Callable[[list[int]], Any]]) -> None:
    """The other side: `opened` opens a model and gives a function of row numbers. What they print goes elsewhere."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer = opened()
    for line in sys.stdin:
        first, last = map(int, line.split())
        answer([first])  # its memory has been away
        taken = []
        for row in range(first, last):
            started = time.perf_counter()
            answer([row])
            taken.append(1000 * (time.perf_counter() - started))
        print(json.dumps(taken), file=channel, flush=True)


def folders_of(root: Path) -> str:
    return os.pathsep.join(str(root / name) for name in ("benchmarks", "src"))
