"""Steps 60 to 82 of a run: ranking parts -> held-out predictions -> score model.

    60-ranking       inverted index, k-NN, label trees and linear ranker of the training rows
    65-held-out      candidates and features of the held-out rows; without test rows also what baselines answer to them
    70-score-model   learned on the held-out rows: those of 65, or of all folds; and out-of-fold predictions for them
    80-ranking       the ranking parts of all rows, held out or not: what the model answers with
    82-texts         excerpts of the training texts that vote, for explanations

With folds (`fold-0/`, `fold-1/` ...: runs of the same kind inside this one, up to 65) no rows are held out for the
score model here, and 60 and 65 are built in the folds only. If no training row is held out at all, not even for
validation, 60 takes the place of 80.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.files import write_json, write_tensors
from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..core.settings import STACKED, Settings, noise_seed
from ..dataset import Dataset
from ..dataset.label_texts import unseen_labels
from ..dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from ..evaluation.baselines import SeenRows, baseline_labels
from ..kernels.features import FEATURES
from ..network.searcher import BATCH, Searcher
from ..ranking.cross_fitting import HeldOutPredictions, fit_score_model
from ..ranking.features import CandidateSizes, Features, RankingParts, candidate_features
from ..ranking.inverted_index import InvertedIndex, build_inverted_index
from ..ranking.knn import build_knn
from ..ranking.label_tree import build_label_trees, save_trees
from ..ranking.linear_ranker import save_ranker, train_ranker
from ..ranking.reranker import NAME as SUMMARY
from ..ranking.reranker import Reranker, load_parts
from ..ranking.score_model import ScoreModel
from ..ranking.training_texts import TrainingTexts
from .context import FitContext
from .features_step import FeatureSet, all_rows, holds_out_training_rows
from .network_steps import TrainedNetwork, open_network

ROWS_AT_ONCE = 1 << 16
BASELINES, OUT_OF_FOLD = "baselines.safetensors", "out_of_fold.safetensors"  # for step 85, no part of the model


@dataclass(frozen=True)
class RankingSteps:
    """The folders of the steps that made the stacked ranker of a model."""

    parts: Path
    score_model: Path
    texts: Sequence[Path]  # excerpts of training texts: one folder, or none
    held_out: Sequence[Path]  # of all folds

    @property
    def folders(self) -> tuple[Path, ...]:
        """What the model is made of."""
        return self.parts, self.score_model, *self.texts


@dataclass(frozen=True)
class RankingRows:
    """Rows that the ranking parts are trained on."""

    bow: sp.csr_matrix
    labels: sp.csr_matrix
    excluded: sp.csr_matrix
    kinds: np.ndarray


def has_ranking(context: FitContext, features: FeatureSet) -> bool:
    """Whether the model gets a stacked ranker: it needs words."""
    return context.settings.ranking.kind == STACKED and sp.issparse(features.bow)


# -- 60, 80: ranking parts --------------------------------------------------------------------------------------------


def training_parts_step(context: FitContext, features: FeatureSet) -> Path:
    """60: the parts of the training rows, which the score model is learned with."""
    return _parts_step(context, features, "60-ranking", every_row=False)


def model_parts_step(context: FitContext, features: FeatureSet) -> Path:
    """80: the parts of all rows; 60 where that is the same."""
    if not holds_out_training_rows(context.data, features):
        return training_parts_step(context, features)
    return _parts_step(context, features, "80-ranking", every_row=True)


def _parts_step(context: FitContext, features: FeatureSet, name: str, *, every_row: bool) -> Path:
    s = context.settings
    sections = (s.inverted_index, s.knn, s.linear_ranker, s.label_tree)
    depends: dict[str, Any] = {type(section).__name__: dict(vars(section)) for section in sections}
    del depends["KNNSettings"]["keep_texts"]  # it decides about 82-texts only
    depends |= {"network_candidates": s.ranking.network_candidates, "seed": s.run.seed}

    def build(folder: Path) -> None:
        rows = _all_rows(context, features) if every_row else _training_rows(features)
        if s.label_tree.trees:
            trees = build_label_trees(
                rows.bow, rows.labels, rows.excluded, s.linear_ranker, s.label_tree,
                seed=s.run.seed, threads=context.threads,
            )  # fmt: skip
            save_trees(trees, folder)
        index = build_inverted_index(
            *_for_inverted_index(rows, context, features), words_per_label=s.inverted_index.words_per_label,
            label_text_weight=s.inverted_index.label_text_weight, threads=context.threads,
        )  # fmt: skip
        index.save(folder)
        if s.knn.neighbors:
            build_knn(
                rows.bow, rows.labels, rows.kinds, neighbors=s.knn.neighbors,
                words_per_text=s.knn.words_per_text, budget=s.knn.postings_budget,
            ).save(folder)  # fmt: skip
        found = _candidates_by_words(index, rows, s)
        ranker = train_ranker(rows.bow, found, rows.labels, rows.excluded, s.linear_ranker, threads=context.threads)
        save_ranker(ranker.coded(), folder)
        write_json(folder / SUMMARY, _summary(s))

    # Without the network in it, the step is the same for all members of an ensemble, and is built once.
    return context.run.step(name, depends, build, after=[features.folder])


def _summary(s: Settings) -> dict[str, Any]:
    """ranking.json of a model with these settings."""
    return {
        "network_candidates": s.ranking.network_candidates,
        "word_candidates": s.inverted_index.candidates,
        "knn": s.knn.neighbors > 0,
        "label_trees": s.label_tree.trees,
    }


def _candidates_by_words(index: InvertedIndex, rows: RankingRows, s: Settings) -> np.ndarray:
    """[rows, m]: the best labels by words of every row that is not a label text, PAD elsewhere."""
    found = np.full((len(rows.kinds), min(s.linear_ranker.negatives, rows.labels.shape[1])), PAD, dtype=np.int32)
    ordinary = np.flatnonzero(rows.kinds != KIND_LABEL_TEXT)
    for start in range(0, len(ordinary), ROWS_AT_ONCE):
        some = ordinary[start : start + ROWS_AT_ONCE]
        excluded = Ragged.from_rows(rows.excluded, some)[0]
        found[some] = index.search(sp.csr_matrix(rows.bow[some]), found.shape[1], excluded).labels
    return found


def _training_rows(features: FeatureSet) -> RankingRows:
    train = features.train
    return RankingRows(sp.csr_matrix(features.bow), train.labels, train.excluded, kinds_of(features))


def _all_rows(context: FitContext, features: FeatureSet) -> RankingRows:
    bow, rows = all_rows(context, features.vectorizer)
    return RankingRows(bow, rows.labels, rows.excluded, rows.kinds)


def _for_inverted_index(
    rows: RankingRows, context: FitContext, features: FeatureSet
) -> tuple[sp.csr_matrix, sp.csr_matrix, np.ndarray]:
    """(tf-idf, labels, kinds); with `inverted_index.unseen_labels` also the texts of labels that have no row."""
    s, labels, vectorizer = context.settings, context.data.labels, features.vectorizer
    unseen = unseen_labels(rows.labels, labels)
    if (
        vectorizer is None
        or context.tokens is None
        or not (s.inverted_index.unseen_labels and s.features.label_texts and len(unseen))
    ):
        return rows.bow, rows.labels, rows.kinds
    count = len(unseen)
    texts = context.tokens.of(np.empty(0, dtype=np.int64), unseen)
    own = (np.ones(count, dtype=np.float32), unseen, np.arange(count + 1))
    pairs = sp.csr_matrix(own, shape=(count, len(labels)))
    bow = sp.csr_matrix(sp.vstack([rows.bow, vectorizer.transform_counts(texts)], format="csr"))
    both = sp.csr_matrix(sp.vstack([rows.labels, pairs], format="csr"))
    return bow, both, np.concatenate([rows.kinds, np.full(count, KIND_LABEL_TEXT, dtype=np.uint8)])


def _open_parts(context: FitContext, folder: Path, counts: np.ndarray, n_words: int) -> RankingParts:
    has = {name: _summary(context.settings)[name] for name in ("knn", "label_trees")}
    return load_parts(folder, counts, n_words, has, threads=context.threads)


def open_reranker(context: FitContext, steps: RankingSteps, counts: np.ndarray, n_words: int) -> Reranker:
    """The stacked ranker of the model. `counts`: n_l of all labels."""
    sizes = {name: _summary(context.settings)[name] for name in ("network_candidates", "word_candidates")}
    parts = _open_parts(context, steps.parts, counts, n_words)
    return Reranker(parts=parts, score_model=ScoreModel.load(steps.score_model), **sizes)


# -- 82: training texts -----------------------------------------------------------------------------------------------


def training_texts_steps(context: FitContext, features: FeatureSet) -> list[Path]:
    """82: excerpts of the rows that vote in the model; no step where none vote or none are kept."""
    knn, rows = context.settings.knn, context.data.train
    if not knn.neighbors or not knn.keep_texts:
        return []

    def build(folder: Path) -> None:
        # The ranking parts of a model are built from every training row (80, or 60 where that is the same).
        voters = np.flatnonzero(rows.kinds != KIND_LABEL_TEXT)
        TrainingTexts.of(rows.texts, rows.ids, voters).save(folder)

    # A step of its own, so that members of an ensemble share the file.
    return [context.run.step("82-texts", {}, build, after=[features.folder])]


# -- 65, 70: held-out predictions and the score model -----------------------------------------------------------------


def held_out_step(context: FitContext, features: FeatureSet, network: TrainedNetwork) -> Path:
    """65: candidates and features of the held-out rows, by parts that have not seen them."""
    parts_folder = training_parts_step(context, features)

    def build(folder: Path) -> None:
        held_out = HeldOutPredictions.of(
            _held_out_features(context, features, network, parts_folder),
            features.held_out.labels,
            features.held_out_rows,
        )
        held_out.save(folder)
        if not has_labeled_test_rows(context.data):  # quality is then measured on these rows
            seen = SeenRows(features.bow, features.train.labels, kinds_of(features))
            answers = baseline_labels(seen, features.bow_held_out, threads=context.threads)
            write_tensors(folder / BASELINES, answers)

    depends = {"features": list(FEATURES)}
    return context.run.step("65-held-out", depends, build, after=[network.stage, parts_folder])


def has_labeled_test_rows(data: Dataset) -> bool:
    return data.test is not None and data.test.labels.nnz > 0


def kinds_of(features: FeatureSet) -> np.ndarray:
    """KIND_TEXT or KIND_LABEL_TEXT of each training row."""
    kinds = features.train.kinds
    return np.full(len(features.train), KIND_TEXT, dtype=np.uint8) if kinds is None else kinds


def _held_out_features(
    context: FitContext, features: FeatureSet, network: TrainedNetwork, folder: Path
) -> Iterator[Features]:
    searcher = Searcher(open_network(context, network.stage))
    bow, summary = sp.csr_matrix(features.bow_held_out), _summary(context.settings)
    parts = _open_parts(context, folder, features.label_counts, bow.shape[1])
    n_labels = len(features.label_counts)
    sizes = CandidateSizes(min(summary["network_candidates"], n_labels), min(summary["word_candidates"], n_labels))
    for rows in _batches(bow.shape[0]):
        excluded = Ragged.from_rows(features.held_out.excluded, rows)[0]
        query = searcher.encode(features.held_out.prepared, rows)
        yield candidate_features(parts, [searcher], [query], bow[rows], sizes, excluded)[0]


def score_model_step(context: FitContext, held_out: Sequence[Path], after: Path) -> Path:
    """70: the score model, learned from the held-out predictions of all folds; p q where there are none."""
    s = context.settings

    def build(folder: Path) -> None:
        score_model = ScoreModel(s.linear_ranker.loss)
        if held_out:
            joined = HeldOutPredictions.join([HeldOutPredictions.load(path) for path in held_out])
            score_model, found = fit_score_model(
                joined, s.score_model,
                loss=s.linear_ranker.loss, seed=noise_seed(s), threads=context.threads, say=context.progress.say,
            )  # fmt: skip
            arrays = {"labels": found.labels, "scores": found.scores, "rows": joined.rows}
            write_tensors(folder / OUT_OF_FOLD, arrays)
        score_model.save(folder)

    depends = {"score_model": vars(s.score_model), "loss": s.linear_ranker.loss, "member": s.run.member}
    return context.run.step("70-score-model", depends, build, after=[after, *held_out])


def _batches(n_rows: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + BATCH, n_rows)) for start in range(0, n_rows, BATCH)]
