"""TextColumn, Rows and LabelSet: what is put in comes out, in memory or spilled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.dataset import Dataset, LabelSet, TextColumn, rows


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=[]))))
def test_text_column_gives_back_what_it_was_given(texts: list[str]) -> None:
    column = TextColumn(iter(texts))
    assert list(column) == texts
    assert [column[row] for row in range(len(column))] == texts


def test_text_column_spills_to_a_file_and_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text number {n} ÄÖ 漢字" for n in range(10_000)]
    in_memory = TextColumn(texts)
    monkeypatch.setattr(rows, "SPILL_BYTES", 1000)
    spilled = TextColumn(text for text in texts)
    assert not isinstance(spilled._buffer, bytearray)
    assert list(spilled) == texts
    assert spilled[-1] == texts[-1]
    assert spilled[5:8] == texts[5:8]
    assert b"".join(spilled.content()) == b"".join(in_memory.content())


def test_text_column_indexes_like_a_list() -> None:
    column = TextColumn(["a", "", "c"])
    assert (column[0], column[1], column[-1], column[::2]) == ("a", "", "c", ["a", "c"])
    assert list(column.take(np.array([2, 0, 2]))) == ["c", "a", "c"]
    with pytest.raises(IndexError):
        column[3]
    assert len(TextColumn([])) == 0


def test_take_keeps_every_column_of_the_rows_together() -> None:
    data = Dataset.from_lists(
        ["one", "two", "three"],
        [["a"], ["b", "c"], ["a"]],
        ids=["1", "2", "a"],
        weights=[1, 2, 3],
        groups=["x", "y", "x"],
        exclude_own_id=True,
    )
    assert repr(data) == "Dataset('in memory': train 3 rows, 3 labels; lists of texts in memory)"
    assert repr(data.train) == "Rows(3 texts, 3 positives, 3 labels)"
    part = data.train.take(np.array([2, 1]))
    assert part.texts is not None
    assert list(part.texts) == ["three", "two"]
    assert part.ids == ["a", "2"]
    assert part.groups == ["x", "y"]
    assert part.weights.tolist() == [3, 2]
    assert part.labels.toarray().tolist() == [[0, 0, 0], [0, 1, 1]]
    assert part.excluded.toarray().tolist() == [[True, False, False], [False, False, False]]


def test_a_label_set_maps_ids_to_numbers() -> None:
    labels = LabelSet(["a", "b"], ["text of a", ""])
    assert labels.number_of == {"a": 0, "b": 1}
    assert labels.has_texts
    assert labels.alternatives == ["", ""]
    assert not LabelSet(["a"]).has_texts
