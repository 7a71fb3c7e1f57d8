"""Step 85 of a run: what the model is worth, next to two baselines on the same rows. It changes nothing of the model.

    test rows with labels             the model as it answers; of very many a sample
    none, but rows were held out      out-of-fold predictions of step 70: fold networks, ranking parts, score models and
                                      calibrations that have not seen the row; and baselines that have not (65)
    none, but validation rows that    the model as it answers; checkpoints were chosen on these rows, which is said
    no part was trained on            (the network alone, and the published ranker)
    fewer than 50 such rows           not measured, which is said

Labels that no candidate source finds, or that no training row has, stay in the denominators. Out: quality.json, whose
content step 90 puts into config.json (`evaluation/quality.py` has the format).

Out-of-fold figures are low rather than high: the parts that answer were trained on fewer rows than the model, and of
half of the rows they have not seen near-duplicates either (`dataset/split.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.devices import torch_threads
from ..core.files import read_object, read_tensors, write_json
from ..core.predictions import Predictions
from ..dataset import Rows
from ..evaluation.baselines import SeenRows, baseline_labels
from ..evaluation.quality import HELD_OUT, LEAST_ROWS, TEST, MeasuredRows, Quality, measure
from ..model.ensemble import Ensemble
from ..model.evaluate import evaluate_rows
from ..model.model import Model
from ..ranking.score_model import ScoreModel
from .context import FitContext
from .features_step import STEP as FEATURES
from .features_step import FeatureSet, all_rows, held_out_of, known_in_fold
from .network_steps import TrainedNetwork
from .ranking_steps import BASELINES, OUT_OF_FOLD, RankingSteps, has_labeled_test_rows, kinds_of

STEP, NAME = "85-quality", "quality.json"
MOST_ROWS = 5_000  # test rows that are answered: the standard error of P@1 is then at most 0.7 points
MOST_ENCODED = 2_000  # the same where a transformer reads every text
CHECKPOINT_NOTE = "checkpoints were chosen on these rows, so the figures are a little too high; a test file is better"
NEARLY_ALL = 0.9  # of the training rows: what is trained on fewer is noticeably worse than the model itself
MEMBER_NOTE = "measured of the first member, on rows held out of it; give a test file to measure the ensemble"


def quality_step(
    context: FitContext,
    features: FeatureSet,
    network: TrainedNetwork,
    ranking: RankingSteps | Path | None,
    model: Callable[[], Model],
) -> Path:
    """Build step 85, or skip it. `model`: makes the model as it will answer."""
    stacked = ranking if isinstance(ranking, RankingSteps) else None

    def build(folder: Path) -> None:
        if has_labeled_test_rows(context.data):
            assert context.data.test is not None
            write_quality(folder, _of_model(context, features, stacked, model(), *sampled_test_rows(context)))
            return
        out_of_fold = None if stacked is None else stacked.score_model / OUT_OF_FOLD
        quality, n_rows = None, 0
        if stacked is not None and out_of_fold is not None and out_of_fold.exists():
            rows, found, baselines = _out_of_fold(context, stacked)
            n_rows = len(rows)
            calibrated = ScoreModel.load(stacked.score_model).calibration is not None
            quality = measure(rows, found, baselines, gives_probabilities=calibrated)
        elif stacked is None or held_out_of(context.data) is not context.data.train:
            parts, _ = read_tensors(features.folder / "split.safetensors")
            chosen = held_out_of(context.data).take(parts["validation"])
            n_rows = int((np.diff(chosen.labels.indptr) > 0).sum())
            if n_rows >= LEAST_ROWS:
                quality = _of_model(context, features, stacked, model(), chosen, HELD_OUT, CHECKPOINT_NOTE)
        write_quality(folder, quality if n_rows >= LEAST_ROWS else None, too_few(n_rows))

    made_of = (
        [] if ranking is None else [ranking] if isinstance(ranking, Path) else [ranking.parts, ranking.score_model]
    )
    after = [network.stage, *made_of]
    return context.run.step(STEP, {"rows": [MOST_ROWS, MOST_ENCODED]}, build, after=after)


def ensemble_quality_step(context: FitContext, members: list[Path], ensemble: Callable[[], Ensemble]) -> Path:
    """The same for an ensemble: on test rows; without any, what its first member is worth, and says so."""

    def build(folder: Path) -> None:
        first = read_object(members[0] / "config.json", "quality")["quality"]
        if first is None or not has_labeled_test_rows(context.data):
            reason = too_few(0) if first is None else ""
            write_quality(folder, None if first is None else {**first, "note": MEMBER_NOTE}, reason)
            return
        rows, name, note = sampled_test_rows(context)
        whole = ensemble()
        measured = MeasuredRows(name, rows.labels, rows.excluded, note)
        found = _answers(context, whole, rows)
        quality = measure(measured, found, {}, gives_probabilities=whole.gives_probabilities)
        write_quality(folder, {**quality.as_dict(), "baselines": first["baselines"]})

    return context.run.step(STEP, {"rows": [MOST_ROWS, MOST_ENCODED]}, build, after=members)


def too_few(n_rows: int) -> str:
    return f"not measured: {n_rows} held-out rows are too few; give a test file"


def write_quality(folder: Path, quality: Quality | dict[str, Any] | None, reason: str = "") -> None:
    content = quality.as_dict() if isinstance(quality, Quality) else quality
    write_json(folder / NAME, {"quality": content, "reason": reason if content is None else ""})


def read_quality(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """(quality, why there is none)."""
    content = read_object(folder / NAME, "quality", "reason")
    return content["quality"], content["reason"]


def sampled_test_rows(context: FitContext) -> tuple[Rows, str, str]:
    """(test rows with labels, their name, a note): all, or a sample that is the same in every run."""
    rows = context.data.test
    assert rows is not None
    labeled = np.flatnonzero(np.diff(rows.labels.indptr) > 0)
    most = MOST_ROWS if context.settings.encoder.kind in ("bag", "vectors") else MOST_ENCODED
    note = ""
    if len(labeled) > most:
        note = f"drawn at random from {len(labeled):,} test rows"
        labeled = np.sort(np.random.default_rng(0).choice(labeled, most, replace=False))
    return rows.take(labeled), TEST, note


def _of_model(
    context: FitContext,
    features: FeatureSet,
    stacked: RankingSteps | None,
    model: Model,
    rows: Rows,
    name: str,
    note: str,
) -> Quality:
    """What the model answers to rows that it was not trained on."""
    if stacked is None:
        seen = SeenRows(features.bow, features.train.labels, kinds_of(features))
    else:  # its ranking parts have seen every row of the training file
        bow, every = all_rows(context, features.vectorizer)
        seen = SeenRows(bow, every.labels, every.kinds)
    asked = rows.vectors if features.vectorizer is None else features.vectorizer.transform(rows.texts or [])
    assert asked is not None
    baselines = baseline_labels(seen, asked, threads=context.threads)
    measured = MeasuredRows(name, rows.labels, rows.excluded, note)
    return measure(measured, _answers(context, model, rows), baselines, gives_probabilities=model.gives_probabilities)


def _answers(context: FitContext, model: Model | Ensemble, rows: Rows) -> Predictions:
    with torch_threads(context.threads):
        return evaluate_rows(model, context.data, rows).predictions


def _out_of_fold(context: FitContext, ranking: RankingSteps) -> tuple[MeasuredRows, Predictions, dict[str, np.ndarray]]:
    """Held-out rows, each once, with what is predicted for them by parts that have not seen them."""
    arrays, _ = read_tensors(ranking.score_model / OUT_OF_FOLD)
    folds = [read_tensors(folder / BASELINES)[0] for folder in ranking.held_out]
    baselines = {name: np.concatenate([fold[name] for fold in folds]) for name in folds[0]}
    numbers, first = np.unique(arrays["rows"], return_index=True)  # a row can be held out in several folds
    source, n_train = held_out_of(context.data), len(context.data.train)
    splits = [read_tensors(folder.with_name(FEATURES) / "split.safetensors")[0] for folder in ranking.held_out]
    seen, reasons = min(len(split["train"]) for split in splits), []
    if seen < NEARLY_ALL * n_train:
        reasons.append(f"what answered was trained on {seen:,} of the {n_train:,} rows")
    if context.settings.split.near_duplicates and source is context.data.train:
        reasons.append("near-duplicates of half of the rows were held out with them")
    note = f"a low estimate: {'; '.join(reasons)}" if reasons else ""
    labels = [source.labels[split["calibration"]] for split in splits]
    if context.settings.score_model.folds:
        labels = [known_in_fold(found, context.data, split) for found, split in zip(labels, splits, strict=True)]
    rows = MeasuredRows(HELD_OUT, sp.csr_matrix(sp.vstack(labels)[first]), source.excluded[numbers], note)
    found = Predictions(labels=arrays["labels"][first], scores=arrays["scores"][first])
    return rows, found, {name: labels[first] for name, labels in baselines.items()}
