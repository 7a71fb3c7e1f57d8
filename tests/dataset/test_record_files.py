"""The plain layout: .jsonl, .csv, .tsv and .parquet, label files, filters, settings."""

from __future__ import annotations

import csv
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.dataset import Dataset, load_dataset
from elias.dataset.defects import (
    BLANK_LINE,
    EMPTY_TEXT,
    EXCLUDED_POSITIVE,
    FILTER_UNKNOWN_LABEL,
    LABEL_BY_NAME,
    NO_LABELS,
    REPEATED_LABEL,
    REPEATED_ROW_ID,
    UNLISTED_LABEL,
    UNREAD_FIELD,
    UNREAD_FILE,
    UNSEEN_LABEL,
    UNTRAINED_LABEL,
    ZERO_WEIGHT,
)
from elias.dataset.fields import MISSING_WORDS

ROWS = [{"text": "red apple", "labels": ["fruit", "red"]}, {"text": "fire engine", "labels": ["red"]}]


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def notes(data: Dataset) -> dict[str, tuple[int, str]]:
    return {note.kind: (note.count, note.example) for note in data.notes}


def texts(data: Dataset, split: str = "train") -> list[str]:
    column = data.splits[split].texts
    assert column is not None
    return list(column)


def labels(data: Dataset, split: str = "train") -> list[dict[str, float]]:
    matrix = data.splits[split].labels
    ends = matrix.indptr
    return [
        {data.labels.ids[matrix.indices[i]]: float(matrix.data[i]) for i in range(ends[row], ends[row + 1])}
        for row in range(matrix.shape[0])
    ]


def test_the_splits_of_a_folder_are_read(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    write_jsonl(tmp_path / "test.jsonl", [{"text": "cherry", "labels": ["fruit"]}])
    write_jsonl(tmp_path / "dev.jsonl", [{"text": "plum", "labels": ["fruit"]}])
    data = load_dataset(tmp_path)
    assert texts(data) == ["red apple", "fire engine"]
    assert labels(data) == [{"fruit": 1, "red": 1}, {"red": 1}]
    assert texts(data, "validation") == ["plum"]
    assert texts(data, "test") == ["cherry"]
    assert data.labels.ids == ["fruit", "red"]
    assert data.layout == (
        "train.jsonl, dev.jsonl, test.jsonl: text from text, labels from labels (1.5 per row); "
        "label ids are words, so they are label texts too"
    )
    assert data.name == tmp_path.name
    assert data.notes == []
    assert data.train.labels.dtype == np.float32
    assert data.train.weights.tolist() == [1, 1]


def test_gz_bom_windows_line_ends_and_unicode(tmp_path: Path) -> None:
    body = '\ufeff{"text": "naïve 漢字\u2028x", "labels": ["café"]}\r\n\r\n{"text": "b", "labels": ["z"]}\r\n'
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(body.encode()))
    data = load_dataset(tmp_path)
    assert texts(data) == ["naïve 漢字\u2028x", "b"]
    assert data.labels.ids == ["café", "z"]
    assert notes(data) == {BLANK_LINE: (1, "train.jsonl.gz:2")}


def test_title_is_put_before_the_text(tmp_path: Path) -> None:
    rows = [
        {"title": "T", "text": "x", "labels": ["a"]},
        {"title": "only", "labels": []},
        {"text": None, "labels": [3]},
    ]
    write_jsonl(tmp_path / "train.jsonl", rows)
    data = load_dataset(tmp_path)
    assert texts(data) == ["T x", "only", ""]
    assert labels(data) == [{"a": 1}, {}, {"3": 1}]
    assert notes(data) == {NO_LABELS: (1, "train.jsonl:2"), EMPTY_TEXT: (1, "train.jsonl:3")}


def test_ids_groups_and_weights(tmp_path: Path) -> None:
    rows = [{**row, "id": n, "group": f"g{n % 1}"} for n, row in enumerate(ROWS)]
    rows[1]["weight"] = 2.5
    write_jsonl(tmp_path / "train.jsonl", rows)
    train = load_dataset(tmp_path).train
    assert train.ids == ["0", "1"]
    assert train.groups == ["g0", "g0"]
    assert train.weights.tolist() == [1.0, 2.5]


def test_graded_labels_in_every_spelling(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "x", "labels": ["a"]},
        {"text": "x", "labels": [["a", 0.5], ["b", 1]]},
        {"text": "x", "labels": {"a": 0.25, "b": 2}},
        {"text": "x", "labels": [{"id": "a", "weight": 0.5}, {"label": "b"}, {"name": "c", "weight": 0}]},
        {"text": "x", "labels": [["a", 0.5], ["a", 0.75], ["a", 0.25]]},
    ]
    write_jsonl(tmp_path / "train.jsonl", rows)
    data = load_dataset(tmp_path)
    expected = [{"a": 1}, {"a": 0.5, "b": 1}, {"a": 0.25, "b": 2}, {"a": 0.5, "b": 1}, {"a": 0.75}]
    assert labels(data) == expected
    found = notes(data)
    assert found[ZERO_WEIGHT] == (1, 'train.jsonl:4: "c"')
    assert found[REPEATED_LABEL] == (2, 'train.jsonl:5: "a"')


