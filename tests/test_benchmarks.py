"""The benchmarks and the demo run, at sizes that take seconds; what they measure is in docs/reference/benchmarks.md."""

from __future__ import annotations

import gzip
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from elias import load, load_dataset
from elias.core.metrics import PerRow, evaluate
from elias.core.propensity import PropensityModel
from elias.model.evaluate import evaluate_model
from helpers.processes import SMALL, STACKED, environment, sets

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NETWORK = {key: value for key, value in SMALL.items() if key != "ranking.kind"}  # a table has kinds of its own
CHAIN = {
    **{key: value for key, value in STACKED.items() if key in ("score_model.epochs", "score_model.hidden_units")},
    **NETWORK,
}
Tables = Callable[..., list[dict[str, Any]]]
SIZE = ["--labels", "2048", "--clusters", "64", "--kappa", "200", "--dim", "32", "--shortlist", "300"]


def rows_of(name: str, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / name), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--flat"]])
def test_search(options: list[str]) -> None:
    rows = rows_of("search.py", *SIZE, "--repeats", "1", "--singles", "3", "--no-faiss", *options)
    assert [row["row"] for row in rows] == ["ours", "torch", "exact fp32", "exact bf16"]
    assert all(row["batch ms"] > 0 and row["single p50"] > 0 for row in rows)


@pytest.mark.slow
def test_training_step() -> None:
    kernels, torch = rows_of("train_step.py", *SIZE, "--batch", "16", "--steps", "2")
    assert kernels["loss"] == pytest.approx(torch["loss"], rel=1e-3), "both paths make the same steps"


@pytest.mark.slow
def test_torch_path_against_itself() -> None:
    options = ["--batch", "16", "--steps", "2", "--rounds", "1", "--against", str(FOLDER.parent / "src")]
    other, this, ratio = rows_of("torch_path.py", *SIZE, *options)
    assert other["loss"] == this["loss"]
    assert all(this[name] > 0 for name in ("search ms", "step ms", "step MB", "union MB"))
    assert ratio["step ms"] == pytest.approx(other["step ms"] / this["step ms"])


@pytest.mark.slow
def test_scale() -> None:
    rows = rows_of("scale.py", "--labels", "4096", "--rules", "sqrt(L)", "--dim", "16", "--steps", "2")
    assert rows[0]["labels"] == 4096
    assert rows[0]["first answer ms"] > 0


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("peers.comparison")


def made_up_predictions(truth: sp.csr_matrix, hit_rate: float, seed: int) -> np.ndarray:
    """10 labels a row, some of them right: each right label takes the next place with probability `hit_rate`."""
    rng = np.random.default_rng(seed)
    found = np.full((truth.shape[0], 10), -1, dtype=np.int32)
    for row in range(truth.shape[0]):
        right = [int(label) for label in truth[row].indices if rng.random() < hit_rate]
        wrong = np.setdiff1d(rng.permutation(truth.shape[1])[: 10 - len(right)], truth[row].indices)
        found[row, : len(right) + len(wrong)] = [*right, *wrong]
    return found


def test_comparison_of_made_up_predictions(tiny_dataset: Path, comparison: Any) -> None:
    data = load_dataset(tiny_dataset)
    assert data.test is not None
    rates = {"weak peer": 0.2, "peer": 0.6, "better": 0.95, "same": 0.6, "worse": 0.3}
    systems = {
        name: comparison.score_rows(made_up_predictions(data.test.labels, rate, seed=i), data)
        for i, (name, rate) in enumerate(rates.items())
    }
    result = comparison.compare(systems, ours=["better", "same", "worse"])
    verdicts = {name: against["P@1"]["verdict"] for name, against in result["against_best_peer"].items()}
    assert verdicts == {"better": "above", "same": "level", "worse": "behind"}
    for metric, found in result["against_best_peer"]["better"].items():
        assert found["peer"] == "peer", metric
        assert found["low"] < found["difference"] < found["high"]
    predicted = made_up_predictions(data.test.labels, 0.6, seed=1)
    whole = evaluate(predicted, data.test.labels, PropensityModel(*data.training_counts()))
    for metric, found in result["metrics"]["peer"].items():
        assert found["value"] == pytest.approx(whole[metric])
        assert found["low"] < found["value"] < found["high"]


