"""ELIAS++: the network and the words find, the ranker looks closer, the final score decides.

    candidates = best labels of the network, united with the best labels by words
    evidence   = every part of their scores (`evidence.py`)
    score      = learned from the evidence on rows held out of everything (`calibration.py`), shown as a probability

In: a `Searcher`, rows prepared for the encoder, their tf-idf. Out: `Predictions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.errors import ModelError
from ..core.files import read_object, write_json
from ..core.predictions import ID_PARTS, PAD, PART_TYPES, Predictions
from ..core.ragged import Ragged
from ..network.searcher import EncodedQuery, PathScores, Searcher
from .features import Evidence, Field
from .gathering import Sizes, WordTables, gather_at_once
from .inverted_index import Lexical
from .knn import Neighbours
from .label_tree import LabelTree, tree_of
from .linear_ranker import load_ranker, quality, save_ranker, with_embedding
from .score_model import Fusion
from .sparse_rows import SparseRows

NAME = "plus.json"


@dataclass(kw_only=True)
class Plus:
    """Everything that ELIAS++ adds to a network. Holds no state of a query."""

    lexical: Lexical
    ranker: SparseRows
    tree: LabelTree
    neighbours: Neighbours
    fusion: Fusion
    counts: np.ndarray  # n_l
    by_network: int  # candidates
    by_words: int
    threads: int = 1
    embedding: float = 0.0  # length of phi beside the ranker's tf-idf; 0: the ranker sees tf-idf alone
    like: Plus | None = field(default=None, repr=False)  # another one with the same words, whose tables serve here too

    def find(
        self, searcher: Searcher, query: EncodedQuery, bow: sp.csr_matrix, k: int,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best labels of rows that have been looked at; `bow` holds those rows only."""
        evidence = self.gather(searcher, query, bow, excluded, k)
        return self.rank(evidence, k, explain)

    def score(
        self, searcher: Searcher, query: EncodedQuery, bow: sp.csr_matrix, k: int, wanted: Ragged,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best of each row's own candidates, each with the score it has among the labels that `find` finds."""
        freely = self.gather(searcher, query, bow, excluded, k)
        labels = padded(wanted)
        evidence = self._evidence(labels, searcher.score_labels(query, labels), bow, query)
        return self.rank(evidence, k, explain, freely.field())

    def gather(
        self, searcher: Searcher, query: EncodedQuery, bow: sp.csr_matrix, excluded: Ragged | None, k: int
    ) -> Evidence:
        """The candidates of some rows with all that speaks for them."""
        if searcher.network.device.type != "cpu" or self.embedding:
            return self.gather_stepwise(searcher, query, bow, excluded, self.sizes(k))
        return gather_at_once(searcher, query, self.tables, bow, excluded, self.sizes(k), threads=self.threads)

    def sizes(self, k: int) -> Sizes:
        """How many candidates the k best of a text are chosen from."""
        return Sizes(min(max(k, self.by_network), len(self.counts)), min(self.by_words, len(self.counts)))

    @cached_property
    def tables(self) -> WordTables:
        if self.like is not None:
            return self.like.tables
        n_words = len(self.lexical.postings)
        by_words = SparseRows.nobody(n_words, len(self.counts)) if self.embedding else self.ranker
        return WordTables(self.lexical, by_words, self.tree, self.neighbours, self.counts)

    def gather_stepwise(
        self, searcher: Searcher, query: EncodedQuery, bow: sp.csr_matrix, excluded: Ragged | None, sizes: Sizes
    ) -> Evidence:
        """`gather` as it is defined, on any device."""
        found = searcher.search(query, sizes.by_network, excluded=excluded, shortlist_size=sizes.shortlist(searcher))
        nearest, both = self.lexical.search(bow, sizes.by_words, found.labels, excluded)
        labels, shared = united(found.labels, nearest.labels, both, nearest.scores)
        return self._evidence(labels, searcher.score_labels(query, labels), bow, query, shared)

    def _evidence(
        self,
        labels: np.ndarray,
        parts: PathScores,
        bow: sp.csr_matrix,
        query: EncodedQuery,
        both: np.ndarray | None = None,
    ) -> Evidence:
        """`both` is v . x where it is known."""
        margin, path = self.tables.closer.look(bow, labels, threads=self.threads)
        if self.embedding:
            seen = with_embedding(bow, query.phi_BD.cpu().numpy(), self.embedding)
            margin = self.ranker.products(seen, labels, threads=self.threads)
        words = self.lexical.scores(bow, labels, both)
        counts = np.where(labels >= 0, self.counts[np.maximum(labels, 0)], 0)
        votes = self.neighbours.votes(bow, labels)
        return Evidence(labels, *parts, margin, path, words, votes, counts)

    def rank(self, evidence: Evidence, k: int, explain: bool, field: Field | None = None) -> Predictions:
        """The k best by the final score, ties to the lower label; `field` as in `Evidence.columns`."""
        from ..kernels.fuse import rank_rows

        scores = self.fusion.score(evidence, field, threads=self.threads)
        labels = np.ascontiguousarray(evidence.labels)
        places = np.empty((len(labels), k), dtype=np.int64)
        kernels.run(rank_rows, len(labels), self.threads, labels, scores, places)
        found = shown(self.fusion, labels, scores, places)
        if not explain:
            return found
        missing, places = places < 0, np.maximum(places, 0)
        q = quality(evidence.margin, self.fusion.loss)
        named = {name: getattr(evidence, name).astype(kind) for name, kind in PART_TYPES.items()}
        named |= {"ranker": q, "words": evidence.words[0]}
        parts = {name: np.take_along_axis(values, places, axis=1) for name, values in named.items()}
        for name, values in parts.items():
            values[missing] = PAD if name in ID_PARTS else 0
        return replace(found, parts=parts)

    def save(self, folder: Path) -> None:
        self.lexical.save(folder)
        save_ranker(self.ranker, folder)
        if len(self.tree.parents):
            self.tree.save(folder)
        if self.neighbours.most:
            self.neighbours.save(folder)
        self.write_score(folder)

    def write_score(self, folder: Path) -> None:
        """The final score alone."""
        self.fusion.save(folder)
        sizes = {"by_network": self.by_network, "by_words": self.by_words, "neighbours": self.neighbours.most,
                 "label_tree": bool(len(self.tree.parents))}  # fmt: skip
        write_json(folder / NAME, {**sizes, "embedding": self.embedding} if self.embedding else sizes)

    @classmethod
    def load(
        cls, folder: Path, counts: np.ndarray, n_words: int, *, threads: int, dim: int = 0, like: Plus | None = None
    ) -> Plus:
        """`dim`: of phi, which the ranker may see. `like`: another one with the same words, ranker, tree
        and training texts, which are not read again."""
        sizes = read_object(folder / NAME, "by_network", "by_words")
        if not all(type(sizes[name]) is int and sizes[name] > 0 for name in ("by_network", "by_words")):
            raise ModelError(
                f"{folder / NAME}: by_network and by_words must be whole numbers above 0; restore the file"
            )
        embedding = sizes.get("embedding", 0.0)
        if not isinstance(embedding, float) or not 0.0 <= embedding < np.inf:
            raise ModelError(f"{folder / NAME}: embedding must be a number of at least 0; restore the file")
        n_labels, seen = len(counts), n_words + (dim if embedding else 0)
        size: dict[str, int] = {"n_labels": n_labels, "n_words": n_words, "threads": threads}
        return cls(
            lexical=like.lexical if like else Lexical.load(folder, **size),
            ranker=like.ranker if like else load_ranker(folder, n_labels=n_labels, n_words=seen),
            tree=like.tree if like else tree_of(folder, bool(sizes.get("label_tree")), n_labels, n_words),
            neighbours=like.neighbours if like else _neighbours(folder, bool(sizes.get("neighbours")), size),
            fusion=Fusion.load(folder), counts=counts, by_network=sizes["by_network"], by_words=sizes["by_words"],
            threads=threads, embedding=embedding, like=like,
        )  # fmt: skip


def _neighbours(folder: Path, are_there: bool, size: dict[str, int]) -> Neighbours:
    """Those of a folder; none in models made without them, or before there were any."""
    return Neighbours.load(folder, **size) if are_there else Neighbours.nobody(size["n_labels"], size["n_words"])


def shown(fusion: Fusion, labels: np.ndarray, scores: np.ndarray, places: np.ndarray) -> Predictions:
    """The labels at some places of each row (-1: nobody) with their scores, as probabilities where they can be."""
    from ..kernels.fuse import show_rows

    best, values = np.empty(places.shape, dtype=np.int32), np.empty(places.shape, dtype=np.float32)
    show_rows(0, len(places), labels, scores, places, fusion.curve, best, values)
    return Predictions(labels=best, scores=values)


def united(
    first: np.ndarray, second: np.ndarray, first_values: np.ndarray, second_values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(labels of both lists of each row, each once and by falling number, -1 after the last; their values)."""
    labels = np.concatenate([first, second], axis=1)
    values = np.concatenate([first_values, second_values], axis=1)
    order = np.argsort(-labels, axis=1, kind="stable")
    labels, values = np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
    again = np.zeros(labels.shape, dtype=bool)
    again[:, 1:] = labels[:, 1:] == labels[:, :-1]
    labels[again] = PAD
    order = np.argsort(-labels, axis=1, kind="stable")
    width = max(1, int((labels >= 0).sum(axis=1).max(initial=0)))
    order = order[:, :width]
    labels, values = np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.ascontiguousarray(labels), np.where(labels >= 0, values, 0).astype(np.float32)


def padded(lists: Ragged) -> np.ndarray:
    """Labels of each row side by side, -1 after the last."""
    lengths = np.diff(lists.indptr)
    out = np.full((len(lengths), max(1, int(lengths.max(initial=1)))), PAD, dtype=np.int32)
    columns = np.arange(len(lists.labels)) - np.repeat(lists.indptr[:-1], lengths)
    out[lists.rows, columns] = lists.labels
    return out
