"""Labels by name: words in any order, without case and accents, best match first."""

from __future__ import annotations

import random

import numpy as np
import pytest

from elias.dataset.labels import LabelSet
from elias.server.label_search import LabelSearch, words_of

NAMES = {
    "evince": "document viewer",
    "gir-evince": "",
    "evince-common": "files of evince",
    "libreoffice": "an office",
    "a/b c": "with\ttab",
    "İstanbul": "",
    "Straße": "",
    "sh 85118629": "Science fiction -- Juvenile",
    "sh 1": "Fiction",
    "sh 2": "Fiction and science in Café René",
    "sh 3": "Scientific fictions",
    "图书馆学": "",
}
COUNTS = np.array([5, 9, 1, 1, 1, 1, 1, 3, 2, 7, 8, 1])


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("evince", ["evince", "evince-common", "gir-evince"]),
        ("EVIN", ["evince", "evince-common", "gir-evince"]),
        ("  office ", ["libreoffice"]),
        ("reoff", ["libreoffice"]),
        ("view", ["evince"]),
        ("viewer docu", ["evince"]),
        ("STRASSE", ["Straße"]),
        ("istanbul", ["İstanbul"]),
        ("a/b  c", ["a/b c"]),
        ("with tab", ["a/b c"]),
        ("fiction science", ["sh 2", "sh 85118629"]),
        ("juvenile fict sci", ["sh 85118629"]),
        ("fiction", ["sh 1", "sh 2", "sh 3", "sh 85118629"]),
        ("fict scien", ["sh 3", "sh 2", "sh 85118629"]),
        ("rene cafe", ["sh 2"]),
        ("RENÉ", ["sh 2"]),
        ("书馆", ["图书馆学"]),
        ("sh 2", ["sh 2"]),
        ("nothing at all", []),
    ],
)
def test_search(search: str, found: list[str]) -> None:
    labels = LabelSet(list(NAMES), list(NAMES.values()))
    hits = LabelSearch(labels, COUNTS).find(search, 10)
    names = [labels.ids[label] for label in hits.labels]
    assert (sorted(names), hits.total) == (sorted(found), len(found))
    assert names[:1] == found[:1]


@pytest.mark.parametrize("search", ["", " ", "\n", "--"])
def test_without_words_the_most_used(search: str) -> None:
    hits = LabelSearch(LabelSet(list(NAMES), list(NAMES.values())), COUNTS).find(search, 3)
    assert (hits.total, [list(NAMES)[label] for label in hits.labels]) == (12, ["gir-evince", "sh 3", "sh 2"])


def test_no_labels_and_no_words() -> None:
    assert LabelSearch(LabelSet([]), np.empty(0, dtype=np.int64)).find("a", 5).total == 0
    assert LabelSearch(LabelSet(["--", "()"]), np.array([1, 2])).find("a", 5).total == 0


def test_it_finds_what_a_loop_over_all_labels_finds() -> None:
    generator = random.Random(0)
    words = ["".join(generator.choices("abc", k=generator.randint(1, 4))) for _ in range(40)]
    texts = [" ".join(generator.choices(words, k=generator.randint(0, 4))) for _ in range(500)]
    labels = LabelSet([f"id{number}" for number in range(500)], texts)
    counts = np.array([generator.randint(0, 5) for _ in texts])
    search = LabelSearch(labels, counts)
    for _ in range(200):
        wanted = [word[: generator.randint(1, 3)] for word in generator.choices(words, k=generator.randint(1, 3))]
        expected = {
            number for number, text in enumerate(texts)
            if all(any(word.startswith(each) for word in words_of(text)) for each in wanted)
        }  # fmt: skip
        hits = search.find(" ".join(wanted), 5)
        if len(expected) >= 5:  # fewer are filled up with words that contain the wanted ones
            assert hits.total == len(expected)
            assert set(hits.labels) <= expected
        else:
            assert expected <= set(search.find(" ".join(wanted), 500).labels)
