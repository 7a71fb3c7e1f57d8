"""The stacked ranker: candidates -> features -> score -> top k.

    candidates   best labels of the network and of the inverted index        `features.py`
    features     everything known of a candidate                             `features.py`
    score        learned on held-out rows, calibrated to a probability       `score_model.py`

In: a searcher, encoded texts and their tf-idf rows. Out: `Predictions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core import model_schema
from ..core.errors import ModelError
from ..core.files import give_back, read_json, write_json
from ..core.predictions import ID_PARTS, PAD, Predictions
from ..core.schema import check_object
from ..kernels.features import FEATURES
from .features import CandidateSizes, Features, RankingParts
from .inverted_index import InvertedIndex
from .knn import KNN
from .label_tree import load_trees, save_trees
from .linear_ranker import load_ranker, q_of, save_ranker
from .score_model import ReferenceScores, ScoreModel
from .training_texts import TrainingTexts

NAME = "ranking.json"
DAMAGED = (
    "a candidate has a score that is not a finite number: a table of the model is damaged; "
    "`elias verify MODEL` names the file"
)


@dataclass(kw_only=True)
class Reranker:
    """Ranks the candidates of a network. Holds no state of a query."""

    parts: RankingParts
    score_model: ScoreModel
    network_candidates: int  # best labels of the network that are candidates
    word_candidates: int  # best labels of the inverted index that are

    def sizes(self, k: int) -> CandidateSizes:
        """How many candidates the k best labels are chosen from."""
        n_labels = len(self.parts.counts)
        return CandidateSizes(min(max(k, self.network_candidates), n_labels), min(self.word_candidates, n_labels))

    def rank(
        self, features: Features, k: int, *, explain: bool = False, reference: ReferenceScores | None = None
    ) -> Predictions:
        """The k best candidates by score, ties to the lower label.

        `reference`: the candidates that a given list is compared with; None: its own.
        """
        scores = self.score_model(features, reference, threads=self.parts.threads)
        if not np.isfinite(scores).all():
            raise ModelError(DAMAGED)
        places, labels, values = self.score_model.top_k(features.labels, scores, k, threads=self.parts.threads)
        parts = self._explained(features, places) if explain else None
        return Predictions(labels=labels, scores=values, parts=parts)

    def _explained(self, features: Features, places: np.ndarray) -> dict[str, np.ndarray]:
        """The parts of the scores of the labels at these places."""
        named = {name: features.values[:, FEATURES.index(name)] for name in FEATURES}
        shown = {
            "cluster": features.clusters,
            "cluster_score": named["cluster_score"],
            "edge_score": named["edge_score"],
            "classifier": named["classifier"],
            "ranker": q_of(named["margin"], self.score_model.loss),
            "words": named["combined"],
        }
        parts = {name: np.take_along_axis(values, np.maximum(places, 0), axis=1) for name, values in shown.items()}
        for name, values in parts.items():
            values[places < 0] = PAD if name in ID_PARTS else 0
        return parts

    def save(self, folder: Path) -> None:
        save_parts(self.parts, folder)
        self.score_model.save(folder)
        self.write_summary(folder)

    def write_summary(self, folder: Path) -> None:
        """ranking.json: sizes, and which parts there are."""
        parts = self.parts
        sizes = {"network_candidates": self.network_candidates, "word_candidates": self.word_candidates}
        has = {"knn": bool(parts.knn.neighbors), "label_trees": len(parts.trees)}
        write_json(folder / NAME, {**sizes, **has})

    @property
    def gives_probabilities(self) -> bool:
        return self.score_model.calibration is not None

    @classmethod
    def load(
        cls, folder: Path, counts: np.ndarray, n_words: int, *, threads: int, parts: RankingParts | None = None
    ) -> Reranker:
        """`parts`: those of another model that has the same files; they are not read again."""
        path = folder / NAME
        content = check_object(path, read_json(path), model_schema.RANKING)
        sizes = {name: content[name] for name in ("network_candidates", "word_candidates")}
        if parts is None:
            has = {name: content[name] for name in ("knn", "label_trees")}
            parts = load_parts(folder, counts, n_words, has, threads=threads)
        return cls(parts=parts, score_model=ScoreModel.load(folder), **sizes)


def save_parts(parts: RankingParts, folder: Path) -> None:
    parts.inverted_index.save(folder)
    save_ranker(parts.ranker.coded(), folder)
    if parts.trees:
        save_trees(parts.trees, folder)
    if parts.knn.neighbors:
        parts.knn.save(folder)
        if parts.texts is not None:
            parts.texts.save(folder)


def load_parts(folder: Path, counts: np.ndarray, n_words: int, has: dict[str, int], *, threads: int) -> RankingParts:
    """The parts in a folder; `has` as in ranking.json: which there are."""
    size = {"n_labels": len(counts), "n_words": n_words}
    knn = KNN.load(folder, **size, threads=threads) if has["knn"] else KNN.empty(**size)
    ranker = load_ranker(folder, n_labels=len(counts), n_words=n_words)
    trees = load_trees(folder, has["label_trees"], **size) if has["label_trees"] else ()
    for rows in (ranker, *(tree.rows for tree in trees)):
        give_back(rows.words, rows.weights)  # checked; they are read again when the first text is answered
    return RankingParts(
        inverted_index=InvertedIndex.load(folder, **size, threads=threads),
        ranker=ranker,
        trees=trees,
        knn=knn,
        counts=counts,
        texts=TrainingTexts.load(folder, n_texts=knn.n_texts),
        threads=threads,
    )
