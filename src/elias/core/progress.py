"""Progress of a run: one line per finished step, and on a terminal or in a notebook a live line with time left.

Lines go to standard error, so that standard output stays clean for results; in a notebook they go to standard output,
because notebooks print standard error in red. Without either only the finished steps are printed; `quiet` prints
nothing. NO_COLOR is respected.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import IO

from .errors import InputError

MIN_INTERVAL = 0.1  # seconds between two updates of the live line
NOTEBOOK_INTERVAL = 0.5  # a notebook may keep every update in its file
NOTEBOOK_COLUMNS = 100


def duration(seconds: float) -> str:
    """12 s, 3:20 min, 2:05 h"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02d} h"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (Jupyter, Colab, an editor). Imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Progress:
    """Prints lines that stay (`say`) and one that is redrawn (`update`)."""

    def __init__(self, *, quiet: bool = False, stream: IO[str] | None = None) -> None:
        self.notebook = stream is None and in_notebook()
        self.stream = stream or (sys.stdout if self.notebook else sys.stderr)
        self.quiet = quiet
        self.live = not quiet and (self.notebook or self.stream.isatty())
        self.color = self.live and not self.notebook and not os.environ.get("NO_COLOR")
        self._shown = 0.0
        self._drawn = False

    def say(self, text: str = "") -> None:
        """A line that stays."""
        if not self.quiet:
            self._clear()
            print(text, file=self.stream, flush=True)

    def update(self, what: str, done: int, total: int, seconds: float, info: str | Callable[[], str] = "") -> None:
        """The live line: current step, share done, time left, and a remark, which may be made when it is drawn."""
        now = time.monotonic()
        interval = NOTEBOOK_INTERVAL if self.notebook else MIN_INTERVAL
        if not self.live or (now - self._shown < interval and done < total):
            return
        self._shown = now
        share = done / max(1, total)
        left = duration(seconds / share - seconds) + " left" if share > 0 else ""
        filled = round(20 * share)
        bar = "━" * filled + "┄" * (20 - filled)
        if self.color:
            bar = f"\x1b[36m{bar}\x1b[0m"
        line = f"  {what:<11} {bar} {100 * share:3.0f} %  {left:<13} {info if isinstance(info, str) else info()}"
        if self.notebook:  # overwrites characters after \r, and knows no command that erases a line
            line = "\r" + line[:NOTEBOOK_COLUMNS].ljust(NOTEBOOK_COLUMNS)
        else:
            line = "\r\x1b[K" + line[: shutil.get_terminal_size().columns + (9 if self.color else 0) - 1]
        print(line, end="", file=self.stream, flush=True)
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            erased = "\r" + " " * NOTEBOOK_COLUMNS + "\r" if self.notebook else "\r\x1b[K"
            print(erased, end="", file=self.stream)
            self._drawn = False


SILENT = Progress(quiet=True)


def progress_as_asked(asked: bool | Progress | None) -> Progress:
    """What users pass as `progress`: True, False, or None, which shows it where someone is likely to look."""
    if isinstance(asked, Progress):
        return asked
    if asked is None:
        asked = in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    if not isinstance(asked, bool):
        raise InputError(f"progress={asked!r}: pass True, False, or None (shown on a terminal and in a notebook)")
    return Progress() if asked else SILENT