def test_interval_of_a_share_is_the_binomial_one(comparison: Any) -> None:
    """P@1 of n rows with share p has a 95 % interval of about p +- 1.96 sqrt(p (1 - p) / n)."""
    reached = np.arange(1000) < 300
    shares = {metric: (reached.astype(float), np.ones(1000)) for metric in comparison.METRICS}
    # A ratio of sums: rows weigh 1 and 3, and where the heavy ones are right the share is not the mean of rows.
    shares["PSP@5"] = (np.where(reached, 3.0, 0.0), np.where(reached, 3.0, 1.0))
    rows = PerRow(shares=shares, rows=np.arange(1000))
    found = comparison.compare({"a": rows, "b": rows}, ours=["b"])
    p1, psp = found["metrics"]["a"]["P@1"], found["metrics"]["a"]["PSP@5"]
    assert (p1["high"] - p1["low"]) / 2 == pytest.approx(100 * 1.96 * (0.3 * 0.7 / 1000) ** 0.5, rel=0.1)
    assert psp["value"] == pytest.approx(100 * 900 / 1600)
    assert psp["low"] < psp["value"] < psp["high"]
    same = found["against_best_peer"]["b"]["P@1"]
    assert (same["difference"], same["low"], same["high"], same["verdict"]) == (0, 0, 0, "level"), "drawn in pairs"


