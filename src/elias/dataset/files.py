"""The files of a dataset: those of a folder by name, and the numbered lines of each.

A layout requests files by name; `.gz` is tried after each name. A data file that no layout requested becomes a note,
so that a misspelled `tset.jsonl` does not go unnoticed.

Only UTF-8 is read, plain or gzip. A byte order mark and Windows line ends are removed. Lines end at "\\n" alone, so
that the line number in an error is the one an editor shows. Whatever is wrong with the bytes is a `DataError` that
names the remedy.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ..core.errors import DataError, did_you_mean
from .defects import UNREAD_FILE, ReadLog

SPLIT_WORDS = {"train": ("train",), "validation": ("validation", "valid", "dev", "val"), "test": ("test",)}
ROW_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
DATA_SUFFIXES = (*ROW_SUFFIXES, ".txt", ".npz", ".npy", ".ttl", ".rdf")
USUAL_NAMES = (
    "train.jsonl", "test.jsonl", "validation.jsonl", "train.csv", "test.csv", "train.tsv", "test.tsv",
    "train.parquet", "test.parquet", "train.txt", "test.txt", "labels.tsv", "dataset.toml",
    "filter_train.tsv", "filter_test.tsv", "train_texts.txt", "train_labels.txt", "test_texts.txt",
    "test_labels.txt", "trn.json", "tst.json", "lbl.json", "X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz",
)  # fmt: skip
PIECE = 1 << 24  # bytes of a line that are read at once
BOM = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MAGIC = b"\x1f\x8b"


class Folder:
    """Files by their name within the folder (`train.jsonl`, `raw/trn_X.txt`), and which of them were requested."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, Path] = {}
        self._read: set[str] = set()
        with file_errors(path):
            for entry in sorted(path.iterdir()):
                if entry.is_dir() and entry.name in ("raw", "raw_data"):
                    self._files |= {f"{entry.name}/{f.name}": f for f in sorted(entry.iterdir()) if f.is_file()}
                elif entry.is_file() and not entry.name.startswith("."):
                    self._files[entry.name] = entry

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def has(self, *names: str) -> bool:
        return any(name in self._files or f"{name}.gz" in self._files for name in names)

    def find(self, *names: str) -> Path | None:
        """The first of the names that exists, plain or .gz; it counts as read."""
        for name in names:
            for candidate in (name, f"{name}.gz"):
                if candidate in self._files:
                    self._read.add(candidate)
                    return self._files[candidate]
        return None

    def split_file(self, split: str, suffixes: tuple[str, ...] = ROW_SUFFIXES) -> Path | None:
        """The one file of a split, such as train.jsonl or dev.csv.gz. Two of them are an error."""
        names = [f"{word}{suffix}" for word in SPLIT_WORDS[split] for suffix in suffixes]
        found = [name for stem in names for name in (stem, f"{stem}.gz") if name in self._files]
        if len(found) > 1:
            raise DataError(f"two files for {split}: {found[0]} and {found[1]}; keep one", file=self.path)
        return self.find(*found)

    def note_unread(self, log: ReadLog) -> None:
        for name in self._files:
            stem = name.removesuffix(".gz")
            if name not in self._read and stem.endswith(DATA_SUFFIXES):
                log.note(UNREAD_FILE, name + did_you_mean(stem, [n for n in USUAL_NAMES if n != stem]))

    def without_train(self) -> DataError:
        """The error of a folder without a training file: what it holds, and a guess at a misspelled name."""
        if not self._files:
            return DataError("the folder is empty; put train.jsonl (and test.jsonl) in it", file=self.path)
        wanted = [name for name in USUAL_NAMES if "tr" in name.split(".tsv")[0]]
        for name in self._files:
            stem = name.removesuffix(".gz")
            hint = did_you_mean(stem, wanted)
            if hint and stem.endswith(DATA_SUFFIXES) and stem not in USUAL_NAMES:
                return DataError(f"no training file; found {name}{hint}", file=self.path)
        shown = ", ".join(self.names[:8]) + (", ..." if len(self._files) > 8 else "")
        remedy = "train.jsonl, .csv, .tsv or .parquet is needed, or a layout of docs/reference/data-layouts.md"
        return DataError(f"no training file among {shown}; {remedy}", file=self.path)


@contextmanager
def file_errors(file: Path) -> Iterator[None]:
    """Errors of the operating system about a file, as DataErrors."""
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
            while line := _whole_line(stream):
                number += 1
                yield line
                if len(line) >= PIECE and b"\0" in line and not line.endswith(b"\n"):
                    return  # no text: the rest would be one defect per piece, without end for a file that is a hole
        except EOFError:
            message = "the gzip file ends too early (an interrupted download?); fetch it again, test it with gzip -t"
            raise DataError(message, file=file, line=number + 1) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            message = f"damaged gzip file ({error}); fetch it again, test it with gzip -t"
            raise DataError(message, file=file, line=number + 1) from None
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", file=file, line=number + 1) from None


def _whole_line(stream: IO[bytes]) -> bytes:
    """One line; only its beginning where that holds NUL: of a file that is no text, a line may never end."""
    pieces = [stream.readline(PIECE)]
    while len(pieces[-1]) == PIECE and not pieces[-1].endswith(b"\n") and b"\0" not in pieces[-1]:
        pieces.append(stream.readline(PIECE))
    return b"".join(pieces)


def numbered_lines(file: Path, log: ReadLog | None = None) -> Iterator[tuple[int, str]]:
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
    """The first line, to recognize a layout by; empty when there is none."""
    for raw in raw_lines(file):
        return raw[:4096].removeprefix(BOM).decode("utf-8", "replace").rstrip("\r\n")
    return ""


def first_bytes(file: Path, count: int) -> bytes:
    """The first bytes, unpacked, to recognize a file by; empty for one that cannot be unpacked."""
    with open_bytes(file) as stream:
        try:
            return stream.read(count)
        except (EOFError, OSError, zlib.error):  # named with its line when the file is read
            return b""
