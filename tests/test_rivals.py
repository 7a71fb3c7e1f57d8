"""Fairness of benchmarks/peers.py and benchmarks/results.py: what every rival is given, what is filtered, which rows.

Packages of rivals are not installed here: a stand-in for the processes records what each is given and answers.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias import Dataset, load_dataset

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
N_LABELS = 30
N_TRAIN, N_TEST = 150, 40


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a name in benchmarks/."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items related to other items: rows 0..19 are labels themselves; row i has labels i % 30 and (i + 7) % 30."""
    path = tmp_path_factory.mktemp("related") / "related"
    path.mkdir()
    (path / "dataset.toml").write_text("exclude_own_id = true\n")
    (path / "labels.tsv").write_text("".join(f"item{i}\tname of thing{i}\n" for i in range(N_LABELS + 5)))
    for split, count in (("train", N_TRAIN), ("test", N_TEST)):
        rows = []
        for i in range(count):
            labels = [i % N_LABELS, (i + 7) % N_LABELS]
            row_id = f"item{(i + 3) % N_LABELS}" if i < 20 else f"{split}{i}"
            words = [f"word{label} thing{label}" for label in labels]
            text = " ".join([*words, f"common{i % 3}", f"own{i % 50} own{i % 50}"])
            rows.append(json.dumps({"id": row_id, "text": text, "labels": [f"item{label}" for label in labels]}) + "\n")
        (path / f"{split}.jsonl").write_text("".join(rows))
    return path


def race_of(data: Dataset, work: Path, modules: Any, threads: int = 1) -> Any:
    return modules("peers.rivals").Race(data, work, work / "no-environment", threads)


def given_pairs(inputs: Path) -> set[tuple[str, int]]:
    """(training text, label number of the dataset) of every positive."""
    texts = json.loads((inputs / "train_texts.json").read_text())
    labels, numbers = sp.load_npz(inputs / "labels.npz").tocoo(), np.load(inputs / "label_numbers.npy")
    return {
        (texts[row], int(numbers[column])) for row, column in zip(labels.row.tolist(), labels.col.tolist(), strict=True)
    }


@pytest.mark.parametrize("part", ["final", "choice"])
def test_own_ids_are_positives_and_label_texts_are_rows(folder: Path, tmp_path: Path, modules: Any, part: str) -> None:
    data = load_dataset(folder)
    race = race_of(data, tmp_path, modules)
    inputs = race.inputs(part)
    rows = data.train if part == "final" else race.choice.train
    pairs = given_pairs(inputs)
    assert rows.ids is not None
    assert rows.texts is not None
    own = [row for row, row_id in enumerate(rows.ids) if row_id in data.labels.number_of]
    assert len(own) > 10
    for row in own:
        number = data.labels.number_of[rows.ids[row]]
        assert rows.excluded[row, number], "no answer of this row may be its own id"
        assert (rows.texts[row], number) in pairs, "but it is a text of this label"
    for row in range(len(rows)):
        assert all((rows.texts[row], label) in pairs for label in rows.labels[row].indices.tolist())
    kinds, texts = np.load(inputs / "kinds.npy"), json.loads((inputs / "train_texts.json").read_text())
    used = sorted({number for _, number in pairs})
    of_labels = [text for text, kind in zip(texts, kinds.tolist(), strict=True) if kind == 1]
    assert of_labels == [f"item{i} name of thing{i}" for i in used], "one row of id and text for each label"
    assert used == list(range(N_LABELS)), "labels without any training row are no columns"
    about = json.loads((inputs / "data.json").read_text())
    assert (about["label_texts"], about["own_ids"]) == (len(used), len(own))


def test_label_names_serve_as_label_texts(tmp_path: Path, modules: Any) -> None:
    headings = ["Sea stories", "Cats", "Detective fiction"]
    texts = [f"a book about {heading.lower()} volume {i}" for i in range(30) for heading in headings]
    labels = [[heading] for _ in range(30) for heading in headings]
    data = Dataset.from_lists(texts, labels, test_texts=texts[:3], test_labels=labels[:3])
    assert data.labels.has_texts, "as in our own fit: ids that are words are texts"
    inputs = race_of(data, tmp_path, modules).inputs("final")
    kinds, given = np.load(inputs / "kinds.npy"), json.loads((inputs / "train_texts.json").read_text())
    assert [text for text, kind in zip(given, kinds.tolist(), strict=True) if kind == 1] == headings


