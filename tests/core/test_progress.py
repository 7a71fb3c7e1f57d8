"""Progress: shown on terminals and in notebooks, quiet elsewhere; the live line never stays behind."""

from __future__ import annotations

import io
import sys
import types

import pytest

from elias.core.errors import InputError
from elias.core.progress import NOTEBOOK_COLUMNS, SILENT, Progress, in_notebook, progress_as_asked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_shown(written: str) -> list[str]:
    """The lines that a notebook shows: after a carriage return, characters overwrite those of the line."""
    lines = []
    for raw in written.split("\n"):
        line = ""
        for piece in raw.split("\r"):
            line = piece + line[len(piece) :]
        lines.append(line.rstrip())
    return lines


@pytest.fixture
def _notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a notebook's kernel: IPython is imported, its shell has a kernel, and no stream is a terminal."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("elias.core.progress.NOTEBOOK_INTERVAL", 0.0)


@pytest.mark.usefixtures("_notebook")
def test_a_notebook_shows_a_live_line_and_keeps_the_finished_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_notebook()
    progress = progress_as_asked(None)
    progress.say("first")
    progress.update("stage 1", 1, 4, 3.0, "a long remark about the loss " * 9)
    written = capsys.readouterr().out
    first = as_shown(written)[-1]
    assert first.startswith("  stage 1")
    assert "25 %  9 s left" in first
    assert len(first) <= NOTEBOOK_COLUMNS
    progress.update("stage 1", 4, 4, 12.0)
    written += capsys.readouterr().out
    assert as_shown(written)[-1].endswith("100 %  0 s left")
    progress.say("second")
    written, on_error = written + (rest := capsys.readouterr()).out, rest.err
    assert as_shown(written) == ["first", "second", ""]
    assert "\x1b" not in written  # which a notebook would count as characters of the line
    assert not on_error


def test_a_terminal_shows_it_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    progress = progress_as_asked(None)
    progress.update("stage 1", 1, 2, 1.0)
    assert "50 %" in terminal.getvalue()
    progress.say("done")
    assert terminal.getvalue().endswith("\r\x1b[Kdone\n")


def test_elsewhere_it_is_quiet_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    assert progress_as_asked(None).quiet
    progress = progress_as_asked(True)
    progress.update("stage 1", 1, 2, 1.0)
    progress.say("stage 1 done")
    assert pipe.getvalue() == "stage 1 done\n"
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_as_asked(False) is SILENT
    own = Progress(stream=pipe)
    assert progress_as_asked(own) is own


def test_a_python_of_ipython_without_a_kernel_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in (None, types.SimpleNamespace()):
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert not in_notebook()


def test_a_process_without_streams_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert progress_as_asked(None).quiet


def test_anything_else_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="progress='yes': pass True"):
        progress_as_asked("yes")  # type: ignore[arg-type]
