"""Data in the shapes that people have: each is understood, or answered with one line that says what to do.

A file is given by its name and content. What is understood is shown as (text, labels) per row; an error by the whole
line after the name of the file. Hugging Face datasets are stood in for by a class with the attributes that are used, so
that the tests do not need the package.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.errors import DataError, EliasError, InputError
from elias.dataset import Dataset, Fields, dataset_from, load_dataset
from elias.dataset.defects import ReadLog
from elias.dataset.fields import Columns, resolve_known
from elias.dataset.record_files import read_rows
from elias.dataset.record_parser import row_id, row_text

TWO = [("red apple", ["fruit", "red"]), ("fire engine", ["red"])]
SINGLE = [("red apple", ["fruit"]), ("fire engine", ["red"])]
CODES = [("red apple", ["3"]), ("fire engine", ["7"])]


def shown(data: Dataset) -> list[tuple[str, list[str]]]:
    matrix, texts = data.train.labels, data.train.texts
    assert texts is not None
    labels = [[data.labels.ids[i] for i in matrix.indices[a:b]] for a, b in zip(matrix.indptr, matrix.indptr[1:])]  # noqa: B905
    return list(zip(texts, labels, strict=True))


def pandas_csv(**columns: list[Any]) -> bytes:
    """As DataFrame.to_csv writes it, index included."""
    pandas = pytest.importorskip("pandas")
    return bytes(pandas.DataFrame(columns).to_csv().encode())


def parquet(**columns: list[Any]) -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def table(rows: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


UNDERSTOOD: dict[str, tuple[str, str | bytes | Callable[[], bytes], list[tuple[str, list[str]]]]] = {
    "jsonl with lists": ("a.jsonl", "".join(json.dumps({"text": t, "labels": y}) + "\n" for t, y in TWO), TWO),
    "jsonl with one label": (
        "a.jsonl",
        '{"text": "red apple", "label": "fruit"}\n{"text": "fire engine", "label": "red"}',
        SINGLE,
    ),
    "jsonl with whole numbers": (
        "a.jsonl",
        '{"text": "red apple", "label": 3}\n{"text": "fire engine", "label": 7}',
        CODES,
    ),
    "jsonl with floats": (
        "a.jsonl",
        '{"text": "red apple", "label": 3.0}\n{"text": "fire engine", "label": 7.0}',
        CODES,
    ),
    "jsonl with numbers as texts": (
        "a.jsonl",
        '{"text": 12, "labels": ["a"]}\n{"text": 1.5, "labels": ["b"]}',
        [("12", ["a"]), ("1.5", ["b"])],
    ),
    "jsonl with null": (
        "a.jsonl",
        '{"text": "red apple", "labels": null}\n{"text": null, "labels": ["a"]}',
        [("red apple", []), ("", ["a"])],
    ),
    "jsonl with labels as objects": (
        "a.jsonl",
        '{"text": "x", "tags": [{"id": "a"}, {"name": "b"}]}',
        [("x", ["a", "b"])],
    ),
    "a JSON list": ("a.json", json.dumps([{"title": t, "tags": y} for t, y in TWO], indent=1), TWO),
    "a JSON list in one line, named jsonl": ("a.jsonl", json.dumps([{"title": t, "tags": y} for t, y in TWO]), TWO),
    "a JSON list inside an object": ("a.json", json.dumps({"data": [{"title": t, "tags": y} for t, y in TWO]}), TWO),
    "JSON columns as pandas writes them": (
        "a.json",
        json.dumps({"text": {"0": "red apple", "1": "fire engine"}, "label": {"0": "fruit", "1": "red"}}),
        SINGLE,
    ),
    "JSON lines named json": (
        "a.json",
        '{"text": "red apple", "labels": ["fruit"]}\n{"text": "fire engine", "labels": ["red"]}',
        SINGLE,
    ),
    "csv with semicolons": ("a.csv", "text,labels\nred apple,fruit;red\nfire engine,red\n", TWO),
    "csv with bars": ("a.csv", "text,labels\nred apple,fruit|red\nfire engine,red\n", TWO),
    "csv with commas": ("a.csv", 'text,labels\nred apple,"fruit,red"\nfire engine,red\n', TWO),
    "csv with tabs inside cells": ("a.csv", "text,labels\nred apple,fruit\tred\nfire engine,red\n", TWO),
    "csv with JSON lists": ("a.csv", table([["text", "labels"], *([t, json.dumps(y)] for t, y in TWO)]), TWO),
    "csv with Python lists": ("a.csv", table([["text", "labels"], *([t, str(y)] for t, y in TWO)]), TWO),
    "csv with numpy lists": ("a.csv", "text,labels\nred apple,['fruit' 'red']\nfire engine,['red']\n", TWO),
    "csv with numpy numbers": (
        "a.csv",
        "text,labels\nred apple,[3 7]\nfire engine,[7]\n",
        [("red apple", ["3", "7"]), ("fire engine", ["7"])],
    ),
    "csv with one label": ("a.csv", "text,label\nred apple,fruit\nfire engine,red\n", SINGLE),
    "csv with numbers as labels": ("a.csv", "text,label\nred apple,3\nfire engine,7\n", CODES),
    "csv with floats of pandas": (
        "a.csv",
        lambda: pandas_csv(text=["red apple", "fire engine", "x"], label=[3, 7, None]),
        [*CODES, ("x", [])],
    ),
    "csv with NaN cells": (
        "a.csv",
        "text,labels\nred apple,nan\nNaN,fruit\nx,None\n",
        [("red apple", []), ("", ["fruit"]), ("x", [])],
    ),
    "csv with versions": (
        "a.csv",
        "text,label\nred apple,3.0\nfire engine,3.1\n",
        [("red apple", ["3.0"]), ("fire engine", ["3.1"])],
    ),
    "csv of Europe": ("a.csv", 'Titel;text;labels\n"a; b";red apple;fruit,red\n"c";fire engine;red\n', TWO),
    "csv for Excel": ("a.csv", "sep=;\ntext;labels\nred apple;fruit|red\nfire engine;red\n", TWO),
    "csv with bars between cells": ("a.csv", "text|labels\nred apple|fruit;red\nfire engine|red\n", TWO),
    "csv that is a tsv": (
        "a.csv",
        "text\tlabels\nred, apple\tfruit;red\nfire, engine\tred\n",
        [("red, apple", ["fruit", "red"]), ("fire, engine", ["red"])],
    ),
    "csv with extra columns": ("a.csv", "price,text,labels\n1,red apple,fruit\n2,fire engine,red\n", SINGLE),
    "csv with title, description and sku": (
        "shop.csv",
        "sku,title,description,tags\nA1,red,apple,fruit;red\nA2,fire,engine,red\n",
        TWO,
    ),
    "csv with names in capitals": ("a.csv", "ID,Text,Labels\n1,red apple,fruit;red\n2,fire engine,red\n", TWO),
    "csv without usual names": (
        "a.csv",
        "remark,area\nthe apple is red,fruit\nthe engine is on fire,red\n",
        [("the apple is red", ["fruit"]), ("the engine is on fire", ["red"])],
    ),
    "csv of subject headings": (
        "a.csv",
        table(
            [
                ["text", "subject"],
                *(
                    [f"book {n}", f"{kind}, {place}"]
                    for n, (kind, place) in enumerate(
                        (kind, place)
                        for kind in ("Poetry", "Drama", "Love stories")
                        for place in ("English", "American", "French")
                    )
                ),
                ["book 9", "Drama"],
            ]
        ),
        [
            *(
                (f"book {n}", [f"{kind}, {place}"])
                for n, (kind, place) in enumerate(
                    (kind, place)
                    for kind in ("Poetry", "Drama", "Love stories")
                    for place in ("English", "American", "French")
                )
            ),
            ("book 9", ["Drama"]),
        ],
    ),
    "csv with one category that has a comma": (
        "a.csv",
        table([["text", "category"], *([f"t{n}", "Toys, Games" if n % 2 else "Food"] for n in range(8))]),
        [(f"t{n}", ["Toys, Games" if n % 2 else "Food"]) for n in range(8)],
    ),
    "csv with headings between semicolons": (
        "a.csv",
        'text,labels\nred apple,"Fiction, American; Poetry"\nfire engine,Poetry; Drama\n',
        [("red apple", ["Fiction, American", "Poetry"]), ("fire engine", ["Poetry", "Drama"])],
    ),
    "csv with a byte order mark and Windows line ends": (
        "a.csv",
        b"\xef\xbb\xbftext,labels\r\nred apple,fruit;red\r\nfire engine,red\r\n",
        TWO,
    ),
    "csv with unicode": (
        "a.csv",
        "text,labels\nœuvre 漢字,été;猫\nnaïve,猫\n",
        [("œuvre 漢字", ["été", "猫"]), ("naïve", ["猫"])],
    ),
    "csv with duplicated rows": ("a.csv", "text,label\nx,a\nx,a\nx,a\n", [("x", ["a"])] * 3),
    "csv with a huge cell": (
        "a.csv",
        f"text,labels\n{'word ' * 60_000},a\ny,b\n",
        [("word " * 60_000, ["a"]), ("y", ["b"])],
    ),
    "csv, compressed": ("a.csv.gz", gzip.compress(b"text,labels\nred apple,fruit;red\nfire engine,red\n"), TWO),
    "tsv": ("a.tsv", "text\tlabels\nred apple\tfruit;red\nfire engine\tred\n", TWO),
    "tsv with quoted cells": (
        "a.tsv",
        'text\tlabels\n"red ""apple"""\tfruit\n"fire\tengine"\tred\n',
        [('red "apple"', ["fruit"]), ("fire\tengine", ["red"])],
    ),
    "tsv with bare quotes": (
        "a.tsv",
        'text\tlabels\n"red" apple\tfruit\n5" disk\tred\n',
        [('"red" apple', ["fruit"]), ('5" disk', ["red"])],
    ),
    "parquet with lists": ("a.parquet", lambda: parquet(text=[t for t, _ in TWO], labels=[y for _, y in TWO]), TWO),
    "parquet with cells": ("a.parquet", lambda: parquet(text=[t for t, _ in TWO], labels=["fruit;red", "red"]), TWO),
    "parquet with floats": ("a.parquet", lambda: parquet(text=["red apple", "fire engine"], label=[3.0, 7.0]), CODES),
    "fastText": ("a.txt", "__label__fruit __label__red red apple\n__label__red fire engine\n", TWO),
    "a file without a suffix, JSON lines": (
        "input",
        "".join(json.dumps({"text": t, "labels": y}) + "\n" for t, y in TWO),
        TWO,
    ),
    "a file without a suffix, a table": ("input", "text;labels\nred apple;fruit|red\nfire engine;red\n", TWO),
}


