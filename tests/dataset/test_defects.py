"""Each thing that can be wrong with a data file has one answer: a DataError with place, value and remedy."""

from __future__ import annotations

import builtins
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias.core.errors import DataError, MissingExtraError
from elias.dataset import collect_defects, load_dataset

GOOD = '{"text": "x", "labels": ["a"]}\n'


def problem(path: Path) -> str:
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert error.value.__cause__ is None  # told as one line, never as a chain of tracebacks
    collected = collect_defects(path)
    assert str(collected[0]) == str(error.value)
    return str(error.value).replace(f"{path}{os.sep}", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"text": "x", "labels": ["a"}',
            "not JSON: Expecting ',' delimiter at position 29, near ' \"labels\": [\"a\"}'",
        ),
        ('["x"]', "a JSON list, not an object; one {...} per line is read"),
        ('{"text": "x", "lables": ["a"]}', 'field "labels": missing; did you mean "lables"?'),
        ('{"text": "x"}', 'field "labels": missing; fields of this row: "text"'),
        ('{"txet": "x", "labels": []}', 'field "text": missing; did you mean "txet"?'),
        ('{"text": true, "labels": []}', 'field "text": True, not a text'),
        ('{"text": "x", "title": ["t"], "labels": []}', "field \"title\": ['t'], not a text"),
        ('{"text": "x", "labels": true}', 'field "labels": label True is not a text or a number'),
        ('{"text": "x", "labels": [null]}', 'field "labels": label None is not a text or a number'),
        ('{"text": "x", "labels": [["a", NaN]]}', 'field "labels": weight nan is not a number of 0 or more'),
        ('{"text": "x", "labels": [""]}', "label '' is empty"),
        ('{"text": "x", "labels": [], "weight": 0}', 'field "weight": 0 is not a number above 0; leave out rows'),
        ('{"text": "x", "labels": [], "weight": "2"}', "field \"weight\": '2' is not a number above 0"),
        ('{"text": "x", "labels": [], "id": 1.5}', 'field "id": 1.5 is not a text or a whole number'),
        ('{"text": "x", "labels": [], "id": "1"}', "this row has an id, the first row has none; give it to every row"),
        ('{"text": "x\0", "labels": []}', "NUL byte at position 12; not a text file, or take them out: tr -d '\\000'"),
        ("[" * 100_000, "not JSON: "),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_value(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD * 13 + line + "\n" + GOOD)
    assert problem(tmp_path).startswith(f"train.jsonl:14: {message}")


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(GOOD.encode() + '{"text": "café", "labels": []}\n'.encode("latin-1"))
    expected = (
        "train.jsonl:2: not UTF-8: byte 0xe9 at position 14; convert the file, for example: iconv -f WINDOWS-1252"
    )
    assert problem(tmp_path).startswith(expected)


def test_utf16_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD, encoding="utf-16")
    assert problem(tmp_path) == "train.jsonl: UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": os.urandom(20).hex(), "labels": ["a"]}) + "\n" for _ in range(2000))
    packed = gzip.compress(rows.encode())
    (tmp_path / "train.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found = problem(tmp_path)
    assert found.startswith("train.jsonl.gz:")
    assert found.endswith(
        "the gzip file ends too early (an interrupted download?); fetch it again, test it with gzip -t"
    )
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0xFF
    damaged[-6] ^= 0xFF  # the checksum at the end
    (tmp_path / "train.jsonl.gz").write_bytes(damaged)
    with pytest.raises(DataError):
        load_dataset(tmp_path)


def test_a_wrong_gzip_checksum_is_an_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GOOD.encode()))
    packed[-6] ^= 0xFF
    (tmp_path / "train.jsonl.gz").write_bytes(packed)
    assert "damaged gzip file (CRC check failed" in problem(tmp_path)


def test_a_file_named_gz_must_be_gzip(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl.gz").write_text(GOOD)
    expected = "train.jsonl.gz: not a gzip file (it starts with b'{\"'); fetch it again, or take .gz off the name"
    assert problem(tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "body"), [("train.jsonl", b""), ("train.csv", b""), ("train.jsonl.gz", gzip.compress(b"", mtime=0))]
)
def test_an_empty_file_is_an_error(tmp_path: Path, name: str, body: bytes) -> None:
    (tmp_path / name).write_bytes(body)
    assert problem(tmp_path) == f"{name}: the file is empty"


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n\n")
    assert problem(tmp_path) == "train.jsonl: no rows"
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "train.csv").write_text("text,labels\n")
    assert problem(tmp_path) == "train.csv: no rows"


