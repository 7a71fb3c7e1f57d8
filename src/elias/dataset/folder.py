"""The files of a dataset folder, and which of them were read.

A layout asks for files by name; `.gz` is tried after each name. What nobody asked for becomes a note, so that a
misspelled `tset.jsonl` does not go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import DataError, did_you_mean
from .lines import file_errors
from .log import UNREAD_FILE, Log
from .raw_rows import RawRows
from .vocabulary import Vocabulary

SPLIT_WORDS = {"train": ("train",), "validation": ("validation", "valid", "dev", "val"), "test": ("test",)}
ROW_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
DATA_SUFFIXES = (*ROW_SUFFIXES, ".txt", ".npz", ".npy")
USUAL_NAMES = (
    "train.jsonl", "test.jsonl", "validation.jsonl", "train.csv", "test.csv", "train.tsv", "test.tsv",
    "train.parquet", "test.parquet", "train.txt", "test.txt", "labels.tsv", "dataset.toml",
    "filter_train.tsv", "filter_test.tsv", "train_texts.txt", "train_labels.txt", "test_texts.txt",
    "test_labels.txt", "trn.json", "tst.json", "lbl.json", "X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz",
)  # fmt: skip


@dataclass
class Recognised:
    """What a layout found: its words, its labels, and a split for each file read."""

    layout: str
    vocabulary: Vocabulary
    splits: dict[str, RawRows] = field(default_factory=dict)


class Folder:
    """Files by their name within the folder (`train.jsonl`, `raw/trn_X.txt`)."""

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

    def note_unread(self, log: Log) -> None:
        for name in self._files:
            stem = name.removesuffix(".gz")
            if name not in self._read and stem.endswith(DATA_SUFFIXES):
                log.note(UNREAD_FILE, name + did_you_mean(stem, [n for n in USUAL_NAMES if n != stem]))

    def without_train(self) -> DataError:
        """Nothing here is a training file: say what is here and what it may have been meant to be."""
        if not self._files:
            return DataError("the folder is empty; put train.jsonl (and test.jsonl) in it", file=self.path)
        wanted = [name for name in USUAL_NAMES if "tr" in name.split(".tsv")[0]]
        for name in self._files:
            stem = name.removesuffix(".gz")
            hint = did_you_mean(stem, wanted)
            if hint and stem.endswith(DATA_SUFFIXES) and stem not in USUAL_NAMES:
                return DataError(f"no training file; found {name}{hint}", file=self.path)
        shown = ", ".join(self.names[:8]) + (", ..." if len(self._files) > 8 else "")
        remedy = "train.jsonl, .csv, .tsv or .parquet is needed, or one of the layouts of docs/data.md"
        return DataError(f"no training file among {shown}; {remedy}", file=self.path)
