"""What the score model is trained on: features of candidates for rows that no other part of the model has seen.

One held-out split of a small dataset is too small to train a score model on and too large to lose. So up to 100,000
rows we cross-fit: several folds, each held out of a network and ranking parts of its own; the model itself is trained
on all rows. Of very many rows one held-out split is enough. In: `Features` and labels of held-out rows. Out: a
calibrated `ScoreModel`, and out-of-fold predictions: what the model would have answered to the held-out rows had it
never seen them, in any of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from .. import kernels
from ..core.files import read_tensors, write_tensors
from ..core.predictions import Predictions
from ..core.settings import ScoreModelSettings
from .calibration import cross_calibrated, fit_calibration
from .features import Features, stack, take
from .score_fit import TrainingCandidates, fit_score
from .score_model import LearnedScore, ScoreModel

NAME = "held_out.safetensors"
FOLDS, FOLDS_OF_MANY, MANY = 4, 2, 2000  # inner folds for calibration, by the number of held-out rows
ENOUGH = 40  # rows with a right label among their candidates; of fewer, a learned score is worse than p q
DEPTH = 100  # out-of-fold predictions per row
CALIBRATED = 10  # best labels of a row that the calibration is fitted to


@dataclass(frozen=True)
class HeldOutPredictions:
    """Candidates of held-out rows, and which of them are right."""

    features: Features
    right: np.ndarray  # bool [rows, m]
    rows: np.ndarray  # their numbers; a row can be held out in several folds

    @classmethod
    def of(cls, batches: Iterable[Features], labels: sp.csr_matrix, rows: np.ndarray) -> HeldOutPredictions:
        """`batches`: the features of the rows, in order; `labels`: their labels, rows x L."""
        features = stack(list(batches))
        truth = sp.csr_matrix((labels.data > 0, labels.indices, labels.indptr), shape=labels.shape)
        places = np.repeat(np.arange(len(features.labels)), features.labels.shape[1])
        right = np.asarray(truth[places, np.maximum(features.labels, 0).ravel()]).reshape(features.labels.shape)
        return cls(features, right & (features.labels >= 0), rows)

    @classmethod
    def join(cls, folds: Sequence[HeldOutPredictions]) -> HeldOutPredictions:
        features = stack([fold.features for fold in folds])
        width = features.labels.shape[1]
        right = [np.pad(fold.right, ((0, 0), (0, width - fold.right.shape[1]))) for fold in folds]
        return cls(features, np.concatenate(right), np.concatenate([fold.rows for fold in folds]))

    def take(self, chosen: np.ndarray) -> HeldOutPredictions:
        return HeldOutPredictions(take(self.features, chosen), self.right[chosen], self.rows[chosen])

    def save(self, folder: Path) -> None:
        arrays = {**self.features._asdict(), "right": self.right.astype(np.uint8), "rows": self.rows}
        write_tensors(folder / NAME, arrays)

    @classmethod
    def load(cls, folder: Path) -> HeldOutPredictions:
        arrays, _ = read_tensors(folder / NAME)
        features = Features(arrays["labels"], arrays["clusters"], arrays["values"])
        return cls(features, arrays["right"].astype(bool), arrays["rows"])


class FittedScoreModel(NamedTuple):
    score_model: ScoreModel
    out_of_fold: (
        Predictions  # of each held-out row, by a score model and a calibration curve that were fitted without it
    )


def fit_score_model(
    held_out: HeldOutPredictions, settings: ScoreModelSettings, *, loss: str, seed: int, threads: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> FittedScoreModel:  # fmt: skip
    """A score model and its calibration; p q where too few rows have a right candidate.

    The calibration is fitted to scores of models that were trained on the other folds: scores of rows a model was
    trained on are overconfident.
    """
    right, real = held_out.right, held_out.features.labels >= 0
    telling = int(right.any(axis=1).sum())
    if telling < ENOUGH:
        say(
            f"  score model: p q; only {telling:,} of {len(right):,} held-out rows have a right label among their "
            f"candidates, {ENOUGH} are needed"
        )
        product = ScoreModel(loss)
        return FittedScoreModel(product, _ranked(held_out, product(held_out.features, threads=threads)))
    row = np.unique(held_out.rows, return_inverse=True)[1]  # a row that was held out twice is in one fold
    fold = row % (FOLDS_OF_MANY if len(right) >= MANY else FOLDS)
    chosen = [fold >= 0, *(fold != number for number in range(fold.max() + 1))]
    candidates, fast = TrainingCandidates.of(held_out.features, right), kernels.serve()

    def learn(number: int, _: int) -> LearnedScore:
        torch.set_num_threads(1)  # of this thread: another number may be left over in it
        return fit_score(candidates, np.flatnonzero(chosen[number]), settings, seed, fast=fast)

    # Side by side, each on one thread.
    models: list[LearnedScore] = kernels.run_ranges(learn, range(len(chosen) + 1), threads)
    whole, *others = models
    crossed = np.zeros(real.shape, dtype=np.float32)
    for learned, kept in zip(others, chosen[1:], strict=True):
        crossed[~kept] = learned(held_out.take(~kept).features, threads=threads)
    best = np.argsort(np.argsort(np.where(real, -crossed, np.inf), axis=1), axis=1) < CALIBRATED
    calibration = fit_calibration(crossed, right, real & best, held_out.rows)
    probabilities = cross_calibrated(crossed, right, real & best, held_out.rows)
    say(f"  score model: {len(right):,} held-out rows, calibration error {calibration.error:.4f}")
    return FittedScoreModel(ScoreModel(loss, whole, calibration), _ranked(held_out, crossed, probabilities))


def _ranked(held_out: HeldOutPredictions, scores: np.ndarray, shown: np.ndarray | None = None) -> Predictions:
    """The best candidates of each row by `scores`, with the scores to show (default: the same)."""
    labels = held_out.features.labels
    real = labels >= 0
    order = np.lexsort((labels, np.where(real, -scores, np.inf)), axis=1)[:, :DEPTH]
    best, values = (np.take_along_axis(array, order, axis=1) for array in (labels, scores if shown is None else shown))
    return Predictions(labels=best, scores=np.where(best >= 0, values, 0).astype(np.float32))
