"""Foreign layouts: the Extreme Classification Repository, PECOS and the authors, AttentionXML."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from elias.dataset import Dataset, Rows, load_dataset
from elias.dataset.defects import LABEL_UIDS_REPEATED, NO_LABELS, REPEATED_LABEL, UNREAD_FILE, ZERO_WEIGHT


def notes(data: Dataset) -> dict[str, int]:
    return {note.kind: note.count for note in data.notes}


def dense(rows: Rows | None) -> list[list[float]]:
    assert rows is not None
    return rows.labels.toarray().tolist()


def vectors(rows: Rows | None) -> list[list[float]]:
    assert rows is not None
    assert rows.vectors is not None
    matrix = rows.vectors if isinstance(rows.vectors, np.ndarray) else rows.vectors.toarray()
    return matrix.tolist()


def texts(rows: Rows | None) -> list[str]:
    assert rows is not None
    assert rows.texts is not None
    return list(rows.texts)


@pytest.mark.parametrize("stem", ["", "eurlex_", "Wiki10-"])
def test_sparse_text_with_header(tmp_path: Path, stem: str) -> None:
    (tmp_path / f"{stem}train.txt").write_text("4 3 2\n0,1 0:0.5 2:1\n 1:2\n1\n\n")
    (tmp_path / f"{stem}test.txt").write_text("1 3 2\n0,0 2:3e0 \n\n")
    (tmp_path / "filter_labels_test.txt").write_text("0 1\n")
    data = load_dataset(tmp_path)
    assert vectors(data.train) == [[0.5, 0, 1], [0, 2, 0], [0, 0, 0], [0, 0, 0]]
    assert dense(data.train) == [[1, 1], [0, 0], [0, 1], [0, 0]]
    assert vectors(data.test) == [[0, 0, 3]]
    assert dense(data.test) == [[1, 0]]
    assert data.test is not None
    assert data.test.excluded.toarray().tolist() == [[False, True]]
    assert data.labels.ids == ["0", "1"]
    assert data.layout == f"Extreme Classification Repository, sparse features ({stem}train.txt)"
    assert notes(data) == {NO_LABELS: 2, REPEATED_LABEL: 1}


def test_sparse_text_as_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt.gz").write_bytes(gzip.compress(b"1 3 2\r\n1 0:0.5\r\n"))
    data = load_dataset(tmp_path / "mine.txt.gz")
    assert vectors(data.train) == [[0.5, 0, 0]]
    assert dense(data.train) == [[0, 1]]


def test_features_and_labels_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "trn_X_Xf.txt").write_text("2 3\n0:0.5 2:1\n1:2\n")
    (tmp_path / "trn_X_Y.txt").write_text("2 2\n0:1.0 1:0.5\n\n")
    (tmp_path / "tst_X_Xf.txt").write_text("1 3\n2:1\n")
    (tmp_path / "tst_X_Y.txt").write_text("1 2\n1:1\n")
    data = load_dataset(tmp_path)
    assert vectors(data.train) == [[0.5, 0, 1], [0, 2, 0]]
    assert dense(data.train) == [[1, 0.5], [0, 0]]
    assert dense(data.test) == [[0, 1]]
    assert [note.example for note in data.notes] == ["trn_X_Y.txt:3"]


def write_lf(folder: Path, labels: list[dict[str, str]]) -> None:
    train = [
        {"uid": "P1", "title": "t", "content": "c", "target_ind": [0, 2], "target_rel": [1.0, 0.5]},
        {"uid": "P2", "title": "u", "content": "", "target_ind": []},
        {"uid": "P3", "title": "v", "target_ind": [1, 0], "target_rel": [0.0, 1.0]},
    ]
    test = [{"uid": "L1", "title": "w", "content": "x", "target_ind": [0]}]
    for name, rows in (("trn", train), ("tst", test), ("lbl", labels)):
        body = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(body.encode()))


def test_lf_json_is_read(tmp_path: Path) -> None:
    write_lf(tmp_path, [{"uid": f"L{n}", "title": f"label {n}"} for n in range(3)])
    (tmp_path / "filter_labels_train.txt").write_text("1 2\n")
    (tmp_path / "trn_X_Y.txt").write_text("not read")
    (tmp_path / "dataset.toml").write_text("exclude_own_id = true\n")
    data = load_dataset(tmp_path)
    assert texts(data.train) == ["t c", "u", "v"]
    assert dense(data.train) == [[1, 0, 0.5], [0, 0, 0], [1, 0, 0]]
    assert data.train.ids == ["P1", "P2", "P3"]
    assert (data.labels.ids, data.labels.texts) == (["L0", "L1", "L2"], ["label 0", "label 1", "label 2"])
    assert data.train.excluded.nonzero()[1].tolist() == [2]
    assert data.test is not None
    assert data.test.excluded.nonzero()[1].tolist() == [1]
    assert notes(data)[ZERO_WEIGHT] == 1
    assert notes(data)[UNREAD_FILE] == 1


def test_lf_json_with_repeated_label_uids_falls_back_to_numbers(tmp_path: Path) -> None:
    write_lf(tmp_path, [{"uid": "same", "title": "a"}, {"uid": "same", "title": "b"}, {"uid": "c", "title": "c"}])
    data = load_dataset(tmp_path)
    assert data.labels.ids == ["0", "1", "2"]
    assert notes(data)[LABEL_UIDS_REPEATED] == 1


def test_raw_json_without_label_features_is_read_before_the_sparse_features_beside_it(tmp_path: Path) -> None:
    """Amazon-670K: the two downloads of the repository in one folder."""
    for name, targets in (("trn", [[4, 0], [1]]), ("tst", [[5]])):
        rows = [{"uid": f"{name}{n}", "title": "t", "content": "c", "target_ind": of} for n, of in enumerate(targets)]
        body = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.raw.json.gz").write_bytes(gzip.compress(body.encode()))
    (tmp_path / "train.txt").write_text("2 3 6\n4,0 1:0.5\n1 0:1.0\n")
    (tmp_path / "test.txt").write_text("1 3 6\n5 2:1.0\n")
    data = load_dataset(tmp_path)
    assert texts(data.train) == ["t c", "t c"]
    assert dense(data.train) == [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]]
    assert dense(data.test) == [[0, 0, 0, 0, 0, 1]]
    assert data.labels.ids == ["0", "1", "2", "3", "4", "5"]
    assert data.labels.texts == [""] * 6
    assert notes(data)[UNREAD_FILE] == 2
    assert "labels are numbers" in data.layout


def write_npz(folder: Path) -> None:
    sp.save_npz(folder / "X.trn.npz", sp.csr_matrix([[0.5, 0], [0, 1]]))
    sp.save_npz(folder / "Y.trn.npz", sp.csr_matrix([[1, 0, 1], [0, 0, 0]]))
    sp.save_npz(folder / "X.tst.npz", sp.csr_matrix([[1.0, 0]]))
    sp.save_npz(folder / "Y.tst.npz", sp.csc_matrix([[0.0, 0.5, 0]]))


def test_npz_features_are_read(tmp_path: Path) -> None:
    write_npz(tmp_path)
    data = load_dataset(tmp_path)
    assert vectors(data.train) == [[0.5, 0], [0, 1]]
    assert dense(data.train) == [[1, 0, 1], [0, 0, 0]]
    assert dense(data.test) == [[0, 0.5, 0]]
    assert data.layout == "PECOS, features with a label matrix"
    assert data.labels.ids == ["0", "1", "2"]


@pytest.mark.parametrize(("train", "test"), [("X.trn.txt", "X.tst.txt"), ("raw/trn_X.txt", "raw/tst_X.txt")])
def test_npz_labels_with_raw_texts(tmp_path: Path, train: str, test: str) -> None:
    write_npz(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / train).write_text("first text\n\n")
    (tmp_path / test).write_text("other\n")
    (tmp_path / "raw" / "Y.txt").write_text("alpha\nbeta\ngamma\n")
    data = load_dataset(tmp_path)
    assert texts(data.train) == ["first text", ""]
    assert texts(data.test) == ["other"]
    assert data.train.vectors is None
    assert data.labels.texts == ["alpha", "beta", "gamma"]
    assert notes(data)[UNREAD_FILE] == 2  # the features: texts are preferred


def test_dense_npy_features_and_named_labels(tmp_path: Path) -> None:
    write_npz(tmp_path)
    for short, rows in (("trn", 2), ("tst", 1)):
        (tmp_path / f"X.{short}.npz").unlink()
        np.save(tmp_path / f"X.{short}.npy", np.ones((rows, 4)))
    (tmp_path / "labels.tsv").write_text("a\tA\nb\tB\nc\tC\n")
    data = load_dataset(tmp_path)
    assert vectors(data.train) == [[1, 1, 1, 1]] * 2
    assert data.labels.ids == ["a", "b", "c"]


def test_texts_and_labels_line_by_line_are_read(tmp_path: Path) -> None:
    (tmp_path / "train_texts.txt").write_text("tokenized\nwords\n")
    (tmp_path / "train_labels.txt").write_text("b a\n\n")
    (tmp_path / "test_texts.txt").write_text("third\n")
    (tmp_path / "test_labels.txt").write_text("a\n")
    data = load_dataset(tmp_path)
    assert texts(data.train) == ["tokenized", "words"]
    assert data.labels.ids == ["b", "a"]
    assert dense(data.train) == [[1, 1], [0, 0]]
    assert dense(data.test) == [[0, 1]]
    (tmp_path / "train_raw_texts.txt").write_text("Raw Text\nMore\n")
    assert texts(load_dataset(tmp_path).train) == ["Raw Text", "More"]
