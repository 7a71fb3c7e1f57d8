"""Cells of labels: lists in every spelling, and what separates labels."""

from __future__ import annotations

import random

import pytest

from elias.dataset.label_cells import CANDIDATES, find_separator, named_separator, pieces_of, read_list

FORMS, PEOPLE = ("Short stories", "Poetry", "Drama", "Essays"), ("English", "French", "German")
HEADINGS = [f"{form}, {people}" for form in FORMS for people in PEOPLE]
HEADINGS += [
    f"{name}, {first}, {1800 + year}" for year, (name, first) in enumerate(zip("ABCDEF", "uvwxyz", strict=True))
]


def lists(seed: int, labels: list[str], rows: int, ordered: bool) -> list[list[str]]:
    rng = random.Random(seed)
    found = [rng.sample(labels, k=rng.choice((1, 2, 3, 5))) for _ in range(rows)]
    return [sorted(row) for row in found] if ordered else found


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("joiner", [*CANDIDATES, ", ", " ; "])
@pytest.mark.parametrize("rows", [60, 500])
def test_what_joins_labels_is_found(joiner: str, ordered: bool, rows: int) -> None:
    names = [f"label {number}" for number in range(80)]
    cells = [joiner.join(row) for row in lists(1, names, rows, ordered)]
    assert find_separator(cells).value == joiner.strip(" ")


@pytest.mark.parametrize("joiner", ["\t", "|", ";"])
def test_commas_inside_names_do_not_distract(joiner: str) -> None:
    assert find_separator([joiner.join(row) for row in lists(2, HEADINGS, 200, False)]).value == joiner


def test_commas_inside_single_names_do_not_separate() -> None:
    rng = random.Random(3)
    found = find_separator(rng.choices([*HEADINGS, "Poetry", "Drama"], k=300))
    assert (found.value, found.candidate) == ("", ",")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a", "b", "a"], ""),
        (["fruit;red", "red"], ";"),
        (["a;b", "c;d"], ";"),  # nothing recurs, but names rarely contain it
        (["a,b", "c,d"], None),
        (["a, b", "b"], None),  # one piece is too little for a comma with a space
        (["a,b", "b"], ","),
        (["a, b", "b", "a"], ","),  # all pieces stand alone elsewhere
        (["Arts &amp; Crafts", "Food", "Food", "Toys"], None),
        (["a;b"] * 9 + ["c"], None),  # as a whole, always
        (["Toys, Games"] * 9 + ["Food"] * 3, ""),
        (["Home|Chairs", "Home|Tables", "Garden|Trees"], None),
        (["a;", "b;"], ";"),
    ],
)
def test_the_data_decide_or_not(cells: list[str], expected: str | None) -> None:
    assert find_separator(cells).value == expected


def test_known_labels_decide() -> None:
    assert find_separator(["a, b"], {"a", "b"}).value == ","
    assert find_separator(["a, b"], {"a, b"}).value == ""
    assert find_separator(["a;b", "c;d"], {"a;b", "c;d"}).value == ""


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ('["a", "b;c"]', ["a", "b;c"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ("['a' 'b']", ["a", "b"]),
        ("['a'\n 'b']", ["a", "b"]),
        ("[1 2 30]", [1, 2, 30]),
        ("[3.0]", [3.0]),
        ("('a', 'b')", ["a", "b"]),
        ("{'b', 'a'}", ["a", "b"]),
        ('{"a": 0.5}', {"a": 0.5}),
        ("[]", []),
        ("(1990)", None),
        ("(see also) fruit", None),
        ("a;b", None),
    ],
)
def test_lists_in_every_spelling(cell: str, expected: object) -> None:
    assert read_list(cell) == expected


@pytest.mark.parametrize("cell", ["['a', 'b'", "[a, b]", "[__import__('os')]", "{1: }", "[" * 5000, "['a', ...]x"])
def test_a_broken_list_is_an_error_and_nothing_runs(cell: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_list(cell)


def test_separators_have_names() -> None:
    assert (named_separator("TAB"), named_separator("none"), named_separator(", ")) == ("\t", "", ", ")
    assert pieces_of(" a ;; b;", ";") == ["a", "b"]
    assert pieces_of("a;b", "") == ["a;b"]
