"""Ids that are words serve as label texts; codes do not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from elias.dataset import Dataset, LabelSet, load_dataset
from elias.dataset.defects import ReadLog
from elias.dataset.label_names import ids_are_names, with_names
from elias.dataset.labels import LabelSetBuilder
from elias.dataset.rows import TextColumn

TEXTS = TextColumn(
    ["a red apple from the garden", "science fiction for juvenile readers", "pdf viewer", "红色 苹果", "старый дом"]
)
RANDOM = random.Random(0)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["Science fiction -- Juvenile", "pdf viewer", "Garden"], True),
        (["science_fiction", "apple-tree", "Love stories"], True),
        (["苹果", "红", "房子"], True),
        (["старый дом", "сад"], True),
        (["B00X12", "B00X17", "A1Z"], False),
        (["3412", "17"], False),
        (["Q42-7", "Q1"], False),
        (["class 1", "class 2", "class 3"], False),
        (["label-00", "label-01"], False),
        (["".join(RANDOM.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=6)) for _ in range(200)], False),
        (["Zebra", "Giraffe", "Elephant", "Tiger", "Lion"], False),  # words, but none that a text contains
        ([], False),
    ],
)
def test_words_are_told_from_codes(ids: list[str], expected: bool) -> None:
    assert ids_are_names(ids, TEXTS) == expected


def test_names_become_label_texts_and_the_layout_says_so(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("text,label\na red apple,red\na pdf viewer,viewer\n")
    data = load_dataset(file)
    assert data.labels.texts == data.labels.ids == ["red", "viewer"]
    assert data.layout.endswith("; label ids are words, so they are label texts too")
    assert data.size().label_texts == 2
    (tmp_path / "labels.tsv").write_text("red\ta color\n")
    assert load_dataset(tmp_path).labels.texts == ["a color", ""], "a label file says which labels have texts"


def test_the_setting_forces_codes() -> None:
    codes = Dataset.from_lists(["x", "y"], [["B1"], ["B2"]])
    assert not codes.labels.has_texts
    assert with_names(codes, None) is codes
    assert with_names(codes, False) is codes
    assert with_names(codes, True).labels.texts == ["B1", "B2"]


def test_a_text_that_is_the_id_is_shown_once() -> None:
    labels = LabelSet(["a", "b", "c"], ["a", "the letter b", ""])
    assert list(labels.texts_to_show) == ["", "the letter b", ""]
    assert labels.texts_to_show[1:] == ["the letter b", ""]


def test_half_a_surrogate_pair_in_a_text_is_replaced() -> None:
    labels = LabelSetBuilder(ReadLog())
    labels.add("a", "ü \ud800 \U0001f600", "\udfff; b")
    assert (labels.texts, labels.alternatives) == (["ü ? \U0001f600"], ["?; b"])
