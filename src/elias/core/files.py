"""Files on disk: atomic writes, JSON and safetensors, the lock of a folder. Never pickle.

    with replacing(path) as part:      a file or folder appears whole, or not at all
        ...

Tensors are read as copy-on-write memory maps, so opening a model of any size costs next to nothing and
processes share its pages. A full disk is an error that names the file, and what was there before stays.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import hashlib
import json
import math
import mmap
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import EliasError, ModelError, RunError

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
# A bfloat16 is read and written as its bits.
_DTYPES = _FLOATS | {"BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
LARGEST_JSON = 1 << 30  # bytes; the vocabulary of a large model has some 10 million
LONGEST_HEADER = 100_000_000  # bytes of a safetensors header; as in the format's own library
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Atomic write: a sibling of `path` to write to, renamed to `path` at the end of the block, removed on an error.

    A rename cannot replace a folder that is not empty, so the old one is first renamed to NAME.old. If the process is
    killed between the two renames, the next writer restores it.
    """
    part, old = path.with_name(path.name + ".part"), path.with_name(path.name + ".old")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _restore(old, path)
        remove(part)
        try:
            yield part
            _sync(part)
            if path.is_dir() and not part.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
            if part.is_dir() and path.exists():
                os.replace(path, old)
            os.replace(part, path)
        except BaseException:
            _restore(old, path)
            remove(part)
            raise
        remove(old)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or missing permissions into a RunError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        # numpy reports a short write without a number: "1000 requested and 12 written".
        if error.errno in _FULL or (error.errno is None and "requested and" in str(error)):
            raise RunError(f"{path}: the disk is full; free some space and start the same command again") from error
        if error.errno in _FORBIDDEN:
            raise RunError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
        raise


def restore_replaced(path: Path) -> None:
    """Finish or undo a replacement that a kill has cut short, before `path` is read."""
    _restore(path.with_name(path.name + ".old"), path)


def _restore(old: Path, path: Path) -> None:
    """Rename NAME.old back, unless its replacement is complete."""
    if old.exists() and path.exists():
        remove(old)
    elif old.exists():
        os.replace(old, path)


def remove(path: Path) -> None:
    """Remove a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links, or by copies where the file system has none.

    Safe because a finished file is never written to again: `replacing` puts a new one in its place.
    """
    target.mkdir(parents=True, exist_ok=True)
    for item in sorted(source.iterdir()):
        if item.is_dir():
            link_tree(item, target / item.name)
        else:
            link_or_copy(item, target / item.name)


def same_files(one: Path, other: Path, *names: str) -> bool:
    """Whether files of these names are the same in two folders: links to one file, or equal byte for byte."""
    try:
        return all(
            os.path.samefile(one / name, other / name) or filecmp.cmp(one / name, other / name, shallow=False)
            for name in names
        )
    except OSError:
        return False


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """A hard link, or a copy across file systems. An existing file is replaced, not written to."""
    remove(Path(target))
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    """Have the system write a file, or every file of a folder, to the disk."""
    for file in [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())


def write_json(path: Path, content: Any, *, indent: int | None = 1) -> None:
    """A JSON file, written atomically. Numbers that are not finite are refused: JSON has none."""
    try:
        text = json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError as problem:
        raise RunError(f"{path}: would hold a number that is not finite ({problem}); nothing was written") from None
    # Half a surrogate pair, which UTF-8 cannot hold, becomes \udxxx, which JSON reads back.
    raw = text.encode("utf-8", "backslashreplace")
    with replacing(path) as part:
        part.write_bytes(raw + b"\n")