def test_a_file_without_permission_to_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(GOOD)
    if os.geteuid() == 0:  # root may read everything
        opened: Callable[..., Any] = Path.open

        def refuse(self: Path, *arguments: Any, **more: Any) -> Any:
            if self == file:
                raise PermissionError(13, "Permission denied")
            return opened(self, *arguments, **more)

        monkeypatch.setattr(Path, "open", refuse)
    else:
        file.chmod(0)
    assert problem(tmp_path) == "train.jsonl: permission to read denied; allow it: chmod u+r train.jsonl"


def test_a_folder_without_training_rows_names_what_it_holds(tmp_path: Path) -> None:
    assert problem(tmp_path).endswith("the folder is empty; put train.jsonl (and test.jsonl) in it")
    (tmp_path / "test.jsonl").write_text(GOOD)
    assert "no training file among test.jsonl; train.jsonl, .csv, .tsv or .parquet is needed" in problem(tmp_path)
    (tmp_path / "trian.jsonl").write_text(GOOD)
    assert problem(tmp_path).endswith('no training file; found trian.jsonl; did you mean "train.jsonl"?')
    with pytest.raises(DataError, match=r'no such file or folder; did you mean "trian.jsonl"\?'):
        load_dataset(tmp_path / "train.jsonl")
    (tmp_path / "notes.docx").write_text("x")
    with pytest.raises(DataError, match="not a file of rows"):
        load_dataset(tmp_path / "notes.docx")


def test_two_files_for_one_split_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD)
    (tmp_path / "train.csv").write_text("text,labels\nx,a\n")
    assert problem(tmp_path).endswith("two files for train: train.jsonl and train.csv; keep one")


def test_repeated_empty_and_ambiguous_labels_are_errors(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD)
    (tmp_path / "labels.tsv").write_text("a\tone\nb\ttwo\na\tthree\n")
    assert problem(tmp_path) == 'labels.tsv:3: label "a" is already in line 1'
    (tmp_path / "labels.tsv").write_text("\tone\n")
    assert problem(tmp_path) == "labels.tsv:1: label '' is empty"
    (tmp_path / "labels.tsv").write_text("1\tsame\n2\tsame\n")
    (tmp_path / "train.jsonl").write_text('{"text": "x", "labels": ["same"]}')
    assert problem(tmp_path) == 'train.jsonl:1: label "same" is the text of several labels; use the id'


def test_every_problem_of_dataset_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD)
    toml = tmp_path / "dataset.toml"
    toml.write_text('exclude_own_ids = true\npropensity_a = -1\ntext_field = 3\nexclude_own_id = "yes"\nzzz = 1\n')
    assert problem(tmp_path).startswith(
        'dataset.toml:1: field "exclude_own_ids": unknown setting; did you mean "exclude_own_id"?'
    )
    found = [error.message for error in collect_defects(tmp_path)]
    assert found[1:4] == ["-1 is not a number above 0", "3 is not a text in quotes", "'yes' is not true or false"]
    assert found[4].startswith("unknown setting; known: name, exclude_own_id")
    toml.write_text("= 3")
    assert problem(tmp_path).startswith("dataset.toml: not TOML: Invalid statement (at line 1")
    toml.write_text("exclude_own_id = true")
    assert problem(tmp_path).startswith("train.jsonl: exclude_own_id = true needs an id in every row")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("text,labels\nx,a,b\n", "train.csv:2: 3 cells, the header has 2; quote cells that contain ','"),
        ("text,text\nx,a\n", 'train.csv:1: field "text": twice in the header line'),
        ('text,labels\nx,a\n"open,a\n', "train.csv:3: not a table: unexpected end of data"),
        ('text,labels\n"a"b,a\n', "train.csv:2: not a table: ',' expected after '\"'"),
        (
            'text,labels\nx,"[1,]"\ny,"[1, "\n',
            "train.csv:3: field \"labels\": '[1,' is not a list of labels: Expecting",
        ),
        ("text,labels,weight\nx,a,heavy\n", "train.csv:2: field \"weight\": 'heavy' is not a number above 0"),
        ("text,labels,id\nx,a,1\ny,b,\n", "train.csv:3: this row has no id, the first row has one"),
    ],
)
def test_a_bad_row_of_a_table_is_named(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "train.csv").write_text(body)
    assert problem(tmp_path).startswith(message)


