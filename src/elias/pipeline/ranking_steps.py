"""The steps of a run that make ELIAS++, and which of them need the network.

    ranker.negatives_from=words, no embedding     12-ranker, 14-ranker: words, tree, ranker, shared by members
    otherwise                                     12-words, 14-words: all but the ranker, shared by members
                                                  60-ranker, 62-ranker: the ranker of this member, after its network

12 and 60 are of the training rows, and what the final score (70-fusion) is learned with, or in a draw its part of the
sample (65-sample). 14 and 62 are of all rows, for the model, where rows were held out; where none of them are
calibration rows, nothing is learned with 12 and 60, and they are left out. With out-of-fold negatives the network is
trained once more for each fold of the training rows, without that fold, and finds the labels of its rows. What networks
find comes on top of what words find, because both find when a text is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.devices import torch_threads
from ..core.errors import DataError
from ..core.files import read_tensors
from ..core.progress import Progress
from ..core.rng import permutation
from ..core.settings import OUT_OF_FOLD, WORDS, Settings, known, noise_seed
from ..dataset import Dataset
from ..dataset.label_texts import texts_of, unseen_labels
from ..dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from ..encoders import Inputs
from ..network.network import Network
from ..network.searcher import Searcher
from ..ranking.cross_fitting import Sample, with_final_score
from ..ranking.inverted_index import Lexical
from ..ranking.reranker import Plus
from .features_step import Prepared, all_rows, holds_out_training_rows
from .run_folder import Run
from .sparse_side import (
    WordRows,
    embedded,
    found_by_network,
    found_by_words,
    nothing_found,
    unscored,
    what_a_tree_depends_on,
    write_lexical,
    write_neighbours,
    write_ranker,
    write_tree,
)

TRAINING, EVERY = 0, 1  # rows that words and ranker are made of
NOBODY = -1  # of a row that no network is asked about
SCRATCH = "prepared"


class SparseSteps:
    """Called in the order words, folds, and ranked or (in a draw) sample."""

    def __init__(
        self, data: Dataset, settings: Settings, run: Run, progress: Progress, prepared: Prepared,
        open_network: Callable[[Path], Network],
    ) -> None:  # fmt: skip
        self.data, self.settings, self.run, self.progress = data, settings, run, progress
        self.prepared, self.open_network = prepared, open_network
        self.is_on = settings.ranker.enabled and sp.issparse(prepared.bow)
        refits = settings.ranker.refit and holds_out_training_rows(data, prepared)
        learns = prepared.calibration.labels.nnz > 0
        self.numbers = [TRAINING, EVERY] if refits and learns else [EVERY] if refits else [TRAINING]
        self._words: dict[int, Path] = {}

    def words(self) -> None:
        """The steps that need no network: of the training rows, and of all rows."""
        s = self.settings
        depends: dict[str, Any] = {"lexical": vars(s.lexical), "tree": what_a_tree_depends_on(s)}
        if not s.ranker.needs_network:
            depends["ranker"] = vars(s.ranker)
        for number in self.numbers if self.is_on else []:

            def build(folder: Path, number: int = number) -> None:
                rows = self._rows(number)
                write_tree(folder, rows, s)
                lexical = write_lexical(folder, self._with_unseen(rows), s)
                write_neighbours(folder, rows, s)
                if not s.ranker.needs_network:
                    write_ranker(folder, rows, rows.bow, found_by_words(lexical, rows, s), s)

            name = f"{12 + 2 * number}-{'words' if s.ranker.needs_network else 'ranker'}"
            self._words[number] = self.run.step(name, depends, build, after=[self.prepared.folder])

    def folds(self) -> Iterator[Prepared]:
        """The training rows without each fold; nothing unless negatives are found out of fold."""
        if self.is_on and self.settings.ranker.negatives_from == OUT_OF_FOLD:
            fold_of, count = self._fold_of(), self.settings.ranker.folds
            for number in range(count):
                left = leaving_out(self.prepared, fold_of == number, {"fold": number, "folds": count})
                if left.train.labels.nnz == 0:
                    name = f"ranker.negatives_from={OUT_OF_FOLD}"
                    raise DataError(
                        f"{self.data.name}: without fold {number} no labelled row is left; leave out {name}"
                    )
                yield left

    def ranked(self, network: Path, folds: list[Path], drawn: list[Path]) -> list[Path]:
        """The folders whose files make a network ELIAS++; none where it is off. `drawn`: samples of other draws."""
        if not self.is_on:
            return []
        made = self._made(network, folds)
        return [*made[-1], self._final_score(network, made[0], drawn)]

    def sample(self, network: Path, folds: list[Path]) -> Path:
        """What is found for the calibration rows, in a draw."""
        made = self._made(network, folds)[0]

        def build(folder: Path) -> None:
            searcher = Searcher(self.open_network(network))
            self._sample(self._unscored(searcher, made), searcher).save(folder)

        return self.run.step("65-sample", {"fusion": vars(self.settings.fusion)}, build, after=[network, *made])

    def _made(self, network: Path, folds: list[Path]) -> list[list[Path]]:
        """The folders of words and ranker, of the training rows and of all rows, or of one of them."""
        made = {number: [words] for number, words in self._words.items()}
        if self.settings.ranker.needs_network:
            for number, folders in made.items():
                folders.append(self._ranker(f"{60 + 2 * number}-ranker", number, network, folds))
        return list(made.values())

    def _ranker(self, name: str, number: int, network: Path, folds: list[Path]) -> Path:
        """A ranker that learns from what networks find, or sees phi."""
        s, words = self.settings, self._words[number]

        def build(folder: Path) -> None:
            rows = self._rows(number)
            searcher = Searcher(self.open_network(network))
            prepared = self._prepared_rows(number, rows, searcher, folder)
            found = found_by_words(self._lexical(words, rows), rows, s)
            if s.ranker.negatives_from != WORDS:
                besides, which = nothing_found(rows, s), self._which(number, rows, len(folds))
                for place, path in enumerate([*folds, network]):
                    asked = np.flatnonzero(which == place)
                    one = searcher if path == network else Searcher(self.open_network(path))
                    found_by_network(one, prepared, asked, rows.excluded, besides)
                found = np.concatenate([found, besides], axis=1)
            with_phi = s.ranker.embedding
            features = embedded(rows.bow, searcher, prepared, s.ranker.embedding_scale) if with_phi else rows.bow
            write_ranker(folder, rows, features, found, s)

        after = [words, network, *folds]
        return self.run.step(name, {"ranker": vars(s.ranker)}, build, after=after, scratch=[SCRATCH])

    def _lexical(self, folder: Path, rows: WordRows) -> Lexical:
        size = {"n_labels": rows.labels.shape[1], "n_words": rows.bow.shape[1]}
        return Lexical.load(folder, **size, threads=known(self.settings.run.threads))

    def _final_score(self, network: Path, words: list[Path], drawn: list[Path]) -> Path:
        """How the parts of a score become one: learned on the calibration rows, or on those of all draws."""
        s = self.settings

        def build(folder: Path) -> None:
            searcher = Searcher(self.open_network(network))
            plus, samples = self._unscored(searcher, words), [Sample.load(path) for path in drawn]
            if self.prepared.calibration.labels.nnz:
                samples.append(self._sample(plus, searcher))
            if samples:
                plus = with_final_score(plus, Sample.joined(samples), s.fusion, noise_seed(s), self.progress.say)
            plus.write_score(folder)

        depends = {key: value for key, value in vars(s.fusion).items() if key != "draws"}  # known by its samples
        return self.run.step("70-fusion", {"fusion": depends}, build, after=[network, *words, *drawn])

    def _sample(self, plus: Plus, searcher: Searcher) -> Sample:
        rows, bow = self.prepared.calibration, sp.csr_matrix(self.prepared.bow_calibration)
        numbers = read_tensors(self.prepared.folder / "split.safetensors")[0]["calibration"]
        return Sample.of(plus, searcher, rows, bow, numbers)

    def _unscored(self, searcher: Searcher, words: list[Path]) -> Plus:
        n_words = int(self.prepared.bow_calibration.shape[1])
        return unscored(words[0], words[-1], searcher, n_words, self._counts(), self.settings)

    def _counts(self) -> np.ndarray:
        """n_l of the training rows alone: with the calibration rows in it, it would give their labels away."""
        train = self.prepared.train
        return np.bincount(train.labels[train.of_kind(KIND_TEXT)].indices, minlength=len(self.data.labels))

    # -- rows -----------------------------------------------------------------------------------------------------

    def _rows(self, number: int) -> WordRows:
        return self._training_rows() if number == TRAINING else self._every_row()

    def _training_rows(self) -> WordRows:
        train = self.prepared.train
        kinds = np.full(len(train), KIND_TEXT, dtype=np.uint8) if train.kinds is None else train.kinds
        return WordRows(sp.csr_matrix(self.prepared.bow), train.labels, train.excluded, kinds)

    def _every_row(self) -> WordRows:
        bow, rows = all_rows(self.data, self.settings, self.prepared.vectorizer)
        return WordRows(bow, rows.labels, rows.excluded, rows.kinds, rows.texts)

    def _with_unseen(self, rows: WordRows) -> WordRows:
        """`rows`, then the texts of labels that have no row: words can find them, though nothing else knows them."""
        s, labels, vectorizer = self.settings, self.data.labels, self.prepared.vectorizer
        unseen = unseen_labels(rows.labels, labels)
        if vectorizer is None or not (s.lexical.unseen and s.features.label_texts and len(unseen)):
            return rows
        count = len(unseen)
        texts = list(texts_of(labels, unseen, ids=s.features.label_ids))
        own = (np.ones(count, dtype=np.float32), unseen, np.arange(count + 1))
        pairs = sp.csr_matrix(own, shape=(count, len(labels)))
        bow = sp.csr_matrix(sp.vstack([rows.bow, vectorizer.transform(texts)], format="csr"))
        both = sp.csr_matrix(sp.vstack([rows.labels, pairs], format="csr"))
        kinds = np.concatenate([rows.kinds, np.full(count, KIND_LABEL_TEXT, dtype=np.uint8)])
        return replace(rows, bow=bow, labels=both, kinds=kinds)

    def _prepared_rows(self, number: int, rows: WordRows, searcher: Searcher, folder: Path) -> Any:
        """The rows as the encoder takes them. A transformer encodes all rows once more for the second ranker."""
        if number == TRAINING:
            return self.prepared.train.prepared
        with torch_threads(known(self.settings.run.threads)):
            return searcher.network.encoder.prepare(Inputs(texts=rows.texts, bow=rows.bow), folder / SCRATCH)

    def _fold_of(self) -> np.ndarray:
        """The fold of each training row, drawn at random; label texts are in none and always trained on."""
        ordinary = self.prepared.train.of_kind(KIND_TEXT)
        fold_of = np.full(len(self.prepared.train), NOBODY)
        drawn = permutation(len(ordinary), self.settings.run.seed, "folds")
        fold_of[ordinary[drawn]] = np.arange(len(ordinary)) % self.settings.ranker.folds
        return fold_of

    def _which(self, number: int, rows: WordRows, n_folds: int) -> np.ndarray:
        """Which network finds for each row: the one that left its fold out, else the last; none for label texts."""
        which = np.where(rows.kinds == KIND_TEXT, n_folds, NOBODY)
        if n_folds:
            fold_of, places = self._fold_of(), np.arange(len(which))
            if number == EVERY:
                places = read_tensors(self.prepared.folder / "split.safetensors")[0]["train"]
                fold_of = fold_of[: len(places)]  # label texts come last
            which[places] = fold_of
        return which


def leaving_out(prepared: Prepared, rows: np.ndarray, fold: dict[str, int]) -> Prepared:
    """`prepared` whose training rows `rows` have no labels and no weight: nothing is learned from them."""
    train = prepared.train
    kept = sp.diags((~rows).astype(np.float32), format="csr")
    labels = sp.csr_matrix(kept @ train.labels, dtype=np.float32)
    labels.eliminate_zeros()
    weights = np.where(rows, np.float32(0), train.weights)
    return replace(prepared, train=replace(train, labels=labels, weights=weights), fold=fold)
