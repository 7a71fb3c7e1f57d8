"""Checksums of the files of a folder: what a manifest in JSON records when they are written, and the check of it.

    "files":    {"index.safetensors": {"bytes": 48216, "blake2b": "..."}, ...}
    "checksum": the hash of the JSON object itself, without this field

Small files are verified whenever a folder is opened; of large ones only the size, and the content by `elias verify`.
BLAKE2b is in the standard library and reads more than a gigabyte per second on any 64-bit processor.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import ModelError
from .files import unreadable
from .schema import REMEDY, SMALL, Field, check_object

DIGEST = 16  # bytes: a chance of 2^-128 that another content goes unnoticed
ENTRY = {"bytes": Field("whole", low=0, high=2**62), "blake2b": Field("text")}


def hash_of_file(path: Path) -> str:
    """BLAKE2b of the content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST)).hexdigest()


def manifest(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size and hash of some files."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "blake2b": hash_of_file(folder / name)}
        for name in sorted(names)
    }


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its own checksum."""
    bare = {name: value for name, value in content.items() if name != "checksum"}
    return {**bare, "checksum": _hash_of_object(bare)}


def check_seal(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a JSON object that has changed since it was sealed."""
    bare = {name: value for name, value in content.items() if name != "checksum"}
    if content.get("checksum") != _hash_of_object(bare):
        raise ModelError(f"{path}: its checksum is another one: the file was changed after it was written; {REMEDY}")


def _hash_of_object(content: Mapping[str, Any]) -> str:
    try:
        raw = json.dumps(content, sort_keys=True).encode()
    except RecursionError:
        raw = b""
    return hashlib.blake2b(raw, digest_size=DIGEST).hexdigest()


class Verified:
    """What one verification has read: a file that members share by hard links is read once."""

    def __init__(self) -> None:
        self.hashes: dict[tuple[int, int], str] = {}
        self.files, self.bytes = 0, 0


def check_files(
    path: Path, files: Any, *, may_be_missing: Iterable[str] = (), every: Verified | None = None
) -> dict[str, Any]:
    """Compare the files beside a manifest with it: all of them with `every`, else small ones, and the sizes of all.

    Returns the entries of the files that are there.
    """
    there: dict[str, Any] = {}
    for name, entry in check_object(path, {"files": files}, {"files": Field("object")})["files"].items():
        wanted = check_object(path, entry, ENTRY, inside=f"files.{name}")
        file = path.parent / name
        try:
            about = file.stat()
        except FileNotFoundError:
            if name in may_be_missing:
                continue
            raise ModelError(f"{file}: the file is missing; {REMEDY}") from None
        except (OSError, ValueError) as problem:  # a name with NUL is a ValueError
            raise ModelError(f"{path}: the file {name[:100]!r} cannot be looked at ({problem}); {REMEDY}") from None
        if not stat.S_ISREG(about.st_mode):
            raise ModelError(f"{file}: not a file but {kind_of(about.st_mode)}; {REMEDY}")
        if about.st_size != wanted["bytes"]:
            raise ModelError(f"{file}: has {about.st_size:,} bytes, not the {wanted['bytes']:,} of {path}; {REMEDY}")
        there[name] = entry
        if every is None and about.st_size > SMALL:
            continue
        try:
            inode = (about.st_dev, about.st_ino)
            found = every.hashes.get(inode) if every is not None else None
            if found is None:
                found = hash_of_file(file)
                if every is not None:
                    every.hashes[inode] = found
                    every.files, every.bytes = every.files + 1, every.bytes + about.st_size
        except OSError as problem:
            raise ModelError(unreadable(file, problem)) from None
        if found != wanted["blake2b"]:
            raise ModelError(f"{file}: its content is not what {path.name} recorded: damaged or swapped; {REMEDY}")
    return there


def kind_of(mode: int) -> str:
    """A folder, a pipe or a device, in words."""
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")
