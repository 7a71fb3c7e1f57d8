"""A report: its numbers against `evaluate` and loops, its page, and models that some figures do not fit."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from elias import Dataset, Ensemble, Model
from elias.cli import main
from elias.core.metrics import deciles
from elias.evaluation.edge_analysis import ASSIGNED
from elias.evaluation.report import Subject, make_report
from elias.pipeline.stage1_model import open_stage1
from helpers.processes import SMALL
from helpers.tiny_dataset import fit_tiny

NAMESPACE = "{http://www.w3.org/2000/svg}"
FIGURES = ("3", "4", "5a", "5b", "7a", "7b", "8", "9")
VOID = {"meta", "br", "link"}


class Checker(HTMLParser):
    """Every element is closed in its turn; collects attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src", "xlink:href") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def report(model: Path, data: Path, output: Path, *options: str) -> Path:
    assert main(["report", str(model), str(data), "-o", str(output), "--quiet", *options]) == 0
    return output


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def column(rows: list[dict[str, str]], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def missing(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "report.json").read_text(encoding="utf-8"))["missing"]
    return found


@pytest.fixture(scope="module", autouse=True)
def _quick_maps() -> Iterator[None]:
    """Two dimensions of phi in place of t-SNE, which takes most of the time; it is tested in test_label_maps.py."""

    def flat(vectors: np.ndarray) -> np.ndarray:
        low, high = vectors[:, :2].min(axis=0), vectors[:, :2].max(axis=0)
        return np.asarray((vectors[:, :2] - low) / (high - low))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elias.evaluation.label_maps.tsne", flat)
        yield


