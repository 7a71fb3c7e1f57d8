"""Raw texts of the Extreme Classification Repository: trn.json.gz, tst.json.gz, and lbl.json.gz of the LF-* datasets.

    trn.json    {"uid": "B0001", "title": "...", "content": "...", "target_ind": [3, 17], "target_rel": [1.0, 1.0]}
    lbl.json    {"uid": "B0002", "title": "..."}

Line n + 1 of lbl.json is label n. The content of a label is not read, only its title. Amazon-670K and Wikipedia-500K
name their files trn.raw.json.gz, and datasets without label features have no lbl.json: their labels are numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from ..core.arrays import LARGEST_WEIGHT
from ..core.errors import DataError, did_you_mean
from .defects import LABEL_UIDS_REPEATED, ZERO_WEIGHT, ReadLog, place
from .files import Folder
from .labels import MOST_LABELS, LabelSetBuilder, id_problem
from .record_files import read_objects
from .records import DatasetRecords, Record, collect

FOLDERS = ("", "raw/", "raw_data/")


def load_lf_json(folder: Folder, log: ReadLog) -> DatasetRecords | None:
    train, test = _find(folder, "trn.json", "trn.raw.json"), _find(folder, "tst.json", "tst.raw.json")
    if train is None:
        return None
    label_file = _find(folder, "lbl.json")
    label_set = LabelSetBuilder(log)
    if label_file is not None:
        _read_labels(label_file, label_set, log)
    labels = "" if label_file else ", labels are numbers (no lbl.json)"
    found = DatasetRecords(f"Extreme Classification Repository, raw texts ({train.name}){labels}", label_set)
    n_labels = None if label_file is None else len(label_set)
    for split, file in (("train", train), ("test", test)):
        if file is None:
            continue
        try:
            found.splits[split] = collect(_records(file, n_labels, log), file, log)
        except DataError as error:
            log.defect(error)
    if label_file is None:
        largest = max((int(read.numbers.max(initial=-1)) for read in found.splits.values()), default=-1)
        label_set.add_numbers(largest + 1)
    return found


def _find(folder: Folder, *names: str) -> Path | None:
    return folder.find(*(place + name for name, place in itertools.product(names, FOLDERS)))


def _read_labels(file: Path, label_set: LabelSetBuilder, log: ReadLog) -> None:
    ids: list[str] = []
    texts: list[str] = []
    repeated = ""
    seen: set[str] = set()
    for line, row in read_objects(file, log):
        label = str(row.get("uid", len(ids)))
        if problem := id_problem(label):
            log.defect(DataError(f"label {label!r} {problem}", file=file, line=line, field="uid"))
        if label in seen:
            repeated = repeated or place(file, line, f'"{label}"')
        seen.add(label)
        ids.append(label)
        texts.append(_text(row, file, line))
    if repeated:
        log.note(LABEL_UIDS_REPEATED, repeated, len(ids) - len(seen))
        ids = [str(number) for number in range(len(ids))]
    for label, text in zip(ids, texts, strict=True):
        label_set.add(label, text)
    label_set.end_label_file()


def _records(file: Path, n_labels: int | None, log: ReadLog) -> Iterator[Record]:
    for line, row in read_objects(file, log):
        try:
            labels, grades = _targets(row, n_labels, file, line, log)
            text = " ".join(part for part in (_text(row, file, line), _text(row, file, line, "content")) if part)
        except DataError as error:
            log.defect(error)
            continue
        uid = row.get("uid")
        yield Record(line, text, labels, grades, None if uid is None else str(uid))


def _targets(
    row: dict[str, object], n_labels: int | None, file: Path, line: int, log: ReadLog
) -> tuple[list[int], list[float] | None]:
    labels = row.get("target_ind")
    if labels is None:
        raise DataError(f"missing{did_you_mean('target_ind', row)}", file=file, line=line, field="target_ind")
    if not isinstance(labels, list):
        raise DataError(f"{labels!r} is not a list", file=file, line=line, field="target_ind")
    for label in labels:
        largest = (MOST_LABELS if n_labels is None else n_labels) - 1
        if type(label) is not int or not 0 <= label <= largest:
            what = "lbl.json has labels" if n_labels is not None else "labels are numbers,"
            message = f"label {label!r} is out of range; {what} 0 to {largest}"
            raise DataError(message, file=file, line=line, field="target_ind")
    grades = row.get("target_rel")
    if grades is None:
        return labels, None
    if not isinstance(grades, list) or len(grades) != len(labels):
        raise DataError("not a list as long as target_ind", file=file, line=line, field="target_rel")
    for grade in grades:
        if type(grade) not in (int, float) or not 0 <= grade <= LARGEST_WEIGHT:
            shown = f"{str(grade)[:40]} is not a number of 0 or more, at most {LARGEST_WEIGHT:g}"
            raise DataError(shown, file=file, line=line, field="target_rel")
    if 0 in grades:
        log.note(ZERO_WEIGHT, place(file, line), grades.count(0))
        kept = [(label, float(grade)) for label, grade in zip(labels, grades, strict=True) if grade != 0]
        return [label for label, _ in kept], [grade for _, grade in kept]
    return labels, None if all(grade == 1 for grade in grades) else [float(grade) for grade in grades]


def _text(row: dict[str, object], file: Path, line: int, field: str = "title") -> str:
    value = row.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{value!r} is not a text", file=file, line=line, field=field)
    return value
