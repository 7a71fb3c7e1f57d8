"""The command line. Each command once as a real process; its variations through the same `main` in this one."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elias.cli import main
from elias.model.model import Model
from helpers.processes import SMALL, command, elias, environment, here, one_line, sets

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of a command in this process."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def texts(tiny_dataset: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (tiny_dataset / "test.jsonl").read_text().splitlines()[:4]]


def lines_of(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


# -- help and errors --------------------------------------------------------------------------------------------------


def test_help_lists_the_commands() -> None:
    """That it imports nothing heavy, and so is quick, is tested in test_architecture.py."""
    done = elias("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("check", "fit", "predict", "evaluate", "inspect", "report", "compact", "serve"):
        assert name in done.stdout


def test_help_of_every_command(run: Run) -> None:
    for name in ("check", "fit", "predict", "evaluate", "inspect", "report", "compact", "serve"):
        code, out, err = run(name, "--help")
        assert (code, err) == (0, "")
        assert f"usage: elias {name}" in out
    assert run("--version")[1].startswith("elias 0.")
    code, out, _ = run("fit", "--settings")
    assert code == 0
    assert re.search(r"^index\.kappa +auto +kappa +edges", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "DATA", "-o", "NEW", "--set", "stage2.epoch=5"], 4, 'did you mean "stage2.epochs"?'),
        (["fit", "DATA", "-o", "NEW", "--set", "stage2.epochs"], 4, "section.key=value"),
        (["fit", "DATA", "-o", "NEW", "--set", "run.seed=x", "--set", "index.alpha=-1"], 4, "; index.alpha=-1"),
        (["fit", "DATA", "-o", "NEW", "--threads", "0"], 4, "run.threads=0"),
        (["fit", "nothing here", "-o", "NEW"], 3, "nothing here"),
        (["fit", "DATA", "-o", "MODEL"], 6, "pass --force to replace it"),
        (["fit", "DATA", "-o", "."], 2, "not a name"),
        (["fit", "DATA", "-o", "DATA", "--force"], 6, "not a model"),
        (["predict", "NEW", "text"], 5, "there is no model folder"),
        (["predict", "DATA", "text"], 5, "no config.json"),
        (["predict", "MODEL", "text", "-k", "0"], 2, "at least one label"),
        (["predict", "MODEL", "text", "--threads", "-1"], 2, "give at least 1"),
        (["predict", "MODEL", "missing.jsonl"], 2, "missing.jsonl: there is no such file"),
        (["predict", "MODEL", "table.csv"], 2, "table.csv: there is no such file"),
        (["predict", "MODEL", "sheet.xlsx"], 2, "sheet.xlsx: there is no such file"),
        (["predict", "MODEL", "DATA"], 2, "is a folder; name the files in it"),
        (["predict", "MODEL", "DATA/test.jsonl", "some text"], 2, '"some text" is not: give files or texts, not both'),
        (["predict", "MODEL", "-", "some text"], 2, "- is standard input and goes alone"),
        (["predict", "MODEL", "DATA/test.jsonl", "--text", "body"], 3, 'field "body": no such field'),
        (["predict", "MODEL", "text", "-o", "NEW.xlsx"], 2, "predict writes .jsonl, .csv, .tsv, .parquet, .txt"),
        (["predict", "MODEL", "text", "-o", "NEW.csv", "--explain"], 2, "no place for explanations"),
        (["predict", "MODEL", "text", "--format", "parquet"], 2, "-o FILE.parquet"),
        (["predict", "MODEL", "text", "--allow", "missing"], 2, "cannot be read as a list of labels"),
        (["predict", "MODEL", "text", "-o", "DATA"], 2, "is a folder"),
        (["predict", "MODEL", "text", "-o", "MODEL/config.json/x"], 6, "cannot be written"),
        (["evaluate", "MODEL", "DATA", "--split", "validation"], 2, "has no validation rows"),
        (["evaluate", "MODEL", "DATA", "--per-label", "DATA"], 2, "is a folder"),
        (["evaluate", "MODEL", "DATA", "--per-label", "NEW.xlsx"], 2, "name it .csv or .tsv"),
        (["inspect", "MODEL", "--label", "label-0x"], 2, "did you mean"),
        (["inspect", "MODEL", "--cluster", "4"], 2, "clusters 0 to 3"),
        (["report", "MODEL", "DATA", "-o", "MODEL"], 6, "pass --force to replace it"),
        (["report", "MODEL", "DATA", "-o", "MODEL", "--force"], 6, "is not a report"),
        (["report", "MODEL", "DATA", "-o", ".."], 2, "not a name"),
        (["report", "MODEL", "DATA", "-o", "NEW", "--run", "missing"], 6, "there is no such folder"),
        (["report", "DATA", "DATA", "-o", "NEW"], 5, "no config.json"),
        (["check", "nothing here"], 3, "nothing here"),
    ],
)
def test_an_error_is_one_line(
    run: Run, arguments: list[str], code: int, message: str, tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    places = {"DATA": str(tiny_dataset), "MODEL": str(tiny_model_folder), "NEW": str(tmp_path / "new")}
    for word, place in places.items():
        arguments = [argument.replace(word, place) for argument in arguments]
    found, out, err = run(*arguments)
    assert (found, out) == (code, ""), err
    assert one_line(err.splitlines()[-1] + "\n"), err
    assert message in err
    assert not (tmp_path / "new").exists()


def test_usage_errors(run: Run) -> None:
    assert run()[0] == run("fit")[0] == run("nonsense")[0] == run("predict")[0] == 2


def test_a_changed_setting_is_refused_by_name(run: Run, tiny_dataset: Path, tmp_path: Path) -> None:
    arguments = ("fit", tiny_dataset, "-o", tmp_path / "model", "--quiet", *sets({**SMALL, "stage2.epochs": 0}))
    assert run(*arguments) == (0, "", "")
    (tmp_path / "model").rename(tmp_path / "away")
    code, _, err = run(*arguments, "--seed", "5")
    assert code == 6
    assert "run.seed 0 -> 5" in err
    assert run(*arguments, "--seed", "5", "--force")[0] == 0


# -- check ------------------------------------------------------------------------------------------------------------


def test_check(tiny_dataset: Path) -> None:
    done = elias("check", tiny_dataset)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"recognized +train.jsonl, test.jsonl with labels.tsv", done.stdout)
    assert re.search(r"A fit needs about 0\.\d GiB of memory", done.stdout)
    assert re.search(r"and about \d+ s on 2 cores", done.stdout)


def test_check_for_a_gpu_that_is_not_here(run: Run, tiny_dataset: Path) -> None:
    code, out, _ = run("check", tiny_dataset, "--set", "run.device=cuda")
    assert code == 0
    host, gpu = out[out.index("GiB of memory") :].split("GiB of GPU memory:")
    assert "word embeddings" in gpu
    assert "word embeddings" not in host
    assert "python, torch, numba" in host


def test_check_as_json_and_defects(run: Run, tiny_dataset: Path, tmp_path: Path) -> None:
    code, out, _ = run("check", tiny_dataset, "--json")
    found = json.loads(out)
    assert (code, found["labels"], found["splits"]["train"]["rows"]) == (0, 60, 400)
    assert found["fit"]["memory_bytes"]["word embeddings"] > 0
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x"]}\n{"text": \n{"text": "b"}\n')
    code, out, err = run("check", tmp_path)
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 2
    assert "train.jsonl:2" in err
    assert "train.jsonl:3" in err
    code, out, _ = run("check", tmp_path, "--json")
    assert len(json.loads(out)["defects"]) == 2


# -- fit --------------------------------------------------------------------------------------------------------------


def test_fit_says_what_it_does_and_without_a_terminal_no_control_characters(tiny_dataset: Path, tmp_path: Path) -> None:
    done = elias("fit", tiny_dataset, "-o", tmp_path / "model", *sets(SMALL))
    assert (done.returncode, done.stdout) == (0, "")
    assert not CONTROL.search(done.stderr)
    for words in ("400 training rows, 60 labels", "C=4 clusters", "30-stage1", "50-stage2", "is ready"):
        assert words in done.stderr
    assert (tmp_path / "model" / "config.json").exists()


def on_a_terminal(arguments: list[str], **changes: str) -> str:
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**changes))
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_a_terminal_gets_a_live_line_and_no_color_is_respected(tmp_path: Path) -> None:
    code = (
        "from elias.core.progress import Progress\n"
        "p = Progress()\n"
        "p.update('30-stage1', 5, 10, 3.0, 'loss 0.5')\n"
        "p.say('done')\n"
    )
    shown = on_a_terminal([sys.executable, "-c", code], NO_COLOR="", TERM="xterm")
    assert "\x1b[36m" in shown
    assert "50 %  3 s left" in shown
    plain = on_a_terminal([sys.executable, "-c", code], NO_COLOR="1", TERM="xterm")
    assert "\x1b[36m" not in plain
    assert "50 %" in plain


# -- predict ----------------------------------------------------------------------------------------------------------


def test_predict_texts_as_a_table(tiny_model: Model, tiny_model_folder: Path, texts: list[str]) -> None:
    done = elias("predict", tiny_model_folder, *texts[:2], "-k", "2", "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    assert not CONTROL.search(done.stdout)
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    assert lines[0] == texts[0]
    best = tiny_model.predict(texts[:1], k=1).named()[0][0]
    assert lines[1].startswith(f"  {best[1]:.4f}  {best[0]}  ")
    parts = re.fullmatch(r" +cluster (\d) ([\d.]+) x edge ([\d.]+) x classifier ([\d.]+)", lines[2].replace("=", " "))
    assert parts
    assert float(parts[2]) * float(parts[3]) * float(parts[4]) == pytest.approx(best[1], abs=2e-4)


def test_an_explained_table_can_be_read(stacked_model: Model, stacked_folder: Path, texts: list[str]) -> None:
    done = here("predict", stacked_folder, texts[0], "-k", "2", "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert len(lines) == 1 + 2 * 5
    found = stacked_model.predict(texts[:1], k=1, explain=True)
    assert found.explanations is not None
    words, similar, shares, score = found.explanations[0][0].values()
    assert lines[2].startswith(f"because of the words: {words[0]['word']} {words[0]['weight']:+.1f}, ")
    first = similar[0]
    assert lines[3].startswith(f'similar texts: {first["id"]} ({first["similarity"]:.2f}) "{first["text"][:20]}')
    numbers = [float(number) for number in re.findall(r"[+-][\d.]+", lines[4])]
    assert sorted(numbers) == pytest.approx(sorted(shares.values()), abs=0.006)
    assert sum(numbers) == pytest.approx(score, abs=0.05)
    assert lines[4].endswith(f"= {score:.2f}")
    assert lines[5].startswith("path: cluster ")
    done = here("predict", stacked_folder, "xylophone", "-k", "2", "--explain")
    assert len(done.stdout.splitlines()) == 1 + 2 * 3, "no known word, and so no similar text"


def test_explained_lines_hold_the_whole_explanation(stacked_model: Model, stacked_folder: Path) -> None:
    done = here("predict", stacked_folder, "some words", "-k", "2", "--explain", "--format", "jsonl")
    found = stacked_model.predict(["some words"], k=2, explain=True)
    assert [item["explanation"] for item in json.loads(done.stdout)["labels"]] == (found.explanations or [])[0]


def test_predict_from_standard_input_stops_with_its_reader(tiny_model_folder: Path, texts: list[str]) -> None:
    rows = "".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts))
    done = elias("predict", tiny_model_folder, "-", "-k", "3", stdin="\ufeff" + rows)
    assert (done.returncode, done.stderr) == (0, "")
    found = lines_of(done.stdout)
    assert [row["id"] for row in found] == [0, 1, 2, 3]
    assert all(len(row["labels"]) == 3 for row in found)  # type: ignore[arg-type]
    line = " ".join(command("predict", tiny_model_folder, "-k", "60"))
    shell = f"yes 'some words of a text' | head -5000 | {line} | head -1"
    piped = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment(), timeout=60)
    assert piped.stderr == ""
    assert len(piped.stdout.splitlines()) == 1


def test_predict_files(run: Run, tiny_model: Model, tiny_model_folder: Path, texts: list[str], tmp_path: Path) -> None:
    expected = [[name for name, _ in row] for row in tiny_model.predict(texts, k=2).named()]

    def names(out: str) -> list[list[str]]:
        return [[item["label"] for item in row["labels"]] for row in lines_of(out)]  # type: ignore[attr-defined]

    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    rows = [json.dumps({"id": f"r{number}", "title": text, "other": 1}) for number, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n\n".join(rows))
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("\r\n".join(rows))
    for name in ("a.txt", "a.jsonl", "a.jsonl.gz"):
        code, out, err = run("predict", tiny_model_folder, tmp_path / name, "-k", "2")
        assert (code, err) == (0, "")
        assert names(out) == expected
    assert [row["id"] for row in lines_of(out)] == ["r0", "r1", "r2", "r3"]

    code, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-k", "2", "-o", tmp_path / "out.gz")
    assert (code, out) == (0, "")
    assert names(gzip.decompress((tmp_path / "out.gz").read_bytes()).decode()) == expected
    _, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-k", "2", "--format", "tsv")
    assert [line.split("\t")[:3] for line in out.splitlines()] == [
        ["id", "rank", "label"],
        *([f"r{row}", str(rank), label] for row in range(4) for rank, label in enumerate(expected[row], start=1)),
    ]
    _, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-k", "1", "--explain")
    assert set(lines_of(out)[0]["labels"][0]) == {
        "label",
        "score",
        "text",
        "cluster",
        "cluster_score",
        "edge_score",
        "classifier",
    }  # type: ignore[index]
    _, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "--format", "table")
    assert out.startswith(f"r0: {texts[0]}")


def test_predict_lists_of_labels(run: Run, tiny_model_folder: Path, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "allow").write_text("label-01\nlabel-02\n\nlabel-03\n")
    (tmp_path / "block").write_text("label-02\n")
    arguments = ("predict", tiny_model_folder, *texts, "--format", "tsv", "-k", "9")
    _, out, _ = run(*arguments, "--allow", tmp_path / "allow", "--block", tmp_path / "block")
    assert {line.split("\t")[2] for line in out.splitlines()[1:]} == {"label-01", "label-03"}
    rows = [{"text": texts[0], "candidates": ["label-05"]}, {"text": texts[1], "candidates": ["label-06", "label-07"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = run("predict", tiny_model_folder, tmp_path / "a.jsonl")
    assert [len(row["labels"]) for row in lines_of(out)] == [1, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b'{"text": "a"}\n{"text": }\n', 3, "a.jsonl:2: not JSON"),
        (b'{"txt": 1}\n', 3, 'a.jsonl: cannot tell which field holds the text; there are "txt"; say --text'),
        (b"{broken", 3, "a.jsonl:1: not JSON"),
        (b'{"text": {"a": 1}}\n', 3, 'a.jsonl:1: field "text": '),
        (b'{"text": "a", "candidates": "b"}\n', 3, 'a.jsonl:1: field "candidates": must be a list'),
        (b'{"text": "a", "candidates": ["b"]}\n', 2, 'candidates of input 0: unknown label "b"'),
        (b'{"text": "a", "candidates": []}\n{"text": "a"}\n', 2, "on every row or on none"),
        (b'{"text": "\xff"}\n', 3, "not UTF-8"),
        (b"PK\x03\x04\0\0", 3, "not a text file"),
        (b"", 3, "a.jsonl: the file is empty"),
    ],
)
def test_broken_inputs(
    run: Run, tiny_model_folder: Path, tmp_path: Path, content: bytes, code: int, message: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "out").write_text("as it was")
    found, out, err = run("predict", tiny_model_folder, tmp_path / "a.jsonl", "-o", tmp_path / "out")
    assert (found, out) == (code, ""), err
    assert one_line(err)
    assert message in err
    assert (tmp_path / "out").read_text() == "as it was"
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "out"]


def test_half_a_gzip_file(run: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    whole = gzip.compress(b'{"text": "a"}\n' * 100)
    for broken in (whole[:-9], b"no gzip", whole[:20] + b"\x00" * 30):
        (tmp_path / "a.jsonl.gz").write_bytes(broken)
        code, _, err = run("predict", tiny_model_folder, tmp_path / "a.jsonl.gz")
        assert code == 3
        assert one_line(err)
        assert "gzip" in err


def test_texts_that_look_like_something_else(
    run: Run, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("{not json}", "a/b c.txt d", "x" * 5000, "two\nlines", ""):
        code, out, err = run("predict", tiny_model_folder, text, "-k", "1")
        assert (code, err) == (0, "")
        assert len(out.splitlines()) == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("plain text\n\n{brace in the middle}\n"))
    code, out, _ = run("predict", tiny_model_folder)
    assert (code, len(out.splitlines())) == (0, 3)


# -- evaluate and inspect ---------------------------------------------------------------------------------------------


def test_evaluate(tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    done = elias("evaluate", tiny_model_folder, tiny_dataset, "--deciles", "--per-label", tmp_path / "labels.tsv")
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stdout)
    for name in ("P", "nDCG", "PSP", "PSnDCG", "R", "decile"):
        assert re.search(rf"^{name}\b", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"80 rows in \d+\.\d s\n", done.stderr)
    table = [line.split("\t") for line in (tmp_path / "labels.tsv").read_text().splitlines()]
    assert table[0] == [
        "label", "label_text", "training_count", "test_count", "predicted@5", "hits@5", "precision@5", "recall@5",
    ]  # fmt: skip
    assert len(table) == 61
    assert sum(int(line[3]) for line in table[1:]) > 80
    predicted, hits, precision = table[1][4:7]
    assert float(precision) == pytest.approx(100 * int(hits) / int(predicted), abs=0.01)


def test_evaluate_as_json(run: Run, tiny_dataset: Path, tiny_model_folder: Path) -> None:
    code, out, err = run("evaluate", tiny_model_folder, tiny_dataset, "--json", "--deciles", "--split", "train")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["rows"], found["split"], len(found["deciles"])) == (400, "train", 10)
    assert found["P@1"] > 40


def test_inspect(tiny_model_folder: Path) -> None:
    done = elias("inspect", tiny_model_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^clusters +4$", done.stdout, re.MULTILINE)
    assert re.search(r"^validation +P@1=", done.stdout, re.MULTILINE)


def test_inspect_a_label_and_a_cluster(run: Run, tiny_model_folder: Path) -> None:
    code, out, _ = run("inspect", tiny_model_folder, "--label", "label-07")
    assert (code, out.splitlines()[0].split()) == (0, ["label", "label-07"])
    found = json.loads(run("inspect", tiny_model_folder, "--label", "label-07", "--json")[1])
    assert found["clusters"][0]["edge_score"] > 0
    found = json.loads(run("inspect", tiny_model_folder, "--cluster", "3", "--json")[1])
    assert len(found["words"]) == 8
    assert len(found["labels"]) == 20
    assert "words" in run("inspect", tiny_model_folder, "--cluster", "3")[1]
    assert json.loads(run("inspect", tiny_model_folder, "--json")[1])["labels"] == 60


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["predict", "model", "text", "--treshold=0.5"], '--treshold=0.5; did you mean "--threshold"?'),
        (["fit", "data", "-o", "model", "--member=3", "--sed=1"], '--sed=1; did you mean "--seed"?'),
        (["check", "data", "more", "--sett", "a=b"], 'more --sett a=b; did you mean "--set"?'),
        (["--verson", "check", "data"], '--verson; did you mean "--version"?'),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_was_meant(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err
