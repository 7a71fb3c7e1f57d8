"""`load_dataset`: recognize the layout of a dataset by the files in its folder, and read it.

Layouts are tried in this order; the first whose training file exists is read, and files it does not read are noted.

    record_files    train.jsonl, .csv, .tsv or .parquet, or a train.txt of fastText
    lf_json         trn.json with lbl.json (LF-* datasets of the Extreme Classification Repository)
    matrices        Y.trn.npz (PECOS) or trn_X_Y.txt, with texts or features beside it
    text_lines      train_texts.txt with train_labels.txt (AttentionXML, LightXML)
    sparse_text     train.txt with an `N F L` header (Extreme Classification Repository)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import DataError, did_you_mean
from .dataset import Dataset, assemble
from .defects import EnoughDefects, ReadLog
from .excluded_pairs import Pairs, read_id_pairs, read_number_pairs
from .fields import Fields
from .files import ROW_SUFFIXES, SPLIT_WORDS, Folder, file_errors
from .labels import LabelSetBuilder
from .lf_json import load_lf_json
from .matrices import load_matrices
from .record_files import load_record_files, read_record_files
from .record_parser import RecordReader
from .records import DatasetRecords
from .settings import DatasetSettings, load_settings
from .sparse_text import is_sparse_text, load_sparse_text, read_sparse_text
from .text_lines import load_text_lines

OTHER_SUFFIXES = (
    ".xlsx", ".xls", ".ods", ".docx", ".pdf", ".zip", ".pkl", ".pickle", ".npz", ".npy", ".toml", ".md", ".html",
)  # fmt: skip


def load_dataset(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] | None = None,
    labels: str | None = None,
    id: str | None = None,
    separator: str | None = None,
) -> Dataset:
    """Read a dataset.

    Parameters
    ----------
    path
        A dataset folder in one of the layouts of docs/reference/data-layouts.md, or a single file of training rows.
    text
        The field of the text, or several that are joined; recognized without it, like the others.
    labels
        The field of the labels.
    id
        The field of the row's own id.
    separator
        What stands between two labels of one cell; "tab" and "none" are words for a tab and for one label per cell.

    Raises
    ------
    DataError
        For the first defect, with file, line, field, value and remedy. `elias check` lists many at once.
    """
    return load_with_fields(path, Fields.of(text, labels, id, separator))


def load_with_fields(path: str | os.PathLike[str], given: Fields) -> Dataset:
    """`load_dataset`, with the fields in one."""
    return _load(Path(path), given, ReadLog())


def collect_defects(
    path: str | os.PathLike[str],
    limit: int = 20,
    *,
    text: str | Sequence[str] | None = None,
    labels: str | None = None,
    id: str | None = None,
    separator: str | None = None,
) -> list[DataError]:
    """Up to `limit` defects in one pass: a bad line does not stop the reading, a broken file stops only itself."""
    log = ReadLog(limit=limit)
    try:
        _load(Path(path), Fields.of(text, labels, id, separator), log)
    except DataError as error:
        return [*log.defects, error]
    except EnoughDefects:
        pass
    return log.defects


def _load(path: Path, given: Fields, log: ReadLog) -> Dataset:
    with file_errors(path):
        is_file, is_folder = path.is_file(), path.is_dir()
    if is_file:
        return _load_file(path, given, log)
    if not is_folder:
        with file_errors(path.parent):
            siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"no such file or folder{did_you_mean(path.name, siblings)}", file=path)
    folder = Folder(path)
    toml = folder.find("dataset.toml")
    settings = DatasetSettings() if toml is None else load_settings(toml, log)
    found = (
        load_record_files(folder, given, settings, log)
        or load_lf_json(folder, log)
        or load_matrices(folder, log)
        or load_text_lines(folder, log)
        or load_sparse_text(folder, log)
    )
    if found is None:
        raise folder.without_train()
    _stop_if_defective(found, log)
    excluded = _excluded(folder, found, log)
    folder.note_unread(log)
    _stop_if_defective(found, log)
    name = settings.name or path.resolve().name
    return assemble(found, settings, log, name=name, excluded=excluded)


def _load_file(file: Path, given: Fields, log: ReadLog) -> Dataset:
    """Training rows alone; nothing beside the file is read."""
    settings = DatasetSettings()
    labels = LabelSetBuilder(log)
    stem = file.name.removesuffix(".gz")
    if stem.endswith(".txt") and is_sparse_text(file):
        found = DatasetRecords(f"one file, {file.name}, sparse features", labels)
        found.splits["train"], (_, n_labels) = read_sparse_text(file, log)
        labels.add_numbers(n_labels)
    elif stem.lower().endswith(OTHER_SUFFIXES):
        kinds = ", ".join((*ROW_SUFFIXES, ".txt"))
        raise DataError(f"not a file of rows; {kinds} are read (in a spreadsheet: save as csv)", file=file)
    else:
        reader = RecordReader(given, settings, labels)
        found = read_record_files({"train": file}, f"one file, {file.name}", reader)
    _stop_if_defective(found, log)
    return assemble(found, settings, log, name=Path(stem).stem)


def _excluded(folder: Folder, found: DatasetRecords, log: ReadLog) -> dict[str, list[Pairs]]:
    """The pairs of the filter files, by split."""
    excluded: dict[str, list[Pairs]] = {}
    labels = found.labels
    for split, words in SPLIT_WORDS.items():
        by_id = folder.find(*(f"filter_{word}.tsv" for word in words))
        by_number = folder.find(*(f"filter_labels_{word}.txt" for word in words))
        if by_id is None and by_number is None:
            continue
        read = found.splits.get(split)
        if read is None:
            log.defect(DataError(f"a filter file without {split} rows", file=by_id or by_number))
            continue
        if by_id is not None:
            excluded.setdefault(split, []).append(read_id_pairs(by_id, read, labels.numbers, log))
        if by_number is not None:
            excluded.setdefault(split, []).append(read_number_pairs(by_number, len(read), len(labels), log))
    return excluded


def _stop_if_defective(found: DatasetRecords, log: ReadLog) -> None:
    """While collecting defects there may be no training rows left to assemble."""
    if log.defects:
        raise EnoughDefects
    assert "train" in found.splits
