"""Output that grows beside its final name and survives being killed: `elias predict MODEL FILE -o OUT`.

    OUT.part            what is written so far; renamed to OUT when everything is there
    OUT.progress.json   rows and bytes that are safe, a hash of the input up to there, and what was asked for

Every STEP chunks the part is brought to disk (a .gz ends a member, which any reader joins to the next), then the
progress. Started again, the same command cuts the part back to what is safe, reads over the rows it holds and goes on;
the result is byte for byte that of an undisturbed run.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ..core.errors import InputError, RunError
from ..core.files import disk_errors, read_object, remove, write_json

STEP = 8  # chunks between two safe points
AHEAD = 2  # chunks under way: one in the kernels, the other being read or written


class ResumableOutput:
    def __init__(self, target: Path, asked: Mapping[str, Any], *, restart: bool = False) -> None:
        self.target, self.asked = target, dict(asked)
        self.part = target.with_name(target.name + ".part")
        self.progress = target.with_name(target.name + ".progress.json")
        self.compress = target.suffix == ".gz"
        self.rows, self.bytes, self.seen = 0, 0, ""  # safe: rows, bytes, hash of the input so far
        self.hash = hashlib.blake2b(digest_size=16)
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(self.part, "ab")  # noqa: SIM115
        try:
            self._lock()
            if not restart:
                self._read_progress()
            self._file.truncate(self.bytes)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ResumableOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: object, at: object) -> None:
        with suppress(OSError):  # of a full disk that has been reported; what is safe is on disk
            self._file.close()
        if kind is None:
            with disk_errors(self.target):
                os.replace(self.part, self.target)
            remove(self.progress)
        elif self.rows == 0:  # nothing worth keeping
            remove(self.part)
            remove(self.progress)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"{self.target}: another process is writing it; wait for it, or choose another name"
            raise RunError(message) from None

    def _read_progress(self) -> None:
        if not self.progress.exists():
            return
        found = read_object(self.progress, "rows", "bytes", "input", "asked", error=RunError)
        changed = sorted(
            name for name in {*found["asked"], *self.asked} if found["asked"].get(name) != self.asked.get(name)
        )
        if changed:
            raise RunError(
                f"{self.part}: was begun with another {' and '.join(changed)}; give the same command to go on, or "
                "--restart to begin again"
            )
        if self.part.stat().st_size < found["bytes"]:
            raise RunError(f"{self.part}: is shorter than it was; --restart begins again")
        self.rows, self.bytes, self.seen = int(found["rows"]), int(found["bytes"]), str(found["input"])

    def skip(self, lines: Iterator[Any], raw: Callable[[Any], str]) -> None:
        """Read over the rows that are written already; they must be the same as then."""
        count = 0
        for line in islice(lines, self.rows):
            self.see(raw(line))
            count += 1
        if count < self.rows or (self.rows and self.hash.hexdigest() != self.seen):
            raise InputError(
                f"the first {self.rows:,} rows of the input are no longer those that {self.part} was made from; "
                "--restart begins again"
            )

    def see(self, line: str) -> None:
        self.hash.update(line.encode("utf-8", "surrogatepass") + b"\n")

    def write(self, chunks: Iterable[str]) -> None:
        """Some chunks, as one member where the file is compressed."""
        raw = "".join(chunks).encode("utf-8", "backslashreplace")
        with disk_errors(self.target):
            self._file.write(gzip.compress(raw, 6, mtime=0) if self.compress else raw)

    def make_safe(self, rows: int, seen: str) -> None:
        with disk_errors(self.target):
            self._file.flush()
            os.fsync(self._file.fileno())
        self.rows, self.bytes, self.seen = rows, self._file.tell(), seen
        content = {"rows": self.rows, "bytes": self.bytes, "input": self.seen, "asked": self.asked}
        write_json(self.progress, content)


def write_all(
    output: ResumableOutput,
    chunks: Iterator[list[Any]],
    raw: Callable[[Any], str],
    answered: Callable[[list[Any]], str],
    told: Callable[[int], None],
) -> None:
    """Answer every chunk and write the answers in order; `told` hears how many rows are done."""
    rows, waiting = output.rows, list[str]()
    for number, (count, text, seen) in enumerate(_in_order(output, chunks, raw, answered), start=1):
        rows += count
        waiting.append(text)
        told(rows)
        if number % STEP == 0:
            output.write(waiting)
            output.make_safe(rows, seen)
            waiting.clear()
    if waiting or rows == 0:  # an empty .gz is a member too
        output.write(waiting)
    output.make_safe(rows, output.hash.hexdigest())


def _in_order(
    output: ResumableOutput,
    chunks: Iterator[list[Any]],
    raw: Callable[[Any], str],
    answered: Callable[[list[Any]], str],
) -> Iterator[tuple[int, str, str]]:
    """(rows, their answers, hash of the input up to them), computed a little ahead."""
    pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="elias-predict")
    under_way: list[tuple[int, Future[str], str]] = []
    try:
        for chunk in chunks:
            for line in chunk:
                output.see(raw(line))
            under_way.append((len(chunk), pool.submit(answered, chunk), output.hash.hexdigest()))
            if len(under_way) == AHEAD:
                count, future, seen = under_way.pop(0)
                yield count, future.result(), seen
        for count, future, seen in under_way:
            yield count, future.result(), seen
    finally:
        pool.shutdown(cancel_futures=True)