def test_repeated_labels_and_row_ids_are_counted(tmp_path: Path) -> None:
    rows = [{"id": "1", "text": "x", "labels": ["a", "b", "a"]}, {"id": "1", "text": "y", "labels": ["b"]}]
    write_jsonl(tmp_path / "train.jsonl", rows)
    data = load_dataset(tmp_path)
    assert labels(data) == [{"a": 1, "b": 1}, {"b": 1}]
    assert notes(data) == {REPEATED_LABEL: (1, 'train.jsonl:1: "a"'), REPEATED_ROW_ID: (1, 'train.jsonl:2: "1"')}


def test_labels_are_the_label_file_then_train_then_the_other_splits(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("z\tlast letter\tzed\tzee\nown text\nred\ta color\n")
    write_jsonl(tmp_path / "train.jsonl", [*ROWS, {"text": "w", "labels": ["last letter"]}])
    write_jsonl(tmp_path / "test.jsonl", [{"text": "cherry", "labels": ["unseen"]}])
    data = load_dataset(tmp_path)
    assert data.labels.ids == ["z", "own text", "red", "fruit", "unseen"]
    assert data.labels.texts == ["last letter", "own text", "a color", "", ""]
    assert data.labels.alternatives == ["zed; zee", "", "", "", ""]
    assert labels(data)[2] == {"z": 1}
    assert data.train.labels.shape == (3, 5)
    assert notes(data) == {
        UNLISTED_LABEL: (2, 'train.jsonl:1: "fruit"'),
        LABEL_BY_NAME: (1, 'train.jsonl:3: "last letter" is "z"'),
        UNTRAINED_LABEL: (2, '"own text"'),
        UNSEEN_LABEL: (1, '"unseen"'),
    }


def test_own_ids_are_excluded_on_request(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text('exclude_own_id = true\nname = "mine"\npropensity_a = 0.6\n')
    rows = [{"id": "a", "text": "x", "labels": ["b", "a"]}, {"id": "b", "text": "y", "labels": ["a"]}]
    write_jsonl(tmp_path / "train.jsonl", rows)
    write_jsonl(tmp_path / "test.jsonl", [{"id": "q", "text": "x", "labels": ["b"]}])
    data = load_dataset(tmp_path)
    assert data.labels.ids == ["b", "a"]
    assert data.train.excluded.toarray().tolist() == [[False, True], [True, False]]
    assert labels(data) == [{"b": 1}, {"a": 1}]
    assert data.test is not None
    assert data.test.excluded.nnz == 0
    assert notes(data) == {EXCLUDED_POSITIVE: (1, 'train.jsonl:1: "a"')}
    assert (data.name, data.settings.propensity_a, data.settings.propensity_b) == ("mine", 0.6, 1.5)


def test_own_ids_are_never_excluded_by_guess(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"id": "a", "text": "x", "labels": ["a"]}])
    data = load_dataset(tmp_path)
    assert data.train.excluded.nnz == 0
    assert labels(data) == [{"a": 1}]


def test_filter_files_by_id_and_by_number(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"id": f"r{n}", **row} for n, row in enumerate(ROWS)])
    write_jsonl(tmp_path / "test.jsonl", ROWS)
    (tmp_path / "filter_train.tsv").write_text("r1\tfruit\nr0\tred\nr0\tnowhere\n\n")
    (tmp_path / "filter_labels_test.txt").write_text("1 0\n1 0\n")
    data = load_dataset(tmp_path)
    assert data.train.excluded.toarray().tolist() == [[False, True], [True, False]]
    assert labels(data) == [{"fruit": 1}, {"red": 1}]
    assert data.test is not None
    assert data.test.excluded.toarray().tolist() == [[False, False], [True, False]]
    found = notes(data)
    assert found[EXCLUDED_POSITIVE] == (1, 'train.jsonl:1: "red"')
    assert found[FILTER_UNKNOWN_LABEL] == (1, 'filter_train.tsv:3: "nowhere"')


def test_field_names_come_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text(
        'text_field = "abstract"\nlabels_field = "topics"\ngroup_field = "journal"\n'
    )
    write_jsonl(tmp_path / "train.jsonl", [{"abstract": "x", "topics": ["a"], "journal": "J", "year": 1999}])
    data = load_dataset(tmp_path)
    assert texts(data) == ["x"]
    assert data.train.groups == ["J"]
    assert notes(data) == {UNREAD_FIELD: (1, '"year"')}
    (tmp_path / "dataset.toml").write_text('text_field = ["year", "abstract"]\nlabels_field = "topics"\n')
    assert texts(load_dataset(tmp_path)) == ["1999 x"]


