"""Numbered lines of a text file, plain or gzip, with one answer for each thing that can be wrong with the bytes.

Only UTF-8 is read. A byte order mark and Windows line ends are taken off. Lines end at "\\n" alone, so that the
line number in an error is the one an editor shows.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ..core.errors import DataError
from .log import Log

BOM = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def file_errors(file: Path) -> Iterator[None]:
    """What the operating system says about a file, in the words of a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError("no such file", file=file) from None
    except IsADirectoryError:
        raise DataError("this is a folder, a file is expected here", file=file) from None
    except PermissionError:
        raise DataError(f"permission to read denied; allow it: chmod u+r {file}", file=file) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or one_line(error)}", file=file) from None


def one_line(error: Exception) -> str:
    """Another library's message, without its line breaks."""
    return " ".join(str(error).split())


def open_bytes(file: Path) -> IO[bytes]:
    """The bytes of a file, unpacked when its content is gzip (whatever its name)."""
    with file_errors(file), file.open("rb") as stream:
        magic = stream.read(2)
    if file.suffix == ".gz" and magic != GZIP_MAGIC:
        found = "it is empty" if not magic else f"it starts with {magic!r}"
        raise DataError(f"not a gzip file ({found}); fetch it again, or take .gz off the name", file=file)
    if magic in UTF16_MARKS:
        raise DataError("UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8", file=file)
    with file_errors(file):
        return cast("IO[bytes]", gzip.open(file)) if magic == GZIP_MAGIC else file.open("rb")


def raw_lines(file: Path) -> Iterator[bytes]:
    """The lines of a file as they are in it, line end included."""
    number = 0
    with open_bytes(file) as stream:
        try:
            for line in stream:
                number += 1
                yield line
        except EOFError:
            message = "the gzip file ends too early (an interrupted download?); fetch it again, test it with gzip -t"
            raise DataError(message, file=file, line=number + 1) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            message = f"damaged gzip file ({error}); fetch it again, test it with gzip -t"
            raise DataError(message, file=file, line=number + 1) from None
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", file=file, line=number + 1) from None


def numbered_lines(file: Path, log: Log | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end). An empty file is an error.

    With a log that collects defects, a line that cannot be decoded does not end the reading.
    """
    number = 0
    for number, raw in enumerate(raw_lines(file), start=1):
        try:
            text = decode_line(raw, file, number)
        except DataError as error:
            if log is None:
                raise
            log.defect(error)
            continue
        yield number, text
    if number == 0:
        raise DataError("the file is empty", file=file)


def decode_line(raw: bytes, file: Path, number: int) -> str:
    if number == 1 and raw.startswith(BOM):
        raw = raw[len(BOM) :]
    if b"\0" in raw:
        message = f"NUL byte at position {raw.index(0) + 1}; not a text file, or take them out: tr -d '\\000'"
        raise DataError(message, file=file, line=number)
    try:
        return raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = raw[error.start]
        message = f"not UTF-8: byte 0x{wrong:02x} at position {error.start + 1}"
        remedy = f"; convert the file, for example: iconv -f WINDOWS-1252 -t UTF-8 {file.name}"
        raise DataError(message + remedy, file=file, line=number) from None


def first_line(file: Path) -> str:
    """The first line, to recognise a layout by; empty when there is none."""
    for raw in raw_lines(file):
        return raw[:4096].removeprefix(BOM).decode("utf-8", "replace").rstrip("\r\n")
    return ""
