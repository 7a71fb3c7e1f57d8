"""Progress of a run on standard error: one line per finished step, and on a terminal a live line with time left.

Without a terminal only the finished steps are printed; `quiet` prints nothing. NO_COLOR is respected.
Standard output stays clean for results.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import IO

MIN_INTERVAL = 0.1  # seconds between two updates of the live line


def duration(seconds: float) -> str:
    """12 s, 3:20 min, 2:05 h"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02d} h"


class Progress:
    """Prints lines that stay (`say`) and one that is redrawn (`update`)."""

    def __init__(self, *, quiet: bool = False, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.live = not quiet and self.stream.isatty()
        self.color = self.live and not os.environ.get("NO_COLOR")
        self._shown = 0.0
        self._drawn = False

    def say(self, text: str = "") -> None:
        """A line that stays."""
        if not self.quiet:
            self._clear()
            print(text, file=self.stream, flush=True)

    def update(self, what: str, done: int, total: int, seconds: float, info: str = "") -> None:
        """The live line: the current step, the share that is done, and the time left."""
        now = time.monotonic()
        if not self.live or (now - self._shown < MIN_INTERVAL and done < total):
            return
        self._shown = now
        share = done / max(1, total)
        left = duration(seconds / share - seconds) + " left" if share > 0 else ""
        filled = round(20 * share)
        bar = "━" * filled + "┄" * (20 - filled)
        if self.color:
            bar = f"\x1b[36m{bar}\x1b[0m"
        width = shutil.get_terminal_size().columns + (9 if self.color else 0)
        line = f"  {what:<11} {bar} {100 * share:3.0f} %  {left:<13} {info}"
        print("\r\x1b[K" + line[: width - 1], end="", file=self.stream, flush=True)
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=self.stream)
            self._drawn = False


SILENT = Progress(quiet=True)
