"""A run folder: frozen settings, a lock, numbered steps that are skipped when they are done, and a log.

    model.run/
        settings.json      settings as they were resolved at the first start, and the fingerprint of the data
        log.jsonl          every metric, one object a line
        10-features/ ...   finished steps, each with done.json: the hash of everything it depends on
        30-stage1.part/    the step that is under way, with its checkpoint

A step is built in NAME.part and renamed. Started again, a run skips finished steps whose hash is unchanged,
goes on inside the one that was cut, and builds the others anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .config import Settings, differences
from .errors import RunError
from .persistence import FolderLock, disk_errors, read_json, remove, write_json
from .progress import Progress, duration

FORMAT = 1


def hash_of(*parts: Any) -> str:
    """A short fingerprint of JSON-like values."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


class Run:
    """Use as a context manager: holds the lock while open."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self._hash = ""
        self._lock = FolderLock(folder)

    def __enter__(self) -> Run:
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def freeze(self, given: Settings, resolved: Settings, data: str, *, restart: bool = False) -> Settings:
        """The settings of this run: those of its first start, unless `restart` allows new ones.

        Threads and checkpoint interval belong to the machine and may change... no: threads decide the order of
        sums, so they are frozen too; only the checkpoint interval follows the new call.
        """
        path = self.folder / "settings.json"
        if path.exists() and not restart:
            frozen = read_json(path, RunError)
            if frozen.get("format") != FORMAT:
                raise RunError(f"{self.folder}: made by another version of elias; remove it, or pass --force")
            changed = differences(Settings.from_dict(frozen["given"]), given)
            if changed:
                raise RunError(
                    f"{self.folder} was started with other settings ({'; '.join(changed)}); call with the same settings "
                    "to go on, or pass --force to use the new ones (finished steps that do not depend on them are kept)"
                )
            if frozen["data"] != data:
                raise RunError(f"{self.folder} was started with other data; choose another -o, or pass --force")
            resolved = Settings.from_dict(frozen["resolved"])
        else:
            content = {"format": FORMAT, "given": given.as_dict(), "resolved": resolved.as_dict(), "data": data}
            write_json(path, content)
        self._hash = hash_of(FORMAT, data, resolved.split.__dict__, resolved.run.seed)
        return resolved

    def step(self, name: str, depends_on: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """The folder of a finished step; built by `build(folder)` unless it is there already.

        The hash chains: a step depends on `depends_on` and on every step before it.
        """
        self._hash = hash_of(self._hash, name, dict(depends_on))
        folder, part = self.folder / name, self.folder / f"{name}.part"
        if self._is(folder, "done.json"):
            return folder
        remove(folder)
        if not self._is(part, "begun.json"):
            remove(part)
            with disk_errors(part):
                part.mkdir()
            write_json(part / "begun.json", {"hash": self._hash})
        started = time.monotonic()
        with disk_errors(part):
            build(part)
        seconds = time.monotonic() - started
        write_json(part / "done.json", {"hash": self._hash, "seconds": round(seconds, 3)})
        os.replace(part, folder)
        self.log({"step": name, "seconds": round(seconds, 3)})
        self.progress.say(f"  {name:<14} {duration(seconds)}")
        return folder

    def _is(self, folder: Path, marker: str) -> bool:
        path = folder / marker
        return path.exists() and read_json(path, RunError).get("hash") == self._hash

    def log(self, record: Mapping[str, Any]) -> None:
        """One more line of log.jsonl."""
        with disk_errors(self.folder), open(self.folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 1), **record}, ensure_ascii=False) + "\n")
