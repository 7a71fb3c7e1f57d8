"""What all kernels share: compiled code of earlier versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elias import kernels


def test_compiled_code_of_a_removed_module_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: any index may name the module, and could not be read."""
    caches = tmp_path / "__pycache__"
    caches.mkdir()
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(kernels, "_compiled_in", lambda: caches)
    for name in ("__init__.py", "find.py"):
        (tmp_path / name).touch()
    kept = ["find.cpython-311.pyc", "find.find_rows-3.py311.1.nbc", "find.find_rows-3.py311.nbi"]
    for name in kept:
        (caches / name).touch()
    kernels.forget_removed()
    assert sorted(path.name for path in caches.iterdir()) == kept
    (caches / "climb.margins-9.py311.nbi").touch()
    kernels.forget_removed()
    assert sorted(path.name for path in caches.iterdir()) == kept[:1]


def test_compiled_code_is_looked_for_where_numba_keeps_it(tmp_path: Path) -> None:
    """A service or a container has a folder for it (NUMBA_CACHE_DIR)."""
    script = "from elias import kernels; print(kernels._compiled_in()); print(kernels.are_new())"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    folder, new = done.stdout.split()
    assert Path(folder).is_relative_to(tmp_path)
    assert new == "True"
