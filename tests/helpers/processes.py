"""Helpers for tests that run `elias` as a real process, and the small settings of their fits."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elias import Dataset, Model

SMALL: dict[str, Any] = {
    "ranking.kind": "none",  # the network alone
    "clustering.clusters": 4,
    "encoder.dim": 16,
    "stage1.epochs": 2,
    "stage2.epochs": 2,
    "stage1.batch_size": 16,  # the default depends on the kind of ranking, and tests change the kind
    "stage2.batch_size": 16,
    "run.threads": 2,
}
STACKED: dict[str, Any] = {  # with the stacked ranker and probabilities
    **SMALL,
    "ranking.kind": "stacked",
    "split.calibration_rows": 100,
    "score_model.epochs": 5,
    "score_model.hidden_units": 4,
}
PUBLISHED: dict[str, Any] = {**SMALL, "ranking.kind": "published", "split.calibration_rows": 100}  # T + p q
NEITHER: dict[str, Any] = {"clustering.clusters": 2, "stage1.epochs": 1, "stage2.epochs": 0}  # hardly a network
PATIENCE = 90  # seconds for anything to happen


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "elias", *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"), **changes}


def elias(*arguments: str | Path, stdin: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE,
        **options,
    )


def here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same in this process, where a start of Python is not what is tested."""
    from elias.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command and come back at once."""
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str], patience: float = PATIENCE) -> None:
    """Poll every millisecond until a condition holds; the process must not end before."""
    deadline = time.monotonic() + patience
    while not happened():
        assert process.poll() is None, f"the process ended first: {process.communicate()}"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def sets(settings: Mapping[str, Any]) -> list[str]:
    """--set section.key=value ..."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def one_line(text: str) -> bool:
    """An error is one line that begins with the program's name."""
    return text.startswith("elias: ") and text.count("\n") == 1 and text.endswith("\n")


def content(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def fitted(data: Dataset, **changes: Any) -> Model:
    """A model with the stacked ranker, fitted in this process; a setting's dot is written as two underscores."""
    import elias

    named = {key.replace("__", "."): value for key, value in changes.items()}
    model = elias.fit(data, settings=elias.Settings().updated({**STACKED, **named}))
    assert isinstance(model, elias.Model)
    return model
