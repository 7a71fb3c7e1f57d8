"""Output as a folder of blocks, each written by itself: `elias predict MODEL INPUT -o OUTPUT --engine ray`.

    OUTPUT/
        part-00000-00000.jsonl     block 0 of input file 0: whole, or not there
        part-00000-00001.jsonl     in the order of their names, the blocks are in the order of the input
        _elias.json                the command and the input files they belong to

Started again, the same command computes the blocks that are missing. OUTPUT can be at s3://, gs:// or abfs://, where an
object appears when it is complete; here a file is renamed into its place. Other file systems of pyarrow are refused: a
writer that is killed would leave a short part there.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError, RunError
from ..core.files import disk_errors
from ..engines.ray import first_line, opened
from .input_rows import suffix_of_name

COMMAND = "_elias.json"  # readers of folders of parts skip names that begin with _
UNDER_WAY = ".under-way"
WHOLE_OBJECTS = ("s3", "gcs", "abfs")  # where a file appears when it is complete


@dataclass(frozen=True)
class BlockFolder:
    """The folder of the blocks.

    Parameters
    ----------
    location
        A path or a URL.
    suffix
        Of the blocks: .jsonl, .csv, .tsv or .parquet.
    """

    location: str
    suffix: str

    def begin(self, command: Mapping[str, Any], *, restart: bool) -> None:
        """Make the folder, or go on in it; a run with another command or other input must not continue it."""
        from pyarrow import fs

        system, folder = opened(self.location)
        if not isinstance(system, fs.LocalFileSystem) and system.type_name not in WHOLE_OBJECTS:
            raise InputError(
                f"-o {self.location}: a part on a file system of type {system.type_name} could be left incomplete; "
                "name a local folder, or one at s3://, gs:// or abfs://"
            )
        with self._errors():
            if system.get_file_info(folder).type == fs.FileType.File:
                raise InputError(f"-o {self.location}: is a file; with --engine ray the output is a folder of parts")
            found = self._files()
            if restart:
                for name in self._names():
                    if name == COMMAND or name.startswith("part-") or name.endswith(UNDER_WAY):
                        system.delete_file(f"{folder}/{name}")
                found = []
            if COMMAND in found:
                self._compare(json.loads(self._read(COMMAND)), command)
                return
            if found:
                raise InputError(
                    f"-o {self.location}: has other files in it, such as {sorted(found)[0]}; name a new folder"
                )
            system.create_dir(folder, recursive=True)
            self._write(COMMAND, json.dumps(command, ensure_ascii=True, indent=1).encode())

    def _compare(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(now))
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if changed:
            raise RunError(
                f"{self.location}: was begun with another {' and '.join(changed)}; run the same command to continue, "
                "or start again with --restart"
            )

    def done(self) -> set[tuple[int, int]]:
        """(file, block) of the blocks that are written."""
        ours = (name.removesuffix(self.suffix).split("-") for name in self._files() if name.startswith("part-"))
        return {(int(parts[1]), int(parts[2])) for parts in ours if len(parts) == 3 and parts[2].isdecimal()}

    def write(self, file: int, block: int, content: bytes) -> None:
        with self._errors():
            self._write(f"part-{file:05d}-{block:05d}{self.suffix}", content)

    def _write(self, name: str, content: bytes) -> None:
        from pyarrow import fs

        system, folder = opened(self.location)
        here = isinstance(system, fs.LocalFileSystem)
        # Two processes, on one machine or two, can be at the same block when a node was thought lost.
        path = f"{folder}/.{name}.{uuid.uuid4().hex}{UNDER_WAY}" if here else f"{folder}/{name}"
        with system.open_output_stream(path) as out:
            out.write(content)
        if here:
            with open(path, "rb") as written:
                os.fsync(written.fileno())
            os.replace(path, f"{folder}/{name}")

    def _read(self, name: str) -> bytes:
        system, folder = opened(self.location)
        with system.open_input_stream(f"{folder}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def _files(self) -> list[str]:
        return [name for name in self._names() if not name.endswith(UNDER_WAY)]

    def _names(self) -> list[str]:
        from pyarrow import fs

        system, folder = opened(self.location)
        entries = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [entry.base_name for entry in entries]

    def _errors(self) -> Any:
        return disk_errors(Path(self.location))


def input_files(locations: list[str], suffixes: tuple[str, ...]) -> list[str]:
    """The files of paths and URLs; of a folder those that can be read, in the order of their names."""
    from pyarrow import fs

    files: list[str] = []
    for location in locations:
        system, path = opened(location)
        try:
            kind = system.get_file_info(path).type
            if kind == fs.FileType.File:
                files.append(location)
                continue
            entries = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except OSError as problem:
            raise InputError(f"{location}: cannot be opened ({first_line(problem)})") from None
        names = sorted(entry.base_name for entry in entries if entry.type == fs.FileType.File)
        found = [n for n in names if suffix_of_name(n) in suffixes and not n.startswith(("_", "."))]
        if not found:
            what = "there is no such file" if kind == fs.FileType.NotFound else f"has no file of {', '.join(suffixes)}"
            raise InputError(f"{location}: {what}; --engine ray reads files and folders of files")
        base, question, options = location.partition("?") if "://" in location else (location, "", "")
        files += [f"{base.rstrip('/')}/{name}{question}{options}" for name in found]
    return files


def file_stamp(location: str) -> tuple[str, int, int]:
    """(name, bytes, time) of an input file."""
    system, path = opened(location)
    about = system.get_file_info(path)
    return location, about.size or 0, about.mtime_ns or 0
