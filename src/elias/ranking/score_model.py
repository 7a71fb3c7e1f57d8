"""The score model: one score per candidate from its features, learned on held-out rows, and its calibration.

    s = u . x + v . tanh(W x + b) + bias          x the inputs below, standardized
    s = p q                                       where too few rows could be held out to learn from

Inputs x: log p, z and log yhat from the network's features, every other feature as it is; beside each (but the count)
its distance to the best candidate of the same text, because whether a score is good depends on the others; and for the
combined score, the centroid score and the vote log(1 + how many candidates of the text have more).

It is learned on held-out texts (`score_fit.py`), and becomes a probability (`calibration.py`). In: `Features`. Out: a
score per candidate; JSON on disk.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..core import model_schema
from ..core.errors import ModelError
from ..core.files import read_json, write_json
from ..core.predictions import PAD
from ..core.schema import check_object
from ..kernels.features import CLASSIFIER, CLUSTER_SCORE, EDGE_SCORE, FEATURES
from ..kernels.score_model import N_INPUTS, RANKED, RELATIVE, Weights, score_rows, top_rows
from .calibration import NO_CURVE, IsotonicCalibration
from .features import Features, p_of
from .linear_ranker import q_of

NAME = "score_model.json"
LEAST = 1e-6  # of a probability whose logarithm is taken
FARTHEST = 6.0  # standard deviations from the mean, where inputs are clipped


class ReferenceScores(NamedTuple):
    """The candidates of each text that a label is compared with: best values and sorted values of the plain inputs.

    Candidate lists of a user are compared with what the search finds. A label that is in both must have the same bits
    in both, or it would rank behind itself: every way to a ranked feature ends in the same kernel.
    """

    best: np.ndarray  # float32 [B, RELATIVE]
    rising: np.ndarray  # float32 [B, len(RANKED), m], sorted; -inf at PAD; m = 0: compare with the own candidates

    @classmethod
    @lru_cache(maxsize=4)
    def own(cls, n_rows: int) -> ReferenceScores:
        """Every text is compared with its own candidates. Made once for each size of a batch; never written to."""
        best = np.full((n_rows, RELATIVE), -np.inf, dtype=np.float32)
        return cls(best, np.empty((n_rows, len(RANKED), 0), dtype=np.float32))

    @classmethod
    def of(cls, features: Features) -> ReferenceScores:
        inputs = plain_inputs(features)[:, :RELATIVE]
        shown = np.where((features.labels >= 0)[:, None], inputs, -np.inf).astype(np.float32)
        best = shown.max(axis=2, initial=-np.inf)
        return cls(np.where(np.isfinite(best), best, 0.0).astype(np.float32), np.sort(shown[:, list(RANKED)], axis=2))


def plain_inputs(features: Features) -> np.ndarray:
    """[B, len(FEATURES), m]: log p, z and log yhat in place of the network's three features."""
    inputs = features.values.astype(np.float32).copy()
    s, e, classifier = (features.values[:, FEATURES.index(n)] for n in ("cluster_score", "edge_score", "classifier"))
    sigma = np.clip(classifier, LEAST, 1 - LEAST)
    # Three inputs in the places of the three features they are made of.
    inputs[:, CLUSTER_SCORE] = np.log(np.maximum(p_of(features), LEAST))
    inputs[:, EDGE_SCORE] = np.log(sigma) - np.log1p(-sigma)
    inputs[:, CLASSIFIER] = np.log(np.maximum(s * e, LEAST))
    return inputs


def score_inputs(features: Features, reference: ReferenceScores | None = None) -> np.ndarray:
    """float32 [B, m, N_INPUTS]: what the learned score is a function of."""
    plain, own = plain_inputs(features), ReferenceScores.of(features)
    best = own.best if reference is None else np.maximum(own.best, reference.best)
    distances = plain[:, :RELATIVE] - best[:, :, None]
    rising = own.rising if reference is None else reference.rising
    ranks = np.empty((len(plain), len(RANKED), plain.shape[2]), dtype=np.float32)
    for row in range(len(plain)):
        for place, feature in enumerate(RANKED):
            not_more = np.searchsorted(rising[row, place], plain[row, feature], side="right")
            ranks[row, place] = np.log1p(rising.shape[2] - not_more)
    return np.concatenate([plain, distances, ranks], axis=1).transpose(0, 2, 1)


