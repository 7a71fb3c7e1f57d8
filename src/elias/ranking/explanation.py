"""Explanations: why the stacked ranker gives a label its score, for texts that a person looks at.

    words            sum of standardized contributions to the linear evidence for label l, word by word
                         weight(word) = x_word v_{l,word} / spread(combined) + x_word w_{l,word} / spread(margin)
                     v_l of the inverted index, w_l of the linear ranker; spreads over candidates, from the score model

    texts            the nearest training texts of x that have the label: those that vote for it (`knn.py`)

    contributions    Shapley values of six groups of features, of the score s before calibration
                         c_g = sum over sets S of groups without g of |S|! (5 - |S|)! / 6! (s(S + g) - s(S))
                     s(S): the score with the inputs of all groups outside S absent; base = s of no group;
                     base + sum of c_g = s. Six groups have 64 sets, so all of them are computed: nothing is sampled.

Absent is, for the learned score, an input at its mean over the candidates of held-out texts (0 after standardization);
an input relative to other candidates belongs to the group of its feature. A score p q, where nothing could be learned,
stores no means: p or q is absent at its mean over the candidates of the text, weights of words are those of the margin
alone (spread 1), its only linear part, and the other groups contribute 0.

An ensemble: contributions are means over the members that have the label among their candidates, weights of words over
all members. In: the candidates of a batch with their features. Out: one dictionary per label, in types that JSON has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import factorial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.predictions import PAD
from ..kernels.features import CLASSIFIER, COMBINED, FEATURES, MARGIN
from ..kernels.score_model import N_INPUTS, RANKED, RELATIVE
from .features import Features, RankingParts, p_of
from .linear_ranker import q_of
from .score_model import ReferenceScores, ScoreModel, score_inputs

GROUPS = {
    "network": ("cluster_score", "edge_score", "classifier"),
    "label text": ("label_text",),
    "label's texts": ("combined", "centroid"),
    "linear classifiers": ("margin", "path"),
    "similar texts": ("vote", "nearest"),
    "popularity": ("log_count",),
}
NAMES = ("base", *GROUPS)  # of the contributions of a label, in the order of the array
GROUP_OF = [next(g for g, names in enumerate(GROUPS.values()) if name in names) for name in FEATURES]
# Inputs of the learned score: features, distances to the best candidate, ranks.
GROUP_OF_INPUT = np.array([*GROUP_OF, *GROUP_OF[:RELATIVE], *(GROUP_OF[feature] for feature in RANKED)])
GROUP_OF_P_Q = np.array([GROUP_OF[feature] for feature in (CLASSIFIER, MARGIN)])
COALITIONS = np.array(list(product((False, True), repeat=len(GROUPS))))  # [64, 6]: which groups are there; first, none


def _share(coalition: np.ndarray, group: int) -> float:
    """What the score of a coalition counts in the Shapley value of a group: the formula of c_g, term by term."""
    others = int(coalition.sum() - coalition[group])
    share = factorial(others) * factorial(len(GROUPS) - 1 - others) / factorial(len(GROUPS))
    return share if coalition[group] else -share


SHARES = np.array([[_share(coalition, group) for group in range(len(GROUPS))] for coalition in COALITIONS])
MOST_WORDS, MOST_TEXTS = 6, 3
LABELS_AT_ONCE = 512  # whose 64 scores are computed together
DIGITS = 6  # after the point


class Evidence(NamedTuple):
    """What one model knows of the candidates of a batch of texts."""

    parts: RankingParts
    score_model: ScoreModel
    features: Features
    reference: ReferenceScores | None = None  # the candidates that a given list was compared with


def explain(
    evidence: Sequence[Evidence], bow: sp.csr_matrix, labels: np.ndarray, words: Sequence[str] | None
) -> list[list[dict[str, Any]]]:
    """An explanation of each of the labels [B, k], empty at PAD.

    `evidence`: of a model, or of the members of an ensemble. `bow`: tf-idf of the texts. `words`: the vocabulary; None
    where inputs are vectors, whose columns are then named by their numbers.
    """
    shares, parts = contributions(evidence, labels), evidence[0].parts  # members have the same training texts
    found = zip(*parts.knn.nearest_texts(bow), strict=True)
    explanations: list[list[dict[str, Any]]] = []
    for row, (texts, similarities) in enumerate(found):
        inside = slice(bow.indptr[row], bow.indptr[row + 1])
        weights = word_weights(evidence, bow.indices[inside], bow.data[inside], labels[row])
        voters = Voters.of(parts, texts, similarities)
        explanations.append([{} for _ in labels[row]])
        for column in np.flatnonzero(labels[row] >= 0).tolist():
            explanations[row][column] = {
                "words": _strongest(bow.indices[inside], weights[column], words),
                "texts": voters.of_label(int(labels[row, column])),
                "contributions": dict(zip(NAMES, _rounded(shares[row, column]), strict=True)),
                "score": _rounded(shares[row, column].sum()),
            }
    return explanations


# -- words ------------------------------------------------------------------------------------------------------------


def word_weights(evidence: Sequence[Evidence], words: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[labels, words]: the weight of each word of one text, with these tf-idf values, for each label."""
    weights, rows = np.zeros((len(labels), len(words))), np.maximum(labels, 0)
    entries: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # members usually share their parts
    for parts, score_model, *_ in evidence:
        if id(parts) not in entries:
            by_index = parts.inverted_index.postings.entries(words, rows).T
            entries[id(parts)] = by_index, parts.ranker.entries(rows, words)
        by_index, by_ranker = entries[id(parts)]
        if score_model.learned is None:
            weights += by_ranker
        else:
            spread = score_model.learned.spread
            weights += by_index / spread[COMBINED] + by_ranker / spread[MARGIN]
    return np.asarray(weights * values / len(evidence))