@pytest.mark.parametrize("shape", UNDERSTOOD)
def test_what_a_file_holds_is_understood(shape: str, tmp_path: Path) -> None:
    name, content, expected = UNDERSTOOD[shape]
    content = content() if callable(content) else content
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = load_dataset(file)
    assert shown(data) == [(text, sorted(labels, key=data.labels.ids.index)) for text, labels in expected]
    assert data.fields.text
    assert data.fields.labels
    assert data.layout.startswith(f"one file, {name}: text from ")


ASKED: dict[str, tuple[str, str | bytes, str]] = {
    "commas that may separate": (
        "a.csv",
        'text,tags\nx,"Paris, France"\ny,"Lyon, France"\n',
        ': field "tags": cannot tell whether "," separates labels or belongs to them, as in "Paris, France"; '
        'say --separator "," or --separator none (separator= in Python)',
    ),
    "paths of categories": (
        "a.csv",
        "text,tags\nx,Home|Chairs\ny,Home|Tables\nz,Garden|Trees\n",
        ': field "tags": cannot tell whether "|" separates labels or belongs to them, as in "Home|Chairs"; '
        'say --separator "|" or --separator none (separator= in Python)',
    ),
    "two fields of labels": (
        "a.csv",
        "text,tags,category\nx,a,b\n",
        ': cannot tell which field holds the labels; there are "text", "tags", "category"; '
        "say --labels COLUMN (text=, labels= in Python)",
    ),
    "no labels": (
        "a.csv",
        "text,price\nx,1\n",
        ': cannot tell which field holds the labels; there are "text", "price"; say --labels COLUMN '
        "(text=, labels= in Python)",
    ),
    "neither text nor labels": (
        "a.csv",
        "price,weight,url\n1,2,http://x\n",
        ': cannot tell which field holds the text and labels; there are "price", "weight", "url"; '
        "say --text COLUMN --labels COLUMN (text=, labels= in Python)",
    ),
    "no header": (
        "a.csv",
        "what a nice movie this was,good\nwhat a bad movie that was,bad\n",
        ':1: the header line is missing: "what a nice movie this was" is a value; put the names first, '
        "such as text,labels",
    ),
    "no header, a label first": (
        "a.csv",
        "good,nice movie\nbad,dull movie\ngood,best ever\n",
        ':1: the header line is missing: "good" is a value; put the names first, such as text,labels',
    ),
    "a header alone": ("a.csv", "text,labels\n", ": no rows"),
    "an empty file": ("a.csv", "", ": the file is empty"),
    "a broken list": (
        "a.csv",
        "text,labels\nx,\"['a', 'b'\"\n",
        ":2: field \"labels\": \"['a', 'b'\" is not a list of labels: Expecting value; "
        "mend it, or say --separator none if it is a name",
    ),
    "a text that is an object": (
        "a.jsonl",
        '{"text": {"en": "x"}, "labels": ["a"]}',
        ":1: field \"text\": {'en': 'x'}, not a text; write one text, or choose fields with --text",
    ),
    "a text that is a list": (
        "a.jsonl",
        '{"text": ["x"], "labels": ["a"]}',
        ":1: field \"text\": ['x'], not a text; join it",
    ),
    "plain text": (
        "a.txt",
        "red apple\nfire engine\n",
        ": plain text has no labels; write __label__NAME before each text, or make it a .csv with columns text,labels",
    ),
    "JSON that holds no rows": (
        "a.json",
        '{\n"a": 1\n}',
        ": a JSON object without a list of rows; [{...}, ...] or one {...} per line is read",
    ),
    "broken JSON": (
        "a.json",
        '[\n{"text": "x",\n]',
        ':3: not JSON: Expecting property name enclosed in double quotes, near \'\\n{"text": "x",\\n]\'',
    ),
    "a spreadsheet": (
        "a.xlsx",
        b"PK",
        ": not a file of rows; .jsonl, .json, .csv, .tsv, .parquet, .txt are read (in a spreadsheet: save as csv)",
    ),
    "true and false": (
        "a.jsonl",
        '{"text": "x", "labels": [true]}',
        ':1: field "labels": label True is not a text or a number',
    ),
}