@pytest.mark.slow
def test_peers_program_measures_models(tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Without a peer: the program, its tables and its file for two names of one model."""
    command = [
        sys.executable, str(FOLDER / "peers.py"), str(tiny_dataset), "--peers", "--work", str(tmp_path),
        "--models", f"one={tiny_model_folder}", f"two={tiny_model_folder}", "--json", str(tmp_path / "result.json"),
        "--rounds", "3",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    data, model = load_dataset(tiny_dataset), load(tiny_model_folder, threads=2)
    expected = evaluate_model(model, data).metrics
    for metric, found in result["metrics"]["one"].items():
        assert found["value"] == pytest.approx(expected[metric])
        assert f"{found['value']:.2f} \u00b1" in done.stdout
    assert result["metrics"]["one"] == result["metrics"]["two"]
    assert result["figures"]["one"]["single_p50_ms"] > 0
    assert result["figures"]["one"]["train_seconds"] > 0
    assert result["in_turn"]["one"]["of the first"] == 1.0
    assert (
        result["in_turn"]["two"]["low"] <= result["in_turn"]["two"]["of the first"] <= result["in_turn"]["two"]["high"]
    )
    assert "single texts in turn" in done.stdout


def test_peers_program_says_what_is_missing(tiny_dataset: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "peers.py"), str(tiny_dataset), "--models", f"ours={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 2
    assert "write NAME=FOLDER with the folder of a trained model" in done.stderr


@pytest.mark.slow
def test_all_peers_on_the_small_dataset(tiny_dataset: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """Real peers; the first run makes .venv-peers. A second one takes everything from the first."""
    program = [sys.executable, str(FOLDER / "peers.py"), str(tiny_dataset), "--work", str(tmp_path)]
    command = [*program, "--models", f"ours={tiny_model_folder}", "--json", str(tmp_path / "result.json")]
    command += ["--rounds", "2"]
    for said in ("omikuji Bonsai-like", ""):
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=900)
        assert done.returncode == 0, done.stderr
        assert said in done.stderr
    assert ": train" not in done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert not result["left_out"]
    assert len(result["metrics"]) == 10, "nine rivals and ours"
    assert {"PECOS XR-Linear", "omikuji Parabel-like", "bm25s", "napkinXC PLT"} < set(result["metrics"])
    for name, metrics in result["metrics"].items():
        assert metrics["P@1"]["value"] > 30, name
        assert all(result["figures"][name][key] > 0 for key in ("batch_ms", "train_seconds", "model_bytes")), name
        assert name == "PECOS + score model" or result["in_turn"][name]["p50 ms"] > 0


@pytest.mark.slow
def test_serve(tiny_model_folder: Path, tiny_dataset: Path) -> None:
    options = [str(tiny_model_folder), "--data", str(tiny_dataset), "--texts", "80", "--seconds", "0.5"]
    rows = {row["row"]: row for row in rows_of("serve.py", *options, "--connections", "8")}
    assert rows["start to ready"]["seconds"] > 0
    for name in ("single", "nothing", "no text", "one text", "64 texts", "SIGHUP under load", "SIGTERM under load"):
        assert rows[name]["requests/s"] > 0
        assert rows[name]["errors"] == 0
    assert rows["one text"]["share"] > 0


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tiny_dataset: Path, capsys: pytest.CaptureFixture[str]) -> Tables:
    """`tables(name, work, options)`: the rows that benchmarks/tables.py prints for the small dataset."""
    monkeypatch.syspath_prepend(str(FOLDER))
    program = importlib.import_module("tables")

    def run(name: str, work: Path, *options: str, settings: dict[str, Any] = NETWORK) -> list[dict[str, Any]]:
        command = [name, str(tiny_dataset), "--work", str(work), "--json", *sets(settings), *options]
        monkeypatch.setattr(sys, "argv", ["tables.py", *command])
        program.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def folder_of(work: Path, dataset: Path) -> Path:
    return work / load_dataset(dataset).name


def test_ablation_of_the_network_and_its_resumption(tables: Tables, tiny_dataset: Path, tmp_path: Path) -> None:
    rows = tables("ablation", tmp_path, "--no-ranker")
    assert [row["row"] for row in rows] == ["stage 1", "control", "+ stage 2"]
    assert all(row["P@1"] > 10 and row["seconds"] > 0 for row in rows)
    folder = folder_of(tmp_path, tiny_dataset)
    network = ["05-tokens", "10-features", "20-clusters", "30-stage1", "40-adjacency", "50-stage2"]
    assert [step for step in built(folder / "chain.run" / "member-0") if int(step[:2]) < 85] == network
    assert built(folder / "control.run") == ["30-stage1", "85-quality", "90-model"], "features and clusters are shared"
    frozen = json.loads((folder / "control.run" / "settings.json").read_text())["resolved"]
    assert (frozen["stage1"]["epochs"], frozen["stage2"]["epochs"]) == (4, 0)
    page = (folder / "ablation.md").read_text()
    assert f"train on the same {rows[0]['rows']['train']} rows: 50 are held out of everything for T" in page
    assert [line.split(" | ")[0] for line in page.splitlines()[-3:]] == ["| stage 1", "| control", "| + stage 2"]

    stored = json.loads((folder / "ablation.json").read_text())
    assert list(stored["cells"].values()) == rows
    for key in list(stored["cells"])[1:]:  # as if killed after the first cell
        del stored["cells"][key]
    next(iter(stored["cells"].values()))["P@1"] = 12.5  # what is there is read, not measured
    (folder / "ablation.json").write_text(json.dumps(stored))
    (folder / "ablation.md").unlink()
    again = tables("ablation", tmp_path, "--no-ranker")
    assert again[0]["P@1"] == 12.5
    assert again[1:] == rows[1:]
    assert "| + stage 2 | " in (folder / "ablation.md").read_text()
    assert built(folder / "control.run").count("30-stage1") == 1, "finished steps are found"


@pytest.mark.slow
def test_ablation_of_the_published_chain(tables: Tables, tiny_dataset: Path, tmp_path: Path) -> None:
    rows = tables("ablation", tmp_path, "--members", "2", "--one-versus-all", "--stacked", settings=CHAIN)
    names = ["stage 1", "control", "+ stage 2", "+ ranker", "+ calibration", "+ 2 members", "one-versus-all"]
    assert [row["row"] for row in rows] == [*names, "stacked ranker", "2 members of it"]
    assert all(row["P@1"] > 10 for row in rows)
    seconds = {row["row"]: row["seconds"] for row in rows}
    assert seconds["stage 1"] < seconds["+ stage 2"] < seconds["+ ranker"] <= seconds["+ calibration"]
    assert seconds["+ calibration"] < seconds["+ 2 members"]
    folder = folder_of(tmp_path, tiny_dataset)
    first = built(folder / "chain.run" / "member-0")
    assert [step for step in first if step[:2] in ("30", "50", "60", "65")] == [
        "30-stage1", "50-stage2", "60-ranking", "65-held-out",
    ], "the network and the ranker are trained once for all rows of the chain"  # fmt: skip
    assert first.count("70-calibration") == 2
    second = built(folder / "chain.run" / "member-1")
    assert "10-features" not in second
    assert "60-ranking" in second, "members are whole models"
    assert "10-features" not in built(folder / "one-versus-all.run")
    page = (folder / "ablation.md").read_text()
    assert page.index("| + 2 members |") < page.index("## Our stacked ranker") < page.index("| stacked ranker |")
    cost = tables("cost", tmp_path, "--members", "2", settings=CHAIN)
    assert [row["row"] for row in cost] == ["ELIAS", "ELIAS++", "ELIAS++, 2 members"]
    assert cost[0]["model_gb"] < cost[1]["model_gb"] < cost[2]["model_gb"]
    assert cost[0]["peak_gb"] > 0


def test_sweeps_share_stage_1(tables: Tables, tiny_dataset: Path, tmp_path: Path) -> None:
    rows = tables("lambda", tmp_path, "--values", "0", ".5")
    assert [(row["row"], row["lambda"]) for row in rows] == [("0", 0.0), ("0.5", 0.5)]
    folder = folder_of(tmp_path, tiny_dataset)
    assert set(built(folder / "lambda.run")) == {"40-adjacency", "50-stage2", "85-quality", "90-model"}
    assert "stage 1, with lambda = 0.05, is the same in all rows" in (folder / "lambda.md").read_text()
    rows = tables("kappa", tmp_path, "--values", "2", "30")
    assert [row["row"] for row in rows] == ["2", "30"]
    assert rows[1]["multiple"] == pytest.approx(30 / (60 / 4))
    assert built(folder / "kappa.run").count("40-adjacency") == 2
    assert "30-stage1" not in built(folder / "kappa.run")
    assert tables("kappa", tmp_path, "--values", "30") == rows[1:]


def test_kappa_at_the_multiples_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    kappas = importlib.import_module("tables").KAPPAS
    assert [round(multiple * 670_091 / 8192) for multiple in kappas] == [100, 200, 500, 1000, 2000, 10_000]


def test_pruning_table(tables: Tables, tiny_dataset: Path, tmp_path: Path) -> None:
    rows = tables("prune", tmp_path)
    thresholds, counts = rows[1:5], rows[5:]
    assert [round(row["cut"]) for row in thresholds] == pytest.approx([74, 84, 89, 92], abs=2)
    assert [row["row"] for row in counts] == ["45 per cluster", "30 per cluster", "15 per cluster", "8 per cluster"]
    assert (rows[0]["cut"], rows[0]["unreachable"]) == (0, 0)
    last = counts[-1]
    assert last["unreachable"] >= 60 - 4 * 8, "8 edges of each of 4 clusters"
    assert last["R@100"] < last["R@100, reachable"] <= 100
    assert last["cut, reachable"] < last["cut"]
    page = (folder_of(tmp_path, tiny_dataset) / "prune.md").read_text()
    assert "## 9a, by threshold" in page
    assert "## 9b, by count" in page


def test_cost_table(tables: Tables, tiny_dataset: Path, tmp_path: Path) -> None:
    (row,) = tables("cost", tmp_path, "--no-ranker")
    assert row["row"] == "ELIAS"
    folder = folder_of(tmp_path, tiny_dataset) / "chain.run" / "member-0"
    size = sum(path.stat().st_size for path in (folder / "90-model").rglob("*") if path.is_file())
    assert row["model_gb"] == pytest.approx(size / 1e9)
    assert 0.05 < row["peak_gb"] < 20
    assert row["batch_ms"] > 0  # which of the two is larger depends on what else the machine does
    assert row["single_ms"] > 0
    seconds = sum(read["seconds"] for read in map(done, folder.glob("*/done.json")) if read["step"] < 85)
    assert row["training_hours"] == pytest.approx(seconds / 3600)


def done(path: Path) -> dict[str, Any]:
    return {**json.loads(path.read_text()), "step": int(path.parent.name[:2])}


def test_tables_says_what_is_wrong(tables: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in (
        (["--set", "stage2.epoch=3"], 'unknown setting "stage2.epoch"'),
        (["--set", "stage2"], "--set stage2: write SECTION.KEY=VALUE"),
        (["--set", "stage2.epochs=0"], "no edges are learned"),
    ):
        with pytest.raises(SystemExit) as error:
            tables("prune", tmp_path, *options)
        assert error.value.code not in (0, None)
        assert said in capsys.readouterr().err


def built(run: Path) -> list[str]:
    """The steps that a run has built itself."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if "step" in line]


@pytest.mark.slow
def test_demo(tiny_dataset: Path, tmp_path: Path) -> None:
    """The table and the examples; a second run trains nothing and measures the same.

    How rows compare is not tested: this dataset is so easy that all of them reach 100.
    """
    program = [sys.executable, str(FOLDER.parent / "examples" / "demo.py"), "--data", str(tiny_dataset), "--json"]
    tables = []
    for _ in range(2):
        done = subprocess.run(
            [*program, "--output", str(tmp_path / "model")], capture_output=True, text=True, env=environment(),
            timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        tables.append([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])
    assert tables[0] == tables[1]
    names = ["stage 1", "control", "stage 2"]
    assert [row["row"] for row in tables[0]] == [*names, *names, "stacked"]
    assert all(row["P@1"] > 10 and row["seconds"] > 0 for row in tables[0])
    assert built(tmp_path / "model-control.run") == ["30-stage1", "85-quality", "90-model"], (
        "features and clusters are shared"
    )
    frozen = json.loads((tmp_path / "model-control.run" / "settings.json").read_text())["resolved"]
    assert frozen["stage1"]["epochs"] == 5
    assert "Learning the index: " in done.stdout
    assert done.stdout.count("(right)") > 0


@pytest.mark.slow
def test_seeds(tiny_dataset: Path, tmp_path: Path) -> None:
    settings = sets({**STACKED, "score_model.folds": 2})
    rows = rows_of("seeds.py", str(tiny_dataset), "--seeds", "0", "1", "--work", str(tmp_path), *settings)
    assert [row["seed"] for row in rows] == [0, 1, "mean"]
    assert rows[2]["P@1"] == pytest.approx((rows[0]["P@1"] + rows[1]["P@1"]) / 2)
    name = load_dataset(tiny_dataset).name
    steps = list((tmp_path / f"{name}-0.run").rglob("done.json"))
    assert any(path.parent.parent.name == "fold-1" for path in steps)
    assert rows[0]["seconds"] == pytest.approx(sum(json.loads(path.read_text())["seconds"] for path in steps))


@pytest.mark.slow
def test_small_fits(tiny_dataset: Path, tmp_path: Path) -> None:
    """A cut of a training file is fitted, measured on rows that are not in it, and not fitted twice."""
    source = tmp_path / "data"
    source.mkdir()
    lines = (tiny_dataset / "train.jsonl").read_text(encoding="utf-8").splitlines()
    with gzip.open(source / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    measured = len(lines) // 4
    command = [sys.executable, str(FOLDER / "small_fits.py"), str(source), "--rows", "200", "--work", str(tmp_path)]
    command += ["--measured", str(measured), *sets(STACKED)]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180) for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert second.stdout == first.stdout
    row = json.loads(first.stdout)
    assert row["P@1"] > 10
    assert row["seconds"] == pytest.approx(sum(row["steps"].values()), abs=1)
    assert row["estimate"] > 0
    cut = tmp_path / "data" / "data-200"
    train, test = ((cut / f"{name}.jsonl").read_text().splitlines() for name in ("train", "test"))
    assert (len(train), len(test)) == (200, measured)
    assert not set(train) & set(test)
    assert set(train) | set(test) <= {json.dumps(json.loads(line)) for line in lines}


@pytest.mark.slow
def test_latency(tiny_dataset: Path, stacked_folder: Path, ensemble_folder: Path) -> None:
    options = ("--data", str(tiny_dataset), "--texts", "20")
    rows = rows_of("latency.py", str(stacked_folder), *options)
    names = ["one text", "tf-idf", "phi and clusters", "candidates and features", "score and top k"]
    rows, memory = rows[:-3], rows[-3:]
    assert [row["row"].strip() for row in rows] == [*names, "per text in batches of 256"]
    assert all(row["p50 ms"] > 0 for row in rows)
    assert 100 < memory[0]["peak MB"] < memory[1]["peak MB"] < 2000
    assert memory[2]["peak MB"] == sum(path.stat().st_size for path in stacked_folder.rglob("*.*")) / 1e6
    assert len(rows_of("latency.py", str(ensemble_folder), *options)) == 5, "an ensemble is timed as a whole"


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        {"rule": rule, "labels": labels, "single p50 ms": labels / 1e5, "batch ms": labels / 1e6}
        for rule in ("L/100", "sqrt(L)")
        for labels in (1000, 100_000)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, str(FOLDER / "plots.py"), str(tmp_path / "rows.jsonl"), str(tmp_path / "figures")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["scale-batch.svg", "scale-single.svg"]


def test_shrunken_copies_are_read_as_the_originals_would_be(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "shrunken.py"), str(tmp_path / "copies"), "--rows", "120"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180)
    assert done.returncode == 0, done.stderr
    # (layout, labels per training row, labels per text, A and B of the propensities)
    expected = {
        "lf-amazontitles-131k": ("raw texts (trn.json.gz)", 131_073 / 294_805, 2.29, (0.6, 2.6)),
        "amazon-670k": ("raw texts (trn.raw.json.gz), labels are numbers", 670_091 / 490_449, 5.45, (0.6, 2.6)),
        "wikipedia-500k": ("PECOS, texts", 501_070 / 1_779_881, 4.75, (0.5, 0.4)),
        "amazon-3m": ("PECOS, texts", 2_812_281 / 1_717_899, 17.0, (0.6, 2.6)),  # 36.06 is more than the source has
    }
    for name, (layout, labels_per_row, labels_per_text, propensity) in expected.items():
        data = load_dataset(tmp_path / "copies" / name)
        assert layout in data.layout
        assert len(data.train) == 120
        assert data.train.texts is not None
        assert data.train.labels.nnz / 120 == pytest.approx(labels_per_text, rel=0.2), name
        assert len(data.labels) / 120 == pytest.approx(labels_per_row, rel=0.1), name
        assert (data.settings.propensity_a, data.settings.propensity_b) == propensity
        assert np.all(data.training_counts()[0] > 0)
    titles = load_dataset(tmp_path / "copies" / "lf-amazontitles-131k")
    assert titles.train.excluded.nnz > 0, "filter files"
    assert max(len(text.split()) for text in titles.train.texts or ()) <= 32