def _strongest(numbers: np.ndarray, weights: np.ndarray, words: Sequence[str] | None) -> list[dict[str, Any]]:
    """The words that weigh most, for or against the label."""
    order = np.argsort(-np.abs(weights), kind="stable")[:MOST_WORDS]
    chosen = [(int(numbers[place]), float(weights[place])) for place in order.tolist() if weights[place] != 0]
    return [{"word": str(n) if words is None else words[n], "weight": _rounded(weight)} for n, weight in chosen]


# -- texts ------------------------------------------------------------------------------------------------------------


class Voters(NamedTuple):
    """The nearest training texts of one text by falling similarity, and the labels that they vote for."""

    parts: RankingParts
    texts: list[int]
    similarities: list[float]
    labels: np.ndarray  # of all votes
    voters: np.ndarray  # the place in `texts` that each vote comes from, rising

    @classmethod
    def of(cls, parts: RankingParts, texts: np.ndarray, similarities: np.ndarray) -> Voters:
        near = texts[texts >= 0].tolist()
        lists = [parts.knn.labels_of(text) for text in near]
        labels = np.concatenate([parts.knn.labels[:0], *lists])
        voters = np.repeat(np.arange(len(near)), [len(own) for own in lists])
        return cls(parts, near, similarities.tolist(), labels, voters)

    def of_label(self, label: int) -> list[dict[str, Any]]:
        """The nearest ones that vote for a label."""
        excerpts, found = self.parts.texts, []
        for place in self.voters[self.labels == label][:MOST_TEXTS].tolist():
            row = self.texts[place]
            name, text = (None, "") if excerpts is None else (excerpts.id_of(row), excerpts.excerpt(row))
            found.append({"id": name, "text": text, "similarity": _rounded(self.similarities[place]), "row": row})
        return found


# -- contributions ----------------------------------------------------------------------------------------------------


def contributions(evidence: Sequence[Evidence], labels: np.ndarray) -> np.ndarray:
    """float64 [B, k, 7]: base and the contribution of each group; 0 at PAD. Their sum is the score."""
    total, members = np.zeros((*labels.shape, len(NAMES))), np.zeros(labels.shape)
    for one in evidence:
        places = places_of(one.features.labels, labels)
        chosen = places >= 0
        total[chosen] += shapley(one.score_model, group_inputs(one, places))
        members += chosen
    return total / np.maximum(members, 1)[:, :, None]


def places_of(candidates: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[B, k]: where each label stands among the candidates [B, m] of its row; PAD where it does not."""
    places = np.full(labels.shape, PAD, dtype=np.int64)
    for row, wanted in enumerate(labels):
        order = np.argsort(candidates[row], kind="stable")
        rising = candidates[row, order]
        at = np.searchsorted(rising, wanted)
        there = (wanted >= 0) & (at < len(rising))
        there[there] = rising[at[there]] == wanted[there]
        places[row, there] = order[at[there]]
    return places


class GroupInputs(NamedTuple):
    """Inputs of the score of n labels, as they are and as they are where their group is absent."""

    present: np.ndarray  # [n, inputs]
    absent: np.ndarray  # [n or 1, inputs]
    groups: np.ndarray  # [inputs]: the group of each


def group_inputs(evidence: Evidence, places: np.ndarray) -> GroupInputs:
    """The inputs of the candidates at these places [B, k], PAD for none, one below the other."""
    _, score_model, features, reference = evidence
    rows, columns = np.nonzero(places >= 0)
    at = places[rows, columns]
    if score_model.learned is not None:
        x = score_model.learned.standardized(score_inputs(features, reference)[rows, at]).astype(np.float64)
        return GroupInputs(x, np.zeros((1, N_INPUTS)), GROUP_OF_INPUT)
    inputs = np.stack([p_of(features), q_of(features.values[:, MARGIN], score_model.loss)], axis=-1)
    real = (features.labels >= 0)[:, :, None]
    means = np.sum(inputs, axis=1, where=real) / np.maximum(real.sum(axis=1), 1)
    return GroupInputs(inputs[rows, at], means.astype(np.float32)[rows], GROUP_OF_P_Q)


def shapley(score_model: ScoreModel, inputs: GroupInputs) -> np.ndarray:
    """float64 [n, 7]: base and the Shapley value of each group."""
    present, absent, groups = inputs
    shown, pieces = COALITIONS[:, groups], []  # [64, inputs]
    absent = np.broadcast_to(absent, present.shape)
    for start in range(0, len(present), LABELS_AT_ONCE):
        some = slice(start, start + LABELS_AT_ONCE)
        mixed = np.where(shown, present[some, None], absent[some, None])
        values = _scores(score_model, mixed).astype(np.float64)  # [labels, 64]
        pieces.append(np.concatenate([values[:, :1], values @ SHARES], axis=1))
    return np.concatenate([np.zeros((0, len(NAMES))), *pieces])


def _scores(score_model: ScoreModel, inputs: np.ndarray) -> np.ndarray:
    """The scores of inputs as `group_inputs` gives them [..., inputs]."""
    if score_model.learned is not None:
        return score_model.learned.of_standardized(inputs)
    return np.asarray(inputs[..., 0] * inputs[..., 1])


def _rounded(values: Any) -> Any:
    """Floats of Python; no -0.0."""
    return (np.round(values, DIGITS) + 0.0).tolist()
