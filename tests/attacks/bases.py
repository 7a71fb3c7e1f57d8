"""What is attacked: golden models, models of vectors, and one small dataset in every layout."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "models"
MODELS = tuple(sorted(path.name for path in GOLDEN.iterdir()))
NARROW = tuple(f"{name}:narrow" for name in ("stacked", "ensemble"))  # tables as of more than 16,384 labels
TEXTS = ["python library for arrays", "", "small game with a graphical interface", "qqqqq zzzzz", "a c library " * 50]
N_ROWS, N_FEATURES, N_LABELS = 60, 12, 6
VECTOR_SETTINGS: dict[str, Any] = {
    "clustering.clusters": 2, "encoder.dim": 8, "stage1.epochs": 1, "stage2.epochs": 1, "stage1.batch_size": 16,
    "stage2.batch_size": 16, "run.threads": 2, "index.shortlist_size": 6,
}  # fmt: skip


def vectors(seed: int = 0) -> tuple[np.ndarray, sp.csr_matrix]:
    """Dense vectors and labels that follow from them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    return x, sp.csr_matrix((x[:, :N_LABELS] > 0.8) | np.eye(N_ROWS, N_LABELS, dtype=bool), dtype=np.float32)


def make_vector_models(folder: Path) -> None:
    """folder/dense and folder/sparse."""
    import elias

    x, y = vectors()
    for name, given in (("dense", x), ("sparse", sp.csr_matrix(np.where(x > 0, x, 0)))):
        if not (folder / name).exists():
            elias.fit(elias.Dataset.from_arrays(given, y), settings=VECTOR_SETTINGS).save(folder / name)


TRANSFORMERS: dict[str, dict[str, Any]] = {  # by the name of the model
    "frozen": {"encoder.kind": "transformer"},
    "fine-tuned": {"encoder.kind": "transformer", "encoder.frozen": False},
    "hybrid": {"encoder.kind": "hybrid"},
}


def make_transformer_models(folder: Path) -> list[str]:
    """Models with a tiny BERT of random weights; the names of their folders."""
    import elias
    from helpers.processes import STACKED
    from helpers.tiny_bert import write_tiny_bert

    if not (folder / "bert").exists():
        (folder / "bert").mkdir(parents=True)
        write_tiny_bert(folder / "bert")
    texts = [f"w{number % 5} w{5 + number % 3} w{20 + number % 20}" for number in range(60)]
    data = elias.Dataset.from_lists(texts, [[f"label {number % 5}"] for number in range(60)])
    small = {"encoder.max_length": 16, "clustering.clusters": 2, "split.calibration_rows": 20}
    for name, changes in TRANSFORMERS.items():
        if not (folder / name).exists():
            settings = {**STACKED, **small, **changes, "encoder.model": str(folder / "bert")}
            elias.fit(data, settings=elias.Settings().updated(settings)).save(folder / name)
    return list(TRANSFORMERS)


def make_datasets(folder: Path) -> list[str]:
    """One small dataset in every layout that is read; the names of the folders."""
    rng = Random(0)
    labels = [f"label {n}" for n in range(8)]
    rows = []
    for number in range(24):
        own = rng.sample(labels, rng.randrange(1, 4))
        text = " ".join(rng.choices(["red", "green", "blue", "apple", "pear", "träger", *own], k=6))
        rows.append({"id": f"r{number}", "text": text, "labels": own, "weight": 1.5, "group": f"g{number % 5}"})
    writers = {
        "jsonl": _jsonl, "json": _json, "csv": _csv, "tsv": _tsv, "lists": _lists, "fasttext": _fasttext,
        "lf": _lf, "pecos": _pecos, "dense": _dense, "text-lines": _text_lines, "sparse": _sparse, "xc": _xc,
    }  # fmt: skip
    for name, write in writers.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        write(place, rows, labels)
    return sorted(writers)


def _toml(folder: Path) -> None:
    (folder / "dataset.toml").write_text('name = "attacked"\nexclude_own_id = true\npropensity_a = 0.6\n')


def _jsonl(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    graded = [dict(row, labels=[[label, 0.5] for label in row["labels"]]) if n % 3 == 0 else row
              for n, row in enumerate(rows)]  # fmt: skip
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in graded[:18]))
    with gzip.open(folder / "test.jsonl.gz", "wt") as out:
        out.write("".join(json.dumps(row) + "\n" for row in graded[18:]))
    (folder / "labels.tsv").write_text("".join(f"{label}\ttext of {label}\n" for label in labels))
    (folder / "filter_train.tsv").write_text("r1\tlabel 1\nr2\tlabel 2\n")
    _toml(folder)


