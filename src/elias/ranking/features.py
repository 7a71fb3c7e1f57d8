"""What speaks for a label: every part of its score, for the labels that the network or the words have found.

    log p, z, log yhat      the network: p = sigmoid(z) * yhat, over all clusters the label has an edge from
    margin                  the ranker
    path                    the label tree
    v.x, t.x, c.x           words: both, the label's own text, the texts that have it
    vote, closest           the nearest training texts: share of their votes, likeness of the closest that has it
    log(1 + n_l)            how often the label occurs in training

`columns` puts beside each of them (but the last) its distance to the best one of the same text, and beside v.x, c.x and
vote how many labels of the text have more: whether a label is good can hardly be told without knowing how good the
others are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAMES = ("log p", "z", "log yhat", "margin", "path", "v.x", "t.x", "c.x", "vote", "closest", "log n")
RELATIVE = len(NAMES) - 1  # all but the last
RANKED = tuple(NAMES.index(name) for name in ("v.x", "c.x", "vote"))
N_COLUMNS = len(NAMES) + RELATIVE + len(RANKED)
LEAST = 1e-6  # of a probability


@dataclass(frozen=True)
class Field:
    """What the labels of each row are compared with: the labels that are found for it.

    A label that is itself among them must have the same bits in both, or it would stand behind itself: all ways to a
    ranked part end in the same kernel.
    """

    best: np.ndarray  # float32 [rows, RELATIVE]: the largest value of each part
    rising: np.ndarray  # float32 [rows, RANKED, m]: the values of the ranked parts, sorted; -inf for nobody

    @classmethod
    def own(cls, n_rows: int) -> Field:
        """As the kernel reads it: every row is compared with itself."""
        return cls(
            np.full((n_rows, RELATIVE), -np.inf, dtype=np.float32), np.empty((n_rows, len(RANKED), 0), dtype=np.float32)
        )


@dataclass(frozen=True)
class Evidence:
    """Of the labels at each place [rows, m]; -1 is nobody."""

    labels: np.ndarray  # int32
    cluster: np.ndarray
    cluster_score: np.ndarray
    edge_score: np.ndarray
    classifier: np.ndarray  # sigmoid(z)
    margin: np.ndarray
    path: np.ndarray
    words: tuple[np.ndarray, np.ndarray, np.ndarray]  # v.x, t.x, c.x
    votes: tuple[np.ndarray, np.ndarray]  # vote, closest
    counts: np.ndarray  # n_l

    @property
    def p(self) -> np.ndarray:
        score: np.ndarray = self.classifier * (self.cluster_score * self.edge_score)
        return score

    def columns(self, field: Field | None = None) -> np.ndarray:
        """float32 [rows, m, N_COLUMNS]. With `field`, ranks are those among its labels, and its best raise what
        distances are measured from."""
        out = np.empty((*self.labels.shape, N_COLUMNS), dtype=np.float32)
        for place, values in enumerate(self._plain()):
            out[..., place] = values
        own = self._field(out)
        reach = own.best if field is None else np.maximum(own.best, field.best)
        out[..., len(NAMES) : len(NAMES) + RELATIVE] = out[..., :RELATIVE] - reach[:, None, :]
        rising = (field or own).rising
        for row in range(len(out)):
            for place, part in enumerate(RANKED):
                not_more = np.searchsorted(rising[row, place], out[row, :, part], side="right")
                out[row, :, len(NAMES) + RELATIVE + place] = np.log1p(rising.shape[2] - not_more)
        return out

    def field(self) -> Field:
        """These labels as what others are compared with."""
        return self._field(np.stack(self._plain(), axis=-1).astype(np.float32))

    def _plain(self) -> list[np.ndarray]:
        sigma = np.clip(self.classifier, LEAST, 1 - LEAST)
        return [
            np.log(np.maximum(self.p, LEAST)),
            np.log(sigma) - np.log1p(-sigma),
            np.log(np.maximum(self.cluster_score * self.edge_score, LEAST)),
            self.margin,
            self.path,
            *self.words,
            *self.votes,
            np.log1p(self.counts),
        ]

    def _field(self, columns: np.ndarray) -> Field:
        shown = np.where((self.labels >= 0)[..., None], columns[..., :RELATIVE], -np.inf).astype(np.float32)
        largest = shown.max(axis=1, initial=-np.inf)
        rising = np.sort(shown[..., list(RANKED)].transpose(0, 2, 1), axis=2)
        return Field(np.where(np.isfinite(largest), largest, 0.0).astype(np.float32), rising)