@pytest.mark.parametrize("shape", ASKED)
def test_what_cannot_be_told_is_asked_in_one_line(shape: str, tmp_path: Path) -> None:
    name, content, message = ASKED[shape]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as error:
        load_dataset(file)
    assert str(error.value) == f"{file}{message}"
    assert error.value.__cause__ is None


SHOP = 'sku,name,about,tags,shelf\nA1,red,apple,"fruit, red",3\nA2,fire,engine,red,4\n'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"text": ["name", "about"], "separator": ","}, TWO),
        ({"text": "name,about", "separator": ","}, TWO),
        ({"text": "About", "labels": "TAGS", "separator": "none"}, [("apple", ["fruit, red"]), ("engine", ["red"])]),
        ({"text": "about", "labels": "shelf"}, [("apple", ["3"]), ("engine", ["4"])]),
        ({"text": "about", "labels": "tags", "separator": " "}, [("apple", ["fruit,", "red"]), ("engine", ["red"])]),
    ],
)
def test_fields_can_be_given(tmp_path: Path, options: dict[str, Any], expected: list[Any]) -> None:
    (tmp_path / "shop.csv").write_text(SHOP)
    data = load_dataset(tmp_path / "shop.csv", **options)
    assert shown(data) == expected
    assert data.train.ids == ["A1", "A2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "tagz"}, 'field "tagz": no such field; did you mean "tags"?'),
        ({"text": "bodies", "labels": "tags"}, 'field "bodies": no such field; there are "sku", "name", "about"'),
        ({"id": "zzz"}, 'field "zzz": no such field; there are "sku"'),
    ],
)
def test_a_field_that_does_not_exist_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "shop.csv").write_text(SHOP)
    with pytest.raises(DataError) as error:
        load_dataset(tmp_path / "shop.csv", **options)
    assert message in str(error.value)


