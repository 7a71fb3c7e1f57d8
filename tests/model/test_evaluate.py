"""A model measured on a dataset: labels it never saw, labels in another order, pairs that are not scored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import elias
from elias import Ensemble
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


# -- what users pass to `evaluate` ------------------------------------------------------------------------------------

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TEXTS: list[str] = [text for text in json.loads((GOLDEN / "queries.json").read_text())["texts"] if text]


@pytest.fixture(scope="module", params=["stacked", "ensemble"])
def golden(request: pytest.FixtureRequest) -> Model | Ensemble:
    return elias.load(GOLDEN / "models" / request.param, threads=2)


def answers(model: Model | Ensemble, rank: int) -> list[str]:
    """The label at a rank among 100, as many as `evaluate` predicts: a truth of which the metrics are known."""
    return [row[rank][0] for row in model.predict(TEXTS, k=100).named()]


def test_texts_and_labels_in_many_forms(golden: Model | Ensemble, tmp_path: Path) -> None:
    best = answers(golden, 0)
    frame = pd.DataFrame({"text": TEXTS, "label": best})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    dataset = Dataset.from_lists(["x"], [best[:1]], test_texts=TEXTS, test_labels=[[label] for label in best])
    for found in (
        golden.evaluate(TEXTS, [[label] for label in best]),
        golden.evaluate(np.array(TEXTS), best),
        golden.evaluate(frame),
        golden.evaluate(frame, "label"),
        golden.evaluate(frame.rename(columns={"text": "x", "label": "y z"}), text="x", labels="y z"),
        golden.evaluate(tmp_path / "rows.csv"),
        golden.evaluate(str(tmp_path / "rows.csv"), labels="label", text="text"),
        golden.evaluate(dataset),
        golden.evaluate(dataset, split="test"),
    ):
        assert found["P@1"] == 100
        assert found["P@5"] == pytest.approx(20)
        assert found.metrics.rows == len(TEXTS)
    second = golden.evaluate(TEXTS, answers(golden, 1))
    assert (second["P@1"], second["P@3"]) == (0, pytest.approx(100 / 3))
    assert second.as_dict()["R@10"] == 100


def test_the_result_prints_as_a_table(golden: Model | Ensemble) -> None:
    found = golden.evaluate(TEXTS, answers(golden, 0))
    lines = repr(found).splitlines()
    assert lines[0].split() == ["@1", "@3", "@5", "@10", "@20", "@100"]
    assert lines[1].split() == ["P", "100.00", "33.33", "20.00"]
    assert lines[-1] == f"{len(TEXTS)} rows"
    html = found._repr_html_()
    assert html.count("<tr>") == 6
    assert "<td>P</td><td>100.00</td>" in html
    assert f"<p>{len(TEXTS)} rows</p>" in html


def test_rare_labels_first_changes_the_order(golden: Model | Ensemble) -> None:
    second = answers(golden, 1)
    assert golden.evaluate(TEXTS, second, rare=1.0)["P@1"] > golden.evaluate(TEXTS, second)["P@1"]


def test_a_folder_without_test_rows_is_not_measured_on_its_training_rows(
    golden: Model | Ensemble, tmp_path: Path
) -> None:
    pd.DataFrame({"text": TEXTS, "label": answers(golden, 0)}).to_csv(tmp_path / "train.csv", index=False)
    with pytest.raises(InputError, match="has no test rows; it has train"):
        golden.evaluate(tmp_path)
    assert golden.evaluate(tmp_path, split="train")["P@1"] == 100
    assert golden.evaluate(tmp_path / "train.csv")["P@1"] == 100
    with pytest.raises(InputError, match="has no test rows"):
        golden.evaluate(elias.load_dataset(tmp_path))


def test_own_ids_are_left_out_where_the_training_data_said_so(golden: Model | Ensemble) -> None:
    assert golden.exclude_own_id
    frame = pd.DataFrame({"id": answers(golden, 0), "text": TEXTS, "label": answers(golden, 1)})
    assert golden.evaluate(frame)["P@1"] > 80  # not all: an excluded label changes what is searched
    assert golden.evaluate(frame.drop(columns="id"))["P@1"] == 0


@pytest.mark.parametrize("wrong", [None, 5, ["a", "b"], {"a": 1}, b"x"])
def test_what_cannot_be_measured_on_is_one_line(golden: Model | Ensemble, wrong: Any) -> None:
    with pytest.raises(elias.EliasError) as error:
        golden.evaluate(wrong)
    assert "\n" not in str(error.value)


def test_labels_beside_a_dataset_are_refused(golden: Model | Ensemble, tiny_dataset: Path) -> None:
    with pytest.raises(InputError, match="a Dataset has its own"):
        golden.evaluate(elias.load_dataset(tiny_dataset), [["a"]])


def test_the_fields_of_the_training_data_are_used_where_the_rows_have_them(tmp_path: Path) -> None:
    model = elias.load(GOLDEN / "models" / "stacked", threads=2)
    assert isinstance(model, Model)
    fields = {"text": ["title", "body"], "labels": "tags", "id": None, "separator": "|"}
    ours = replace(model, about={**model.about, "dataset": {**model.about["dataset"], "fields": fields}})
    best = [row[:2] for row in model.predict(TEXTS, k=100).named()]
    tags = ["|".join(name for name, _ in row) for row in best]
    halves = [text.partition(" ") for text in TEXTS]
    frame = pd.DataFrame(
        {"text": "nonsense", "body": [h[2] for h in halves], "title": [h[0] for h in halves], "tags": tags}
    )
    assert ours.evaluate(frame)["P@1"] == 100
    assert ours.evaluate(frame).metrics["P@3"] == pytest.approx(200 / 3)
    other = frame.assign(text=TEXTS, labels=tags).drop(columns=["title", "body", "tags"])
    assert ours.evaluate(other, separator="|")["P@1"] == 100  # recognized
    assert ours.evaluate(TEXTS, tags)["P@1"] == 100
    assert ours.evaluate((text for text in TEXTS), ([name for name, _ in row] for row in best))["P@1"] == 100
    with pytest.raises(elias.EliasError, match="no such field"):
        ours.evaluate(frame, text="nothing")
