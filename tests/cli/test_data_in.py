"""Any file in: `fit`, `predict` and `evaluate` on one file, on standard input, and by the fields a model remembers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elias.cli import main
from elias.cli.fit import default_output
from elias.cli.standard_input import suffix_of
from helpers.processes import PATIENCE, SMALL, command, elias, environment, one_line, sets, start, wait_until

Run = Callable[..., tuple[int, str, str]]
Shop = list[dict[str, str]]
FIT = sets({**SMALL, "stage1.epochs": 1, "stage2.epochs": 1})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of a command in this process."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def shop_rows(dataset: Path, split: str) -> Shop:
    """The small dataset as a shop would have it: other names, one cell of labels, a text in two columns."""
    rows = [json.loads(line) for line in (dataset / f"{split}.jsonl").read_text().splitlines()]
    return [
        {
            "sku": row["id"],
            "product": " ".join(row["text"].split()[:4]),
            "details": " ".join(row["text"].split()[4:]),
            "shelf": "|".join(row["labels"]),
        }
        for row in rows
    ]


def write_csv(path: Path, rows: Shop, delimiter: str = ",") -> Path:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)
    return path


FIELDS = ("--text", "product", "--text", "details", "--labels", "shelf", "--id", "sku")


@pytest.fixture(scope="module")
def shop(tiny_dataset: Path) -> Shop:
    return shop_rows(tiny_dataset, "test")


@pytest.fixture(scope="module")
def fitted(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """`elias fit shop.csv` without -o, in a folder of its own (`args` is that folder)."""
    folder = tmp_path_factory.mktemp("shop")
    write_csv(folder / "shop.csv", shop_rows(tiny_dataset, "train"))
    done = elias("fit", "shop.csv", *FIELDS, *sets(SMALL), cwd=folder)
    assert done.returncode == 0, done.stderr
    return subprocess.CompletedProcess(folder, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def shop_model(fitted: subprocess.CompletedProcess[str]) -> Path:
    return Path(fitted.args) / "shop-model"


@pytest.fixture(scope="module")
def expected(shop_model: Path, shop: Shop) -> list[list[str]]:
    """The two best labels of each row of the shop."""
    from elias.model.storage import load_model

    texts = [f"{row['product']} {row['details']}" for row in shop]
    return [[label for label, _ in row] for row in load_model(shop_model, threads=2).predict(texts, k=2).named()]


def labels_of(out: str) -> list[list[str]]:
    return [[item["label"] for item in json.loads(line)["labels"]] for line in out.splitlines()]


# -- fit --------------------------------------------------------------------------------------------------------------


def test_fit_one_file_says_what_it_understood_and_where_it_writes(
    fitted: subprocess.CompletedProcess[str], shop_model: Path
) -> None:
    said = fitted.stderr
    assert said.index("shop.csv") < said.index("the model will be shop-model (-o MODEL chooses another name)")
    assert 'labels from shelf split at "|"' in said.splitlines()[0]
    assert said.index("in all on 2 cores (a rough estimate)") < said.index("30-stage1")
    fields = json.loads((shop_model / "config.json").read_text())["dataset"]["fields"]
    assert fields == {"text": ["product", "details"], "labels": "shelf", "id": "sku", "separator": "|"}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("shop.csv", "shop-model"),
        ("a/shop.jsonl.gz", "shop-model"),
        ("shop.2024.csv", "shop.2024-model"),
        ("missing", "missing-model"),
        ("-", "elias-model"),
    ],
)
def test_the_name_of_a_model(data: str, name: str) -> None:
    assert default_output(data) == name


def test_the_name_of_a_folders_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.data").mkdir()
    assert default_output(f"{tmp_path}/my.data/") == "my.data-model"
    monkeypatch.chdir(tmp_path / "my.data")
    assert default_output(".") == "my.data-model"


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"text,labels\na,b\n", ".csv"),
        (b"text;labels\na;b\n", ".csv"),
        (b"text\tlabels\na\tb\n", ".tsv"),
        (b'\xef\xbb\xbf{"text": "a", "labels": []}\n', ".jsonl"),
        (b'{\n "text": "a"\n}', ".json"),
        (b'[{"text": "a"}]', ".json"),
        (b"PAR1\x00\x01", ".parquet"),
        (b"2 3 4\n0 1:0.5\n", ".txt"),
        (gzip.compress(b'{"text": "a"}\n', mtime=0), ".jsonl.gz"),
    ],
)
def test_the_format_of_standard_input(content: bytes, suffix: str) -> None:
    assert suffix_of(content) == suffix


def test_a_killed_fit_of_standard_input_goes_on_without_it(tiny_dataset: Path, tmp_path: Path) -> None:
    """Real processes: killed after its first steps, refused with other data, continued without any."""
    data = write_csv(tmp_path / "data.csv", shop_rows(tiny_dataset, "train"))
    model, run_dir = tmp_path / "model", tmp_path / "model.run"
    arguments = ("fit", "-", "-o", model, *FIELDS, *FIT)
    with open(data, "rb") as stream:
        process = subprocess.Popen(
            command(*arguments), stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(),
        )  # fmt: skip
    wait_until((run_dir / "10-features" / "done.json").exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    data.unlink()
    assert [file.suffix for file in run_dir.glob("input-*")] == [".csv"]

    other = elias(*arguments, stdin="product,details,shelf,sku\nred apple,sweet,fruit|red,1\nplum,blue,fruit|red,2\n")
    assert other.returncode == 6, other.stderr
    assert "was started with other data" in other.stderr
    done = elias(*arguments)
    assert done.returncode == 0, done.stderr
    assert "05-tokens" not in done.stderr, "finished steps are not built again"
    assert "10-features" not in done.stderr, "finished steps are not built again"
    about = json.loads((model / "config.json").read_text())
    assert (about["n_train"], about["dataset"]["name"]) == (400, "model")


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 2, "standard input is empty; pipe data into it"),
        ("PK\x03\x04\0\0", 2, "standard input: binary data"),
        ("text,labels\n", 3, "no rows"),
        ("a,b\n1,2\n", 3, "input.csv"),
    ],
)
def test_standard_input_that_cannot_be_fitted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, code: int, message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None if content is None else io.StringIO(content))
    found, out, err = run("fit", "-", "-o", tmp_path / "model")
    assert (found, out) == (code, ""), err
    assert one_line(err)
    assert message in err


# -- predict ----------------------------------------------------------------------------------------------------------


def write_input(folder: Path, name: str, rows: Shop) -> Path:
    path = folder / name
    if name.startswith("semicolon"):
        return write_csv(path, rows, ";")
    if ".csv" in name:
        return write_csv(path, rows)
    if ".tsv" in name:
        return write_csv(path, rows, "\t")
    if name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name.endswith(".json"):
        path.write_text(json.dumps(rows, indent=1))
    elif ".jsonl" in name:
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    else:
        content = "".join(f"{row['product']} {row['details']}\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "a.csv", "a.csv.gz", "semicolon.csv", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.json", "a.parquet", "a.txt",
        "a.txt.gz", "texts",
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_labels", [True, False])
def test_predict_reads_what_fit_reads(
    run: Run, shop_model: Path, shop: Shop, expected: list[list[str]], tmp_path: Path, name: str, has_labels: bool
) -> None:
    """By the fields that the model remembers; no labels are needed."""
    rows = shop if has_labels else [{key: row[key] for key in ("sku", "product", "details")} for row in shop]
    path = write_input(tmp_path, name, rows)
    code, out, err = run("predict", shop_model, path, "-k", "2")
    assert (code, err) == (0, "")
    assert labels_of(out) == expected
    if not name.startswith(("a.txt", "texts")):
        assert [json.loads(line)["id"] for line in out.splitlines()] == [row["sku"] for row in shop]


def test_predict_a_table_from_standard_input(
    shop_model: Path, shop: Shop, expected: list[list[str]], tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "a.csv.gz", shop)
    with open(path, "rb") as stream:
        done = subprocess.run(
            command("predict", shop_model, "-", "-k", "2"), stdin=stream, capture_output=True, text=True,
            env=environment(), timeout=PATIENCE,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert labels_of(done.stdout) == expected


@pytest.mark.parametrize("names", [("text", "id"), ("body", "key")])
def test_other_fields_than_those_of_the_model(
    run: Run, shop_model: Path, shop: Shop, expected: list[list[str]], tmp_path: Path, names: tuple[str, str]
) -> None:
    """The usual names are recognized, options override."""
    text, key = names
    rows = [{key: row["sku"], text: f"{row['product']} {row['details']}", "x": "1"} for row in shop]
    code, out, _ = run("predict", shop_model, write_csv(tmp_path / "a.csv", rows), "-k", "2")
    assert code == 0
    assert labels_of(out) == expected
    swapped = [{text: "nothing", "product": row[text], "details": "", "own": row[key]} for row in rows]
    path = write_csv(tmp_path / "b.csv", swapped)
    code, out, _ = run("predict", shop_model, path, "-k", "2", "--text", "product", "--id", "own")
    assert labels_of(out) == expected
    assert json.loads(out.splitlines()[0])["id"] == shop[0]["sku"]


def test_fields_that_cannot_be_told(run: Run, shop_model: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"c1": "1", "c2": "2"}, {"c1": "3", "c2": "4"}])
    code, out, err = run("predict", shop_model, path)
    assert (code, out) == (3, "")
    assert one_line(err)
    assert all(word in err for word in ("a.csv", '"c1", "c2"', "--text"))


def test_several_files(run: Run, shop_model: Path, shop: Shop, expected: list[list[str]], tmp_path: Path) -> None:
    one, two = write_input(tmp_path, "a.csv", shop[:3]), write_input(tmp_path, "b.txt", shop[3:5])
    out = tmp_path / "out.csv"
    assert run("predict", shop_model, one, two, "-k", "2", "-o", out)[0] == 0
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "id", "rank", "label", "score"]
    assert [row["file"] for row in rows] == [str(one)] * 6 + [str(two)] * 4
    assert [row["label"] for row in rows] == [label for labels in expected[:5] for label in labels]
    _, printed, _ = run("predict", shop_model, one, two, "-k", "2")
    assert [json.loads(line)["file"] for line in printed.splitlines()] == [str(one)] * 3 + [str(two)] * 2


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("a.xlsx", b"PK\x03\x04\0\0\0", 2, "a.xlsx: a binary file; predict reads .csv"),
        ("a", b"\x7fELF\0\0", 2, "a: a binary file"),
        ("a.csv", b"", 3, "a.csv: the file is empty"),
        ("a.parquet", b"no parquet", 3, "a.parquet: not a parquet file"),
        ("a.csv", b"product,details\na,b,c\n", 3, "a.csv:2: 3 cells, the header has 2"),
    ],
)
def test_files_that_cannot_be_read(
    run: Run, shop_model: Path, tmp_path: Path, name: str, content: bytes, code: int, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found, out, err = run("predict", shop_model, tmp_path / name)
    assert (found, out) == (code, ""), err
    assert one_line(err)
    assert message in err


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.csv.gz"])
def test_a_table_of_predictions(
    run: Run, tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path, name: str
) -> None:
    """Labels with texts of their own have a column for them."""
    assert run("predict", tiny_model_folder, tiny_dataset / "test.jsonl", "-k", "3", "-o", tmp_path / name)[0] == 0
    raw = (tmp_path / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t" if ".tsv" in name else ","))
    _, out, _ = run("predict", tiny_model_folder, tiny_dataset / "test.jsonl", "-k", "3")
    flat = [
        {"id": row["id"], "rank": str(rank), "label": item["label"], "label_text": item["text"]}
        for row in map(json.loads, out.splitlines())
        for rank, item in enumerate(row["labels"], start=1)
    ]
    assert [{key: row[key] for key in flat[0]} for row in rows] == flat
    assert all(0 <= float(row["score"]) <= 1 for row in rows)


def test_rows_without_ids_are_numbered_and_texts_are_their_own(run: Run, shop_model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("bada kuku\n\nkuku bada\n")
    _, out, _ = run("predict", shop_model, tmp_path / "a.txt", "-k", "1", "--format", "csv")
    assert [line.split(",")[0] for line in out.splitlines()] == ["row", "1", "2", "3"]
    _, out, _ = run("predict", shop_model, 'one, "two"', "three", "-k", "1", "--format", "csv")
    assert [row[0] for row in csv.reader(io.StringIO(out))] == ["text", 'one, "two"', "three"]


@pytest.mark.parametrize("key", [int, str])
def test_parquet(run: Run, tiny_model_folder: Path, shop: Shop, tmp_path: Path, key: type) -> None:
    import pyarrow.parquet as pq

    rows = [{"id": key(number), "text": row["details"]} for number, row in enumerate(shop)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-o", tmp_path / "out.parquet", "-k", "2")[0] == 0
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    _, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-k", "2")
    for row, line in zip(found, out.splitlines(), strict=True):
        items = json.loads(line)["labels"]
        assert [item["label"] for item in row["labels"]] == [item["label"] for item in items]
        assert [item["label_text"] for item in row["labels"]] == [item["text"] for item in items]
        assert [item["score"] for item in row["labels"]] == pytest.approx([item["score"] for item in items])
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "out.parquet"]


def test_a_killed_prediction_of_a_table(run: Run, shop_model: Path, shop: Shop, tmp_path: Path) -> None:
    """A real process and kill -9; the rest is the same to the last byte."""
    source, out, whole = tmp_path / "a.csv", tmp_path / "out.csv", tmp_path / "whole.csv"
    write_csv(source, [{**row, "sku": f"{row['sku']}-{copy}"} for copy in range(300) for row in shop])
    process = start("predict", shop_model, source, "-o", out, "-k", "2")
    wait_until((tmp_path / "out.csv.progress.json").exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert not out.exists()
    code, _, err = run("predict", shop_model, source, "-o", out, "-k", "2")
    assert code == 0
    assert "continuing after 16,384 rows" in err
    assert run("predict", shop_model, source, "-o", whole, "-k", "2", "--quiet") == (0, "", "")
    assert out.read_bytes() == whole.read_bytes()
    assert len(out.read_bytes().splitlines()) == 1 + 2 * 24_000


# -- evaluate ---------------------------------------------------------------------------------------------------------


def test_evaluate_a_file_by_the_fields_of_the_model(
    run: Run, shop_model: Path, shop: Shop, tiny_dataset: Path, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "held-out.csv", shop)
    code, out, err = run("evaluate", shop_model, path, "--json", "--per-label", tmp_path / "labels.csv")
    assert code == 0, err
    found = json.loads(out)
    assert (found["rows"], found["data"]) == (80, "held-out")
    _, out, _ = run("evaluate", shop_model, tiny_dataset, "--json")
    other = json.loads(out)  # the same rows under other names
    assert [found[name] for name in ("P@1", "nDCG@5", "R@100")] == [other[name] for name in ("P@1", "nDCG@5", "R@100")]
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["test_count"]) for row in rows) == sum(len(row["shelf"].split("|")) for row in shop)
    for row in rows:
        if int(row["test_count"]):
            assert float(row["recall@5"]) == pytest.approx(100 * int(row["hits@5"]) / int(row["test_count"]), abs=0.01)


def test_labels_that_the_model_does_not_know_are_told(run: Run, shop_model: Path, shop: Shop, tmp_path: Path) -> None:
    rows = [*shop, {"sku": "new", "product": "bada", "details": "kuku", "shelf": "never seen"}]
    code, out, err = run("evaluate", shop_model, write_csv(tmp_path / "a.csv", rows))
    assert code == 0
    assert "81 rows" in out
    assert "labels of a are not in the model" in err


def test_data_of_another_model(run: Run, shop_model: Path, shop: Shop, tmp_path: Path) -> None:
    rows = [{**row, "shelf": f"aisle {number % 5}"} for number, row in enumerate(shop)]
    code, out, err = run("evaluate", shop_model, write_csv(tmp_path / "a.csv", rows), "--separator", "none")
    assert (code, out) == (2, "")
    assert one_line(err)
    assert all(word in err for word in ("share no label", '"aisle 0"', '"aisle 1"', '"label-'))


def test_options_override_the_fields_of_the_model(run: Run, shop_model: Path, shop: Shop, tmp_path: Path) -> None:
    moved = [{"text": f"{row['product']} {row['details']}", "tags": row["shelf"], "shelf": "x"} for row in shop]
    code, out, _ = run("evaluate", shop_model, write_csv(tmp_path / "a.csv", moved), "--labels", "tags", "--json")
    assert code == 0
    assert json.loads(out)["P@1"] > 40
    code, out, err = run("evaluate", shop_model, write_csv(tmp_path / "b.csv", moved), "--labels", "none such")
    assert (code, out) == (3, "")
    assert one_line(err)
    assert "none such" in err