def test_the_layout_says_what_was_understood(tmp_path: Path) -> None:
    file = tmp_path / "shop.csv"
    file.write_text("sku,title,description,tags\nA1,red,apple,X1;Y2\nA2,fire,engine,Y2\n")
    data = load_dataset(file)
    assert data.layout == (
        'one file, shop.csv: text from title + description, labels from tags split at ";" (1.5 per row, '
        'e.g. "X1", "Y2"), id from sku'
    )
    assert data.fields == Fields(text=("title", "description"), labels="tags", id="sku", separator=";")
    assert Fields.from_dict(json.loads(json.dumps(data.fields.as_dict()))) == data.fields


def test_other_splits_are_read_with_the_fields_of_train(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("body,tags,kind\nred apple,fruit|red,1\nfire engine,red,2\n")
    (tmp_path / "test.csv").write_text('body,tags,kind\nplum,"fruit, red",1\n')
    (tmp_path / "dev.jsonl").write_text('{"text": "plum", "labels": ["fruit"]}\n')
    data = load_dataset(tmp_path)
    assert data.test is not None
    assert data.validation is not None
    assert data.labels.ids == ["fruit", "red", "fruit, red"]
    assert list(data.validation.texts or []) == ["plum"]


def test_a_folder_of_fasttext_files(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("__label__fruit __label__red red apple\n__label__red fire engine\n")
    (tmp_path / "test.txt").write_text("__label__fruit plum\n")
    data = load_dataset(tmp_path)
    assert shown(data) == TWO
    assert data.test is not None
    assert data.notes == []


# Python objects


class HuggingFace:
    """What a `datasets.Dataset` has that is used: column names, features, rows."""

    def __init__(self, rows: list[dict[str, Any]], **features: Any) -> None:
        self.rows, self.features = rows, features
        self.column_names = list(rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class ClassLabel:
    names = ("fruit", "red")


class SequenceOf:
    feature = ClassLabel()


def frame(**columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


TEXTS = [text for text, _ in TWO]
OBJECTS: dict[str, tuple[Callable[[], tuple[Any, ...]], list[tuple[str, list[str]]]]] = {
    "texts and lists": (lambda: (TEXTS, [["fruit", "red"], ["red"]]), TWO),
    "texts and single labels": (lambda: (TEXTS, ["fruit", "red"]), SINGLE),
    "texts and numbers": (lambda: (TEXTS, [3, 7]), CODES),
    "texts and a numpy array of floats": (lambda: (TEXTS, np.array([3.0, 7.0])), CODES),
    "texts and sets": (lambda: (TEXTS, [{"red", "fruit"}, {"red"}]), TWO),
    "texts and cells": (lambda: (TEXTS, ["fruit;red", "red"]), TWO),
    "numpy strings and a dense matrix": (
        lambda: (np.array(TEXTS), np.array([[1, 1], [0, 1]])),
        [("red apple", ["0", "1"]), ("fire engine", ["1"])],
    ),
    "texts and a sparse matrix": (
        lambda: (TEXTS, sp.csr_matrix([[1, 1], [0, 1]])),
        [("red apple", ["0", "1"]), ("fire engine", ["1"])],
    ),
    "texts and a frame of indicators": (lambda: (TEXTS, frame(fruit=[1, 0], red=[True, True])), TWO),
    "generators": (lambda: ((text for text in TEXTS), (y for y in [["fruit", "red"], ["red"]])), TWO),
    "a pair": (lambda: ((TEXTS, [["fruit", "red"], ["red"]]),), TWO),
    "pairs": (lambda: ([("red apple", ["fruit", "red"]), ("fire engine", ["red"])],), TWO),
    "rows": (lambda: ([{"text": t, "labels": y} for t, y in TWO],), TWO),
    "columns": (lambda: ({"text": TEXTS, "labels": [y for _, y in TWO]},), TWO),
    "a frame with lists": (lambda: (frame(Text=TEXTS, tags=[y for _, y in TWO]),), TWO),
    "a frame with cells": (lambda: (frame(text=TEXTS, tags=["fruit;red", "red"]),), TWO),
    "a frame with arrays": (lambda: (frame(text=TEXTS, tags=[np.array(["fruit", "red"]), np.array(["red"])]),), TWO),
    "a frame with missing values": (
        lambda: (frame(text=["red apple", None], label=["a", float("nan")]),),
        [("red apple", ["a"]), ("", [])],
    ),
    "a frame and the name of a column": (lambda: (frame(text=TEXTS, shelf=[3, 7], price=[1, 2]), "shelf"), CODES),
    "a frame and a series": (lambda: (frame(text=TEXTS), frame(y=["fruit", "red"])["y"]), SINGLE),
    "two series": (lambda: (frame(x=TEXTS)["x"], frame(y=["fruit", "red"])["y"]), SINGLE),
    "a Hugging Face dataset": (lambda: (HuggingFace([{"text": t, "labels": y} for t, y in TWO]),), TWO),
    "a Hugging Face dataset with a class label": (
        lambda: (HuggingFace([{"text": t, "label": n} for n, t in enumerate(TEXTS)], label=ClassLabel()),),
        SINGLE,
    ),
    "a Hugging Face dataset with class labels": (
        lambda: (HuggingFace([{"text": t, "labels": [0, 1][n:]} for n, t in enumerate(TEXTS)], labels=SequenceOf()),),
        TWO,
    ),
    "a dict of splits": (
        lambda: (
            {
                "train": HuggingFace([{"text": t, "labels": y} for t, y in TWO]),
                "test": HuggingFace([{"text": "x", "labels": ["red"]}]),
            },
        ),
        TWO,
    ),
    "an arrow table": (
        lambda: (pytest.importorskip("pyarrow").table({"text": TEXTS, "labels": [y for _, y in TWO]}),),
        TWO,
    ),
}


@pytest.mark.parametrize("shape", OBJECTS)
def test_what_a_program_holds_is_understood(shape: str) -> None:
    make, expected = OBJECTS[shape]
    data = dataset_from(*make())
    assert shown(data) == [(text, sorted(labels, key=data.labels.ids.index)) for text, labels in expected]
    assert (data.test is not None) == (shape == "a dict of splits")


NOT_DATA: dict[str, tuple[tuple[Any, ...], str]] = {
    "a number": ((5,), "data is an int; a path, a DataFrame, rows as dicts"),
    "nothing": ((None,), "data is a NoneType; a path"),
    "texts alone": ((TEXTS,), "data has texts but no labels; pass the labels of each text beside them"),
    "bytes": (([b"x"], ["a"]), "data has entries like a bytes; a path"),
    "numbers as texts": ((np.ones(3), ["a"] * 3), "data has entries like a float; a path"),
    "lists as texts": (([["x"]], ["a"]), "data has entries like a list; a path"),
    "labels of another length": ((TEXTS, ["a"]), "1 entries of labels for 2 rows of data"),
    "labels that are no sequence": ((TEXTS, 5), "the labels of data are an int; give one entry per row, or a matrix"),
    "a matrix of words": ((TEXTS, np.array([["a"], ["b"]])), "the labels of data are a matrix of <U1"),
    "a matrix below 0": ((TEXTS, -np.eye(2)), "has values below 0"),
    "columns of different lengths": (({"text": ["a"], "labels": ["a", "b"]},), "the columns of data differ in length"),
    "a dict of something": (({"text": "abc"},), "data is a dict, but not of columns"),
    "vectors without labels": ((np.ones((2, 2)),), "data has vectors but no labels"),
}


@pytest.mark.parametrize("shape", NOT_DATA)
def test_what_is_no_data_is_named_in_one_line(shape: str) -> None:
    arguments, message = NOT_DATA[shape]
    with pytest.raises(InputError) as error:
        dataset_from(*arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_objects_without_rows_are_an_error() -> None:
    with pytest.raises(DataError, match="data: no rows"):
        dataset_from([], [])


def test_a_wrong_entry_is_named_with_its_row() -> None:
    with pytest.raises(EliasError, match=r'data:1: field "labels": label True is not a text or a number'):
        dataset_from(TEXTS, [["a"], [True]])


@pytest.mark.parametrize("labels", [np.eye(2), sp.csr_matrix(np.eye(2)), ["0", "1"], [[0], [1]]])
def test_vectors_take_every_kind_of_labels(labels: Any) -> None:
    data = dataset_from(np.ones((2, 3)), labels, test=(np.ones((1, 3)), ["1"]))
    assert data.labels.ids == ["0", "1"]
    assert data.train.labels.toarray().tolist() == [[1, 0], [0, 1]]
    assert data.test is not None
    assert data.test.labels.toarray().tolist() == [[0, 1]]


def test_splits_of_different_kinds(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("text,labels\nplum,fruit;red\n")
    data = dataset_from(
        TEXTS, ["fruit", "red"], test=tmp_path / "test.csv", validation=[{"text": "x", "labels": ["red"]}]
    )
    assert data.test is not None
    assert data.validation is not None
    assert data.test.labels.sum() == 1, "single labels in training are single labels in test"
    data = dataset_from(TEXTS, ["fruit", "red"], fields=Fields(separator=";"), test=tmp_path / "test.csv")
    assert data.test is not None
    assert data.test.labels.sum() == 2


def test_rows_to_predict_are_read_with_the_fields_of_a_model(tmp_path: Path) -> None:
    known = Fields(text=("title", "description"), labels="tags", id="sku", separator=";")
    files = {
        "same.csv": "sku,title,description\nA1,red,apple\n",
        "half.jsonl": '{"title": "red apple"}',
        "other.csv": "text;price\nred apple;3\n",
        "plain.txt": "red apple\n",
    }
    for name, content in files.items():
        file = tmp_path / name
        file.write_text(content)
        rows = list(read_rows(file, ReadLog()))
        columns = Columns(rows=[row for _, row in rows], file=file)
        fields = resolve_known(columns, known, Fields(), labels_needed=False)
        line, row = rows[0]
        assert row_text(row, fields, file, line) == "red apple"
        assert row_id(row, fields, file, line) == ("A1" if name == "same.csv" else None)
