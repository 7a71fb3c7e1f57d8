"""Processes that torchrun starts on this machine train as one does; killed, they leave a run that goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elias.core.errors import RunError
from elias.core.files import read_tensors
from elias.core.rounding import as_tensor
from elias.network.storage import load_network
from elias.training.checkpoint import REPLICATED
from elias.training.stage import CHECKPOINT
from helpers.distributed_training import ALONE, LABELS, train
from helpers.processes import SMALL, elias, environment, sets, wait_until

SCRIPT = Path(__file__).resolve().parents[1] / "helpers" / "distributed_training.py"
TESTS = SCRIPT.parents[1]
QUICK = {**SMALL, "run.check_memory": False}
SUM_ORDER = 1e-5  # relative: gradients of phi and of the replicated weights are summed by rank, and then over the ranks
CASES: list[dict[str, Any]] = [
    {},
    {"reference": True, "changes": {"stage2.epochs": 1}},
    {"changes": {"stage2.classifiers": "random", "index.cluster_weights": "random", "stage2.epochs": 1}},
    {"changes": {"stage2.optimizer": "adamw", "stage2.accumulate": 3, "stage2.accumulated": "all", "stage2.epochs": 1}},
]


def torchrun(size: int, *arguments: str | Path, restarts: int = 0) -> subprocess.Popen[str]:
    """Start processes on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", f"--max-restarts={restarts}"]
    source = environment()["PYTHONPATH"]
    return subprocess.Popen(
        [*launcher, "--master-addr=127.0.0.1", f"--master-port={port}", *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(PYTHONPATH=os.pathsep.join([source, str(TESTS)]), OMP_NUM_THREADS="1"),
    )  # fmt: skip


def by_ranks(size: int, cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What `train` returns for each case on rank 0 of so many ranks."""
    (folder / "cases.json").write_text(json.dumps(cases))
    process = torchrun(size, SCRIPT, folder / "cases.json", folder / "found.json")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    found: list[dict[str, Any]] = json.loads((folder / "found.json").read_text())
    return found


def same_training(found: dict[str, Any], expected: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=SUM_ORDER)
    for ours, theirs in zip(found["history"], expected["history"], strict=True):
        for kind in ("validation", "validation_mean"):
            assert ours.get(kind, {}) == pytest.approx(theirs.get(kind, {}), abs=0.1)
    assert found["sums"] == pytest.approx(expected["sums"], rel=SUM_ORDER)


def test_two_ranks_train_as_one_and_go_on_from_what_one_wrote(tmp_path: Path) -> None:
    alone = [train(ALONE, case) for case in CASES]
    assert len(alone[0]["losses"]) > 100
    one, two = {"save": str(tmp_path / "of-one"), "cut": 90}, {"save": str(tmp_path / "of-two"), "cut": 101}
    train(ALONE, one)
    bits = {"network.precision": "bfloat16", "stage2.epochs": 1}
    saved = [{"changes": bits, "network": str(tmp_path / name)} for name in ("network-of-one", "network-of-two")]
    train(ALONE, saved[0])
    cases = [
        saved[1],
        {**CASES[0], "network": str(tmp_path / "network")},
        *CASES[1:],
        CASES[-1],
        two,
        {"restore": one["save"]},
        {"restore": two["save"]},
    ]
    _, *found, again, _, from_one, from_two = by_ranks(2, cases, tmp_path)
    for ours, theirs in zip(found, alone, strict=True):
        same_training(ours, theirs)
    assert again == found[-1]  # bit for bit
    assert from_two["losses"] == found[0]["losses"][101:]
    assert from_two["sums"] == found[0]["sums"]
    same_training(from_one, {**alone[0], "losses": alone[0]["losses"][90:]})
    rows = found[0]["rows"]
    assert rows["classifier_weights"] == rows["classifier_biases"] == -(-LABELS // 2)
    assert sorted(path.name for path in (tmp_path / "of-two").iterdir()) == [
        REPLICATED, "shard-0-of-2.safetensors", "shard-1-of-2.safetensors"
    ]  # fmt: skip
    network = load_network(tmp_path / "network", device=torch.device("cpu"), threads=1)
    assert network.trained_weights.values.double().abs().sum().item() == pytest.approx(
        found[0]["sums"]["classifier_weights"], rel=1e-12
    )
    ours, theirs = (
        read_tensors(Path(case["network"]) / "classifiers.safetensors")[0]["weights"] for case in saved[::-1]
    )
    assert ours.dtype == theirs.dtype == np.uint16
    # Rows are in their places: random rounding alone tells them apart, by 2^-7 of a value and what follows from it.
    np.testing.assert_allclose(as_tensor(ours).float(), as_tensor(theirs).float(), atol=0.1)
    same_training(train(ALONE, {"restore": two["save"]}), {**alone[0], "losses": alone[0]["losses"][101:]})


def under_way(run: Path, stage: str, steps: int) -> bool:
    try:
        at = json.loads(read_tensors(run / f"{stage}.part" / CHECKPOINT / REPLICATED, RunError)[1]["position"])
    except RunError:  # not there yet, or replaced while it was read
        return False
    return bool(at["epoch"] > 0 or at["step"] >= steps)


def rank_process(launcher: subprocess.Popen[str], rank: int) -> int:
    """The process of a rank: a child of torchrun."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables:
            return int(child)
    raise AssertionError(f"no rank {rank} among {children}")


@pytest.mark.parametrize(
    ("killed", "then"), [(1, 1), pytest.param(0, 3, marks=pytest.mark.slow), pytest.param(1, 2, marks=pytest.mark.slow)]
)
def test_one_killed_rank_ends_all_and_other_ranks_go_on(
    tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path, killed: int, then: int
) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    fit = ("fit", tiny_dataset, "-o", output, *sets(QUICK))
    process = torchrun(2, "-m", "elias", *fit, "--set", "run.checkpoint_seconds=0")
    wait_until(lambda: under_way(run, "30-stage1", 5), process)
    os.kill(rank_process(process, killed), signal.SIGKILL)
    started = time.monotonic()
    out, _ = process.communicate(timeout=60)
    assert time.monotonic() - started < 30
    assert process.returncode != 0
    lines = [line for line in out.splitlines() if line.startswith("elias: ")]
    assert len(lines) == 1, out
    assert lines[0].startswith(f"elias: rank {1 - killed}: ")
    assert lines[0].endswith("the same command goes on from the last checkpoint")
    assert not output.exists()
    if then == 1:
        done = elias(*fit)
        assert done.returncode == 0, done.stderr
        said = done.stderr
    else:
        process = torchrun(then, "-m", "elias", *fit)
        said, _ = process.communicate(timeout=200)
        assert process.returncode == 0, said
    assert "30-stage1: continuing at epoch" in said
    assert not list(tmp_path.rglob("*.part"))
    assert not list(tmp_path.rglob(CHECKPOINT))
    same_model(output, tiny_model_folder)


def same_model(folder: Path, expected: Path) -> None:
    """Weights to the order of sums; the quality to 0.1 points."""
    for name in ("classifiers.safetensors", "clusters.safetensors", "index.safetensors"):
        ours, theirs = read_tensors(folder / name)[0], read_tensors(expected / name)[0]
        assert ours.keys() == theirs.keys()
        for part, values in ours.items():
            assert values.dtype == theirs[part].dtype
            if part != "weights" or values.dtype == np.float32:
                np.testing.assert_allclose(values, theirs[part], rtol=1e-2, atol=1e-3, err_msg=f"{name}: {part}")
    ours, theirs = (json.loads((one / "config.json").read_text())["validation"] for one in (folder, expected))
    assert ours["epoch"] == theirs["epoch"]
    assert ours["nDCG@5"] == pytest.approx(theirs["nDCG@5"], abs=0.1)


@pytest.mark.slow
def test_torchrun_restarts_a_fit_whose_rank_was_killed(
    tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "model"
    page = (TESTS.parent / "docs" / "how-to" / "scale-out.md").read_text()
    given = next(line.split() for line in page.splitlines() if "--max-restarts" in line and "torchrun " in line)
    assert given[:5] == ["torchrun", "--nproc-per-node", "2", "--max-restarts", "3"]
    own = {"my-data": str(tiny_dataset), "models/mine": str(output)}
    command = [own.get(word, word) for word in given[5:]]
    process = torchrun(2, *command, *sets(QUICK), "--set", "run.checkpoint_seconds=0", restarts=3)
    wait_until(lambda: under_way(tmp_path / "model.run", "50-stage2", 3), process)
    os.kill(rank_process(process, 1), signal.SIGKILL)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert "50-stage2: continuing at epoch" in out
    same_model(output, tiny_model_folder)


@pytest.mark.slow
def test_an_error_of_rank_0_is_shown_once_and_ends_the_others(tiny_dataset: Path, tmp_path: Path) -> None:
    process = torchrun(2, "-m", "elias", "fit", tmp_path / "nothing.csv", "-o", tmp_path / "model")
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    lines = [line for line in out.splitlines() if line.startswith("elias: ")]
    assert len([line for line in lines if "nothing.csv" in line]) == 1, out
    settings = {"network.kind": "one-versus-all", "ranking.kind": "none", "run.check_memory": False}
    process = torchrun(2, "-m", "elias", "fit", tiny_dataset, "-o", tmp_path / "model", *sets(settings))
    out, _ = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "it trains in one; start it without torchrun" in out
