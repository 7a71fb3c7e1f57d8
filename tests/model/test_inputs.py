"""What `predict` takes for texts and for vectors, and one clear line for everything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import elias
from elias import Model
from elias.core.errors import InputError
from elias.dataset.fields import Fields
from elias.model.inputs import as_matrix, as_texts

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "models"
TEXTS = ["library for python", "pdf viewer", ""]
NO_FIELDS = Fields()


@pytest.fixture(scope="module")
def model() -> Model:
    found = elias.load(GOLDEN / "stacked", threads=2)
    assert isinstance(found, Model)
    return found


def with_fields(model: Model, fields: Fields, **changes: Any) -> Model:
    """The same model, as if it had been trained on a file with these fields."""
    from dataclasses import replace

    dataset = {**model.about["dataset"], "fields": fields.as_dict(), **changes}
    return replace(model, about={**model.about, "dataset": dataset})


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        iter,
        lambda texts: (text for text in texts),
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: np.array(texts, dtype=np.dtypes.StringDType()),
        lambda texts: np.array(texts).reshape(-1, 1),
        pd.Series,
        lambda texts: pd.Series(texts, dtype=object, index=["x", "y", "z"]),
        pd.Index,
        lambda texts: dict.fromkeys(texts).keys(),
        lambda texts: [np.str_(text) for text in texts],
    ],
)
def test_these_are_texts(make: Callable[[list[str]], Any], model: Model) -> None:
    expected = model.predict(TEXTS, k=3)
    found = model.predict(make(TEXTS), k=3)
    assert found.named() == expected.named()
    assert as_texts(make(TEXTS), NO_FIELDS) is not None


@pytest.mark.parametrize("one", ["pdf viewer", np.str_("pdf viewer"), np.array("pdf viewer")])
def test_one_text_is_one_input(one: Any, model: Model) -> None:
    assert model.predict(one, k=3).named() == model.predict(["pdf viewer"], k=3).named()


@pytest.mark.parametrize("nothing", [[], (), iter(()), np.array([], dtype=str), pd.Series([], dtype=object)])
def test_no_texts_are_no_predictions(nothing: Any, model: Model) -> None:
    assert len(model.predict(nothing)) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "None is not a list of texts; pass a text, or a list"),
        (5, r"int \(5\) is not a list of texts"),
        (0.5, r"float \(0.5\) is not a list of texts"),
        (True, r"bool \(True\) is not a list"),
        (b"bytes", r"decode them first: data.decode\('utf-8'\)"),
        ({"text": "a"}, "a dict is not a list of texts"),
        ({"a", "b"}, "a set is not a list of texts"),
        (Path("texts.csv"), "texts.csv: a path is not a text"),
        (["a", None], r'input 1 is None, not a text: a missing value; leave it out, or put "" in its place'),
        (["a", float("nan")], r"input 1 is float \(nan\), not a text: a missing value"),
        (["a", pd.NA], r"input 1 is NAType \(<NA>\), not a text: a missing value"),
        (["a", b"b"], r"input 1 is bytes \(b'b'\), not a text; decode it first"),
        ([["a", "b"]], r"input 0 is list \(\['a', 'b'\]\), not a text; pass a text, or a list"),
        ([np.array(["a", "b"])], "input 0 is ndarray"),
        ([{"text": "a"}], "input 0 is dict"),
        ([3], r"input 0 is int \(3\), not a text"),
        (["a" * 5, 10**80], r"input 1 is int \(1000.*\.\.\.\), not a text"),
        (pd.Series(["a", None]), "input 1 is .*a missing value"),
        (
            np.array([["a", "b"], ["c", "d"]]),
            r"an array of shape \(2, 2\) is not a list of texts; pass one of its columns",
        ),
        (np.zeros((2, 3)), "trained on texts, not on vectors"),
        (np.zeros(3), "trained on texts, not on vectors"),
        (sp.csr_matrix((2, 3)), "trained on texts, not on vectors"),
        (
            pd.DataFrame({"title": ["a"], "n": [1]}),
            'this DataFrame has no column "text", which the model reads its text from; it has "title", "n"',
        ),
        (pd.DataFrame(), "this DataFrame has no column"),
        (pd.Series([1, 2]), "input 0 is int"),
        (range(3), r"input 0 is int \(0\)"),
        (object(), "is not a list of texts"),
        (elias.Dataset.from_lists(["a"], [["x"]]), "is not a list of texts"),
    ],
)
def test_these_are_not(given: Any, message: str, model: Model) -> None:
    """The model remembers that its texts are in the field `text`."""
    with pytest.raises(InputError, match=message) as error:
        model.predict(given)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250


def test_a_table_with_the_fields_of_the_model(model: Model) -> None:
    frame = pd.DataFrame(
        {
            "sku": [7, 8, 9],
            "title": ["library", "pdf", None],
            "price": [1.5, 2.0, 3.0],
            "body": ["for python", "viewer", float("nan")],
        },
        index=[30, 20, 10],
    )
    ours = with_fields(model, Fields.of(["title", "body"], id="sku"))
    found = ours.predict(frame, k=3)
    assert found.named() == model.predict(TEXTS, k=3).named()
    assert found.ids == ["7", "8", "9"]
    assert ours.predict(frame, k=3, ids=pd.Series(["a", "b", "c"])).ids == ["a", "b", "c"]
    assert ours.predict(frame.drop(columns="sku"), k=3).ids is None
    with pytest.raises(
        InputError, match=r'has no column "body", which the model reads its text from; it has "sku", "t'
    ):
        ours.predict(frame.drop(columns="body"))


def test_the_ids_of_a_table_are_excluded_where_the_data_said_so(model: Model) -> None:
    ours = with_fields(model, Fields.of("text", id="id"), exclude_own_id=True)
    best = model.predict(TEXTS[:2], k=1).named()
    frame = pd.DataFrame({"id": [row[0][0] for row in best], "text": TEXTS[:2]})
    for own, row in zip(frame["id"], ours.predict(frame, k=20).named(), strict=True):
        assert own not in [name for name, _ in row]


@pytest.mark.parametrize(
    "given", [np.ones((2, 3)), np.ones((2, 3), dtype=int), [[1, 1, 1], [1, 1, 1]], pd.DataFrame(np.ones((2, 3)))]
)
def test_these_are_vectors(given: Any) -> None:
    found = as_matrix(given, 3, sparse=False)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == ((2, 3), np.float32)


@pytest.mark.parametrize("given", [sp.csr_matrix(np.ones((2, 3))), sp.coo_array(np.ones((2, 3)))])
def test_these_are_sparse_vectors(given: Any) -> None:
    assert sp.issparse(as_matrix(given, 3, sparse=True))


@pytest.mark.parametrize("nothing", [[], np.empty((0, 3)), np.empty(0)])
def test_no_vectors_have_the_width_of_the_model(nothing: Any) -> None:
    assert as_matrix(nothing, 3, sparse=False).shape == (0, 3)
    assert sp.issparse(as_matrix(nothing, 3, sparse=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a text", r"str \('a text'\) is not a matrix; this model was trained on vectors"),
        (["a text"], "trained on vectors, not on texts"),
        (None, "None is not a matrix"),
        (b"x", "is not a matrix"),
        ({"a": 1}, "is not a matrix"),
        (5, r"shape \(1, 1\); the model was trained on rows of 3 columns"),
        (np.zeros((2, 4)), r"shape \(2, 4\)"),
        (np.zeros((1, 1, 3)), r"shape \(1, 1, 3\)"),
        ([[1, 2, 3], [1, 2]], "pass a matrix with one row per input"),
        (np.full((2, 3), np.nan), "NaN or infinite"),
        (sp.csr_matrix(np.full((2, 3), np.inf)), "NaN or infinite"),
        (pd.DataFrame({"a": ["x"]}), "pass a matrix with one row per input"),
    ],
)
def test_these_are_no_vectors(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_matrix(given, 3, sparse=False)


def test_a_model_of_lists_knows_no_column_of_a_table(model: Model) -> None:
    with pytest.raises(
        InputError, match='a DataFrame is not a list of texts; pass its column of texts; it has "title"'
    ):
        with_fields(model, Fields()).predict(pd.DataFrame({"title": ["a"]}))