def test_a_bad_parquet_file_or_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "train.parquet").write_text("no parquet")
    assert problem(tmp_path).startswith("train.parquet: not a parquet file that can be read")
    ordinary = builtins.__import__

    def without_pyarrow(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return ordinary(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtraError, match=r"pip install 'elias-xmc\[parquet\]'"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("3 2 2\n0 0:1\n1 1:1\n", "train.txt:1: the header says 3 rows, the file has 2"),
        ("1 2 2\n0 0:1\n1 1:1\n", "train.txt:1: the header says 1 rows, the file has 2"),
        ("2 2 2\n0 0:1\n0,2 1:1\n", "train.txt:3: label 2 is out of range; the header allows 0 to 1"),
        ("2 2 2\n0 0:1\n0 2:1\n", "train.txt:3: feature 2 is out of range; the header allows 0 to 1"),
        ("1 2 2\n0 0:nan\n", "train.txt:2: feature 0 has the value nan; values must be finite numbers"),
        ("1 2 2\n0 0:1e99\n", "train.txt:2: feature 0 has the value inf"),
        ("1 2 2\n0 0:1:2\n", 'train.txt:2: "0:1:2" is not index:value'),
        ("1 2 2\n0 0:x\n", "train.txt:2: could not convert string to float: 'x'"),
        ("1 2 2\nred 0:1\n", 'train.txt:2: "red" is not a list of label numbers such as 3,17'),
        (f"1 2 2\n0 {10**30}:1\n", "train.txt:2: "),
        ("0 2 2\n", "train.txt: no rows"),
        ("1 99999999999 2\n0 0:1\n", "train.txt:1: 99,999,999,999 is more than the 2,147,483,647 allowed"),
    ],
)
def test_a_bad_line_of_sparse_text_is_named(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "train.txt").write_text(body)
    assert problem(tmp_path).startswith(message)


def test_features_and_labels_in_two_files_must_agree(tmp_path: Path) -> None:
    (tmp_path / "trn_X_Xf.txt").write_text("2 3\n0:1\n1:1\n")
    (tmp_path / "trn_X_Y.txt").write_text("1 2\n0:1\n")
    assert problem(tmp_path).startswith("trn_X_Xf.txt: 2 rows, but trn_X_Y.txt has 1")
    (tmp_path / "trn_X_Y.txt").write_text("rows and labels\n0:1\n")
    assert problem(tmp_path).startswith("trn_X_Y.txt:1: 'rows and labels' is not a header")
    (tmp_path / "trn_X_Y.txt").write_text("2 2\n0:1\n1:-1\n")
    assert problem(tmp_path).startswith("trn_X_Y.txt: row 1, label 1: weight -1.0 is below 0")
    (tmp_path / "trn_X_Y.txt").write_text("2 2\n0:1\n1:1\n")
    (tmp_path / "tst_X_Xf.txt").write_text("1 4\n0:1\n")
    (tmp_path / "tst_X_Y.txt").write_text("1 2\n0:1\n")
    assert problem(tmp_path).endswith("test has 4 features, train has 3; the numbers must agree")
    (tmp_path / "tst_X_Xf.txt").unlink()
    assert "tst_X_Y.txt has no texts or features beside it" in problem(tmp_path)


def test_a_bad_npz_or_npy_file_is_named(tmp_path: Path) -> None:
    features, labels = tmp_path / "X.trn.npz", tmp_path / "Y.trn.npz"
    sp.save_npz(features, sp.csr_matrix(np.ones((2, 2))))
    sp.save_npz(labels, sp.csr_matrix(np.ones((3, 2))))
    assert problem(tmp_path).startswith("X.trn.npz: 2 rows, but Y.trn.npz has 3")
    labels.write_bytes(b"PK junk")
    assert problem(tmp_path).startswith("Y.trn.npz: not a matrix of scipy.sparse.save_npz")
    np.savez(labels, data=np.array([{}], dtype=object))  # a pickle: never opened
    assert problem(tmp_path).startswith("Y.trn.npz: not a matrix of scipy.sparse.save_npz")
    broken = {"data": np.ones(1), "indices": np.array([7]), "indptr": np.array([0, 1, 1]), "shape": np.array([2, 2])}
    np.savez(labels, format=np.array(b"csr"), **broken)  # type: ignore[arg-type]
    assert problem(tmp_path).startswith("Y.trn.npz: not a matrix of scipy.sparse.save_npz")
    sp.save_npz(labels, sp.csr_matrix((2, 10**9)))
    assert "1,000,000,000 labels; at most 50,000,000 can be numbered" in problem(tmp_path)
    sp.save_npz(labels, sp.csr_matrix(np.ones((2, 2))))
    sp.save_npz(features, sp.csr_matrix([[1, 0], [0, np.inf]]))
    assert problem(tmp_path).startswith("X.trn.npz: row 1, column 1: inf is not a finite 32-bit number")
    sp.save_npz(features, sp.csr_matrix(np.ones((2, 2))))
    features.unlink()
    dense = tmp_path / "X.trn.npy"
    dense.write_bytes(b"\x93NUMPY\x01\x00\x02\x00(\n")
    assert problem(tmp_path).startswith("X.trn.npy: not an array of numpy.save")
    np.save(dense, np.ones(2))
    assert problem(tmp_path) == "X.trn.npy: not a two-dimensional array of numbers"
    np.save(dense, np.ones((2, 2)))
    (tmp_path / "Y.txt").write_text("one\n")
    assert problem(tmp_path) == "Y.txt: 1 lines, the label matrix has 2 columns"