def finite_number(text: str) -> float:
    """A number of a JSON file; ValueError for NaN, Infinity and what overflows to it."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is not finite")
    return number


def check_regular(path: Path, error: type[EliasError] = ModelError) -> int:
    """The size of a file; a folder, a pipe or a device in its place raises `error` before anything waits for it."""
    try:
        about = path.stat()
    except (OSError, ValueError) as problem:
        raise error(unreadable(path, problem)) from None
    if not stat.S_ISREG(about.st_mode):
        raise error(f"{path}: not a file but a folder, a pipe or a device; restore it from a copy")
    return about.st_size


def read_json(path: Path, error: type[EliasError] = ModelError) -> Any:
    """The content of a JSON file; a damaged one raises `error`."""
    size = check_regular(path, error)
    if size > LARGEST_JSON:
        raise error(f"{path}: has {size:,} bytes, far too many for such a file; restore it from a copy")
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_float=finite_number, parse_constant=finite_number)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: not readable as JSON ({problem}); the file is damaged, restore it from a copy") from None
    except OSError as problem:
        raise error(unreadable(path, problem)) from None


def read_object(path: Path, *keys: str, error: type[EliasError] = ModelError) -> dict[str, Any]:
    """A JSON file that must hold an object with these keys."""
    content = read_json(path, error)
    if not isinstance(content, dict):
        raise error(f"{path}: holds a {type(content).__name__}, not an object; the file is damaged or not one of elias")
    for key in keys:
        if key not in content:
            raise error(f'{path}: has no "{key}"; the file is damaged or not one of elias')
    return content


def unreadable(path: Path, problem: OSError | ValueError) -> str:
    """The message for a file that cannot be opened."""
    if isinstance(problem, FileNotFoundError):
        return f"{path}: the file is missing"
    return f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})"


def write_array(path: Path, array: np.ndarray) -> None:
    """A .npy file, written atomically."""
    with replacing(path) as part, open(part, "wb") as out:
        np.save(out, array, allow_pickle=False)


@dataclass(frozen=True)
class RowBlocks:
    """An array that is written block after block and never held whole."""

    blocks: Iterable[np.ndarray]
    shape: tuple[int, ...]
    dtype: np.dtype


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray | RowBlocks], metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file: 8 bytes of header length, a JSON header, raw little-endian arrays."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    arrays: list[Iterable[np.ndarray]] = []
    at = 0
    for name, tensor in tensors.items():
        arrays.append(tensor.blocks if isinstance(tensor, RowBlocks) else [np.ascontiguousarray(tensor)])
        end = at + tensor.dtype.itemsize * math.prod(tensor.shape)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 64 + 56)  # the first array starts on a cache line
    with replacing(path) as part, open(part, "wb") as out:
        out.write(len(raw).to_bytes(8, "little") + raw)
        for blocks in arrays:
            for block in blocks:
                out.write(block.reshape(-1).view(np.uint8).data)


def checksum_of(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """A hash of arrays and metadata: what a file that may be left behind by a kill carries in its own metadata."""
    digest = hashlib.blake2b(digest_size=16)
    for name, text in sorted(metadata.items()):
        digest.update(f"{name}={text};".encode())
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor)
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def read_tensors(path: Path, error: type[EliasError] = ModelError) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays as copy-on-write memory maps, metadata); a damaged file raises `error`."""
    size = check_regular(path, error)
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, LONGEST_HEADER):
                raise ValueError("its header does not fit the file")
            header = json.loads(file.read(length))
            whole = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError("its metadata are not texts")
        return {name: _view(whole, entry, 8 + length) for name, entry in header.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError) as problem:
        raise error(f"{path}: not a whole safetensors file ({_short(problem)}); restore it from a copy") from None
    except OSError as problem:
        raise error(unreadable(path, problem)) from None


def _short(problem: BaseException) -> str:
    said = " ".join(str(problem).split()) or type(problem).__name__
    return said if len(said) <= 120 else said[:117] + "..."


def _view(whole: mmap.mmap, entry: Mapping[str, Any], base: int) -> np.ndarray:
    """An array of a mapped file. All of a file share one map, for each map holds a file descriptor."""
    dtype, shape, place = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), list(entry["data_offsets"])
    if not all(type(number) is int and number >= 0 for number in (*shape, *place)) or len(place) != 2:
        raise ValueError("a shape or a place is not of whole numbers")
    start, stop = place
    if not start <= stop <= len(whole) - base or stop - start != dtype.itemsize * math.prod(shape):
        raise ValueError("an array reaches past its end")
    if start == stop:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=whole, offset=base + start)


def give_back(*arrays: np.ndarray) -> None:
    """Release the memory of memory-mapped arrays that were only read; they are read from the file when used again."""
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        mapped: Any = owner.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            # Whole pages of this array: what shares its first and last page may have been written.
            at = owner.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
            start = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
            length = (at + owner.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
            if length > 0:
                mapped.madvise(mmap.MADV_DONTNEED, start, length)


class FolderLock:
    """An exclusive lock on a run folder; the operating system releases it even after kill -9."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> FolderLock:
        with disk_errors(self.path):
            self._file = open(self.path, "a+")  # held until __exit__
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file.truncate(0)
                self._file.write(f"process {os.getpid()}")
                self._file.flush()
            except BlockingIOError:
                self._file.seek(0)
                owner = self._file.read().strip() or "another process"
                self._file.close()
                message = f"{self.path.parent}: {owner} is writing here; wait for it, or choose another -o"
                raise RunError(message) from None
            except OSError:
                _close(self._file)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _close(file: IO[str]) -> None:
    """Close a file whose last bytes the disk may refuse."""
    with suppress(OSError):
        file.close()