@pytest.mark.parametrize(("name", "delimiter"), [("train.csv", ","), ("train.tsv", "\t"), ("train.csv.gz", ",")])
def test_csv_and_tsv_read_like_jsonl(tmp_path: Path, name: str, delimiter: str) -> None:
    lines = [
        delimiter.join(["id", "title", "text", "labels", "weight"]),
        delimiter.join(["1", "T", '"a, ""quoted""\ttab\nand line"', "x; y", "2"]),
        "",
        delimiter.join(["2", "", "plain", '"[""x"", ""z;1""]"', ""]),
    ]
    body = ("\r\n".join(lines) + "\r\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    data = load_dataset(tmp_path)
    assert texts(data) == ['T a, "quoted"\ttab\nand line', "plain"]
    assert labels(data) == [{"x": 1, "y": 1}, {"x": 1, "z;1": 1}]
    assert data.train.ids == ["1", "2"]
    assert data.train.weights.tolist() == [2, 1]
    assert notes(data) == {BLANK_LINE: (1, f"{name}:4")}


def test_the_label_separator_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels\nx,a|b\ny,a\n")
    assert load_dataset(tmp_path).labels.ids == ["a", "b"]
    (tmp_path / "dataset.toml").write_text('label_separator = "none"\n')
    assert load_dataset(tmp_path).labels.ids == ["a|b", "a"]
    assert load_dataset(tmp_path, separator="|").labels.ids == ["a", "b"], "an argument is stronger than dataset.toml"


def test_parquet_reads_like_jsonl(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": ["x", "y"], "labels": [["a", "b"], []], "id": [7, 8], "weight": [1.0, None]})
    pq.write_table(table, tmp_path / "train.parquet")
    pq.write_table(pa.table({"text": ["x"], "labels": ["a;b"]}), tmp_path / "test.parquet")
    data = load_dataset(tmp_path)
    assert texts(data) == ["x", "y"]
    assert labels(data) == [{"a": 1, "b": 1}, {}]
    assert labels(data, "test") == [{"a": 1, "b": 1}]
    assert data.train.ids == ["7", "8"]


def test_a_single_file_is_training_data(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "anything.jsonl", ROWS)
    write_jsonl(tmp_path / "test.jsonl", ROWS)
    data = load_dataset(tmp_path / "anything.jsonl")
    assert (data.name, data.test) == ("anything", None)
    assert data.layout.startswith("one file, anything.jsonl: text from text, labels from labels (1.5 per row)")
    assert texts(data) == ["red apple", "fire engine"]


def test_unread_files_are_noted_with_a_suggestion(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    write_jsonl(tmp_path / "tset.jsonl", ROWS)
    (tmp_path / "README.md").write_text("hello")
    assert notes(load_dataset(tmp_path)) == {UNREAD_FILE: (1, 'tset.jsonl; did you mean "test.jsonl"?')}


def test_fingerprint_follows_the_content(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    before = load_dataset(tmp_path).fingerprint()
    assert load_dataset(tmp_path).fingerprint() == before
    assert len(before) == 32
    for changed in (
        [{**ROWS[0], "text": "red apples"}, ROWS[1]],
        [{**ROWS[0], "labels": [["fruit", 0.5], "red"]}, ROWS[1]],
        [ROWS[1], ROWS[0]],
        [{**row, "id": n} for n, row in enumerate(ROWS)],
    ):
        write_jsonl(tmp_path / "train.jsonl", changed)
        assert load_dataset(tmp_path).fingerprint() != before
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    (tmp_path / "labels.tsv").write_text("fruit\tgrows on trees\n")
    assert load_dataset(tmp_path).fingerprint() != before


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda name: bool(name.strip()))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.lists(NAMES, unique=True)), min_size=1
    )
)
def test_what_is_written_is_read(rows: list[tuple[str, list[str]]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("round")
    write_jsonl(folder / "train.jsonl", [{"text": text, "labels": names} for text, names in rows])
    data = load_dataset(folder)
    assert texts(data) == [text for text, _ in rows]
    assert [set(row) for row in labels(data)] == [set(names) for _, names in rows]
    without_nul = [(text.replace("\0", "").replace("\r", ""), names) for text, names in rows]
    without_nul = [("" if text in MISSING_WORDS else text, names) for text, names in without_nul]
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "labels"])
        writer.writerows([text, json.dumps(names)] for text, names in without_nul)
    table = load_dataset(folder / "train.csv")
    assert texts(table) == [text for text, _ in without_nul]
    assert [set(row) for row in labels(table)] == [set(names) for _, names in rows]
    in_memory = Dataset.from_lists([text for text, _ in rows], [names for _, names in rows])
    assert labels(in_memory) == labels(data)


def test_debian_packages_as_shipped() -> None:
    started = time.process_time()
    data = load_dataset(Path(__file__).parent.parent.parent / "datasets" / "debian-packages")
    assert time.process_time() - started < 20  # about 2 s; processor time does not depend on other processes
    assert data.test is not None
    assert (len(data.train), len(data.test), len(data.labels)) == (44_674, 8_400, 44_609)
    assert data.settings.exclude_own_id
    assert data.labels.has_texts
    assert data.train.excluded.nnz > 40_000
    assert data.notes == []
