"""The feedback file: accepted and rejected labels, one JSON object per line, in the form that `fit` reads.

    {"id": "a", "text": "PDF viewer", "labels": ["evince"], "rejected": ["gimp"], "time": "2026-01-31T12:00:00+00:00",
     "model": "mine"}                                                                        (on one line)

`labels` are the accepted ones; `fit` does not read `rejected`, `time` and `model`. `fit` wants an id in every row or in
none, so a row without one is given a random id.

A line is appended under a lock of the operating system with one write at the end of the file, then synced to the disk.
Lines of several processes never mix, and a line that does not fit on the disk is taken back. The file is opened for
each line: it may be renamed or removed while the service runs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..core.errors import InputError


@dataclass(frozen=True)
class FeedbackFile:
    """Where feedback is stored."""

    path: Path

    def check(self) -> None:
        """InputError if nothing can be stored there; called when the service starts."""
        path, folder = self.path, self.path.parent
        if path.suffix != ".jsonl":
            raise InputError(f"--feedback {path}: name it {path.stem}.jsonl, so that `elias fit` can read it")
        if not folder.is_dir():
            raise InputError(f"--feedback {path}: the folder {folder} does not exist; make it first")
        try:
            if not path.exists():
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise InputError(f"--feedback {path}: no file can be made there; allow it: chmod u+wx {folder}")
            elif not path.is_file():
                raise InputError(f"--feedback {path}: this is not a file; name a file that lines are appended to")
            else:
                os.close(os.open(path, os.O_RDWR | os.O_APPEND))
        except OSError as problem:
            raise InputError(f"--feedback {path}: cannot be written ({problem.strerror})") from None

    def append(self, row: dict[str, object]) -> None:
        """Store one row. OSError if that fails; the file then is as it was before."""
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # released with the file
            self._append(file, line)
        finally:
            os.close(file)

    def _append(self, file: int, line: bytes) -> None:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # something else has written to it
            line = b"\n" + line
        try:
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise


def feedback_row(
    text: str, name: str | None, accepted: Sequence[str], rejected: Sequence[str], model: str
) -> dict[str, object]:
    """A row of the feedback file."""
    return {
        "id": secrets.token_hex(8) if name is None else name,
        "text": text,
        "labels": list(accepted),
        "rejected": list(rejected),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
    }