def test_the_file_that_omikuji_reads_has_all_of_it(folder: Path, tmp_path: Path, modules: Any) -> None:
    data = load_dataset(folder)
    inputs = race_of(data, tmp_path, modules).inputs("final")
    rows = modules("peers.runner").TrainingRows(inputs)
    trees = modules("peers.omikuji_trees").Trees(tmp_path / "model", {"beam_size": 10}, 1)
    trees.prepare(rows)
    head, *lines = (tmp_path / "model.txt").read_text().splitlines()
    assert head.split() == [str(len(lines)), str(rows.features.shape[1]), str(N_LABELS)]
    assert len(lines) == N_TRAIN + N_LABELS
    numbers = np.load(inputs / "label_numbers.npy")
    first = {int(numbers[int(column)]) for column in lines[0].split()[0].split(",")}
    assert first == {0, 7, 3}, "row 0 has labels 0 and 7, and is item3 itself"


def test_validation_rows_are_not_learned_from_and_test_labels_are_not_given(
    folder: Path, tmp_path: Path, modules: Any
) -> None:
    data = load_dataset(folder)
    race = race_of(data, tmp_path, modules)
    choice, final = race.inputs("choice"), race.inputs("final")
    asked, learned = (json.loads((choice / name).read_text()) for name in ("texts.json", "train_texts.json"))
    assert len(asked) == N_TRAIN // 5
    assert not set(asked) & set(learned)
    assert data.test is not None
    assert json.loads((final / "texts.json").read_text()) == list(data.test.texts or [])
    assert (choice / "answers.npz").exists()
    assert not (final / "answers.npz").exists()
    with_file = replace(data, validation=data.test)
    given = modules("peers.shared_data").choice_rows(with_file)
    assert given.test is data.test
    assert given.train is data.train, "the rows of a validation file cost no training rows"


class Processes:
    """Stands for the processes of all systems: keeps their commands, answers own ids first, then what is right.

    Of peers only the last variant knows the labels of the validation rows, so it must be chosen.
    """

    def __init__(self, data: Dataset, race_inputs: Any) -> None:
        self.data, self.inputs, self.commands = data, race_inputs, []  # type: ignore[var-annotated]

    def __call__(self, command: list[str], log: Path, threads: int) -> str | None:
        module = command[2]
        self.commands.append(command[2:])
        if module == "peers.rescored":
            given = json.loads(Path(command[3]).read_text())
            self._write(Path(given["output"]), self.data.test, right=True)
            return None
        step, data, output, settings = command[3], Path(command[4]), Path(command[6]), json.loads(command[7])
        if module == "peers.our_model":
            self._write(output, self.data.test, right=True)
            return None
        if step == "train":
            (output / "train.json").write_text(json.dumps({"train_seconds": 1.0, "model_bytes": 10}))
            return None
        choice = "data-choice" in str(data)
        rows = self.inputs("choice") if choice else self.data.test
        assert (settings.pop("threads"), settings.pop("timed")) == (threads, "data-final" in str(data))
        catalogue = importlib.import_module("peers.catalogue")
        variants = [peer.variants for peer in catalogue.PEERS.values() if f"peers.{peer.adapter}" == module]
        self._write(output, rows, right=not choice or any(settings == given[-1] for given in variants))
        return None

    def _write(self, output: Path, rows: Any, *, right: bool) -> None:
        predicted = np.full((len(rows), 6), -1, dtype=np.int32)
        for row in range(len(rows)):
            own = self.data.labels.number_of.get(rows.ids[row], -1)
            known = rows.labels[row].indices.tolist() if right else [N_LABELS + 1]
            predicted[row, : 1 + len(known)] = [own, *known]
        (output / "train.json").write_text(json.dumps({"train_seconds": 1.0, "model_bytes": 10}))
        (output / "predict.json").write_text(json.dumps({"batch_ms": 0.5, "predict_peak_bytes": 1_000_000}))
        np.savez(output / "predictions.npz", labels=predicted, scores=np.zeros(predicted.shape))


