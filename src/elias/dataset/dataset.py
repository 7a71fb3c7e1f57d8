"""A dataset: labels, up to three splits of rows, settings, and what was noted while reading.

Every way in ends in `assemble`: the readers of files (`layouts.load_dataset`), `Dataset.from_lists` and
`Dataset.from_arrays`. There labels become one matrix per split, repeated labels and excluded positives are removed,
and what is only visible across rows or splits is noted. The rows of a dataset hold to three invariants: label weights
are above 0, a pair is never both positive and excluded, and all splits share one label set.

Places in messages about Python objects count from 0: `labels:3` is row 3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ..core.arrays import LARGEST_WEIGHT, check_size, dense_matrix, length_of, real_number, row_weights, sparse_matrix
from ..core.defaults import DataSize
from ..core.errors import InputError
from .defects import (
    EMPTY_TEXT,
    EXCLUDED_POSITIVE,
    NO_LABELS,
    REPEATED_LABEL,
    REPEATED_ROW_ID,
    UNSEEN_LABEL,
    UNTRAINED_LABEL,
    ZERO_WEIGHT,
    Note,
    ReadLog,
)
from .excluded_pairs import Pairs, excluded_matrix, own_id_pairs
from .fields import Fields
from .label_names import ids_are_names
from .label_texts import count_label_texts
from .labels import LabelSet, LabelSetBuilder, id_problem
from .matrices import finite_float32
from .record_parser import RecordParser, RowSource
from .records import DatasetRecords, Record, SplitRecords, collect, from_label_matrix
from .rows import KIND_TEXT, Rows
from .settings import LARGEST_PROPENSITY, DatasetSettings

Label: TypeAlias = str | int
RowLabels: TypeAlias = Sequence[Label | tuple[Label, float] | Mapping[str, Any]] | Mapping[Label, float]
Matrix: TypeAlias = sp.sparray | sp.spmatrix
LIST_FIELDS = Fields(text=("text",), labels="labels", id="id", separator="")  # of rows that come as lists


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Dataset:
    """Rows to train and to evaluate on, with one label set.

    Made by `load_dataset`, `Dataset.from_lists` or `Dataset.from_arrays`.

    Parameters
    ----------
    name
        Printed in reports; the name of the folder unless dataset.toml has another.
    train, test, validation
        The rows of each split; `test` and `validation` may be missing.
    labels
        Ids and texts of the labels, in the order of their numbers.
    settings
        What dataset.toml sets: own ids excluded or not, A and B of the propensities, names of fields.
    fields
        The fields that were read: of the text, the labels and the id, and what separates labels.
    layout
        Which layout was recognized, and what was understood, in words.
    notes
        What was skipped or repaired while reading, counted, each with a first example.
    """

    name: str
    train: Rows
    test: Rows | None = None
    validation: Rows | None = None
    labels: LabelSet
    settings: DatasetSettings = field(default_factory=DatasetSettings)
    fields: Fields = field(default_factory=Fields)
    layout: str = "in memory"
    notes: list[Note] = field(default_factory=list)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        return f"Dataset({self.name!r}: {sizes} rows, {len(self.labels):,} labels; {self.layout})"

    @property
    def splits(self) -> dict[str, Rows]:
        """The splits that exist, in the order train, validation, test."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in found.items() if rows is not None}

    def size(self) -> DataSize:
        """The numbers from which default settings and estimates follow."""
        labels, vectors = self.train.labels, self.train.vectors
        return DataSize(
            rows=len(self.train),
            labels=int(np.count_nonzero(np.bincount(labels.indices, minlength=labels.shape[1]))),
            pairs=int(labels.nnz),
            has_texts=self.train.texts is not None,
            dense_dim=int(vectors.shape[1]) if isinstance(vectors, np.ndarray) else 0,
            own_validation=0 if self.validation is None else len(self.validation),
            label_texts=count_label_texts(self.train, self.labels),
        )

    def training_counts(self) -> tuple[np.ndarray, int]:
        """(n_l, N): training rows of each label and in all; rows made of label texts do not count."""
        rows = np.flatnonzero(self.train.kinds == KIND_TEXT)
        labels = self.train.labels[rows]
        return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64), len(rows)

    def fingerprint(self) -> str:
        """blake2b of everything a model could learn from; equal content has an equal fingerprint."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self._content():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def _content(self) -> Iterator[bytes | memoryview]:
        learned_from = ("exclude_own_id", "propensity_a", "propensity_b")  # names of fields leave no trace in a model
        settings = {key: value for key, value in asdict(self.settings).items() if key in learned_from}
        yield json.dumps(settings, sort_keys=True).encode()
        for strings in (self.labels.ids, self.labels.texts, self.labels.alternatives):
            yield json.dumps(strings).encode()
        for name, rows in self.splits.items():
            yield name.encode()
            yield from _rows_content(rows)

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Sequence[RowLabels],
        *,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
        groups: Sequence[str] | None = None,
        label_texts: Mapping[str, str] | None = None,
        test_texts: Sequence[str] | None = None,
        test_labels: Sequence[RowLabels] | None = None,
        test_ids: Sequence[str] | None = None,
        validation_texts: Sequence[str] | None = None,
        validation_labels: Sequence[RowLabels] | None = None,
        validation_ids: Sequence[str] | None = None,
        name: str = "in memory",
        exclude_own_id: bool = False,
        propensity_a: float = 0.55,
        propensity_b: float = 1.5,
    ) -> Dataset:
        """A dataset of texts, from Python lists.

        Parameters
        ----------
        texts
            The training texts.
        labels
            For each text its labels: ids or names, (label, weight) pairs, or a dict of weights; a text is one label.
        ids
            The ids of the rows; `predict` returns them.
        weights
            The weight of each row in the loss, above 0; 1 without it.
        groups
            The group of each row; rows of one group are held out together or not at all.
        label_texts
            The text of each label id; these labels come first, in this order.
        test_texts, test_labels, test_ids
            The same for the test rows.
        validation_texts, validation_labels, validation_ids
            The same for validation rows; without them `fit` holds training rows out.
        name
            Printed in reports.
        exclude_own_id
            Whether the pair (row, label with the id of the row) is never a correct prediction.
        propensity_a, propensity_b
            A and B of the propensity model of the PSP metrics.
        """
        settings = DatasetSettings(
            name=name, exclude_own_id=exclude_own_id, propensity_a=propensity_a, propensity_b=propensity_b
        )
        splits = {
            "train": _TextRows(texts, labels, ids, weights, groups),
            "validation": _TextRows(validation_texts, validation_labels, validation_ids),
            "test": _TextRows(test_texts, test_labels, test_ids),
        }
        return _from_lists(splits, label_texts, settings)

    @classmethod
    def from_arrays(
        cls,
        vectors: Matrix | np.ndarray,
        labels: Matrix,
        *,
        label_ids: Sequence[str] | None = None,
        label_texts: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
        groups: Sequence[str] | None = None,
        test_vectors: Matrix | np.ndarray | None = None,
        test_labels: Matrix | None = None,
        test_ids: Sequence[str] | None = None,
        name: str = "in memory",
        exclude_own_id: bool = False,
        propensity_a: float = 0.55,
        propensity_b: float = 1.5,
    ) -> Dataset:
        """A dataset of vectors, from arrays.

        Parameters
        ----------
        vectors
            Features of the training rows, rows x features, sparse or dense.
        labels
            Labels of the training rows, rows x labels, sparse; values are weights, 0 or more.
        label_ids
            The id of each column of `labels`; its number without it.
        label_texts
            The text of each column of `labels`.
        ids, weights, groups
            As in `from_lists`.
        test_vectors, test_labels, test_ids
            The same for the test rows, with as many columns.
        name, exclude_own_id, propensity_a, propensity_b
            As in `from_lists`.
        """
        settings = DatasetSettings(
            name=name, exclude_own_id=exclude_own_id, propensity_a=propensity_a, propensity_b=propensity_b
        )
        splits = {
            "train": _VectorRows(vectors, labels, ids, weights, groups),
            "test": _VectorRows(test_vectors, test_labels, test_ids),
        }
        return _from_arrays(splits, label_ids, label_texts, settings)


def _rows_content(rows: Rows) -> Iterator[bytes | memoryview]:
    if rows.texts is not None:
        yield from rows.texts.content()
    arrays: list[Any] = [rows.weights, rows.kinds]
    for matrix in (rows.vectors, rows.labels, rows.excluded):
        if isinstance(matrix, np.ndarray):
            arrays.append(matrix)
        elif matrix is not None:
            # The width of scipy's indices depends on the size of the matrix: not a part of its content.
            arrays += [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data]
    for numbers in arrays:
        yield f"{numbers.dtype} {numbers.shape}".encode()
        yield np.ascontiguousarray(numbers).tobytes()
    for names in (rows.ids, rows.groups):
        yield json.dumps(names).encode()


# Records into a dataset


def assemble(
    records: DatasetRecords,
    settings: DatasetSettings,
    log: ReadLog,
    *,
    name: str,
    excluded: Mapping[str, list[Pairs]] | None = None,
) -> Dataset:
    """The last step of every reader: labels as matrices of the full width, and notes on rows and labels."""
    labels = records.labels
    finished: dict[str, Rows] = {}
    for split, read in records.splits.items():
        pairs = list((excluded or {}).get(split, []))
        if settings.exclude_own_id:
            pairs.append(own_id_pairs(read, labels.numbers))
        finished[split] = _rows(read, pairs, labels, log)
    _note_labels(finished, labels, log)
    layout = records.layout
    if _name_labels(finished["train"], labels):
        layout += "; label ids are words, so they are label texts too"
    return Dataset(
        name=name,
        train=finished["train"],
        test=finished.get("test"),
        validation=finished.get("validation"),
        labels=labels.label_set(),
        settings=replace(settings, language=records.language or settings.language),
        fields=records.fields,
        layout=layout,
        notes=log.notes,
    )


def _rows(read: SplitRecords, pairs: list[Pairs], label_set: LabelSetBuilder, log: ReadLog) -> Rows:
    shape = (len(read), len(label_set))
    labels = _label_matrix(read, shape, label_set, log)
    _note_rows(read, labels, log)
    excluded = excluded_matrix(pairs, shape)
    both = labels.multiply(excluded).tocoo()
    if both.nnz:
        row, label = int(both.row[0]), label_set.ids[int(both.col[0])]
        log.note(EXCLUDED_POSITIVE, read.place(row, f'"{label}"'), int(both.nnz))
        labels = sp.csr_matrix(labels - both.tocsr())
        labels.eliminate_zeros()
    return Rows(
        texts=read.texts,
        vectors=read.vectors,
        labels=labels,
        ids=read.ids,
        groups=read.groups,
        weights=np.ones(len(read), dtype=np.float32) if read.weights is None else read.weights,
        kinds=np.full(len(read), KIND_TEXT, dtype=np.uint8),
        excluded=excluded,
    )


def _label_matrix(
    read: SplitRecords, shape: tuple[int, int], label_set: LabelSetBuilder, log: ReadLog
) -> sp.csr_matrix:
    """rows x L, each label once per row with its largest weight, none of weight 0. Sorts in place: rows can be many."""
    values = np.ones(len(read.numbers), dtype=np.float32) if read.grades is None else read.grades
    matrix = sp.csr_matrix((values, read.numbers, read.starts), shape=shape)
    matrix.sort_indices()
    columns, values = matrix.indices, matrix.data
    opens_row = np.zeros(len(columns) + 1, dtype=np.bool_)
    opens_row[read.starts] = True
    repeated = np.zeros(len(columns), dtype=np.bool_)
    repeated[1:] = (columns[1:] == columns[:-1]) & ~opens_row[1:-1]
    if repeated.any():
        firsts = np.flatnonzero(~repeated)
        values[firsts] = np.maximum.reduceat(values, firsts)
    keep = np.ones(len(columns), dtype=np.bool_)
    for kind, dropped in ((REPEATED_LABEL, repeated), (ZERO_WEIGHT, (values == 0) & ~repeated)):
        if dropped.any():
            at = int(np.flatnonzero(dropped)[0])
            row = int(np.searchsorted(read.starts, at, side="right")) - 1
            log.note(kind, read.place(row, f'"{label_set.ids[int(columns[at])]}"'), int(dropped.sum()))
            keep &= ~dropped
    if keep.all():
        return matrix
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    return sp.csr_matrix((values[keep], columns[keep], kept_before[read.starts]), shape=shape)


def _note_rows(read: SplitRecords, labels: sp.csr_matrix, log: ReadLog) -> None:
    unlabeled = np.flatnonzero(np.diff(labels.indptr) == 0)
    if len(unlabeled):
        log.note(NO_LABELS, read.place(int(unlabeled[0])), len(unlabeled))
    if read.texts is not None:
        empty = np.flatnonzero(read.texts.lengths() == 0)
        if len(empty):
            log.note(EMPTY_TEXT, read.place(int(empty[0])), len(empty))
    if read.ids is not None and len(set(read.ids)) < len(read.ids):
        seen: set[str] = set()
        for row, row_id in enumerate(read.ids):
            if row_id in seen:
                log.note(REPEATED_ROW_ID, read.place(row, f'"{row_id}"'))
            seen.add(row_id)


def _note_labels(splits: dict[str, Rows], labels: LabelSetBuilder, log: ReadLog) -> None:
    """Labels without training rows; those that occur in other splits get a note of their own."""
    trained = np.bincount(splits["train"].labels.indices, minlength=len(labels)) > 0
    if not trained.all():
        first = int(np.flatnonzero(~trained)[0])
        log.note(UNTRAINED_LABEL, f'"{labels.ids[first]}"', int((~trained).sum()))
    elsewhere = np.zeros(len(labels), dtype=np.bool_)
    for split in ("validation", "test"):
        if split in splits:
            elsewhere[splits[split].labels.indices] = True
    unseen = np.flatnonzero(elsewhere & ~trained)
    if len(unseen):
        log.note(UNSEEN_LABEL, f'"{labels.ids[int(unseen[0])]}"', len(unseen))


def _name_labels(train: Rows, labels: LabelSetBuilder) -> bool:
    """Make ids the texts of labels where nothing else names them and they are words."""
    if labels.listed or train.texts is None:
        return False
    used = np.flatnonzero(np.bincount(train.labels.indices, minlength=len(labels)))
    if not ids_are_names([labels.ids[number] for number in used.tolist()], train.texts):
        return False
    labels.texts = list(labels.ids)
    return True


# Python objects into records


@dataclass(frozen=True)
class _TextRows:
    """The arguments of from_lists for one split."""

    texts: Sequence[str] | None
    labels: Sequence[RowLabels] | None
    ids: Sequence[str] | None = None
    weights: Sequence[float] | None = None
    groups: Sequence[str] | None = None


@dataclass(frozen=True)
class _VectorRows:
    """The arguments of from_arrays for one split."""

    vectors: Matrix | np.ndarray | None
    labels: Any  # checked: a sparse matrix or None
    ids: Sequence[str] | None = None
    weights: Sequence[float] | np.ndarray | None = None
    groups: Sequence[str] | None = None


def _from_lists(
    splits: dict[str, _TextRows], label_texts: Mapping[str, str] | None, settings: DatasetSettings
) -> Dataset:
    _check_propensity(settings)
    log = ReadLog()
    records = DatasetRecords("lists of texts in memory", LabelSetBuilder(log))
    if label_texts is not None:
        _list_labels([str(label) for label in label_texts], list(label_texts.values()), records.labels)
    for split, rows in splits.items():
        prefix = "" if split == "train" else f"{split}_"
        if (rows.texts is None) != (rows.labels is None):
            raise InputError(f"{prefix}texts and {prefix}labels come together; one of them is missing")
        if rows.texts is not None and rows.labels is not None:
            columns = {"labels": rows.labels, "ids": rows.ids, "weights": rows.weights, "groups": rows.groups}
            _check_lengths(length_of(rows.texts, f"{prefix}texts"), prefix, **columns)
            place = f"{prefix}labels"
            records.splits[split] = collect(_text_records(rows, place, settings, records.labels), place, log)
    return assemble(records, settings, log, name=settings.name)


def _text_records(
    rows: _TextRows, place: str, settings: DatasetSettings, label_set: LabelSetBuilder
) -> Iterator[Record]:
    """Rows as the parser of files wants them, so that lists and files follow the same rules."""
    parser = RecordParser(RowSource((), place), LIST_FIELDS, settings, label_set, asked_for_names=True)
    assert rows.texts is not None
    assert rows.labels is not None
    for row, (text, labels) in enumerate(zip(rows.texts, rows.labels, strict=True)):
        values = {
            "text": text,
            "labels": plain_labels(labels),
            "id": None if rows.ids is None else rows.ids[row],
            settings.group_field: None if rows.groups is None else rows.groups[row],
            settings.weight_field: None if rows.weights is None else rows.weights[row],
        }
        yield parser.parse(values, row)


def plain_labels(labels: object) -> object:
    """Sets, arrays and the like as lists; texts and dicts stay as they are, for the parser to accept or refuse."""
    if isinstance(labels, str | bytes | dict | list | tuple) or labels is None:
        return labels
    if isinstance(labels, Mapping):
        return dict(labels)
    if isinstance(labels, set | frozenset):
        return sorted(labels, key=str)  # a set has no order of its own; runs must not differ
    return list(labels) if hasattr(labels, "__iter__") else labels


def _from_arrays(
    splits: dict[str, _VectorRows],
    label_ids: Sequence[str] | None,
    label_texts: Sequence[str] | None,
    settings: DatasetSettings,
) -> Dataset:
    _check_propensity(settings)
    log = ReadLog()
    records = DatasetRecords("arrays in memory", LabelSetBuilder(log))
    for split, rows in splits.items():
        prefix = "" if split == "train" else f"{split}_"
        if (rows.vectors is None) != (rows.labels is None):
            raise InputError(f"{prefix}vectors and {prefix}labels come together; one of them is missing")
        if rows.vectors is not None:
            records.splits[split] = _vector_records(rows, prefix)
    widths = {
        split: (_width(rows.vectors), _width(splits[split].labels))
        for split, rows in records.splits.items()
        if rows.vectors is not None
    }
    if len(set(widths.values())) > 1:
        raise InputError(f"the splits differ in (features, labels): {widths}")
    n_labels = _width(splits["train"].labels)
    if label_ids is not None:
        length_of(label_ids, "label_ids")
    ids = [str(label) for label in label_ids] if label_ids is not None else [str(n) for n in range(n_labels)]
    for argument, values in (("label_ids", ids), ("label_texts", label_texts)):
        if values is not None and length_of(values, argument) != n_labels:
            raise InputError(f"{argument} has {len(values)} entries, labels has {n_labels} columns")
    _list_labels(ids, list(label_texts) if label_texts is not None else [""] * n_labels, records.labels)
    return assemble(records, settings, log, name=settings.name)


def _vector_records(rows: _VectorRows, prefix: str) -> SplitRecords:
    if not sp.issparse(rows.labels):
        raise InputError(f"{prefix}labels must be a scipy sparse matrix, not {type(rows.labels).__name__}")
    labels = sparse_matrix(rows.labels, f"{prefix}labels")
    is_sparse: bool = sp.issparse(rows.vectors)
    given, name = cast("Any", rows.vectors), f"{prefix}vectors"
    vectors: Any = sparse_matrix(given, name) if is_sparse else dense_matrix(given, name)
    if vectors.ndim != 2:
        raise InputError(f"{prefix}vectors must be two-dimensional numbers, not {vectors.dtype} of {vectors.shape}")
    if not vectors.shape[1]:
        raise InputError(f"{prefix}vectors have no columns")
    vectors = finite_float32(vectors, f"{prefix}vectors")
    labels = sp.csr_matrix(finite_float32(labels, f"{prefix}labels"))
    check_size(vectors, f"{prefix}vectors")
    check_size(labels, f"{prefix}labels", LARGEST_WEIGHT)
    if labels.nnz and labels.data.min() < 0:
        raise InputError(f"{prefix}labels has the weight {labels.data.min()}; weights must be 0 or more")
    count = int(labels.shape[0])
    if count == 0:
        raise InputError(f"{prefix}labels has no rows")
    _check_lengths(count, prefix, vectors=vectors, ids=rows.ids, weights=rows.weights, groups=rows.groups)
    weights = None if rows.weights is None else row_weights(rows.weights, f"{prefix}weights", count)
    return from_label_matrix(
        labels,
        file=f"{prefix}labels",
        vectors=vectors,
        first_line=0,
        ids=None if rows.ids is None else [str(i) for i in rows.ids],
        groups=None if rows.groups is None else [str(g) for g in rows.groups],
        weights=weights,
    )


def _check_propensity(settings: DatasetSettings) -> None:
    for name in ("propensity_a", "propensity_b"):
        value = real_number(getattr(settings, name), name)
        if not 0.0 < value <= LARGEST_PROPENSITY[name]:
            raise InputError(f"{name}={value:g}: give a number above 0, at most {LARGEST_PROPENSITY[name]:g}")


def _width(matrix: Any) -> int:
    return int(matrix.shape[1])


def _list_labels(ids: Sequence[str], texts: Sequence[str], labels: LabelSetBuilder) -> None:
    for label, text in zip(ids, texts, strict=True):
        problem = "is there twice" if label in labels.numbers else id_problem(label)
        if problem:
            raise InputError(f"label {label!r} {problem}")
        labels.add(label, text)
    labels.end_label_file()


def _check_lengths(count: int, prefix: str, **columns: Any) -> None:
    for name, values in columns.items():
        if values is not None:
            length = length_of(values, f"{prefix}{name}")
            if length != count:
                raise InputError(f"{prefix}{name} has {length} entries, there are {count} rows")
