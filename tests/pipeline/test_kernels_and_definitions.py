"""The whole pipeline by its definitions in numpy, torch and scikit-learn, against the same with kernels."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import elias
from elias import kernels
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.model.evaluate import evaluate_model
from elias.pipeline.fit import fit_to
from elias.ranking import label_tree
from elias.ranking.cross_fitting import HeldOutPredictions
from elias.ranking.features import FEATURES
from helpers.processes import PUBLISHED, SMALL, STACKED
from helpers.tiny_dataset import write_tiny_dataset

KEPT = 0.35  # share of the words of a text that stay
METRICS = ("P@1", "P@5", "nDCG@5", "R@10", "PSP@5")
# Kernels and definitions are solvers of their own, which stop at a tolerance; nearer to the minimum they meet.
TIGHT = {"linear_ranker.tolerance": 1e-6, "linear_ranker.max_iterations": 20_000}


@pytest.fixture(scope="module")
def hard_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The tiny dataset with most words lost and many test rows: no metric is near 100, one row is 0.1 points."""
    folder, rng = write_tiny_dataset(tmp_path_factory.mktemp("hard"), test_rows=1000), random.Random(0)

    def read(name: str) -> tuple[list[str], list[list[str]]]:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        texts = [" ".join(word for word in row["text"].split() if rng.random() < KEPT) for row in rows]
        return texts, [row["labels"] for row in rows]

    (texts, labels), (test_texts, test_labels) = read("train.jsonl"), read("test.jsonl")
    return Dataset.from_lists(texts, labels, test_texts=test_texts, test_labels=test_labels)


def both_ways(data: Dataset, changes: dict[str, Any], folder: Path) -> list[Path]:
    """The model fitted with kernels, and the one fitted by the definitions."""
    return [
        fit_to(data, folder / str(on), settings=Settings().updated({**changes, "run.kernels": on}))
        for on in (True, False)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(SMALL, id="network alone"),
        pytest.param(STACKED, id="stacked"),
        pytest.param({**STACKED, **TIGHT, "score_model.folds": 2}, id="folds"),
        pytest.param({**STACKED, "linear_ranker.loss": "logistic"}, id="logistic"),
        # The splits of a decision tree turn on the last digits of its inputs, so those must be exact.
        pytest.param({**PUBLISHED, **TIGHT, "published.unretrieved_positives": True}, id="published"),
    ],
)
def test_a_model_fitted_by_the_definitions_is_as_good(
    hard_data: Dataset, changes: dict[str, Any], tmp_path: Path
) -> None:
    fast, slow = both_ways(hard_data, changes, tmp_path)
    ours = evaluate_model(elias.load(fast, threads=2), hard_data).metrics
    theirs = evaluate_model(elias.load(slow, threads=2, kernels=False), hard_data).metrics
    for metric in METRICS:
        assert ours[metric] == pytest.approx(theirs[metric], abs=0.5), metric
        assert 15 < ours[metric] < 85, "a metric at its limit would compare nothing"


def test_solved_to_the_end_the_features_are_the_same(
    hard_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rows that were held out: the same candidates, and every feature of every one of them."""
    monkeypatch.setattr(label_tree, "TOLERANCE", TIGHT["linear_ranker.tolerance"])
    fast, slow = (
        by_label(HeldOutPredictions.load(path.with_name(f"{path.name}.run") / "65-held-out"))
        for path in both_ways(hard_data, {**STACKED, **TIGHT}, tmp_path)
    )
    assert fast.keys() == slow.keys()
    assert len(fast) > 1000
    ours, theirs = (np.array([found[pair] for pair in fast]) for found in (fast, slow))
    for place, name in enumerate(FEATURES):
        atol = 5e-4 if name in ("margin", "path") else 1e-4  # their files hold 16-bit codes
        np.testing.assert_allclose(ours[:, place], theirs[:, place], rtol=0, atol=atol, err_msg=name)
        assert np.ptp(theirs[:, place]) > 0 or name == "label_text", "these labels have no texts"


def by_label(held_out: HeldOutPredictions) -> dict[tuple[int, int], np.ndarray]:
    """The features of each (row, label)."""
    labels, _, values = held_out.features
    return {(row, int(labels[row, place])): values[row, :, place] for row, place in np.argwhere(labels >= 0)}


@pytest.mark.parametrize(
    "changes",
    [
        {"score_model.folds": 2},
        {"ranking.kind": "published"},
        {"network.precision": "bfloat16", "stage1.optimizer": "adamw", "stage2.optimizer": "adamw"},
    ],
)
def test_without_kernels_no_kernel_is_called(
    hard_data: Dataset, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the other tests here would compare kernels with themselves."""
    replaced = refuse_kernels(monkeypatch)
    assert replaced > 100
    settings = Settings().updated({**STACKED, **changes, "run.kernels": False})
    model = elias.fit(hard_data, settings=settings)
    assert hard_data.test is not None
    texts = list(hard_data.test.texts or [])[:9]
    model.predict(texts, explain=True)
    model.predict(texts[0], allow=model.labels.ids[:5])
    evaluate_model(model, hard_data)
    with pytest.raises(AssertionError, match="was called"):  # what is refused here does run elsewhere
        elias.fit(hard_data, settings=settings.updated({"run.kernels": True}))


def refuse_kernels(monkeypatch: pytest.MonkeyPatch) -> int:
    """Replace every compiled function, wherever it was imported to, by one that raises; returns how many."""
    for module in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{module.name}")
    found = [
        (module, name, value)
        for path, module in list(sys.modules.items())
        for name, value in list(vars(module).items())
        if path.split(".")[0] == "elias" and isinstance(value, Dispatcher)
    ]
    for module, name, _ in found:
        monkeypatch.setattr(module, name, _refused(f"{module.__name__}.{name}"))
    return len(found)


def _refused(name: str) -> Callable[..., None]:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"the kernel {name} was called")

    return refuse


@pytest.mark.parametrize("changes", [SMALL, STACKED], ids=["network alone", "stacked"])
def test_a_model_fitted_by_the_definitions_answers_alike_with_and_without_kernels(
    hard_data: Dataset, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Both stages, ranking, saved, loaded: one folder, two ways to read it."""
    path = fit_to(hard_data, tmp_path / "model", settings=Settings().updated({**changes, "run.kernels": False}))
    assert hard_data.test is not None
    texts = list(hard_data.test.texts or [])[:200]
    fast, slow = (elias.load(path, kernels=on).predict(texts, k=10, explain=False) for on in (True, False))
    np.testing.assert_allclose(fast.scores, slow.scores, rtol=1e-3, atol=1e-5)
    assert (fast.labels == slow.labels).mean() > 0.98, "but for scores that are equal to the last digits"
