"""Measure a model on labeled rows: its predictions, scored by `core/metrics.py`. `Predictor.evaluate` ends here.

The dataset may number its labels differently from the model and may hold labels the model never saw: those
keep their place in the denominators and can never be hit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.errors import DataError, InputError
from ..core.metrics import (
    Decile,
    Metrics,
    PerLabel,
    by_decile,
    calibration_error_of,
    evaluate,
    format_metrics,
    metrics_table,
    per_label,
    rows_of,
)
from ..core.predictions import Predictions
from ..core.propensity import PropensityModel, check_strength, propensity_of, rerank_by_propensity
from ..dataset import Dataset, LabelSet, Rows
from ..dataset.fields import Fields
from ..dataset.objects import dataset_from
from .ensemble import Ensemble
from .model import Model

DEPTH = 100


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics in percent, by name: `found["P@1"]`. Prints as a table."""

    metrics: Metrics
    deciles: list[Decile]
    predictions: Predictions
    labels: sp.csr_matrix  # the truth, in the model's numbers
    label_ids: list[str]  # of its columns
    label_counts: np.ndarray
    calibration_error: float | None  # of the probabilities of the 5 best labels, 0 to 1; None: scores are none
    seconds: float

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]

    def __repr__(self) -> str:
        return format_metrics(self.metrics)

    def _repr_html_(self) -> str:
        lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in metrics_table(self.metrics)]
        return f"<table>{''.join(lines)}</table><p>{rows_of(self.metrics)}</p>"

    def as_dict(self) -> dict[str, float | int]:
        """Metrics by name, and the number of rows."""
        return self.metrics.as_dict()

    def per_label(self, k: int = 5) -> PerLabel:
        return per_label(self.predictions.labels, self.labels, label_counts=self.label_counts, k=k)


def labeled_rows(model: Model | Ensemble, data: Any, labels: Any, chosen: Fields) -> tuple[Dataset, str]:
    """What users pass to `evaluate` as a dataset, and the split to measure on.

    It is read by the fields that the user names, else those of the model, else by what is recognized in it. Rows that
    come without splits are the rows to measure on; those of a folder without test rows are not.
    """
    if isinstance(data, Dataset):
        if labels is not None:
            raise InputError("labels: a Dataset has its own; leave them out")
        return data, "test"
    data, labels = (list(given) if isinstance(given, Iterator) else given for given in (data, labels))
    read = _read(data, labels, chosen, model.first.fields)
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        return read, "test"
    kept = propensity_of(model)  # there is no dataset.toml that could say otherwise
    settings = replace(read.settings, exclude_own_id=model.exclude_own_id, propensity_a=kept.a, propensity_b=kept.b)
    return replace(read, settings=settings), "train" if read.test is None else "test"


def _read(data: Any, labels: Any, chosen: Fields, remembered: Fields) -> Dataset:
    if labels is not None:  # then the rows are texts or vectors, without fields
        remembered = Fields(separator=remembered.separator)
    try:
        return dataset_from(data, labels, fields=chosen.or_else(remembered))
    except DataError as error:
        # Only a field that this data does not have is a reason to look for others.
        names = {*(remembered.text or ()), remembered.labels, remembered.id}
        if error.line is not None or error.field is None or error.field not in names:
            raise
    return dataset_from(data, labels, fields=chosen)


def evaluate_model(model: Model | Ensemble, data: Dataset, split: str = "test", *, rare: float = 0.0) -> Evaluation:
    """P, nDCG, PSP, PSnDCG, R and the calibration error of a model on one split of a dataset."""
    rows = data.splits.get(split)
    if rows is None:
        raise InputError(f"{data.name} has no {split} rows; it has {', '.join(data.splits)}")
    return evaluate_rows(model, data, rows, rare=rare)