class NoEnvironment:
    def __init__(self, folder: Path) -> None:
        pass

    def require(self, peer: Any) -> None:
        return None

    def versions_of(self, peer: Any) -> dict[str, str]:
        return {peer.package: "1.0"}


@pytest.fixture
def processes(folder: Path, modules: Any, monkeypatch: pytest.MonkeyPatch) -> Processes:
    rivals, results = modules("peers.rivals"), modules("results")
    data = load_dataset(folder)
    held_out = modules("peers.shared_data").choice_rows(data).test
    made = Processes(data, lambda part: held_out)
    monkeypatch.setattr(rivals, "run", made)
    monkeypatch.setattr(results, "run", made)
    monkeypatch.setattr(rivals, "Environment", NoEnvironment)
    monkeypatch.setattr(results, "commit_of_source", lambda: "abc1234")
    return made


def test_all_are_given_the_same_and_own_ids_are_filtered(
    folder: Path, tmp_path: Path, modules: Any, processes: Processes
) -> None:
    """The same folder for every rival; an own id at the first place of every answer costs nothing."""
    data = load_dataset(folder)
    race, peers = race_of(data, tmp_path, modules), modules("peers.catalogue").PEERS
    scored = {}
    for name, peer in peers.items():
        found = modules("peers.rivals").measure(name, race)
        predicted = np.load(found.folder / "predictions.npz")["labels"]
        scored[name] = modules("peers.comparison").score_rows(predicted, data)
        if len(peer.variants) > 1:
            assert found.settings == peer.variants[-1], "the best on the validation rows"
            assert len(found.tried) == len(peer.variants)
    expected = {"data-choice", "data-final"}
    for name, peer in peers.items():
        if not peer.base:
            used = {command[2] for command in processes.commands if command[0] == f"peers.{peer.adapter}"}
            assert {Path(path).name.rsplit("-", 1)[0] for path in used} <= expected, name
            assert used <= {str(race.inputs(part)) for part in ("choice", "final")}, name
    for name, shares in scored.items():
        assert len(shares.rows) == N_TEST, name
        assert modules("peers.comparison").value(shares, "P@1") == 100.0, name


def run_results(folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch, modules: Any, *options: str) -> str:
    page = work / "page.md"
    results = modules("results")
    if not page.exists():
        page.write_text(f"# Results\n\n{results.START}\nold\n{results.END}\n\nafter\n")
    options = ("--cells", str(work / "cells"), "--work", str(work), "--page", str(page), "--threads", "1", *options)
    monkeypatch.setattr("sys.argv", ["results.py", str(folder), *options])
    results.main()
    return page.read_text()


