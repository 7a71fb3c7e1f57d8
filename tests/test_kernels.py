"""What all kernels share: compiled code of earlier versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from elias import kernels


def test_compiled_code_of_a_removed_module_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it: any index may name the module, and could not be read."""
    caches = tmp_path / "__pycache__"
    caches.mkdir()
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "__init__.py"))
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
