"""Datasets from Python objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.errors import DataError, InputError
from elias.dataset import Dataset


def test_lists_become_rows_and_labels() -> None:
    data = Dataset.from_lists(
        ["x", "y", "z"],
        [["a", "b"], [("c", 0.5), "a"], {"b": 2.0}],
        ids=["1", "2", "3"],
        weights=[1, 0.5, 1],
        groups=["g", "g", "h"],
        label_texts={"b": "the letter b"},
        test_texts=["w"],
        test_labels=[["d"]],
    )
    assert data.labels.ids == ["b", "a", "c", "d"]
    assert data.labels.texts == ["the letter b", "", "", ""]
    assert data.train.labels.toarray().tolist() == [[1, 1, 0, 0], [0, 1, 0.5, 0], [2, 0, 0, 0]]
    assert data.train.weights.tolist() == [1, 0.5, 1]
    assert data.train.groups == ["g", "g", "h"]
    assert data.test is not None
    assert data.test.labels.toarray().tolist() == [[0, 0, 0, 1]]
    assert (data.name, data.layout) == ("in memory", "lists of texts in memory")


def test_numpy_rows_sets_and_whole_numbers_are_labels() -> None:
    rows: list[Any] = [np.array([3, 1]), {"b", "a"}, ("x",), (), [np.int64(3)], "p, q; r", None, 3, [3.0]]
    data = Dataset.from_lists(["t"] * 9, rows)
    assert data.labels.ids == ["3", "1", "a", "b", "x", "p, q; r"]
    assert np.diff(data.train.labels.indptr).tolist() == [2, 2, 1, 0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[True]], 'labels:0: field "labels": label True is not a text or a number'),
        ([[None]], "label None is not a text or a number"),
        ([[("a", -1)]], "weight -1 is not a number of 0 or more"),
        ([[("a", float("nan"))]], "weight nan"),
        ([[("a", 1, 2)]], "is not a pair of label and weight"),
        ([[{"weight": 1}]], 'has no "id"'),
        ([["a\tb"]], "contains a tab"),
        ([[" "]], "is empty"),
        ([["\ud800"]], "surrogate"),
    ],
)
def test_wrong_labels_are_named(rows: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        Dataset.from_lists(["text"], rows)
    assert message in str(error.value)


def test_wrong_lengths_are_named() -> None:
    with pytest.raises(InputError, match="labels has 1 entries, there are 2 rows"):
        Dataset.from_lists(["a", "b"], [["x"]])
    with pytest.raises(InputError, match="ids has 1 entries"):
        Dataset.from_lists(["a", "b"], [["x"], ["y"]], ids=["1"])
    with pytest.raises(InputError, match="test_texts and test_labels come together"):
        Dataset.from_lists(["a"], [["x"]], test_texts=["b"])
    with pytest.raises(DataError, match="no rows"):
        Dataset.from_lists([], [])
    with pytest.raises(DataError, match="exclude_own_id = true needs an id"):
        Dataset.from_lists(["a"], [["x"]], exclude_own_id=True)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, np.asarray])
def test_arrays_become_rows_and_labels(kind: Any) -> None:
    vectors = kind(np.array([[1.0, 0.0], [0.0, 2.0]]))
    labels = sp.coo_array(np.array([[1, 0, 0], [0, 0.5, 1]]))
    data = Dataset.from_arrays(
        vectors, labels, label_ids=["a", "b", "c"], ids=["c", "d"], exclude_own_id=True, test_vectors=vectors,
        test_labels=labels, test_ids=["1", "2"],
    )  # fmt: skip
    found = data.train.vectors
    assert found is not None
    assert found.dtype == np.float32
    assert (found if isinstance(found, np.ndarray) else found.toarray()).tolist() == [[1, 0], [0, 2]]
    assert data.train.labels.toarray().tolist() == [[1, 0, 0], [0, 0.5, 1]]
    assert data.train.excluded.nonzero()[1].tolist() == [2]
    assert data.labels.ids == ["a", "b", "c"]
    assert data.test is not None


def test_from_arrays_says_what_is_wrong() -> None:
    vectors, labels = np.ones((2, 3)), sp.csr_matrix(np.eye(2))
    with pytest.raises(InputError, match="labels must be a scipy sparse matrix, not ndarray"):
        Dataset.from_arrays(vectors, np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="vectors has 3 entries, there are 2 rows"):
        Dataset.from_arrays(np.ones((3, 3)), labels)
    with pytest.raises(InputError, match="two-dimensional"):
        Dataset.from_arrays(np.ones(2), labels)
    with pytest.raises(DataError, match="vectors: row 0, column 1: nan is not a finite 32-bit number"):
        Dataset.from_arrays(np.array([[0, np.nan], [0, 0]]), labels)
    with pytest.raises(DataError, match="1e\\+300 is not a finite 32-bit number"):
        Dataset.from_arrays(np.full((2, 2), 1e300), labels)
    with pytest.raises(InputError, match="label_ids has 1 entries, labels has 2 columns"):
        Dataset.from_arrays(vectors, labels, label_ids=["a"])
    with pytest.raises(InputError, match="'a' is there twice"):
        Dataset.from_arrays(vectors, labels, label_ids=["a", "a"])
    with pytest.raises(InputError, match="weights must be 0 or more"):
        Dataset.from_arrays(vectors, -labels)
    with pytest.raises(InputError, match="weights must be finite numbers above 0"):
        Dataset.from_arrays(vectors, labels, weights=[0, 1])
    with pytest.raises(InputError, match="the splits differ"):
        Dataset.from_arrays(vectors, labels, test_vectors=np.ones((2, 4)), test_labels=labels)


def test_the_callers_arrays_are_left_alone() -> None:
    labels = sp.csr_matrix((np.ones(3), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2))
    Dataset.from_arrays(np.ones((1, 1)), labels)
    assert labels.indices.tolist() == [1, 0, 1]