@pytest.fixture(scope="module")
def folder(stacked_folder: Path, tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(stacked_folder, tiny_dataset, tmp_path_factory.mktemp("report") / "report")


def test_all_files_are_there(folder: Path) -> None:
    absent = missing(folder)
    # 4 clusters of 60 labels: whether there are labels with several strong edges is up to the model
    assert set(absent) <= {"figure-8", "figure-9"}
    for number in FIGURES:
        if f"figure-{number}" not in absent:
            assert table(folder, f"figure-{number}")
            assert (folder / f"figure-{number}.svg").stat().st_size > 1000
    assert {"index.html", "metrics.csv", "report.json", "reliability.svg", "reliability-counts.csv"} <= {
        path.name for path in folder.iterdir()
    }


def test_the_page_is_whole_and_loads_nothing(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert "script" not in checker.tags
    assert len(checker.ids) == len(set(checker.ids))
    assert checker.links
    assert all((folder / link).is_file() for link in checker.links), "links lead to files of the folder"
    assert "@import" not in text
    assert "url(" not in text
    for place in [folder / "index.html", *folder.glob("*.svg")]:
        without = place.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|//\w", without), place
    charts = re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL)
    assert len(charts) >= 8
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.findtext(f"{NAMESPACE}title")
        assert root.findtext(f"{NAMESPACE}desc")
    for path in folder.glob("*.svg"):
        ElementTree.fromstring(path.read_bytes())


def test_metrics_and_recall_are_those_of_evaluate(folder: Path, stacked_model: Model, data: Dataset) -> None:
    found = stacked_model.evaluate(data)
    metrics = {row["what"]: row for row in table(folder, "metrics")}
    assert set(metrics) == {"model", "stage 2", "stage 1"}
    for name in ("P@1", "nDCG@5", "PSP@3", "R@100"):
        assert float(metrics["model"][name]) == pytest.approx(found[name], rel=1e-4)
    curve = table(folder, "figure-5a")
    assert len(curve) == 100
    for k in (10, 20, 100):
        for name in metrics:
            assert float(curve[k - 1][name]) == pytest.approx(float(metrics[name][f"R@{k}"]), rel=1e-4)
    for stage in ("stage 1", "stage 2"):
        total = sum(column(table(folder, "figure-5b"), stage))
        assert total == pytest.approx(float(metrics[stage]["R@100"]), rel=1e-4), "contributions add up to R@100"
    bins = table(folder, "reliability")
    pairs = column(bins, "labels")
    gaps = [
        abs(p - r) for p, r in zip(column(bins, "mean probability"), column(bins, "share right"), strict=True)
    ]  # fmt: skip
    assert found.calibration_error == pytest.approx(np.average(gaps, weights=pairs), rel=1e-3)
    assert sum(column(table(folder, "reliability-counts"), "labels")) == sum(pairs)


def test_scores_of_true_labels(folder: Path, stacked_model: Model, data: Dataset) -> None:
    """Against one call of `predict` per row."""
    assert data.test is not None
    assert data.test.texts is not None
    of_label = deciles(stacked_model.label_counts)
    scores: dict[str, list[list[float]]] = {
        name: [[] for _ in range(10)] for name in ("network p", "ranker q", "model")
    }
    for row in range(len(data.test)):
        names = [data.labels.ids[label] for label in data.test.labels[row].indices]
        found = stacked_model.predict(data.test.texts[row], k=len(names), candidates=[names], explain=True)
        assert found.parts is not None
        for place, label in enumerate(found.labels[0].tolist()):
            parts = {name: float(values[0, place]) for name, values in found.parts.items()}
            decile = of_label[label]
            scores["network p"][decile].append(parts["cluster_score"] * parts["edge_score"] * parts["classifier"])
            scores["ranker q"][decile].append(parts["ranker"])
            scores["model"][decile].append(float(found.scores[0, place]))
    rows = table(folder, "figure-4")
    for name, values in scores.items():
        assert column(rows, name) == pytest.approx([np.mean(some) for some in values], rel=1e-3)
    assert column(rows, "test pairs") == [len(some) for some in scores["model"]]


def test_the_figures_of_the_index(folder: Path, stacked_model: Model) -> None:
    index = stacked_model.searcher.index
    scores, clusters = index.edge_scores(), index.clusters
    assert sum(column(table(folder, "figure-3"), "edges")) == index.n_edges
    shares = {float(row["edge score above"]): int(row["edges"]) for row in table(folder, "figure-3-shares")}
    assert shares[0.25] == (scores > 0.25).sum()
    home = {
        int(label): float(score)
        for label, cluster, score in zip(index.labels, clusters, scores, strict=True)
        if stacked_model.stage1_clusters[label] == cluster
    }
    left = {float(r["edge score above"]): float(r["percent of stage-1 edges"]) for r in table(folder, "figure-7a")}
    assert left[0.25] == pytest.approx(100 * sum(s > ASSIGNED for s in home.values()) / 60, rel=1e-4)
    of_label = deciles(stacked_model.label_counts)
    several = [
        [int((scores[index.labels == label] > ASSIGNED).sum()) for label in np.flatnonzero(of_label == d)]
        for d in range(10)
    ]
    found = column(table(folder, "figure-7b"), "mean clusters per label")
    assert found == pytest.approx([np.mean(some) for some in several], rel=1e-4)


def test_what_is_drawn_is_what_the_tables_say(folder: Path) -> None:
    """Back from the points of the lines to numbers, by the ticks of the axes."""
    for name, first in (("figure-5a", 1), ("figure-4", 2), ("figure-7a", 1), ("reliability", 1)):
        root = ElementTree.fromstring((folder / f"{name}.svg").read_bytes())
        x_of, y_of = scale(root, "x-tick", "x", 0.0), scale(root, "y-tick", "y", -4.0)
        rows = table(folder, name)
        lines = [one.attrib["points"] for one in root.iter(f"{NAMESPACE}polyline")]
        columns = list(rows[0])
        for series, points in zip(columns[first : first + len(lines)], lines, strict=True):
            places = np.array([point.split(",") for point in points.split()], dtype=float)
            for drawn, told in ((x_of(places[:, 0]), columns[0]), (y_of(places[:, 1]), series)):
                expected = np.array(column(rows, told))
                assert np.abs(drawn - expected).max() < 1e-3 * max(1e-3, expected.max()), (name, told)


def scale(root: ElementTree.Element, kind: str, attribute: str, shift: float) -> Any:
    """From pixels to numbers, by the first and the last tick of an axis."""
    ticks = [one for one in root.iter(f"{NAMESPACE}text") if one.attrib.get("class") == kind]
    at = [float(one.attrib[attribute]) + shift for one in (ticks[0], ticks[-1])]
    value = [float(one.text or "") for one in (ticks[0], ticks[-1])]
    return lambda pixels: value[0] + (pixels - at[0]) * (value[1] - value[0]) / (at[1] - at[0])


def test_the_same_report_twice_and_no_overwriting(
    folder: Path, stacked_folder: Path, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = report(stacked_folder, tiny_dataset, tmp_path / "again")
    assert (again / "index.html").read_bytes() == (folder / "index.html").read_bytes()
    (again / "figure-3.csv").unlink()
    assert main(["report", str(stacked_folder), str(tiny_dataset), "-o", str(again)]) == 6
    assert "pass --force" in capsys.readouterr().err
    assert not (again / "figure-3.csv").exists()
    report(stacked_folder, tiny_dataset, again, "--force")
    assert (again / "figure-3.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["again"], "nothing is left beside it"


def test_without_the_run_folder(
    tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(tiny_model_folder, moved)
    assert main(["report", str(moved), str(tiny_dataset), "-o", str(tmp_path / "report")]) == 0
    assert "Stage 1 is missing" in capsys.readouterr().err
    absent = missing(tmp_path / "report")
    assert "moved.run" in absent["figure-5b"]
    assert "--run FOLDER" in absent["figure-5b"]
    assert "not probabilities" in absent["reliability"], "the network alone gives none"
    assert list(table(tmp_path / "report", "figure-5a")[0]) == ["labels in the list", "stage 2"]
    assert list(table(tmp_path / "report", "figure-4")[0]) == ["decile", "test pairs", "network p"]
    found = report(moved, tiny_dataset, tmp_path / "named", "--run", f"{tiny_model_folder}.run")
    assert "figure-5b" not in missing(found)


def test_a_run_of_another_model(
    tiny_model_folder: Path,
    ensemble_folder: Path,
    tiny_dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path / "other.run"
    shutil.copytree(ensemble_folder.with_name("both.run") / "member-1", other)
    arguments = ["report", str(tiny_model_folder), str(tiny_dataset), "-o", str(tmp_path / "r"), "--run", str(other)]
    assert main(arguments) == 6
    assert "the run of another model" in capsys.readouterr().err


def test_an_ensemble(
    ensemble: Ensemble, ensemble_folder: Path, tiny_dataset: Path, data: Dataset, tmp_path: Path
) -> None:
    found = report(ensemble_folder, tiny_dataset, tmp_path / "report")
    metrics = {row["what"]: row for row in table(found, "metrics")}
    assert float(metrics["model"]["P@1"]) == pytest.approx(ensemble.evaluate(data)["P@1"], rel=1e-4)
    assert "stage 1" in metrics
    assert "2 members" in (found / "index.html").read_text(encoding="utf-8")
    # a member by itself finds its part of the run
    one = report(ensemble_folder / "member-1", tiny_dataset, tmp_path / "member")
    assert "stage 1" in {row["what"] for row in table(one, "metrics")}


def test_one_versus_all_has_no_index(tiny_dataset: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in SMALL.items() if not name.startswith(("clustering", "stage2"))}
    model = fit_tiny(tiny_dataset, tmp_path / "model", {**kept, "network.kind": "one-versus-all", "stage1.epochs": 1})
    found = report(model, tiny_dataset, tmp_path / "report")
    absent = missing(found)
    assert set(absent) == {f"figure-{n}" for n in ("3", "5b", "7a", "7b", "8", "9")} | {"reliability"}
    assert "one-versus-all" in absent["figure-3"]
    assert [row["what"] for row in table(found, "metrics")] == ["model"]
    assert table(found, "figure-4")


def test_stage_1_alone(stacked_model: Model, stacked_folder: Path, data: Dataset) -> None:
    stage1 = open_stage1(stacked_model, stacked_folder.with_name("model.run"))
    found = make_report(Subject("mine", "2026-01-01", stage1, data, "test", None))
    reasons = {figure.name: figure.missing for figure in found.figures if figure.missing}
    assert "stage2.epochs" in reasons["figure-3"]
    assert "stage2.epochs" in reasons["figure-5b"]
    assert found.metrics.rows[0][0] == "model"


def test_data_without_test_rows(
    tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "data"
    shutil.copytree(tiny_dataset, alone)
    (alone / "test.jsonl").unlink()
    assert main(["report", str(tiny_model_folder), str(alone), "-o", str(tmp_path / "report")]) == 2
    assert "no test rows" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
    # of a single file all rows are measured, and the page says so
    found = report(tiny_model_folder, tiny_dataset / "test.jsonl", tmp_path / "file")
    assert "flatters it" in (found / "index.html").read_text(encoding="utf-8")
