"""The plain layout: train, test and validation as .jsonl, .csv, .tsv or .parquet (.gz for the text ones)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..core.errors import DataError
from .folder import SPLIT_WORDS, Folder, Recognised
from .jsonl import read_jsonl
from .log import Log
from .raw_rows import RawRows, collect
from .records import Record, RecordParser
from .settings import DatasetSettings
from .table import read_parquet, read_table
from .vocabulary import Vocabulary, read_label_file


def load_row_files(folder: Folder, settings: DatasetSettings, log: Log) -> Recognised | None:
    files = {split: file for split in SPLIT_WORDS if (file := folder.split_file(split)) is not None}
    if "train" not in files:
        return None
    vocabulary = Vocabulary(log)
    words = ", ".join(file.name for file in files.values())
    label_file = folder.find("labels.tsv")
    if label_file is not None:
        read_label_file(label_file, vocabulary)
        words += f" with {label_file.name}"
    found = Recognised(words, vocabulary)
    for split, file in files.items():
        try:
            found.splits[split] = read_row_file(file, settings, vocabulary, log)
        except DataError as error:
            log.defect(error)
    return found


def read_row_file(file: Path, settings: DatasetSettings, vocabulary: Vocabulary, log: Log) -> RawRows:
    return collect(_records(file, settings, vocabulary, log), file, log)


def _records(file: Path, settings: DatasetSettings, vocabulary: Vocabulary, log: Log) -> Iterator[Record]:
    suffix = Path(file.name.removesuffix(".gz")).suffix
    parser = RecordParser(file, settings, vocabulary, split_cells=suffix in (".csv", ".tsv", ".parquet"))
    if suffix == ".parquet":
        return read_parquet(file, parser, log)
    if suffix in (".csv", ".tsv"):
        return read_table(file, "," if suffix == ".csv" else "\t", parser, log)
    return read_jsonl(file, parser, log)