def evaluate_rows(model: Model | Ensemble, data: Dataset, rows: Rows, *, rare: float = 0.0) -> Evaluation:
    """The same on some rows of it."""
    place, label_ids = _places(data.labels, model.labels)
    _check_shared(data, rows, place, model.labels)
    labels = _renumbered(rows.labels, place, len(label_ids))
    excluded = sp.csr_matrix(_renumbered(rows.excluded, place, len(label_ids))[:, : len(model.labels)])
    if data.settings.exclude_own_id and rows.ids is not None:
        excluded = sp.csr_matrix(excluded + _own_pairs(rows.ids, model.labels))
    started = time.perf_counter()
    found = model.predict_rows(_inputs(rows), excluded, DEPTH)
    if rare:
        check_strength(rare)
        found = rerank_by_propensity(found, propensity_of(model), rare, DEPTH)
    seconds = time.perf_counter() - started
    counts = np.concatenate([model.label_counts, np.zeros(len(label_ids) - len(model.labels), dtype=np.int64)])
    propensity = PropensityModel(counts, model.n_train, data.settings.propensity_a, data.settings.propensity_b)
    metrics = evaluate(found.labels, labels, propensity)
    deciles = by_decile(found.labels, labels, label_counts=counts, k=DEPTH)
    error = calibration_error_of(found.labels, found.scores, labels) if model.gives_probabilities else None
    return Evaluation(metrics, deciles, found, labels, label_ids, counts, error, seconds)


def labels_by_model(model: Model | Ensemble, data: Dataset, rows: Rows) -> sp.csr_matrix:
    """The labels of some rows in the model's numbers, rows x labels of the model; labels that it lacks are left out."""
    place, label_ids = _places(data.labels, model.labels)
    return sp.csr_matrix(_renumbered(rows.labels, place, len(label_ids))[:, : len(model.labels)])


def _check_shared(data: Dataset, rows: Rows, place: np.ndarray, ours: LabelSet) -> None:
    """Refuse rows of which every answer must be wrong: no labels, or none that the model has."""
    used = np.unique(rows.labels.indices[rows.labels.data > 0])
    if not len(used):
        raise InputError(f"{data.name}: none of the {len(rows):,} rows has a label, so there is nothing to measure")
    if (place[used] >= len(ours)).all():
        theirs, own = (
            [f'"{name}"' for name in names] for names in ([data.labels.ids[n] for n in used[:3]], ours.ids[:3])
        )
        raise InputError(
            f"{data.name} and the model share no label: the rows have {', '.join(theirs)} ..., the model has "
            f"{', '.join(own)} ...; are these the right fields and the right model?"
        )


def _own_pairs(ids: list[str], labels: LabelSet) -> sp.csr_matrix:
    """(row, label with the row's id), for labels of the model: the dataset's own need not include it."""
    numbers = [labels.number_of.get(row_id, -1) for row_id in ids]
    rows = np.flatnonzero(np.array(numbers) >= 0)
    pairs = (np.ones(len(rows), dtype=np.bool_), (rows, np.array(numbers)[rows]))
    return sp.csr_matrix(pairs, shape=(len(ids), len(labels)))


def _inputs(rows: Rows) -> object:
    return rows.texts if rows.texts is not None else rows.vectors


def _places(theirs: LabelSet, ours: LabelSet) -> tuple[np.ndarray, list[str]]:
    """The column each of the dataset's labels gets: the model's number, or a new one after the last."""
    names = list(ours.ids)
    place = np.empty(len(theirs), dtype=np.int64)
    for number, label_id in enumerate(theirs.ids):
        found = ours.number_of.get(label_id)
        if found is None:
            found = len(names)
            names.append(label_id)
        place[number] = found
    return place, names


def _renumbered(matrix: sp.csr_matrix, place: np.ndarray, n_labels: int) -> sp.csr_matrix:
    arrays = (matrix.data, place[matrix.indices], matrix.indptr)
    renumbered = sp.csr_matrix(arrays, shape=(matrix.shape[0], n_labels))
    renumbered.sort_indices()
    return renumbered
