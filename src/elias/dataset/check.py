"""What is in a dataset, in numbers: sizes, labels per text, texts per label, and notes.

`check(dataset)` counts, `format_report` is a table of plain text, `as_dict` is for JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core.tokenize import tokenize
from .dataset import Dataset
from .defects import Note
from .rows import Rows, TextColumn

OWN_ID_SHARE = 0.1  # of the training rows; fewer ids that are labels too are a coincidence of numbers


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """One split. `words_*` and `repeated_texts` are None for vectors."""

    rows: int
    positives: int
    labels_per_text_mean: float
    labels_per_text_max: int
    rows_without_labels: int
    excluded_pairs: int
    words_per_text_mean: float | None
    words_per_text_max: int | None
    repeated_texts: int | None  # rows whose text occurred before in the split
    texts_also_in_train: int | None  # None for train itself


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything `elias check` prints about a dataset."""

    name: str
    layout: str
    fingerprint: str
    labels: int
    labels_with_text: int
    labels_without_training_text: int
    texts_per_label_mean: float  # over labels that have any
    texts_per_label_median: float
    texts_per_label_max: int
    rows_named_like_labels: int  # training rows whose id is a label id, unless those pairs are excluded
    mirrored_test_pairs: int  # (x, y) of test that stand in training as (y, x)
    splits: dict[str, SplitReport]
    notes: list[Note]

    def as_dict(self) -> dict[str, Any]:
        """Plain types only, for JSON."""
        return asdict(self)


def check(dataset: Dataset) -> Report:
    """Count what is there. Reads every text once."""
    texts_per_label = np.bincount(dataset.train.labels.indices, minlength=len(dataset.labels))
    used = texts_per_label[texts_per_label > 0]
    named_like_labels = sum(map(len, _rows_of_labels(dataset).values()))
    train_texts = None if dataset.train.texts is None else _hashes(dataset.train.texts)
    return Report(
        name=dataset.name,
        layout=dataset.layout,
        fingerprint=dataset.fingerprint(),
        labels=len(dataset.labels),
        labels_with_text=sum(1 for text in dataset.labels.texts if text),
        labels_without_training_text=int((texts_per_label == 0).sum()),
        texts_per_label_mean=float(used.mean()) if len(used) else 0.0,
        texts_per_label_median=float(np.median(used)) if len(used) else 0.0,
        texts_per_label_max=int(used.max()) if len(used) else 0,
        rows_named_like_labels=0 if dataset.settings.exclude_own_id else named_like_labels,
        mirrored_test_pairs=_mirrored_pairs(dataset),
        splits={name: _split(name, rows, train_texts) for name, rows in dataset.splits.items()},
        notes=list(dataset.notes),
    )


def _rows_of_labels(dataset: Dataset) -> dict[int, list[int]]:
    """Training rows by the label that has their id."""
    rows_of: dict[int, list[int]] = {}
    numbers = dataset.labels.number_of
    for row, row_id in enumerate(dataset.train.ids or ()):
        if (label := numbers.get(row_id)) is not None:
            rows_of.setdefault(label, []).append(row)
    return rows_of


def _mirrored_pairs(dataset: Dataset) -> int:
    """Test pairs (x, y) for which a training row with the id y has the label x: their answers can be looked up."""
    test, train = dataset.test, dataset.train
    if test is None or test.ids is None or train.ids is None:
        return 0
    rows_of, numbers = _rows_of_labels(dataset), dataset.labels.number_of
    found = 0
    for row, row_id in enumerate(test.ids):
        own = numbers.get(row_id)
        if own is None:
            continue
        for label in test.labels.indices[test.labels.indptr[row] : test.labels.indptr[row + 1]].tolist():
            found += any(
                own in train.labels.indices[train.labels.indptr[other] : train.labels.indptr[other + 1]]
                for other in rows_of.get(label, ())
            )
    return found


