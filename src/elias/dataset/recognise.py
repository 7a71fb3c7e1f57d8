"""load_dataset: which layout is this, by the files in the folder and what is in them.

Layouts are tried in this order; the first whose training file is there wins, and files it does not read are noted:
rows in .jsonl/.csv/.tsv/.parquet, LF json, label matrices (PECOS, X_Xf/X_Y), AttentionXML lines, N F L sparse text.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..core.errors import DataError, did_you_mean
from .assemble import assemble
from .dataset import Dataset
from .filters import Pairs, read_id_pairs, read_number_pairs
from .folder import ROW_SUFFIXES, SPLIT_WORDS, Folder, Recognised
from .lf_json import load_lf_json
from .lines import file_errors
from .log import EnoughDefects, Log
from .matrices import is_sparse_text, load_matrices, load_sparse_text, read_sparse_text
from .row_files import load_row_files, read_row_file
from .settings import DatasetSettings, load_settings
from .text_lines import load_text_lines
from .vocabulary import Vocabulary


def load_dataset(path: str | os.PathLike[str]) -> Dataset:
    """A dataset folder, or a single file of training rows."""
    return _load(Path(path), Log())


def collect_defects(path: str | os.PathLike[str], limit: int = 20) -> list[DataError]:
    """Up to `limit` defects in one pass: a bad line does not stop the reading, a broken file stops only itself."""
    log = Log(limit=limit)
    try:
        _load(Path(path), log)
    except DataError as error:
        return [*log.defects, error]
    except EnoughDefects:
        pass
    return log.defects


def _load(path: Path, log: Log) -> Dataset:
    with file_errors(path):
        is_file, is_folder = path.is_file(), path.is_dir()
    if is_file:
        return _load_file(path, log)
    if not is_folder:
        with file_errors(path.parent):
            siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"no such file or folder{did_you_mean(path.name, siblings)}", file=path)
    folder = Folder(path)
    toml = folder.find("dataset.toml")
    settings = DatasetSettings() if toml is None else load_settings(toml, log)
    found = (
        load_row_files(folder, settings, log)
        or load_lf_json(folder, log)
        or load_matrices(folder, log)
        or load_text_lines(folder, log)
        or load_sparse_text(folder, log)
    )
    if found is None:
        raise folder.without_train()
    _stop_if_defective(found, log)
    filters = _filters(folder, found, log)
    folder.note_unread(log)
    _stop_if_defective(found, log)
    name = settings.name or path.resolve().name
    return Dataset(
        **assemble(found.splits, found.vocabulary, settings, log, layout=found.layout, name=name, filters=filters)
    )


def _load_file(file: Path, log: Log) -> Dataset:
    """Training rows alone; nothing beside the file is read."""
    settings = DatasetSettings()
    vocabulary = Vocabulary(log)
    stem = file.name.removesuffix(".gz")
    if stem.endswith(ROW_SUFFIXES):
        found = Recognised(f"one file, {file.name}", vocabulary)
        found.splits["train"] = read_row_file(file, settings, vocabulary, log)
    elif stem.endswith(".txt") and is_sparse_text(file):
        found = Recognised(f"one file, {file.name}, sparse features", vocabulary)
        found.splits["train"], (_, n_labels) = read_sparse_text(file, log)
        vocabulary.list_numbers(n_labels)
    else:
        kinds = ", ".join(ROW_SUFFIXES)
        raise DataError(f"cannot tell what this is; {kinds} or a sparse .txt with an N F L header is read", file=file)
    _stop_if_defective(found, log)
    name = Path(stem).stem
    return Dataset(**assemble(found.splits, vocabulary, settings, log, layout=found.layout, name=name))


def _filters(folder: Folder, found: Recognised, log: Log) -> dict[str, list[Pairs]]:
    filters: dict[str, list[Pairs]] = {}
    n_labels = len(found.vocabulary)
    for split, words in SPLIT_WORDS.items():
        by_id = folder.find(*(f"filter_{word}.tsv" for word in words))
        by_number = folder.find(*(f"filter_labels_{word}.txt" for word in words))
        if by_id is None and by_number is None:
            continue
        raw = found.splits.get(split)
        if raw is None:
            log.defect(DataError(f"a filter file without {split} rows", file=by_id or by_number))
            continue
        if by_id is not None:
            filters.setdefault(split, []).append(read_id_pairs(by_id, raw, found.vocabulary.numbers, log))
        if by_number is not None:
            filters.setdefault(split, []).append(read_number_pairs(by_number, len(raw), n_labels, log))
    return filters


def _stop_if_defective(found: Recognised, log: Log) -> None:
    """While collecting defects there may be no training rows left to assemble."""
    if log.defects:
        raise EnoughDefects
    assert "train" in found.splits
