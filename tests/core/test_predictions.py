"""The one result type: names, records, columns, matrices, batches put together."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elias.core.errors import MissingExtraError
from elias.core.predictions import Predictions, stack


def example(ids: list[str] | None = None) -> Predictions:
    labels = np.array([[2, 0, 1], [1, -1, -1]], dtype=np.int32)
    scores = np.array([[0.9, 0.5, 0.25], [0.75, 0, 0]], dtype=np.float32)
    parts = {"cluster": np.array([[4, 5, 6], [7, -1, -1]], dtype=np.int32), "classifier": scores}
    return Predictions(labels=labels, scores=scores, parts=parts, ids=ids, label_ids=["a", "b", "c"])


def explained() -> Predictions:
    items: list[list[dict[str, Any]]] = [[{"score": 1.0}, {"score": 2.0}, {"score": 3.0}], [{"score": 4.0}, {}, {}]]
    return replace(example(), explanations=items)


def test_explanations_stay_with_their_labels() -> None:
    def scores(found: Predictions) -> list[list[float | None]]:
        assert found.explanations is not None
        return [[item.get("score") for item in row] for row in found.explanations]

    assert scores(explained().top(2)) == [[1.0, 2.0], [4.0, None]]
    assert scores(explained().above(0.5)) == [[1.0, 2.0, None], [4.0, None, None]]
    assert scores(explained().resize(4)) == [[1.0, 2.0, 3.0, None], [4.0, None, None, None]]
    assert scores(stack([explained(), explained()])) == 2 * scores(explained())
    assert explained().records()[1][0]["explanation"] == {"score": 4.0}
    assert stack([example(), example()]).explanations is None


def test_names_leave_out_pads() -> None:
    assert [[name for name, _ in row] for row in example().named()] == [["c", "a", "b"], ["b"]]
    assert example().named()[1] == [("b", 0.75)]


def test_records_are_ready_for_json() -> None:
    records = example().records(["first", "", "third"])
    assert [len(row) for row in records] == [3, 1]
    assert json.loads(json.dumps(records))[1] == [{"label": "b", "score": 0.75, "cluster": 7, "classifier": 0.75}]
    assert records[0][0]["text"] == "third"


def test_top_keeps_the_first_columns() -> None:
    top = example().top(2)
    assert top.labels.shape == top.scores.shape == (2, 2)
    assert top.parts is not None
    assert top.parts["cluster"].tolist() == [[4, 5], [7, -1]]


def test_scores_become_a_sparse_matrix() -> None:
    matrix = example().to_csr(5).toarray()
    assert matrix.shape == (2, 5)
    np.testing.assert_allclose(matrix, [[0.5, 0.25, 0.9, 0, 0], [0, 0.75, 0, 0, 0]])


def test_batches_are_stacked_in_order() -> None:
    joined = stack([example(["x", "y"]), example(["z", "w"])])
    assert len(joined) == 4
    assert joined.ids == ["x", "y", "z", "w"]
    assert joined.parts is not None
    assert joined.parts["cluster"].shape == (4, 3)


def test_empty_predictions_have_columns_and_parts() -> None:
    nothing = Predictions.empty(3, explain=True)
    assert (len(nothing), nothing.labels.shape, nothing.scores.dtype) == (0, (0, 3), np.float32)
    assert nothing.parts is not None
    assert nothing.parts.keys() >= {"cluster", "cluster_score", "edge_score", "classifier"}
    assert nothing.to_csr(7).shape == (0, 7)


def test_labels_below_a_threshold_become_pads() -> None:
    found = example().above(0.5)
    assert found.labels.tolist() == [[2, 0, -1], [1, -1, -1]]
    np.testing.assert_allclose(found.scores, [[0.9, 0.5, 0], [0.75, 0, 0]])
    assert found.parts is not None
    assert found.parts["cluster"].tolist() == [[4, 5, -1], [7, -1, -1]]
    assert found.parts["classifier"][0, 2] == 0
    assert (found.labels.dtype, found.scores.dtype, found.parts["cluster"].dtype) == (np.int32, np.float32, np.int32)
    assert example().above(0.0).labels.tolist() == example().labels.tolist()
    assert (example().above(1.0).labels == -1).all()


def test_resize_pads_or_cuts_columns() -> None:
    wide = example().resize(5)
    assert wide.labels.tolist() == [[2, 0, 1, -1, -1], [1, -1, -1, -1, -1]]
    assert (wide.scores[:, 3:] == 0).all()
    assert wide.parts is not None
    assert wide.parts["cluster"][0].tolist() == [4, 5, 6, -1, -1]
    assert wide.named() == example().named()
    assert example().resize(2).labels.tolist() == [[2, 0], [1, -1]]
    assert example().resize(3).labels.tolist() == example().labels.tolist()


def test_the_text_form_is_one_short_line() -> None:
    assert repr(example()) == "<elias.Predictions: 2 inputs, up to 3 labels each; the first: c 0.90, a 0.50, b 0.25>"
    assert repr(Predictions.empty(3)) == "<elias.Predictions: 0 inputs, up to 3 labels each>"
    many = stack([example()] * 5000)
    assert len(repr(many)) < 120
    assert "\n" not in repr(many)


def test_a_notebook_shows_a_small_table_of_escaped_names() -> None:
    found = example(["<b>one</b>", "two & three"])
    html = replace(found, label_ids=["a", "b", "<c>"])._repr_html_()
    assert "<c>" not in html
    assert "<b>" not in html
    assert "&lt;c&gt; <small>0.900</small>" in html
    assert "two &amp; three" in html
    assert html.count("<td></td>") == 2  # pads
    assert "<p>" not in html
    long = stack([example()] * 50)._repr_html_()
    assert long.count("<tr>") == 11
    assert "100 inputs" in long
    assert "<table>" in Predictions.empty(3)._repr_html_()


def test_a_data_frame_has_one_row_per_input_and_label() -> None:
    pytest.importorskip("pandas")
    frame = example(["x", "y"]).to_pandas()
    assert list(frame) == ["input", "id", "rank", "label", "score", "cluster", "classifier"]
    assert frame["input"].tolist() == [0, 0, 0, 1]
    assert frame["id"].tolist() == ["x", "x", "x", "y"]
    assert frame["rank"].tolist() == [1, 2, 3, 1]
    assert frame["label"].tolist() == ["c", "a", "b", "b"]
    np.testing.assert_allclose(frame["score"], [0.9, 0.5, 0.25, 0.75])
    assert frame["cluster"].tolist() == [4, 5, 6, 7]
    assert list(example().to_pandas())[:2] == ["input", "rank"]
    assert len(example().above(1.0).to_pandas()) == 0


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elias-xmc\[pandas\]'"):
        example().to_pandas()
