"""The layout of AttentionXML and LightXML: one text per line, its labels on the same line of another file.

    train_texts.txt      lattice theory and order          (train_raw_texts.txt is preferred where both exist)
    train_labels.txt     mathematics algebra               (separated by spaces)

Line n of one file belongs to line n of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ..core.errors import DataError
from .defects import ReadLog
from .files import SPLIT_WORDS, Folder, numbered_lines
from .labels import LabelSetBuilder, read_label_file
from .records import DatasetRecords, Record, collect


def load_text_lines(folder: Folder, log: ReadLog) -> DatasetRecords | None:
    if not folder.has("train_labels.txt") or not folder.has("train_texts.txt", "train_raw_texts.txt"):
        return None
    label_set = LabelSetBuilder(log)
    label_file = folder.find("labels.tsv")
    if label_file is not None:
        read_label_file(label_file, label_set)
    found = DatasetRecords("AttentionXML, texts and labels line by line", label_set)
    for split, words in SPLIT_WORDS.items():
        names = [f"{word}_{kind}.txt" for kind in ("raw_texts", "texts") for word in words]
        texts = folder.find(*names)
        labels = folder.find(*(f"{word}_labels.txt" for word in words))
        if texts is None and labels is None:
            continue
        if texts is None or labels is None:
            message = f"has no partner; {split} needs both {split}_texts.txt and {split}_labels.txt"
            raise DataError(message, file=texts or labels)
        try:
            found.splits[split] = collect(_records(texts, labels, label_set, log), texts, log)
        except DataError as error:
            log.defect(error)
    return found


def _records(texts: Path, labels: Path, label_set: LabelSetBuilder, log: ReadLog) -> Iterator[Record]:
    n_texts = n_labels = 0
    for text, names in zip_longest(numbered_lines(texts), numbered_lines(labels)):
        n_texts, n_labels = n_texts + (text is not None), n_labels + (names is not None)
        if text is None or names is None:
            continue
        line = text[0]
        try:
            numbers = [label_set.number(name, labels, line) for name in names[1].split()]
        except DataError as error:
            log.defect(error)
            continue
        yield Record(line, text[1], numbers)
    if n_texts != n_labels:
        message = f"{n_texts:,} lines, but {labels.name} has {n_labels:,}; they must belong together line by line"
        raise DataError(message, file=texts)
