"""`benchmarks/make_dataset.py`: what it writes has the statistics that it says, and can be learned."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from elias import load_dataset

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
NAME, FACTOR = "amazontitles-131k", 128


@pytest.fixture(scope="module")
def make_dataset() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("make_dataset")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def made(make_dataset: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("made")
    return folder, make_dataset.make(NAME, folder, factor=FACTOR, seed=3)


def test_the_files_have_the_statistics(make_dataset: ModuleType, made: tuple[Path, dict[str, Any]]) -> None:
    folder, content = made
    data, wanted, said = load_dataset(folder), content["wanted"], content["reached"]["train"]
    assert data.train.texts is not None
    assert data.test is not None
    pairs = data.train.labels
    counts = np.bincount(pairs.indices)
    words = [text.split() for text in data.train.texts]
    assert len(data.train) == said["rows"] == wanted["train_rows"] == round(294_805 / FACTOR)
    assert len(data.test) == wanted["test_rows"]
    assert len(counts) == said["labels"] == wanted["labels"], "every label has a training text"
    assert counts.min() >= 1
    assert pairs.nnz / len(words) == pytest.approx(said["labels per text"], abs=1e-3)
    assert said["labels per text"] == pytest.approx(2.29, rel=0.02)
    assert said["texts per label"] == pytest.approx(5.15, rel=0.02)
    assert np.mean([len(text) for text in words]) == pytest.approx(said["words per text"], abs=0.01)
    assert said["words per text"] == pytest.approx(7.0, rel=0.02)
    assert len({word for text in words for word in text}) == said["vocabulary"] >= 0.8 * wanted["vocabulary"]
    assert 100 * np.mean(counts <= 5) == pytest.approx(said["labels with at most 5 texts, %"], abs=0.06)
    assert counts.max() == said["texts of the most frequent label"] > 20 * np.median(counts), "a long tail"
    assert "| texts per label | 5.15 |" in make_dataset.show(content)


def test_the_same_seed_writes_the_same(
    make_dataset: ModuleType, made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    again = make_dataset.make(NAME, tmp_path, factor=FACTOR, seed=3)
    assert again == made[1]
    for name in ("train.jsonl.gz", "test.jsonl.gz", "generator/best.jsonl.gz"):
        contents = [gzip.decompress((folder / name).read_bytes()) for folder in (made[0], tmp_path)]
        assert contents[0] == contents[1], name


def test_the_best_answer_is_hard_to_beat(made: tuple[Path, dict[str, Any]]) -> None:
    """P@1 of the stored answers, counted again; the most frequent labels, and labels by shared words, are below it."""
    folder, content = made
    data = load_dataset(folder)
    with gzip.open(folder / "generator" / "best.jsonl.gz", "rt", encoding="utf-8") as file:
        best = [json.loads(line) for line in file]
    assert data.test is not None
    assert data.test.texts is not None
    assert data.train.texts is not None
    assert [row["id"] for row in best] == list(data.test.ids or ())
    truth = [{data.labels.ids[label] for label in data.test.labels[row].indices} for row in range(len(best))]
    share = 100 * np.mean([row["labels"][0]["label"] in own for row, own in zip(best, truth, strict=True)])
    assert share == pytest.approx(content["best"]["P@1"], abs=0.01)
    chances = [row["labels"][0]["score"] for row in best]
    assert 100 * np.mean(chances) == pytest.approx(share, abs=12), "its probabilities mean something"
    by_words = 100 * np.mean([label in own for label, own in zip(_by_shared_words(data), truth, strict=True)])
    frequent = np.bincount(data.train.labels.indices).argmax()
    most = 100 * np.mean([data.labels.ids[frequent] in own for own in truth])
    assert 3 * most < by_words < share, "words tell the labels"


def _by_shared_words(data: Any) -> list[str]:
    """For each test text, the first label of the training text with the most words in common, by idf."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(token_pattern=r"\S+")
    train = vectorizer.fit_transform(list(data.train.texts))
    nearest = np.asarray((vectorizer.transform(list(data.test.texts)) @ train.T).argmax(axis=1)).ravel()
    return [data.labels.ids[data.train.labels[row].indices[0]] for row in nearest.tolist()]


def test_modes_of_popular_labels_are_in_different_topics(make_dataset: ModuleType) -> None:
    world = make_dataset.World(make_dataset.SIZES[NAME].shrunken(FACTOR), 0)
    counts = np.bincount(world.label, world.quota)
    modes = np.bincount(world.label)
    popular = np.argsort(-counts)[:10]
    assert (modes[popular] >= 2).all()
    assert (modes[counts <= 10] == 1).all()
    for label in popular.tolist():
        topics = world.topic[world.label == label]
        assert len(np.unique(topics)) >= min(2, len(topics))


def test_paper_size_fits_the_growth(make_dataset: ModuleType, tmp_path: Path) -> None:
    sys.path.insert(0, str(FOLDER))
    try:
        paper_size = importlib.import_module("paper_size")
    finally:
        sys.path.remove(str(FOLDER))
    assert paper_size.growth([100, 200, 400], [1.0, 4.0, 16.0]) == pytest.approx(2)
    assert paper_size.growth([100, 200], [3.0, 6.0]) == pytest.approx(1)
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nQuestion.\n", encoding="utf-8")
    for content in ("| first |\n", "| second |\n"):
        paper_size.write_page("a", content, page)
        paper_size.write_page("b", "| other |\n", page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nQuestion.\n\n<!-- a -->\n| second |\n")
    assert text.count("| other |") == 1
    assert "first" not in text


@pytest.mark.slow
def test_paper_size_measures_once(tmp_path: Path) -> None:
    """A whole small run; called again, it prints the same figures without computing them."""
    import subprocess
    import time

    from helpers.processes import SMALL, environment, sets

    settings = sets({**SMALL, "run.threads": 1})
    command = [sys.executable, str(FOLDER / "paper_size.py"), NAME, "--factor", "256", "--work", str(tmp_path / "work")]
    command += [*settings, "--threads", "1", "--write", str(tmp_path / "page.md")]
    first = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=600)
    assert first.returncode == 0, first.stderr
    assert "| 50-stage2 |" in first.stdout
    assert "| P@1 of the generator's own best |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    started = time.monotonic()
    again = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=600)
    assert again.stdout.splitlines()[:-1] == first.stdout.splitlines()[:-1]
    assert time.monotonic() - started < 60
    assert not again.stderr