@dataclass(frozen=True)
class LearnedScore:
    """The weights of the learned score, float32."""

    mean: np.ndarray
    spread: np.ndarray
    linear: np.ndarray  # u
    hidden: np.ndarray  # W, [inputs, units]
    shift: np.ndarray  # b
    out: np.ndarray  # v
    bias: float

    def __call__(self, features: Features, reference: ReferenceScores | None = None, *, threads: int = 1) -> np.ndarray:
        """The score of every candidate [B, m], 0 at PAD."""
        if not kernels.serve():
            return np.where(features.labels >= 0, self.of_inputs(score_inputs(features, reference)), 0)
        scores = np.empty(features.labels.shape, dtype=np.float32)
        reference = reference or ReferenceScores.own(len(scores))
        kernels.run(score_rows, len(scores), threads, features, self.weights, tuple(reference), scores)
        return scores

    def of_inputs(self, inputs: np.ndarray) -> np.ndarray:
        return self.of_standardized(self.standardized(inputs))

    def standardized(self, inputs: np.ndarray) -> np.ndarray:
        """x: mean 0 and spread 1 over the candidates of held-out rows, clipped."""
        return np.asarray(np.clip((inputs - self.mean) / self.spread, -FARTHEST, FARTHEST))

    def of_standardized(self, x: np.ndarray) -> np.ndarray:
        """The formula."""
        score: np.ndarray = x @ self.linear + np.tanh(x @ self.hidden + self.shift) @ self.out + np.float32(self.bias)
        return score

    @cached_property
    def weights(self) -> Weights:
        """As the kernel reads them."""
        mean, inverse, linear, hidden, shift, out = (
            np.ascontiguousarray(array, dtype=np.float32)
            for array in (self.mean, 1 / self.spread, self.linear, self.hidden.T, self.shift, self.out)
        )
        numbers = np.float32(self.bias), np.float32(FARTHEST), np.float32(LEAST)
        return Weights(mean, inverse, linear, hidden, shift, out, *numbers)

    def as_dict(self) -> dict[str, Any]:
        return {name: np.asarray(value).tolist() for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> LearnedScore:
        """The inverse of `as_dict`, of values that were checked (`core/schema.py`)."""
        return cls(**{**content, "bias": float(content["bias"])})


@dataclass(frozen=True)
class ScoreModel:
    """The score of a candidate, and its probability where it is calibrated."""

    loss: str  # of the linear ranker: which q a margin has
    learned: LearnedScore | None = None  # None: p q
    calibration: IsotonicCalibration | None = None

    def __call__(self, features: Features, reference: ReferenceScores | None = None, *, threads: int = 1) -> np.ndarray:
        """The score of every candidate [B, m]; `reference` as in `ReferenceScores`."""
        if self.learned is not None:
            return self.learned(features, reference, threads=threads)
        product: np.ndarray = p_of(features) * q_of(features.values[:, FEATURES.index("margin")], self.loss)
        return product

    def top_k(
        self, labels: np.ndarray, scores: np.ndarray, k: int, *, threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(places, labels, scores) of the k best candidates, ties to the lower label; scores as probabilities if they
        are calibrated. PAD and 0 where there are fewer."""
        if not kernels.serve():
            return self._top_k_reference(labels, scores, k)
        curve = NO_CURVE if self.calibration is None else self.calibration.curve
        places, scores = np.empty((len(labels), k), dtype=np.int64), np.ascontiguousarray(scores, dtype=np.float32)
        best, values = np.empty(places.shape, dtype=np.int32), np.empty(places.shape, dtype=np.float32)
        kernels.run(top_rows, len(labels), threads, labels, scores, curve, places, best, values)
        return places, best, values

    def _top_k_reference(
        self, labels: np.ndarray, scores: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        real = labels >= 0
        order = np.lexsort((labels, np.where(real, -scores, np.inf)), axis=1)[:, :k]
        order = np.pad(order, ((0, 0), (0, k - order.shape[1])))
        missing = ~np.take_along_axis(real, order, axis=1)
        missing[:, labels.shape[1] :] = True
        values = np.take_along_axis(scores, order, axis=1)
        if self.calibration is not None:
            values = self.calibration(values)
        best = np.where(missing, PAD, np.take_along_axis(labels, order, axis=1)).astype(np.int32)
        return np.where(missing, PAD, order), best, np.where(missing, 0, values).astype(np.float32)

    def save(self, folder: Path) -> None:
        parts = {"learned": self.learned, "calibration": self.calibration}
        shown = {name: None if part is None else part.as_dict() for name, part in parts.items()}
        write_json(folder / NAME, {"loss": self.loss, "features": list(FEATURES), **shown})

    @classmethod
    def load(cls, folder: Path) -> ScoreModel:
        path = folder / NAME
        content = check_object(path, read_json(path), model_schema.SCORE_MODEL, {"inputs": N_INPUTS})
        if content["features"] != list(FEATURES):
            raise ModelError(f"{path}: the model was made with other features; fit it again with this elias")
        learned, calibration = content["learned"], content["calibration"]
        try:
            if learned is None and calibration is not None:
                raise ValueError("a calibration without a learned score")
            return cls(
                content["loss"],
                None if learned is None else LearnedScore.from_dict(learned),
                None if calibration is None else IsotonicCalibration.from_dict(calibration),
            )
        except ValueError as problem:
            raise ModelError(f"{path}: not a score model of elias ({problem}); restore it from a copy") from None
