"""What goes wrong between ranks is one line, which says what it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from elias.core.distributed import _lost_ranks, launched_ranks
from elias.core.errors import RunError
from helpers.processes import environment


def test_a_size_without_a_launcher_names_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Job schedulers export WORLD_SIZE."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    message = "WORLD_SIZE=2 without RANK, MASTER_ADDR, MASTER_PORT: put torchrun before the command"
    with pytest.raises(RunError, match=message), launched_ranks():
        pass


@pytest.mark.parametrize("value", ["", "two", "-1"])
def test_a_size_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(RunError, match=f"WORLD_SIZE='{value}' in the environment is no number"), launched_ranks():
        pass


def test_memory_that_is_short_is_not_a_lost_process() -> None:
    with pytest.raises(RunError, match=r"^rank 1: not enough memory on the GPU \(CUDA out of memory\)"), _lost_ranks(1):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
    with pytest.raises(RunError, match="rank 1: another process of this fit is gone"), _lost_ranks(1):
        raise RuntimeError("[gloo/transport.cc:1] Connection closed by peer. More")


MASKS = """
import signal
from contextlib import contextmanager
from pathlib import Path
from elias.cli import main

@contextmanager
def launched_ranks():
    masks = [line.split()[1] for path in Path("/proc/self/task").iterdir()
             for line in (path / "status").read_text().splitlines() if line.startswith("SigBlk")]
    print(len(masks), all(int(mask, 16) >> signal.SIGTERM - 1 & 1 for mask in masks))
    raise SystemExit(0)
    yield

def patched(*arguments):
    import elias.core.distributed
    elias.core.distributed.launched_ranks = launched_ranks
    return arguments[0]

import elias.cli.fit
elias.cli.fit.changed_settings = lambda args: patched({})
main(["fit", "data"])
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_no_thread_of_a_library_takes_the_signal() -> None:
    """Those of OpenBLAS start when numpy is imported."""
    env = environment(WORLD_SIZE="2", OPENBLAS_NUM_THREADS="3", OMP_NUM_THREADS="3")
    done = subprocess.run([sys.executable, "-c", MASKS], capture_output=True, text=True, env=env, timeout=60)
    threads, blocked = done.stdout.split()
    assert int(threads) > 1, done.stderr
    assert blocked == "True"
