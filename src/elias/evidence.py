"""What speaks for a label: every part of its score, for the labels that the network or the words have found.

    log p, z, log yhat      the network: p = sigmoid(z) * yhat, over all clusters the label has an edge from
    margin                  the ranker
    v.x, t.x, c.x           words: both, the label's own text, the texts that have it
    vote, closest           the nearest training texts: share of their votes, likeness of the closest that has it
    log(1 + n_l)            how often the label occurs in training

`columns` puts beside each of them (but the last) its distance to the best one of the same text: whether a label is
good can hardly be told without knowing how good the others are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAMES = ("log p", "z", "log yhat", "margin", "v.x", "t.x", "c.x", "vote", "closest", "log n")
RELATIVE = len(NAMES) - 1  # all but the last
N_COLUMNS = len(NAMES) + RELATIVE
LEAST = 1e-6  # of a probability


@dataclass(frozen=True)
class Evidence:
    """Of the labels at each place [rows, m]; -1 is nobody."""

    labels: np.ndarray  # int32
    cluster: np.ndarray
    cluster_score: np.ndarray
    edge_score: np.ndarray
    classifier: np.ndarray  # sigmoid(z)
    margin: np.ndarray
    words: tuple[np.ndarray, np.ndarray, np.ndarray]  # v.x, t.x, c.x
    votes: tuple[np.ndarray, np.ndarray]  # vote, closest
    counts: np.ndarray  # n_l

    @property
    def p(self) -> np.ndarray:
        score: np.ndarray = self.classifier * (self.cluster_score * self.edge_score)
        return score

    def columns(self, best: np.ndarray | None = None) -> np.ndarray:
        """float32 [rows, m, N_COLUMNS]; `best` [rows, RELATIVE] raises what the distances are measured from."""
        sigma = np.clip(self.classifier, LEAST, 1 - LEAST)
        plain = [
            np.log(np.maximum(self.p, LEAST)),
            np.log(sigma) - np.log1p(-sigma),
            np.log(np.maximum(self.cluster_score * self.edge_score, LEAST)),
            self.margin,
            *self.words,
            *self.votes,
            np.log1p(self.counts),
        ]
        out = np.empty((*self.labels.shape, N_COLUMNS), dtype=np.float32)
        for place, values in enumerate(plain):
            out[..., place] = values
        reach = self.best(out)
        if best is not None:
            reach = np.maximum(reach, best)
        out[..., len(NAMES) :] = out[..., :RELATIVE] - reach[:, None, :]
        return out

    def best(self, columns: np.ndarray) -> np.ndarray:
        """[rows, RELATIVE]: the largest value of a row's labels in each column."""
        shown = np.where((self.labels >= 0)[..., None], columns[..., :RELATIVE], -np.inf)
        largest = shown.max(axis=1, initial=-np.inf)
        return np.where(np.isfinite(largest), largest, 0.0).astype(np.float32)
