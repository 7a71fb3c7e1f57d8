"""What all kernels share: the switch to the definitions, and compiled code that is out of date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elias import kernels


def test_definitions_run_inside_reference() -> None:
    assert kernels.serve()
    assert kernels.serve(torch.device("cpu"))
    assert not kernels.serve(torch.device("meta"))
    with kernels.reference():
        assert not kernels.serve()
        with kernels.reference(False):
            assert not kernels.serve(), "an inner block does not switch kernels on again"
    with kernels.reference(False):
        assert kernels.serve()


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three kernel files, a calls b, each with compiled code that is up to date."""
    folder = tmp_path / "__pycache__"
    folder.mkdir()
    monkeypatch.setattr(kernels, "SOURCES", tmp_path)
    monkeypatch.setattr(kernels, "_outside", {})
    monkeypatch.setattr(kernels, "_cache_folder", lambda: folder)
    for name, source in {"a": "from .b import f\n", "b": "", "c": ""}.items():
        (tmp_path / f"{name}.py").write_text(source)
    kernels.discard_stale()
    for name in "abc":
        (folder / f"{name}.f-3.py311.nbi").touch()
    kernels.discard_stale()
    assert names(folder) == ["a", "b", "c"]
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.nbi"))


def test_an_edit_discards_what_calls_it(caches: Path) -> None:
    (caches.parent / "b.py").write_text("# changed")
    kernels.discard_stale()
    assert names(caches) == ["c"]


def test_a_file_that_is_gone_discards_everything(caches: Path) -> None:
    """Any index may name the module, and could not be read."""
    (caches.parent / "c.py").unlink()
    kernels.discard_stale()
    assert names(caches) == []


def test_a_file_elsewhere_that_this_process_has_not_imported_discards_nothing(
    caches: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit imports the losses, which compile a kernel of their own; another process does not."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "losses.py").write_text("from ..kernels.b import f\n")
    with monkeypatch.context() as fit:
        fit.setattr(kernels, "_outside", {outside / "losses.py": outside})
        kernels.discard_stale()
        (outside / "losses.f-3.py311.nbi").touch()
        kernels.discard_stale()
    kernels.discard_stale()
    assert (names(caches), names(outside)) == (["a", "b", "c"], ["losses"])
    with monkeypatch.context() as fit:
        fit.setattr(kernels, "_outside", {outside / "losses.py": outside})
        (caches.parent / "b.py").write_text("# changed")
        kernels.discard_stale()
    assert (names(caches), names(outside)) == (["c"], [])
    (outside / "losses.py").unlink()
    kernels.discard_stale()
    assert names(caches) == []


def test_compiled_code_of_before_there_was_a_stamp_is_discarded(caches: Path) -> None:
    (caches / kernels.STAMP).unlink()
    kernels.discard_stale()
    assert names(caches) == []


def test_compiled_code_is_looked_for_where_numba_keeps_it(tmp_path: Path) -> None:
    """A service or a container has a folder for it (NUMBA_CACHE_DIR)."""
    script = "from elias import kernels; print(kernels._cache_folder()); print(kernels.are_new())"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    folder, new = done.stdout.split()
    assert Path(folder).is_relative_to(tmp_path)
    assert new == "True"
