"""The benchmarks run, at sizes that take seconds; what they measure is in docs/benchmarks.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import environment

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SIZE = ["--labels", "2048", "--clusters", "64", "--kappa", "200", "--dim", "32", "--shortlist", "300"]


def rows_of(name: str, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / name), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("options", [[], ["--flat"]])
def test_search(options: list[str]) -> None:
    rows = rows_of("search.py", *SIZE, "--repeats", "1", "--singles", "3", "--no-faiss", *options)
    assert [row["row"] for row in rows] == ["ours", "torch", "exact fp32", "exact bf16"]
    assert all(row["batch ms"] > 0 and row["single p50"] > 0 for row in rows)


def test_training_step() -> None:
    kernels, torch = rows_of("train_step.py", *SIZE, "--batch", "16", "--steps", "2")
    assert kernels["loss"] == pytest.approx(torch["loss"], rel=1e-3), "both paths make the same steps"


def test_scale() -> None:
    rows = rows_of("scale.py", "--labels", "4096", "--rules", "sqrt(L)", "--dim", "16", "--steps", "2")
    assert rows[0]["labels"] == 4096
    assert rows[0]["first answer ms"] > 0


@pytest.mark.slow
def test_serve(tiny_model_folder: Path, tiny_dataset: Path) -> None:
    options = [str(tiny_model_folder), "--data", str(tiny_dataset), "--texts", "80", "--seconds", "0.5"]
    rows = {row["row"]: row for row in rows_of("serve.py", *options, "--connections", "8")}
    assert rows["start to ready"]["seconds"] > 0
    for name in ("single", "nothing", "no text", "one text", "64 texts", "SIGHUP under load", "SIGTERM under load"):
        assert rows[name]["requests/s"] > 0
        assert rows[name]["errors"] == 0
    assert rows["one text"]["share"] > 0