def test_results_from_one_command(
    folder: Path, tmp_path: Path, modules: Any, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every system has a row; a second run measures nothing; what changed is measured anew, and only that."""
    results, catalogue = modules("results"), modules("peers.catalogue")
    text = run_results(folder, tmp_path, monkeypatch, modules)
    assert "old" not in text
    assert text.endswith("\n\nafter\n")
    titles = [system.title for system in (*catalogue.PEERS.values(), *results.OURS.values())]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert sorted(rows) == sorted(
        [
            "system",
            *titles,
            "minus the best rival",
            "stacked ranker, one member",
            "stacked ranker, 3 members",
            "best rival",
        ]
    )
    assert "+0.00 [0.00, 0.00] level" in text, "all answered the same"
    assert "seed 0, 1, 2; commit abc1234" in text
    assert "| 0.50 |" in text, "milliseconds per text"
    done = len(processes.commands)
    assert run_results(folder, tmp_path, monkeypatch, modules) == text
    assert len(processes.commands) == done, "nothing is measured twice"

    monkeypatch.setattr(results, "commit_of_source", lambda: "def5678")
    assert "commit def5678" in run_results(folder, tmp_path, monkeypatch, modules)
    again = [command[0] for command in processes.commands[done:]]
    assert set(again) == {"peers.our_model"}, "another commit of ours: rivals stay"
    assert len(again) == 2 * 6

    done = len(processes.commands)
    wider = (*catalogue.PEERS["pecos"].variants, {"beam_size": 99})
    monkeypatch.setitem(catalogue.PEERS, "pecos", replace(catalogue.PEERS["pecos"], variants=wider))
    assert "beam_size 99, the best of 7" in run_results(folder, tmp_path, monkeypatch, modules)
    assert {command[0] for command in processes.commands[done:]} == {"peers.pecos", "peers.rescored"}

    done = len(processes.commands)
    run_results(folder, tmp_path, monkeypatch, modules, "--threads", "2", "--systems", "bm25s")
    assert [command[1] for command in processes.commands[done:]] == ["train", "predict"], "times anew, same choice"


def test_cells_of_two_commits_are_refused(
    folder: Path, tmp_path: Path, modules: Any, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_results(folder, tmp_path, monkeypatch, modules, "--systems", "words", "member", "network")
    path = tmp_path / "cells" / "related" / "network-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "key": "other"}))
    with pytest.raises(SystemExit, match=r"cells of different commits: abc1234 .*, other"):
        run_results(folder, tmp_path, monkeypatch, modules, "--tables")


def test_ours_are_not_measured_with_changes_that_are_not_committed(
    folder: Path, tmp_path: Path, modules: Any, processes: Processes, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(modules("results"), "commit_of_source", lambda: "")
    run_results(folder, tmp_path, monkeypatch, modules, "--systems", "words", "member")
    assert "left out: related: member: src/ has changes that are not committed" in capsys.readouterr().out


def test_a_failed_system_is_named_with_the_reason(
    folder: Path, tmp_path: Path, modules: Any, processes: Processes, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(modules("results"), "run", lambda *_: "ranking.kind: unknown choice")
    text = run_results(folder, tmp_path, monkeypatch, modules, "--systems", "words", "published")
    assert "left out: related: published: fit failed: ranking.kind: unknown choice" in capsys.readouterr().out
    assert "words alone" in text
    assert "ELIAS++" not in text


def test_a_cell_gives_the_metrics_back(folder: Path, modules: Any) -> None:
    data, cells, comparison = load_dataset(folder), modules("peers.cells"), modules("peers.comparison")
    assert data.test is not None
    rng = np.random.default_rng(0)
    predicted = np.stack([rng.permutation(len(data.labels)) for _ in range(N_TEST)]).astype(np.int32)
    whole = comparison.score_rows(predicted, data)
    read = comparison.score_rows(cells.predictions_of(cells.ranks_of(predicted, data), data), data)
    for metric in comparison.METRICS:
        assert np.array_equal(read.shares[metric][0], whole.shares[metric][0]), metric
    with pytest.raises(cells.CellError, match="other data"):
        cells.predictions_of(cells.ranks_of(predicted, data), replace(data, test=data.train))


@pytest.mark.parametrize(("content", "problem"), [("{", "not JSON"), ("[]", "exactly the keys"), ("{}", "exactly")])
def test_a_broken_cell_is_named(tmp_path: Path, modules: Any, content: str, problem: str) -> None:
    (tmp_path / "cell.json").write_text(content)
    with pytest.raises(modules("peers.cells").CellError, match=rf"cell\.json: .*{problem}"):
        modules("peers.cells").read_cell(tmp_path / "cell.json")


def test_a_page_without_markers_is_refused(modules: Any) -> None:
    with pytest.raises(modules("peers.cells").CellError, match="end of tables"):
        modules("results").with_tables("# Results", "")


def test_the_page_of_this_repository_has_the_markers(modules: Any) -> None:
    page = (FOLDER.parent / "docs" / "results.md").read_text(encoding="utf-8")
    assert modules("results").with_tables(page, "x")


def test_linear_svc_is_left_out_of_large_data(folder: Path, tmp_path: Path, modules: Any, processes: Any) -> None:
    catalogue = modules("peers.catalogue")
    assert catalogue.PEERS["linearsvc"].refusal(10_000, 5_000) is None
    assert catalogue.PEERS["linearsvc"].refusal(10_001, 10) == "10,001 training rows; it is run up to 10,000"
    assert catalogue.PEERS["linearsvc"].refusal(10, 5_001) == "5,001 labels; it is run up to 5,000"


def test_cuts_have_the_rows_asked_for_and_no_validation_file(
    folder: Path, tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = modules("peers.cuts")
    assert list(cuts.cuts(folder, [30], tmp_path / "none")) == [], "small data by itself"
    monkeypatch.setattr(cuts, "MANY", 100)
    (tmp_path / "related").mkdir()
    for path in folder.iterdir():
        (tmp_path / "related" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "related" / "dev.jsonl").write_bytes((folder / "test.jsonl").read_bytes())
    small, larger = (load_dataset(path) for path in cuts.cuts(tmp_path / "related", [30, 60], tmp_path / "cuts"))
    assert (small.name, len(small.train), len(larger.train)) == ("related-30", 30, 60)
    whole = load_dataset(folder)
    assert small.validation is None
    assert small.settings.exclude_own_id
    assert small.test is not None
    assert whole.test is not None
    assert list(small.test.texts or []) == list(whole.test.texts or [])
    assert set(small.train.texts or []) < set(larger.train.texts or []) < set(whole.train.texts or [])


@pytest.mark.parametrize("name", ["words", "knn", "linearsvc"])
def test_rivals_that_run_without_packages_of_their_own(
    folder: Path, tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In this process: nearly every test text has a right label first."""
    data = load_dataset(folder)
    peer = modules("peers.catalogue").PEERS[name]
    adapter = {"words": "Words", "knn": "Nearest", "linearsvc": "OneVersusRest"}[name]
    inputs = race_of(data, tmp_path, modules).inputs("final")
    runner = modules("peers.runner")
    monkeypatch.setattr(runner, "SINGLES", 3)
    settings = json.dumps({**peer.variants[0], "threads": 1})
    for step in ("train", "predict"):
        arguments = [step, str(inputs), str(tmp_path / "model"), str(tmp_path), settings]
        monkeypatch.setattr("sys.argv", [name, *arguments])
        runner.main(getattr(modules(f"peers.{peer.adapter}"), adapter))
    shares = modules("peers.comparison").score_rows(np.load(tmp_path / "predictions.npz")["labels"], data)
    assert modules("peers.comparison").value(shares, "P@1") > 80
    figures = modules("peers.rivals").figures_of(tmp_path)
    assert figures["model_bytes"] > 0
    assert figures["batch_ms"] > 0


def test_a_score_model_puts_right_candidates_first(
    folder: Path, tmp_path: Path, modules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that finds all labels in no order: words tell the right ones."""
    data = load_dataset(folder)
    race, comparison = race_of(data, tmp_path, modules), modules("peers.comparison")
    rng = np.random.default_rng(0)
    for part, rows in (("choice", race.choice.test), ("final", data.test)):
        (tmp_path / part).mkdir()
        predicted = np.stack([rng.permutation(N_LABELS) for _ in range(len(rows))]).astype(np.int32)
        np.savez(tmp_path / part / "predictions.npz", labels=predicted, scores=rng.random(predicted.shape))
        figures = {"train_seconds": 1.0, "train_peak_bytes": 1, "model_bytes": 1}
        (tmp_path / part / "train.json").write_text(json.dumps(figures))
        (tmp_path / part / "predict.json").write_text(json.dumps({"batch_ms": 1.0, "predict_peak_bytes": 1}))
    folders = {f"{part}_data": str(race.inputs(part)) for part in ("choice", "final")}
    (tmp_path / "output" / "model").mkdir(parents=True)
    outputs = {**{part: str(tmp_path / part) for part in ("choice", "final")}, "output": str(tmp_path / "output")}
    (tmp_path / "given.json").write_text(json.dumps({**folders, **outputs, "threads": 1}))
    monkeypatch.setattr("sys.argv", ["rescored", str(tmp_path / "given.json")])
    modules("peers.rescored").main()
    before = comparison.value(
        comparison.score_rows(np.load(tmp_path / "final" / "predictions.npz")["labels"], data), "P@1"
    )
    labels = np.load(tmp_path / "output" / "predictions.npz")["labels"]
    assert before < 30
    assert comparison.value(comparison.score_rows(labels, data), "P@1") > 80
    assert modules("peers.rivals").figures_of(tmp_path / "output")["train_seconds"] > 2.0, "the peer trained twice"
