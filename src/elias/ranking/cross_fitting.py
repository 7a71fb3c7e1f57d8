"""What the final score is learned from: the evidence of rows that nothing else has seen; and learning it.

A `Sample` is such rows with the labels that were found for them. Of very many rows there is one, of the calibration
rows of the run. Of fewer, a part is too few to learn from and too many to do without: then rows are drawn several times
(`fusion.draws`), each draw is held out of a network and words of its own, and the model is trained on all rows.
In: `Plus` without a final score, samples. Out: `Plus` with one, and with probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from .. import kernels
from ..core.files import read_tensors, write_tensors
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..core.settings import FusionSettings
from ..network.searcher import BATCH, Searcher
from ..training.trainer import TrainingRows
from .calibration import fit_probability
from .features import Evidence
from .reranker import Plus
from .score_model import Fusion, fit_fusion

NAME = "sample.safetensors"
FOLDS = 4  # of few rows; of MANY, 2 do
MANY = 2000
ENOUGH = 40  # rows with a right label among those found; of fewer, a final score is worse than p q (docs/log.md)
SHOWN = 10  # best labels of a row that probabilities are fitted to
SINGLE = [name for name in Evidence.__dataclass_fields__ if name not in ("words", "votes")]


@dataclass(frozen=True)
class Sample:
    """Labels found for some rows, and which of them are right."""

    evidence: Evidence
    right: np.ndarray  # bool [rows, m]
    rows: np.ndarray  # their numbers; a row can be in several draws

    @classmethod
    def of(cls, plus: Plus, searcher: Searcher, rows: TrainingRows, bow: sp.csr_matrix, numbers: np.ndarray) -> Sample:
        """What a network and words that have not seen some rows say of them."""
        pieces = []
        for start in range(0, len(rows), BATCH):
            some = np.arange(start, min(start + BATCH, len(rows)))
            excluded = Ragged.from_rows(rows.excluded, some)[0]
            pieces.append(plus.gather(searcher, searcher.encode(rows.prepared, some), bow[some], excluded, 1))
        evidence = _stacked(pieces)
        labels, width = rows.labels, evidence.labels.shape[1]
        truth = sp.csr_matrix((labels.data > 0, labels.indices, labels.indptr), shape=labels.shape)
        places = np.repeat(np.arange(len(evidence.labels)), width)
        right = np.asarray(truth[places, np.maximum(evidence.labels, 0).ravel()]).reshape(evidence.labels.shape)
        return cls(evidence, right & (evidence.labels >= 0), numbers)

    @classmethod
    def joined(cls, samples: Sequence[Sample]) -> Sample:
        evidence = _stacked([sample.evidence for sample in samples])
        width = evidence.labels.shape[1]
        right = [np.pad(sample.right, ((0, 0), (0, width - sample.right.shape[1]))) for sample in samples]
        return cls(evidence, np.concatenate(right), np.concatenate([sample.rows for sample in samples]))

    def take(self, chosen: np.ndarray) -> Sample:
        fields = {name: getattr(self.evidence, name)[chosen] for name in SINGLE}
        v, t, c = (values[chosen] for values in self.evidence.words)
        vote, closest = (values[chosen] for values in self.evidence.votes)
        evidence = Evidence(**fields, words=(v, t, c), votes=(vote, closest))
        return Sample(evidence, self.right[chosen], self.rows[chosen])

    def save(self, folder: Path) -> None:
        evidence = self.evidence
        arrays = {name: getattr(evidence, name) for name in SINGLE}
        arrays |= {f"words{place}": values for place, values in enumerate(evidence.words)}
        arrays |= {f"votes{place}": values for place, values in enumerate(evidence.votes)}
        write_tensors(folder / NAME, {**arrays, "right": self.right.astype(np.uint8), "rows": self.rows})

    @classmethod
    def load(cls, folder: Path) -> Sample:
        arrays, _ = read_tensors(folder / NAME)
        words, votes = [arrays[f"words{place}"] for place in range(3)], [arrays[f"votes{place}"] for place in range(2)]
        fields = {name: arrays[name] for name in SINGLE}
        evidence = Evidence(**fields, words=(words[0], words[1], words[2]), votes=(votes[0], votes[1]))
        return cls(evidence, arrays["right"].astype(bool), arrays["rows"])


def with_final_score(
    plus: Plus, sample: Sample, settings: FusionSettings, seed: int, say: Callable[[str], None]
) -> Plus:
    """`plus` with a final score learned from a sample, and its probabilities; or as it is.

    Probabilities come from scores learned on the other folds, so that they are not too sure of themselves.
    """
    right, there = sample.right, sample.evidence.labels >= 0
    telling = int(right.any(axis=1).sum())
    if telling < ENOUGH:
        say(
            f"  final score: p q; only {telling:,} of {len(right):,} rows have found a right label, {ENOUGH} are needed"
        )
        return plus
    row = np.unique(sample.rows, return_inverse=True)[1]  # a row that was drawn twice is in one fold
    fold = row % (2 if len(right) >= MANY else FOLDS)
    chosen = [fold >= 0, *(fold != number for number in range(fold.max() + 1))]

    def learn(number: int, _: int) -> Fusion:
        torch.set_num_threads(1)  # of this thread: another number may be left over in it
        some = sample.take(chosen[number])
        return fit_fusion(some.evidence, some.right, settings, plus.fusion.loss, seed)

    # Side by side, each on one thread: torch's own threads spin, which takes minutes where others have the cores too.
    whole, *others = kernels.run_ranges(learn, range(len(chosen) + 1), plus.threads)
    crossed = np.zeros(there.shape, dtype=np.float32)
    for learned, kept in zip(others, chosen[1:], strict=True):
        crossed[~kept] = learned.score(sample.take(~kept).evidence, threads=plus.threads)
    best = np.argsort(np.argsort(np.where(there, -crossed, np.inf), axis=1), axis=1) < SHOWN
    probability = fit_probability(crossed, right, there & best, sample.rows)
    say(f"  final score: {len(right):,} rows, calibration error {probability.error:.4f}")
    return replace(plus, fusion=replace(whole, probability=probability))


def _stacked(pieces: Sequence[Evidence]) -> Evidence:
    """Pieces of neighbouring rows as one, padded to the same width."""
    width = max(piece.labels.shape[1] for piece in pieces)

    def join(arrays: list[np.ndarray], nothing: float = 0) -> np.ndarray:
        wide = [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=nothing) for a in arrays]
        return np.concatenate(wide)

    fields = {name: join([getattr(piece, name) for piece in pieces], PAD if name in ("labels", "cluster") else 0)
              for name in SINGLE}  # fmt: skip
    v, t, c = (join([piece.words[part] for piece in pieces]) for part in range(3))
    vote, closest = (join([piece.votes[part] for piece in pieces]) for part in range(2))
    return Evidence(**fields, words=(v, t, c), votes=(vote, closest))
