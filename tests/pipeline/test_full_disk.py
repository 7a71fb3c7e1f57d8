"""A disk that is full: one line, nothing finished is lost, and with room the run goes on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elias.core.errors import RunError
from elias.core.files import disk_errors
from helpers.processes import SMALL, content, elias, environment, sets

EVERY_STEP = ("--set", "run.checkpoint_seconds=0")
SMALL_DISK = 230_000  # bytes: room for tokens, features and clusters, not for a checkpoint and a network
SMALL_FILE = 40_000  # bytes: less than a checkpoint


@contextmanager
def little_room(folder: Path) -> Iterator[Callable[[], None] | None]:
    """A small disk at `folder`; where none may be mounted, a limit on the length of files for the process to set."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_FILE, SMALL_FILE))
        return
    try:
        yield None
        subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)
        shutil.copytree(folder, folder.with_name("rescued"))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    shutil.copytree(folder.with_name("rescued"), folder, dirs_exist_ok=True)


@pytest.mark.slow
def test_a_full_disk_and_then_more_room(tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = ("fit", tiny_dataset, "-o", disk / "model", *sets(SMALL), *EVERY_STEP)
    with little_room(disk) as limit:
        done = elias(*arguments, preexec_fn=limit)
        assert (done.returncode, done.stdout) == (6, ""), done.stderr
        assert "the disk is full; free some space and start the same command again" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        finished = content(disk / "model.run" / "10-features")
        assert finished
        assert not (disk / "model").exists()
    done = elias(*arguments)
    assert done.returncode == 0, done.stderr
    assert "10-features" not in done.stderr
    assert content(disk / "model.run" / "10-features") == finished
    assert content(disk / "model", "*.safetensors") == content(tiny_model_folder, "*.safetensors")


def test_a_file_that_did_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    code = """if True:
        import resource, sys
        from pathlib import Path
        import numpy as np
        from elias.core.errors import RunError
        from elias.core.files import write_array, write_json, write_tensors
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for name, write in {"a.npy": write_array, "a.json": lambda p, x: write_json(p, x.tolist()),
                            "a.safetensors": lambda p, x: write_tensors(p, {"x": x})}.items():
            path = Path(sys.argv[1]) / name
            write(path, np.arange(10.0))
            before = path.read_bytes()
            try:
                write(path, np.arange(10_000.0))
            except RunError as error:
                assert path.read_bytes() == before and "disk is full" in str(error)
                print(name)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.split() == ["a.npy", "a.json", "a.safetensors"], done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.npy", "a.safetensors"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), "the disk is full"),
        (OSError("4096 requested and 0 written"), "the disk is full"),  # numpy's message
        (PermissionError(13, "Permission denied"), "cannot be written"),
        (IsADirectoryError(21, "Is a directory"), "cannot be written"),
    ],
)
def test_what_the_line_says(error: OSError, expected: str) -> None:
    with pytest.raises(RunError, match=expected), disk_errors(Path("model")):
        raise error


def test_other_errors_pass() -> None:
    with pytest.raises(FileNotFoundError), disk_errors(Path("model")):
        raise FileNotFoundError(2, "No such file")
