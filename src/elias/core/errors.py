"""Every error a user can cause, in one tree.

    EliasError                 something the user can correct; shown as one line
    ├── DataError              a data file: names file, line, field, value and remedy
    ├── SettingsError          a setting: unknown, out of range, or in conflict; lists every problem
    ├── ModelError             a model folder that is missing, broken, foreign or of another format
    ├── RunError               a run folder that is locked, finished, or was started with other settings
    ├── InputError             an argument of a call: a k of 0, an unknown label, a wrong shape
    └── MissingExtraError      an optional package is not installed; the message has the command that installs it

Each class carries the exit code of the command line. Broken invariants are plain `assert`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class EliasError(Exception):
    """Something the user can correct. All errors of the package derive from it; `exit_code` is that of the command."""

    exit_code = 1


class DataError(EliasError):
    """A data file that cannot be read: `train.jsonl:14: field "labels": ...`.

    Parameters
    ----------
    message
        What is wrong, the value, and the remedy.
    file, line, field
        Where, as far as it is known; they are put before the message.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        place = "" if file is None else str(file)
        if line is not None:
            place += f":{line}"
        parts = [place] if place else []
        if field is not None:
            parts.append(f'field "{field}"')
        super().__init__(": ".join([*parts, message]))
        self.message, self.file, self.line, self.field = message, file, line, field


class SettingsError(EliasError):
    """One or more settings that cannot be used."""

    exit_code = 4


class ModelError(EliasError):
    """A model folder that cannot be opened."""

    exit_code = 5


class RunError(EliasError):
    """A run folder that cannot be used now."""

    exit_code = 6


class InputError(EliasError):
    """An argument of a call that cannot be used."""

    exit_code = 2


class MissingExtraError(EliasError):
    """An optional dependency is not installed."""

    exit_code = 7

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'elias-xmc[{extra}]'")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: `; did you mean "Cables"?`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