def _split(name: str, rows: Rows, train_texts: np.ndarray | None) -> SplitReport:
    labels_per_text = np.diff(rows.labels.indptr)
    words = None if rows.texts is None else np.array([len(tokenize(text)) for text in rows.texts])
    hashes = None
    if rows.texts is not None:
        hashes = train_texts if name == "train" else _hashes(rows.texts)
    overlap = None
    if hashes is not None and train_texts is not None and name != "train":
        overlap = int(np.isin(hashes, train_texts).sum())
    return SplitReport(
        rows=len(rows),
        positives=int(rows.labels.nnz),
        labels_per_text_mean=float(labels_per_text.mean()),
        labels_per_text_max=int(labels_per_text.max()),
        rows_without_labels=int((labels_per_text == 0).sum()),
        excluded_pairs=int(rows.excluded.nnz),
        words_per_text_mean=None if words is None else float(words.mean()),
        words_per_text_max=None if words is None else int(words.max()),
        repeated_texts=None if hashes is None else len(hashes) - len(np.unique(hashes)),
        texts_also_in_train=overlap,
    )


def _hashes(texts: TextColumn) -> np.ndarray:
    """64 bits per text: two of 2 million texts collide once in ten million datasets."""
    return np.fromiter((hash(text) for text in texts), dtype=np.int64, count=len(texts))


def format_report(report: Report) -> str:
    """The report as aligned plain text."""
    head = [
        ("dataset", report.name),
        ("recognized", report.layout),
        ("labels", f"{report.labels:,} ({report.labels_with_text:,} with a text of their own)"),
        ("without training text", f"{report.labels_without_training_text:,}"),
        (
            "texts per label",
            f"mean {report.texts_per_label_mean:,.1f}, median {report.texts_per_label_median:,.0f}, "
            f"max {report.texts_per_label_max:,}",
        ),
        ("fingerprint", report.fingerprint),
    ]
    width = max(len(word) for word, _ in head)
    lines = [f"{word:<{width}}  {value}" for word, value in head]
    lines += ["", *_table(report.splits)]
    if warnings := _warnings(report):
        lines += ["", "warnings", *(f"  {warning}" for warning in warnings)]
    if report.notes:
        lines += ["", "notes", *(f"  {note}" for note in report.notes)]
    return "\n".join(lines)


def _warnings(report: Report) -> Iterable[str]:
    """What flatters or spoils a model, with the remedy."""
    train, test = report.splits["train"], report.splits.get("test")
    found = []
    if report.rows_named_like_labels >= max(1, OWN_ID_SHARE * train.rows):
        found.append(
            f"{report.rows_named_like_labels:,} of {train.rows:,} training texts have the id of a label; if a text's "
            "own label is never right, put a dataset.toml with exclude_own_id = true into the folder of train.*"
        )
    if report.mirrored_test_pairs and test is not None:
        found.append(
            f"{report.mirrored_test_pairs:,} of {test.positives:,} test pairs (x, y), "
            f"{100 * report.mirrored_test_pairs / test.positives:.1f} %, stand in training as (y, x): a leak, the test "
            "will flatter every model; split so that test texts are no labels in training"
        )
    return found


def _table(splits: dict[str, SplitReport]) -> Iterable[str]:
    rows = {
        "rows": [f"{split.rows:,}" for split in splits.values()],
        "labels per text, mean": [f"{split.labels_per_text_mean:,.2f}" for split in splits.values()],
        "labels per text, max": [f"{split.labels_per_text_max:,}" for split in splits.values()],
        "rows without labels": [f"{split.rows_without_labels:,}" for split in splits.values()],
        "excluded pairs": [f"{split.excluded_pairs:,}" for split in splits.values()],
        "words per text, mean": [_shown(split.words_per_text_mean, ",.1f") for split in splits.values()],
        "words per text, max": [_shown(split.words_per_text_max, ",") for split in splits.values()],
        "repeated texts": [_shown(split.repeated_texts, ",") for split in splits.values()],
        "texts also in train": [_shown(split.texts_also_in_train, ",") for split in splits.values()],
    }
    left = max(len(name) for name in rows)
    width = max(10, *(len(cell) + 2 for cells in rows.values() for cell in cells), *(len(name) + 2 for name in splits))
    yield " " * left + "".join(f"{name:>{width}}" for name in splits)
    for name, cells in rows.items():
        yield f"{name:<{left}}" + "".join(f"{cell:>{width}}" for cell in cells)


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
