"""Output that grows beside its final name and survives a kill: `elias predict MODEL FILE -o OUT`.

    OUT.part            the rows written so far; renamed to OUT when it is complete
    OUT.progress.json   the last checkpoint: rows and bytes on disk, a hash of the input up to there, the command

Every CHECKPOINT_CHUNKS chunks the part is flushed to disk (a .gz ends a gzip member there, and readers join members),
then the progress file is written. When the same command starts again, it truncates the part to the checkpoint, skips
the input rows that it covers and continues. The result is byte for byte that of an uninterrupted run.

With `convert`, OUT.rows.part holds the rows in a form that can be continued, and OUT is made from it at the end.
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
from ..core.files import disk_errors, read_object, remove, replacing, write_json
from .input_rows import InputRow

CHECKPOINT_CHUNKS = 8
CHUNKS_UNDER_WAY = 2  # one inside the kernels while the other is parsed or formatted
Chunk = list[InputRow]


class ResumableOutput:
    """The part file and its checkpoint, opened at the place where an earlier run of the same command stopped.

    `command` holds the options that determine the output; a run with other options must not continue the part.
    """

    def __init__(
        self,
        target: Path,
        command: Mapping[str, Any],
        *,
        restart: bool = False,
        convert: Callable[[Path, Path], None] | None = None,
    ) -> None:
        self.target, self.command, self.convert = target, dict(command), convert
        self.part = target.with_name(target.name + (".part" if convert is None else ".rows.part"))
        self.progress = target.with_name(target.name + ".progress.json")
        self.compress = target.suffix == ".gz"
        self.rows, self.bytes, self.input_hash = 0, 0, ""  # of the last checkpoint
        self._hash = hashlib.blake2b(digest_size=16)  # of the input read so far
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(self.part, "ab")  # noqa: SIM115
        try:
            self._lock()
            if not restart:
                self._read_checkpoint()
            self._file.truncate(self.bytes)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ResumableOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: object, at: object) -> None:
        with suppress(OSError):  # a full disk, which has been reported; the checkpoint is intact
            self._file.close()
        if kind is None:
            self._finish()
            remove(self.progress)
        elif self.rows == 0:  # nothing worth keeping
            remove(self.part)
            remove(self.progress)

    def _finish(self) -> None:
        if self.convert is None:
            with disk_errors(self.target):
                os.replace(self.part, self.target)
            return
        with replacing(self.target) as whole:  # killed here, the next start finds every row and converts again
            self.convert(self.part, whole)
        remove(self.part)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"{self.target}: another process is writing it; wait for it, or choose another name"
            raise RunError(message) from None

    def _read_checkpoint(self) -> None:
        if not self.progress.exists():
            return
        found = read_object(self.progress, "rows", "bytes", "input", "command", error=RunError)
        before, now = found["command"], self.command
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if changed:
            raise RunError(
                f"{self.part}: was begun with another {' and '.join(changed)}; run the same command to continue, or "
                "start again with --restart"
            )
        if self.part.stat().st_size < found["bytes"]:
            raise RunError(f"{self.part}: is shorter than it was; start again with --restart")
        self.rows, self.bytes, self.input_hash = int(found["rows"]), int(found["bytes"]), str(found["input"])

    def skip_done(self, rows: Iterator[InputRow]) -> None:
        """Read past the rows that are written already, checking that they have not changed."""
        count = 0
        for row in islice(rows, self.rows):
            self.add_to_hash(row)
            count += 1
        if count < self.rows or (self.rows and self.hash_so_far() != self.input_hash):
            raise InputError(
                f"the first {self.rows:,} rows of the input are no longer those that {self.part} was made from; "
                "start again with --restart"
            )

    def add_to_hash(self, row: InputRow) -> None:
        self._hash.update(repr((row.text, row.id, row.candidates)).encode("utf-8", "surrogatepass"))

    def hash_so_far(self) -> str:
        return self._hash.hexdigest()

    def write(self, answers: Iterable[str]) -> None:
        """Append the answers to some chunks; one gzip member if the file is compressed."""
        raw = "".join(answers).encode("utf-8", "backslashreplace")
        with disk_errors(self.target):
            # mtime=0: the bytes must not depend on the time of the run.
            self._file.write(gzip.compress(raw, 6, mtime=0) if self.compress else raw)

    def checkpoint(self, rows: int, input_hash: str) -> None:
        with disk_errors(self.target):
            self._file.flush()
            os.fsync(self._file.fileno())  # before the progress file, which must never be ahead of the part
        self.rows, self.bytes, self.input_hash = rows, self._file.tell(), input_hash
        content = {"rows": self.rows, "bytes": self.bytes, "input": self.input_hash, "command": self.command}
        write_json(self.progress, content)


def write_all(
    output: ResumableOutput,
    chunks: Iterator[Chunk],
    answer: Callable[[Chunk], str],
    on_rows: Callable[[int], None],
    *,
    head: str = "",
) -> None:
    """Answer every chunk and write the answers in order, `head` before the first.

    `on_rows` is called with the number of rows done.
    """
    rows, pending = output.rows, [head] if output.rows == 0 else []
    for number, (count, text, input_hash) in enumerate(_answers_in_order(output, chunks, answer), start=1):
        rows += count
        pending.append(text)
        on_rows(rows)
        if number % CHECKPOINT_CHUNKS == 0:
            output.write(pending)
            output.checkpoint(rows, input_hash)
            pending.clear()
    if pending or rows == 0:  # an empty .gz file has one empty member
        output.write(pending)
    output.checkpoint(rows, output.hash_so_far())


def _answers_in_order(
    output: ResumableOutput, chunks: Iterator[Chunk], answer: Callable[[Chunk], str]
) -> Iterator[tuple[int, str, str]]:
    """(rows, their answers, hash of the input up to them); the next chunk is computed in the meantime."""
    pool = ThreadPoolExecutor(CHUNKS_UNDER_WAY, thread_name_prefix="elias-predict")
    under_way: list[tuple[int, Future[str], str]] = []
    try:
        for chunk in chunks:
            for row in chunk:
                output.add_to_hash(row)
            under_way.append((len(chunk), pool.submit(answer, chunk), output.hash_so_far()))
            if len(under_way) == CHUNKS_UNDER_WAY:
                count, future, input_hash = under_way.pop(0)
                yield count, future.result(), input_hash
        for count, future, input_hash in under_way:
            yield count, future.result(), input_hash
    finally:
        pool.shutdown(cancel_futures=True)
