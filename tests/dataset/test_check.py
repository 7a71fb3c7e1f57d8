"""The report on a dataset: right numbers, pleasant to read, plain enough for JSON."""

from __future__ import annotations

import json

import numpy as np
import scipy.sparse as sp

from elias.dataset import Dataset, check, format_report


def small() -> Dataset:
    return Dataset.from_lists(
        ["one two three", "one two three", "four", ""],
        [["a", "b", "c"], ["a"], ["a", "b"], []],
        label_texts={"a": "A", "z": "Z"},
        test_texts=["four", "five six"],
        test_labels=[["a"], ["unseen"]],
    )


def test_rows_labels_and_texts_are_counted() -> None:
    report = check(small())
    assert (report.labels, report.labels_with_text, report.labels_without_training_text) == (5, 2, 2)
    assert (report.texts_per_label_mean, report.texts_per_label_median, report.texts_per_label_max) == (2.0, 2.0, 3)
    train, test = report.splits["train"], report.splits["test"]
    assert (train.rows, train.positives, train.labels_per_text_mean, train.labels_per_text_max) == (4, 6, 1.5, 3)
    assert (train.rows_without_labels, train.repeated_texts, train.texts_also_in_train) == (1, 1, None)
    assert (train.words_per_text_mean, train.words_per_text_max) == (1.75, 3)
    assert (test.rows, test.repeated_texts, test.texts_also_in_train) == (2, 0, 1)


def test_the_columns_of_the_table_are_aligned() -> None:
    report = check(small())
    text = format_report(report)
    lines = text.splitlines()
    header = next(n for n, line in enumerate(lines) if line.split() == ["train", "test"])
    table = lines[header : header + 10]
    assert len({len(line) for line in table}) == 1
    assert "\nrows                          4         2\n" in text
    assert "\n  empty text (kept): labels:3\n" in text


def test_a_report_is_ready_for_json() -> None:
    found = json.loads(json.dumps(check(small()).as_dict()))
    assert found["splits"]["train"]["rows"] == 4
    assert {"kind", "count", "example"} == set(found["notes"][0])


def test_vectors_have_no_words() -> None:
    report = check(Dataset.from_arrays(np.ones((2, 3)), sp.csr_matrix(np.eye(2))))
    assert report.splits["train"].words_per_text_mean is None
    assert report.splits["train"].repeated_texts is None
    assert "\nwords per text, mean          -\n" in format_report(report)


def test_words_are_counted_as_the_tokenizer_counts_them() -> None:
    report = check(Dataset.from_lists(["红色的苹果", "two-part word"], [["a"], ["b"]]))
    assert (report.splits["train"].words_per_text_mean, report.splits["train"].words_per_text_max) == (4.0, 5)


def related(exclude_own_id: bool = False) -> Dataset:
    return Dataset.from_lists(
        ["one", "two", "three"],
        [["b", "x"], ["c"], ["x"]],
        ids=["a", "b", "c"],
        test_texts=["four"],
        test_labels=[["a", "c"]],
        test_ids=["x"],
        exclude_own_id=exclude_own_id,
    )


def test_pairs_that_are_mirrored_and_ids_that_are_labels_are_reported() -> None:
    report = check(related())
    assert report.mirrored_test_pairs == 2, "(x, a) and (x, c) stand in training as (a, x) and (c, x)"
    assert report.rows_named_like_labels == 3
    text = format_report(report)
    assert "3 of 3 training texts have the id of a label; if a text's own label is never right" in text
    assert "2 of 2 test pairs (x, y), 100.0 %, stand in training as (y, x): a leak" in text
    assert check(related(exclude_own_id=True)).rows_named_like_labels == 0
    assert "warnings" not in format_report(check(small()))
