"""Files a user gets: written beside and renamed into place, JSON and safetensors, never pickle.

    with written_beside(path) as part:      a file or folder appears whole, or not at all
        ...
Tensors are read as copy-on-write memory maps, so opening a model of any size costs next to nothing and
processes share its pages. A full disk is an error that names the file and loses nothing that was there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import EliasError, ModelError, RunError

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A sibling of `path` to write to; renamed to `path` when the block ends well, removed when it does not."""
    part = path.with_name(path.name + ".part")
    remove(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with disk_errors(path):
            yield part
            _sync(part)
            if path.is_dir():
                remove(path)
            os.replace(part, path)
    except BaseException:
        remove(part)
        raise


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into a line that says so."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise RunError(f"{path}: the disk is full; free some space and start the same command again") from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise RunError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
        raise


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have the system write a file, or every file of a folder, to the disk."""
    for file in [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())


def write_json(path: Path, content: Any) -> None:
    with written_beside(path) as part:
        part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path, error: type[EliasError] = ModelError) -> Any:
    """The content of a JSON file; `error` says what a broken one means."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise error(f"{path}: the file is missing") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise error(f"{path}: not readable as JSON ({problem}); the file is damaged, restore it from a copy") from None


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file: 8 bytes of header length, a JSON header, raw little-endian arrays."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    arrays, at = [], 0
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor)
        arrays.append(array)
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 64 + 56)  # the first array starts on a cache line
    with written_beside(path) as part, open(part, "wb") as out:
        out.write(len(raw).to_bytes(8, "little") + raw)
        for array in arrays:
            out.write(memoryview(array.reshape(-1)).cast("B") if array.size else b"")


def read_tensors(path: Path, error: type[EliasError] = ModelError) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays as copy-on-write memory maps, metadata); a damaged file is an `error` that says how."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError("its header does not fit the file")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        return {name: _mapped(path, entry, 8 + length, size) for name, entry in header.items()}, metadata
    except FileNotFoundError:
        raise error(f"{path}: the file is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise error(f"{path}: not a whole safetensors file ({problem}); restore it from a copy") from None


def _mapped(path: Path, entry: Mapping[str, Any], base: int, size: int) -> np.ndarray:
    dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
    start, stop = entry["data_offsets"]
    if not 0 <= start <= stop <= size - base or stop - start != dtype.itemsize * int(np.prod(shape)):
        raise ValueError("an array reaches past its end")
    if start == stop:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="c", offset=base + start, shape=shape).view(np.ndarray)


class FolderLock:
    """Keeps a second process out of a run folder; the system releases it even after kill -9."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> FolderLock:
        self._file = open(self.path, "a+")  # noqa: SIM115  (held until __exit__)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            self._file.close()
            raise RunError(f"{self.path.parent}: {owner} is writing here; wait for it, or choose another -o") from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()}")
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