def test_a_bad_line_of_lf_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "trn.json").write_text('{"title": "x", "target_ind": [-1]}\n')
    assert problem(tmp_path).startswith('trn.json:1: field "target_ind": label -1 is out of range; labels are numbers')
    (tmp_path / "trn.json").write_text('{"title": "x", "target_ind": [1]}\n')
    (tmp_path / "lbl.json").write_text('{"uid": "a", "title": "A"}\n')
    assert problem(tmp_path) == 'trn.json:1: field "target_ind": label 1 is out of range; lbl.json has labels 0 to 0'
    (tmp_path / "trn.json").write_text('{"title": "x", "target_idn": [0]}\n')
    assert problem(tmp_path) == 'trn.json:1: field "target_ind": missing; did you mean "target_idn"?'
    (tmp_path / "trn.json").write_text('{"title": "x", "target_ind": [0], "target_rel": [1, 2]}\n')
    assert problem(tmp_path) == 'trn.json:1: field "target_rel": not a list as long as target_ind'


def test_files_of_texts_and_labels_must_agree(tmp_path: Path) -> None:
    (tmp_path / "train_texts.txt").write_text("a\nb\nc\n")
    (tmp_path / "train_labels.txt").write_text("x\ny\n")
    assert problem(tmp_path).startswith("train_texts.txt: 3 lines, but train_labels.txt has 2")
    (tmp_path / "train_labels.txt").write_text("x\ny\nz\n")
    (tmp_path / "test_texts.txt").write_text("a\n")
    assert problem(tmp_path).startswith("test_texts.txt: has no partner")


def test_a_bad_filter_pair_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"id": "r1", "text": "x", "labels": ["a"]}\n')
    (tmp_path / "filter_train.tsv").write_text("r11\ta\n")
    assert problem(tmp_path) == 'filter_train.tsv:1: no row has the id "r11"; did you mean "r1"?'
    (tmp_path / "filter_train.tsv").write_text("r1 a\n")
    assert problem(tmp_path) == "filter_train.tsv:1: 'r1 a' is not a row id, a tab and a label id"
    (tmp_path / "filter_train.tsv").unlink()
    (tmp_path / "filter_labels_train.txt").write_text("0 0\n0 1\n")
    assert problem(tmp_path) == "filter_labels_train.txt:2: label 1 is out of range; 0 to 0 exist"
    (tmp_path / "filter_labels_train.txt").write_text("1 0\n")
    assert problem(tmp_path) == "filter_labels_train.txt:1: row 1 is out of range; 0 to 0 exist"
    (tmp_path / "filter_labels_train.txt").rename(tmp_path / "filter_labels_test.txt")
    assert problem(tmp_path) == "filter_labels_test.txt: a filter file without test rows"


def test_many_defects_are_collected_in_one_pass(tmp_path: Path) -> None:
    bad = "{\n" + GOOD + '{"text": [3], "labels": []}\n'
    (tmp_path / "train.jsonl").write_text(bad)
    (tmp_path / "test.jsonl").write_text(GOOD + '{"text": "x"}\n')
    (tmp_path / "dev.jsonl").write_text("")
    found = collect_defects(tmp_path)
    assert [(Path(str(error.file)).name, error.line) for error in found] == [
        ("train.jsonl", 1),
        ("train.jsonl", 3),
        ("dev.jsonl", None),
        ("test.jsonl", 2),
    ]
    assert len(collect_defects(tmp_path, limit=2)) == 2
    (tmp_path / "dev.jsonl").write_bytes(b'"\xff"\n{"text": "x", "labels": ["\0"]}\n[]\n')
    assert [error.line for error in collect_defects(tmp_path)] == [1, 3, 1, 2, 3, 2]
    (tmp_path / "train.txt").write_text("3 2 2\n0 0:x\n1 1:1\nz 1:1\n")
    assert [error.line for error in collect_defects(tmp_path / "train.txt")] == [2, 4]
    (tmp_path / "fine.jsonl").write_text(GOOD)
    assert collect_defects(tmp_path / "fine.jsonl") == []


@pytest.mark.parametrize("second", [False, True])
def test_a_file_that_is_a_hole_is_one_defect(tmp_path: Path, second: bool) -> None:
    """200 GiB of NUL were read piece by piece, each a defect that kept its piece: memory ran out before the end."""
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "a", "labels": ["b"]}\n' * second)
    with open(path, "r+b") as file:
        file.truncate(200 << 30)
    found = [(error.line, error.message.partition(";")[0]) for error in collect_defects(tmp_path, limit=1000)]
    assert found[0] == (1 + second, "NUL byte at position 1")
    assert len(found) <= 2
