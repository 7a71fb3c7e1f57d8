"""Where the run folder of a model is looked for."""

from __future__ import annotations

from pathlib import Path

from elias.pipeline.stage1_model import run_folder_of


def test_run_folders_of_a_model_and_of_a_member(tmp_path: Path) -> None:
    assert run_folder_of(tmp_path / "model") == tmp_path / "model.run"
    (tmp_path / "both.run" / "member-1").mkdir(parents=True)
    assert run_folder_of(tmp_path / "both" / "member-1") == tmp_path / "both.run" / "member-1"


def test_a_model_below_the_root() -> None:
    """As containers have them; the root has no name to put .run behind."""
    assert run_folder_of(Path("/model")) == Path("/model.run")
