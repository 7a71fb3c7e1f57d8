"""The script that kills fits and fills their disk: what it does where it cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from attacks.fits import DISK_FULL, FULL, fill, judged


def test_a_disk_that_cannot_be_made_full_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried for ever."""

    def refuse(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 32, "", "mount: permission denied\n")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(RuntimeError, match="cannot be made full: mount: permission denied"):
        fill(tmp_path)


def test_how_a_fit_ended() -> None:
    assert judged(0, "", 0) == ""
    assert judged(DISK_FULL, f"elias: model.part: {FULL}\n", DISK_FULL) == ""
    assert judged(DISK_FULL, "elias: something else\n", DISK_FULL).startswith("exit status 6: ")
    assert judged(1, "Traceback", 0) == "exit status 1: Traceback"
