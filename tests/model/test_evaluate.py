"""A model measured on a dataset: labels it never saw, labels in another order, pairs that are not scored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elias
from elias.core.errors import InputError
from elias.core.metrics import evaluate
from elias.core.propensity import PropensityModel
from elias.dataset import Dataset
from elias.model.evaluate import evaluate_model
from elias.model.model import Model


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]


def test_the_numbers_are_those_of_the_predictions(tiny_model: Model, tiny_dataset: Path) -> None:
    data = elias.load_dataset(tiny_dataset)
    found = evaluate_model(tiny_model, data)
    assert data.test is not None
    predicted = tiny_model.predict(list(data.test.texts or []), k=60)
    expected = evaluate(predicted.labels, data.test.labels, PropensityModel(tiny_model.label_counts, 400))
    assert found.metrics.values == pytest.approx(expected.values)
    assert found.metrics["P@1"] > 40
    assert found.metrics["R@100"] == pytest.approx(sum(decile.contribution for decile in found.deciles))
    per_label = found.per_label()
    assert per_label.test_count.sum() == data.test.labels.nnz
    assert per_label.hits.sum() == pytest.approx(found.metrics["P@5"] / 100 * 5 * 80)


def test_labels_in_another_order_and_some_unknown(tiny_model: Model, tiny_dataset: Path) -> None:
    rows = rows_of(tiny_dataset)
    texts, labels = [str(row["text"]) for row in rows], [list(row["labels"]) for row in rows]  # type: ignore[call-overload]
    same = Dataset.from_lists(["x"], [["label-59"]], test_texts=texts, test_labels=labels)
    assert same.labels.ids != tiny_model.labels.ids
    before = evaluate_model(tiny_model, elias.load_dataset(tiny_dataset)).metrics
    assert evaluate_model(tiny_model, same).metrics.values == pytest.approx(before.values)

    more = Dataset.from_lists(
        ["x"], [["label-59"]], test_texts=texts, test_labels=[[*row, "never seen"] for row in labels]
    )
    found = evaluate_model(tiny_model, more)
    assert found.label_ids[-1] == "never seen"
    assert found.metrics["P@1"] == pytest.approx(before["P@1"])
    sizes = np.array([len(row) for row in labels])
    assert found.metrics["R@100"] == pytest.approx(100 * np.mean(sizes / (sizes + 1)))  # it stays in the denominator


def test_own_ids_are_not_scored(tiny_model: Model, tiny_dataset: Path) -> None:
    """An own id that would be the best answer is taken out and the next label moves up."""
    rows = rows_of(tiny_dataset)
    texts = [str(row["text"]) for row in rows]
    first_two = [[name for name, _ in row] for row in tiny_model.predict(texts, k=2).named()]
    arguments = {
        "test_texts": texts,
        "test_labels": [[second] for _, second in first_two],
        "test_ids": [first for first, _ in first_two],
    }
    plain = Dataset.from_lists(["x"], [["label-00"]], ids=["x"], **arguments)  # type: ignore[arg-type]
    strict = Dataset.from_lists(["x"], [["label-00"]], ids=["x"], exclude_own_id=True, **arguments)  # type: ignore[arg-type]
    assert evaluate_model(tiny_model, plain).metrics["P@1"] == 0.0
    assert evaluate_model(tiny_model, strict).metrics["P@1"] == 100.0


def test_a_split_that_is_not_there(tiny_model: Model, tiny_dataset: Path) -> None:
    data = elias.load_dataset(tiny_dataset)
    assert evaluate_model(tiny_model, data, "train").metrics.rows == 400
    with pytest.raises(InputError, match="has no validation rows; it has train, test"):
        evaluate_model(tiny_model, data, "validation")


def test_data_and_model_that_share_no_label(tiny_model: Model) -> None:
    """Every figure would be 0, and the reason is mostly a wrong field or the wrong model."""
    other = Dataset.from_lists(["x"], [["label-59"]], test_texts=["a", "b"], test_labels=[["sea"], ["land", "sea"]])
    with pytest.raises(InputError, match=r'share no label: the rows have "\w+", "\w+" \.\.\., the model has "label-'):
        evaluate_model(tiny_model, other)
    assert evaluate_model(tiny_model, other, "train").metrics.rows == 1
    nothing = Dataset.from_lists(["x"], [["label-59"]], test_texts=["a", "b"], test_labels=[[], []])
    with pytest.raises(InputError, match="none of the 2 rows has a label"):
        evaluate_model(tiny_model, nothing)


def test_the_calibration_error_of_probabilities(stacked_model: Model, tiny_model: Model, data: Dataset) -> None:
    found = evaluate_model(stacked_model, data)
    assert found.calibration_error is not None
    assert 0 < found.calibration_error < 0.3
    assert evaluate_model(tiny_model, data).calibration_error is None