def _json(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    (folder / "train.json").write_text(json.dumps(rows[:18]))
    (folder / "test.json").write_text(json.dumps({"data": rows[18:]}))


def _table(folder: Path, name: str, rows: list[dict[str, Any]], delimiter: str, joined: bool) -> None:
    with open(folder / name, "w", newline="") as out:
        table = csv.writer(out, delimiter=delimiter)
        table.writerow(["id", "text", "labels", "weight"])
        for row in rows:
            cell = ";".join(row["labels"]) if joined else json.dumps(row["labels"])
            table.writerow([row["id"], row["text"], cell, row["weight"]])


def _csv(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    _table(folder, "train.csv", rows[:18], ",", joined=True)
    _table(folder, "test.csv", rows[18:], ",", joined=True)
    _toml(folder)


def _tsv(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    _table(folder, "train.tsv", rows, "\t", joined=True)


def _lists(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    _table(folder, "train.csv", rows, ",", joined=False)


def _fasttext(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    lines = (
        " ".join(f"__label__{label.replace(' ', '-')}" for label in row["labels"]) + f" {row['text']}\n" for row in rows
    )
    (folder / "train.txt").write_text("".join(lines))


def _lf(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    for name, part in (("trn", rows[:18]), ("tst", rows[18:])):
        lines = []
        for row in part:
            numbers = [labels.index(label) for label in row["labels"]]
            record = {"uid": row["id"], "title": row["text"], "content": "more", "target_ind": numbers}
            lines.append(json.dumps({**record, "target_rel": [1.0] * len(numbers)}) + "\n")
        (folder / f"{name}.json").write_text("".join(lines))
    (folder / "lbl.json").write_text(
        "".join(json.dumps({"uid": f"u{n}", "title": t}) + "\n" for n, t in enumerate(labels))
    )


def _matrix(rows: list[dict[str, Any]], labels: list[str]) -> sp.csr_matrix:
    found = np.zeros((len(rows), len(labels)), dtype=np.float32)
    for number, row in enumerate(rows):
        found[number, [labels.index(label) for label in row["labels"]]] = 1
    return sp.csr_matrix(found)


def _pecos(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    x = sp.random(len(rows), 10, 0.4, format="csr", dtype=np.float32, random_state=0)
    for name, part in (("trn", slice(0, 18)), ("tst", slice(18, None))):
        sp.save_npz(folder / f"X.{name}.npz", sp.csr_matrix(x[part]), compressed=False)
        sp.save_npz(folder / f"Y.{name}.npz", _matrix(rows[part], labels), compressed=False)
    (folder / "Y.txt").write_text("".join(f"{label}\n" for label in labels))


def _dense(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    np.save(folder / "X.trn.npy", np.random.default_rng(0).normal(size=(len(rows), 6)).astype(np.float32))
    sp.save_npz(folder / "Y.trn.npz", _matrix(rows, labels), compressed=False)


def _text_lines(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    for name, part in (("train", rows[:18]), ("test", rows[18:])):
        (folder / f"{name}_texts.txt").write_text("".join(row["text"] + "\n" for row in part))
        lines = (" ".join(label.replace(" ", "_") for label in row["labels"]) + "\n" for row in part)
        (folder / f"{name}_labels.txt").write_text("".join(lines))


def _pairs(matrix: sp.csr_matrix) -> list[str]:
    return [
        " ".join(f"{c}:{v:g}" for c, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in matrix
    ]


def _sparse(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    x = sp.csr_matrix(sp.random(len(rows), 10, 0.4, format="csr", dtype=np.float32, random_state=0))
    lines = [f"{len(rows)} 10 {len(labels)}"]
    for row, pairs in zip(rows, _pairs(x), strict=True):
        lines.append(",".join(str(labels.index(label)) for label in row["labels"]) + " " + pairs)
    (folder / "train.txt").write_text("\n".join(lines) + "\n")


def _xc(folder: Path, rows: list[dict[str, Any]], labels: list[str]) -> None:
    x = sp.csr_matrix(sp.random(len(rows), 10, 0.4, format="csr", dtype=np.float32, random_state=0))
    for name, matrix in (("trn_X_Xf.txt", x), ("trn_X_Y.txt", _matrix(rows, labels))):
        lines = [f"{matrix.shape[0]} {matrix.shape[1]}", *_pairs(matrix)]
        (folder / name).write_text("\n".join(lines) + "\n")
