"""The last step of every reader: raw rows + vocabulary + excluded pairs -> the parts of a Dataset.

Here labels become one matrix of the full width, repeated labels and excluded positives are taken out, and what
is only visible across rows or splits is noted.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import scipy.sparse as sp

from .filters import Pairs, excluded_matrix, own_id_pairs
from .labels import LabelSet
from .log import (
    EMPTY_TEXT,
    EXCLUDED_POSITIVE,
    NO_LABELS,
    REPEATED_LABEL,
    REPEATED_ROW_ID,
    UNSEEN_LABEL,
    UNTRAINED_LABEL,
    ZERO_WEIGHT,
    Log,
    Note,
)
from .raw_rows import RawRows
from .rows import KIND_TEXT, Rows
from .settings import DatasetSettings
from .vocabulary import Vocabulary


class DatasetParts(TypedDict):
    """The arguments of Dataset."""

    name: str
    train: Rows
    test: Rows | None
    validation: Rows | None
    labels: LabelSet
    settings: DatasetSettings
    layout: str
    notes: list[Note]


def assemble(
    splits: dict[str, RawRows],
    vocabulary: Vocabulary,
    settings: DatasetSettings,
    log: Log,
    *,
    layout: str,
    name: str,
    filters: dict[str, list[Pairs]] | None = None,
) -> DatasetParts:
    finished: dict[str, Rows] = {}
    for split, raw in splits.items():
        pairs = list((filters or {}).get(split, []))
        if settings.exclude_own_id:
            pairs.append(own_id_pairs(raw, vocabulary.numbers))
        finished[split] = _rows(raw, pairs, vocabulary, log)
    _note_labels(finished, vocabulary, log)
    return DatasetParts(
        name=name,
        train=finished["train"],
        test=finished.get("test"),
        validation=finished.get("validation"),
        labels=vocabulary.label_set(),
        settings=settings,
        layout=layout,
        notes=log.notes,
    )


def _rows(raw: RawRows, pairs: list[Pairs], vocabulary: Vocabulary, log: Log) -> Rows:
    shape = (len(raw), len(vocabulary))
    labels = _label_matrix(raw, shape, vocabulary, log)
    _note_rows(raw, labels, log)
    excluded = excluded_matrix(pairs, shape)
    both = labels.multiply(excluded).tocoo()
    if both.nnz:
        row, label = int(both.row[0]), vocabulary.ids[int(both.col[0])]
        log.note(EXCLUDED_POSITIVE, raw.place(row, f'"{label}"'), int(both.nnz))
        labels = sp.csr_matrix(labels - both.tocsr())
        labels.eliminate_zeros()
    return Rows(
        texts=raw.texts,
        vectors=raw.vectors,
        labels=labels,
        ids=raw.ids,
        groups=raw.groups,
        weights=np.ones(len(raw), dtype=np.float32) if raw.weights is None else raw.weights,
        kinds=np.full(len(raw), KIND_TEXT, dtype=np.uint8),
        excluded=excluded,
    )


def _label_matrix(raw: RawRows, shape: tuple[int, int], vocabulary: Vocabulary, log: Log) -> sp.csr_matrix:
    """rows x L, each label once a row with its largest weight, none of weight 0. Sorts in place: rows can be many."""
    values = np.ones(len(raw.numbers), dtype=np.float32) if raw.grades is None else raw.grades
    matrix = sp.csr_matrix((values, raw.numbers, raw.starts), shape=shape)
    matrix.sort_indices()
    columns, values = matrix.indices, matrix.data
    opens_row = np.zeros(len(columns) + 1, dtype=np.bool_)
    opens_row[raw.starts] = True
    repeated = np.zeros(len(columns), dtype=np.bool_)
    repeated[1:] = (columns[1:] == columns[:-1]) & ~opens_row[1:-1]
    if repeated.any():
        firsts = np.flatnonzero(~repeated)
        values[firsts] = np.maximum.reduceat(values, firsts)
    keep = np.ones(len(columns), dtype=np.bool_)
    for kind, dropped in ((REPEATED_LABEL, repeated), (ZERO_WEIGHT, (values == 0) & ~repeated)):
        if dropped.any():
            at = int(np.flatnonzero(dropped)[0])
            row = int(np.searchsorted(raw.starts, at, side="right")) - 1
            log.note(kind, raw.place(row, f'"{vocabulary.ids[int(columns[at])]}"'), int(dropped.sum()))
            keep &= ~dropped
    if keep.all():
        return matrix
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    return sp.csr_matrix((values[keep], columns[keep], kept_before[raw.starts]), shape=shape)


def _note_rows(raw: RawRows, labels: sp.csr_matrix, log: Log) -> None:
    unlabelled = np.flatnonzero(np.diff(labels.indptr) == 0)
    if len(unlabelled):
        log.note(NO_LABELS, raw.place(int(unlabelled[0])), len(unlabelled))
    if raw.texts is not None:
        empty = np.flatnonzero(raw.texts.lengths() == 0)
        if len(empty):
            log.note(EMPTY_TEXT, raw.place(int(empty[0])), len(empty))
    if raw.ids is not None and len(set(raw.ids)) < len(raw.ids):
        seen: set[str] = set()
        for row, row_id in enumerate(raw.ids):
            if row_id in seen:
                log.note(REPEATED_ROW_ID, raw.place(row, f'"{row_id}"'))
            seen.add(row_id)


def _note_labels(splits: dict[str, Rows], vocabulary: Vocabulary, log: Log) -> None:
    """Labels without training texts: those the other splits ask for are worth a note of their own."""
    trained = np.bincount(splits["train"].labels.indices, minlength=len(vocabulary)) > 0
    if not trained.all():
        first = int(np.flatnonzero(~trained)[0])
        log.note(UNTRAINED_LABEL, f'"{vocabulary.ids[first]}"', int((~trained).sum()))
    asked = np.zeros(len(vocabulary), dtype=np.bool_)
    for split in ("validation", "test"):
        if split in splits:
            asked[splits[split].labels.indices] = True
    unseen = np.flatnonzero(asked & ~trained)
    if len(unseen):
        log.note(UNSEEN_LABEL, f'"{vocabulary.ids[int(unseen[0])]}"', len(unseen))
