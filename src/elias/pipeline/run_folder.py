"""A run folder: frozen settings, a lock, numbered steps that are skipped when they are done, and a log.

    model.run/
        settings.json      settings as they were resolved at the first start, and the fingerprint of the data
        log.jsonl          every metric, one JSON object per line
        10-features/ ...   finished steps, each with done.json: the hash of everything it depends on
        30-stage1.part/    the step that is under way, with its checkpoint

How a killed run knows where to resume: a step is built in NAME.part and renamed when it is whole. Started again, a run
skips finished steps whose hash is unchanged, continues inside the one that was interrupted (begun.json has its hash)
and builds the others. The hash of a step covers its own settings and the hashes of the steps it comes after, so a
changed setting of the ranker leaves the network alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import RunError, SettingsError
from ..core.files import FolderLock, disk_errors, link_tree, read_object, remove, write_json
from ..core.progress import Progress, duration
from ..core.settings import Settings, differences

FORMAT = 1
LOG = "log.jsonl"
MAY_CHANGE = ("run.checkpoint_seconds", "run.check_memory")


def hash_of(*parts: Any) -> str:
    """A short fingerprint of JSON-like values."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


class Run:
    """Use as a context manager: holds the lock while open."""

    def __init__(self, folder: Path, progress: Progress, reuse: Path | None = None) -> None:
        """`reuse`: another run folder, whose finished steps with the same hash are linked instead of built."""
        self.folder, self.progress, self.reuse = folder, progress, reuse
        self._hash = ""  # of the step that was asked for last
        self._hashes: dict[Path, str] = {}  # of every step so far, by its folder
        self._lock = FolderLock(folder)

    def __enter__(self) -> Run:
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock.__enter__()
        _drop_torn_line(self.folder / LOG)
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    @contextmanager
    def below(self, name: str, reuse: Path | None = None) -> Iterator[Run]:
        """A run inside this one; steps of either can come after steps of the other. `reuse`: as this one's."""
        if reuse is None and self.reuse is not None:
            reuse = self.reuse / name
        with Run(self.folder / name, self.progress, reuse) as run:
            run._hashes |= self._hashes  # its steps can come after steps of this one
            yield run
        self._hashes |= run._hashes

    def freeze(self, given: Settings, resolved: Settings, data: str, *, restart: bool = False) -> Settings:
        """The settings of this run: those of its first start, unless `restart` allows new ones.

        Only the checkpoint interval and the memory check may differ from call to call: they decide no bit of the
        model. While no step is done, nothing depends on the settings yet: a first call that failed (a mistyped model
        name) can be corrected.
        """
        path = self.folder / "settings.json"
        frozen = self._frozen(path) if path.exists() and not restart else None
        if frozen is not None and any(self.folder.glob("*/done.json")):
            changed = [line for line in differences(frozen["given"], given) if not line.startswith(MAY_CHANGE)]
            if changed:
                raise RunError(
                    f"{self.folder} was started with other settings ({'; '.join(changed)}); call with the same ones to "
                    "continue, or pass --force to use the new ones (finished steps that do not depend on them are kept)"
                )
            if frozen["data"] != data:
                raise RunError(f"{self.folder} was started with other data; choose another -o, or pass --force")
            now = (given.run.checkpoint_seconds, given.run.check_memory)
            resolved = frozen["resolved"].updated(dict(zip(MAY_CHANGE, now, strict=True)))
        else:
            content = {"format": FORMAT, "given": given.as_dict(), "resolved": resolved.as_dict(), "data": data}
            write_json(path, content)
        self._hash = hash_of(FORMAT, data, vars(resolved.split), resolved.run.seed)
        return resolved

    def _frozen(self, path: Path) -> dict[str, Any]:
        """settings.json of an earlier start, read."""
        content = read_object(path, "format", error=RunError)
        try:
            if content["format"] == FORMAT:
                read = {name: Settings.from_dict(content[name]) for name in ("given", "resolved")}
                return {**read, "data": content["data"]}
        except (SettingsError, KeyError, AttributeError):
            pass
        raise RunError(f"{self.folder}: made by another version of elias; remove it, or pass --force")

    def step(
        self,
        name: str,
        depends_on: Mapping[str, Any],
        build: Callable[[Path], None],
        *,
        after: Sequence[Path] | None = None,
        scratch: Sequence[str] = (),
    ) -> Path:
        """The folder of a finished step; built by `build(folder)` unless it is there already.

        The hash chains: a step depends on `depends_on` and on the steps `after` whose folders it comes, each with all
        that it depends on itself; None: the step before. A finished step is removed only if its hash is another one.
        `scratch` names files that are of no use once the step is done; they go last, so that a kill at any moment
        finds either them or the finished step.
        """
        before = [self._hash] if after is None else [self._hashes[folder] for folder in after]
        folder, part = self.folder / name, self.folder / f"{name}.part"
        self._hash = self._hashes[folder] = hash_of(*before, name, dict(depends_on))
        if not self._is(folder, "done.json"):
            with disk_errors(part):
                remove(folder)
                if not self._is(part, "done.json") and not self._reused(name, part):
                    self._build(name, part, build)
                os.replace(part, folder)
        for file in scratch:
            remove(folder / file)
            remove(folder / f"{file}.part")  # of a run that was killed while it wrote
        return folder

    def _reused(self, name: str, part: Path) -> bool:
        """Link the step of the other run where it is finished and the same."""
        if self.reuse is None or not self._is(self.reuse / name, "done.json"):
            return False
        remove(part)
        link_tree(self.reuse / name, part)
        return self._is(part, "done.json")

    def _build(self, name: str, part: Path, build: Callable[[Path], None]) -> None:
        if not self._is(part, "begun.json"):
            remove(part)
            part.mkdir()
            write_json(part / "begun.json", {"hash": self._hash})
        started = time.monotonic()
        build(part)
        seconds = time.monotonic() - started
        self.log({"step": name, "seconds": round(seconds, 3)})
        write_json(part / "done.json", {"hash": self._hash, "seconds": round(seconds, 3)})
        self.progress.say(f"  {name:<14} {duration(seconds)}")

    def _is(self, folder: Path, marker: str) -> bool:
        path = folder / marker
        return path.exists() and read_object(path, error=RunError).get("hash") == self._hash

    def log(self, record: Mapping[str, Any]) -> None:
        """One more line of the log. After a kill, what is done again is logged again."""
        line = json.dumps({"time": round(time.time(), 1), **record}, ensure_ascii=False) + "\n"
        with disk_errors(self.folder), open(self.folder / LOG, "ab") as file:
            file.write(line.encode("utf-8", "backslashreplace"))


def _drop_torn_line(log: Path) -> None:
    """A kill or a full disk can leave half a line at the end; every line that stays is whole."""
    if not log.exists():
        return
    with open(log, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
