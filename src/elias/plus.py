"""ELIAS++: the network and the words find, the ranker looks closer, the final score decides.

    candidates = best labels of the network, united with the best labels by words
    evidence   = every part of their scores (`evidence.py`)
    score      = learned from the evidence on rows held out of everything (`fusion.py`), shown as a probability

In: a `Finder`, rows prepared for the encoder, their tf-idf. Out: `Predictions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from . import kernels
from .config import FusionSettings
from .errors import ModelError
from .evidence import Evidence, Field
from .finder import BATCH, Finder, Look, Parts
from .fusion import Fusion, fit_fusion
from .gathering import Sizes, WordTables, gather_at_once
from .label_tree import LabelTree, tree_of
from .lexical import Lexical
from .model import ragged
from .neighbours import Neighbours
from .paths import Ragged
from .persistence import read_object, write_json
from .predictions import NOTHING, NUMBERS, PART_TYPES, Predictions
from .probability import fit_probability
from .ranker import load_ranker, quality, save_ranker, with_embedding
from .sparse_rows import SparseRows

NAME = "plus.json"
FOLDS = 4  # of few rows; of MANY, 2 do
MANY = 2000
ENOUGH = 40  # rows with a right label among those found; of fewer, a final score is worse than p q (docs/log.md)
SINGLE = [name for name in Evidence.__dataclass_fields__ if name not in ("words", "votes")]
SHOWN = 10  # best labels of a row that probabilities are fitted to


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

    def find(
        self, finder: Finder, look: Look, bow: sp.csr_matrix, k: int,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best labels of rows that have been looked at; `bow` holds those rows only."""
        evidence = self.gather(finder, look, bow, excluded, k)
        return self.rank(evidence, k, explain)

    def score(
        self, finder: Finder, look: Look, bow: sp.csr_matrix, k: int, wanted: Ragged,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best of each row's own candidates, each with the score it has among the labels that `find` finds."""
        freely = self.gather(finder, look, bow, excluded, k)
        labels = padded(wanted)
        evidence = self._evidence(labels, finder.parts_of(look, labels), bow, look)
        return self.rank(evidence, k, explain, freely.field())

    def gather(self, finder: Finder, look: Look, bow: sp.csr_matrix, excluded: Ragged | None, k: int) -> Evidence:
        """The candidates of some rows with all that speaks for them."""
        if finder.network.device.type != "cpu" or self.embedding:
            return self.gather_stepwise(finder, look, bow, excluded, self.sizes(k))
        return gather_at_once(finder, look, self.tables, bow, excluded, self.sizes(k), threads=self.threads)

    def sizes(self, k: int) -> Sizes:
        """How many candidates the k best of a text are chosen from."""
        return Sizes(min(max(k, self.by_network), len(self.counts)), min(self.by_words, len(self.counts)))

    @cached_property
    def tables(self) -> WordTables:
        return WordTables(self.lexical, self.ranker, self.tree, self.neighbours, self.counts)

    def gather_stepwise(
        self, finder: Finder, look: Look, bow: sp.csr_matrix, excluded: Ragged | None, sizes: Sizes
    ) -> Evidence:
        """`gather` as it is defined, on any device."""
        found = finder.find_from(look, sizes.by_network, excluded=excluded, size=sizes.shortlist(finder))
        nearest, both = self.lexical.search(bow, sizes.by_words, found.labels, excluded)
        labels, shared = united(found.labels, nearest.labels, both, nearest.scores)
        return self._evidence(labels, finder.parts_of(look, labels), bow, look, shared)

    def _evidence(
        self, labels: np.ndarray, parts: Parts, bow: sp.csr_matrix, look: Look, both: np.ndarray | None = None
    ) -> Evidence:
        """`both` is v . x where it is known."""
        seen = with_embedding(bow, look.phi_BD.cpu().numpy(), self.embedding) if self.embedding else bow
        margin = self.ranker.products(seen, labels, threads=self.threads)
        path = self.tree.paths(bow, labels, threads=self.threads)
        words = self.lexical.scores(bow, labels, both)
        counts = np.where(labels >= 0, self.counts[np.maximum(labels, 0)], 0)
        votes = self.neighbours.votes(bow, labels)
        return Evidence(labels, *parts, margin, path, words, votes, counts)

    def rank(self, evidence: Evidence, k: int, explain: bool, field: Field | None = None) -> Predictions:
        """The k best by the final score, ties to the lower label; `field` as in `Evidence.columns`."""
        from .kernels.fuse import rank_rows

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
            values[missing] = NOTHING if name in NUMBERS else 0
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
            threads=threads, embedding=embedding,
        )  # fmt: skip


def _neighbours(folder: Path, are_there: bool, size: dict[str, int]) -> Neighbours:
    """Those of a folder; none in models made without them, or before there were any."""
    return Neighbours.load(folder, **size) if are_there else Neighbours.nobody(size["n_labels"], size["n_words"])


def shown(fusion: Fusion, labels: np.ndarray, scores: np.ndarray, places: np.ndarray) -> Predictions:
    """The labels at some places of each row (-1: nobody) with their scores, as probabilities where they can be."""
    rows = np.arange(len(labels))[:, None] if len(labels) > 1 else 0
    best, values = labels[rows, places], scores[rows, places]
    if fusion.probability is not None:
        values = fusion.probability(values)
    missing = places < 0
    if missing.any():
        best, values = np.where(missing, NOTHING, best), np.where(missing, 0.0, values)
    return Predictions(labels=best.astype(np.int32, copy=False), scores=values.astype(np.float32, copy=False))


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
    labels[again] = NOTHING
    order = np.argsort(-labels, axis=1, kind="stable")
    width = max(1, int((labels >= 0).sum(axis=1).max(initial=0)))
    order = order[:, :width]
    labels, values = np.take_along_axis(labels, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.ascontiguousarray(labels), np.where(labels >= 0, values, 0).astype(np.float32)


def padded(lists: Ragged) -> np.ndarray:
    """Labels of each row side by side, -1 after the last."""
    lengths = np.diff(lists.indptr)
    out = np.full((len(lengths), max(1, int(lengths.max(initial=1)))), NOTHING, dtype=np.int32)
    columns = np.arange(len(lists.labels)) - np.repeat(lists.indptr[:-1], lengths)
    out[lists.rows, columns] = lists.labels
    return out


def fit_plus(
    plus: Plus, finder: Finder, prepared: Any, bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix,
    settings: FusionSettings, seed: int, say: Callable[[str], None],
) -> Plus:  # fmt: skip
    """`plus` with a final score learned from rows that nothing else has seen, and its probabilities; or as it is.

    Probabilities come from scores learned on the other folds, so that they are not too sure of themselves.
    """
    evidence, right = _evidence_of(plus, finder, prepared, bow, labels, excluded)
    telling = int(right.any(axis=1).sum())
    if telling < ENOUGH:
        say(
            f"  final score: p q; only {telling:,} of {len(right):,} rows have found a right label, {ENOUGH} are needed"
        )
        return plus
    loss = plus.fusion.loss
    there = evidence.labels >= 0
    fold = np.arange(len(right)) % (2 if len(right) >= MANY else FOLDS)
    chosen = [fold >= 0, *(fold != number for number in range(fold.max() + 1))]

    def learn(number: int, _: int) -> Fusion:
        torch.set_num_threads(1)  # of this thread: another number may be left over in it
        kept = chosen[number]
        return fit_fusion(_rows(evidence, kept), right[kept], settings, loss, seed)

    # Side by side, each on one thread: torch's own threads spin, which takes minutes where others have the cores too.
    whole, *others = kernels.run_ranges(learn, range(len(chosen) + 1), plus.threads)
    crossed = np.zeros(evidence.labels.shape, dtype=np.float32)
    for learned, kept in zip(others, chosen[1:], strict=True):
        crossed[~kept] = learned.score(_rows(evidence, ~kept), threads=plus.threads)
    best = np.argsort(np.argsort(np.where(there, -crossed, np.inf), axis=1), axis=1) < SHOWN
    probability = fit_probability(crossed, right, there & best)
    fusion = replace(whole, probability=probability)
    say(f"  final score: {len(right):,} rows, calibration error {probability.error:.4f}")
    return replace(plus, fusion=fusion)


def _evidence_of(
    plus: Plus, finder: Finder, prepared: Any, bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix
) -> tuple[Evidence, np.ndarray]:
    """The evidence of all rows, and whether each label is right."""
    pieces = []
    for start in range(0, bow.shape[0], BATCH):
        rows = np.arange(start, min(start + BATCH, bow.shape[0]))
        pieces.append(plus.gather(finder, finder.look(prepared, rows), bow[rows], ragged(excluded, rows)[0], 1))
    width = max(piece.labels.shape[1] for piece in pieces)
    evidence = _stacked(pieces, width)
    truth = sp.csr_matrix((labels.data > 0, labels.indices, labels.indptr), shape=labels.shape)
    rows = np.repeat(np.arange(len(evidence.labels)), width)
    right = np.asarray(truth[rows, np.maximum(evidence.labels, 0).ravel()]).reshape(evidence.labels.shape)
    return evidence, right & (evidence.labels >= 0)


def _stacked(pieces: list[Evidence], width: int) -> Evidence:
    """Pieces of neighbouring rows as one, padded to the same width."""

    def join(arrays: list[np.ndarray], nothing: float = 0) -> np.ndarray:
        wide = [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=nothing) for a in arrays]
        return np.concatenate(wide)

    fields = {name: join([getattr(piece, name) for piece in pieces], NOTHING if name in ("labels", "cluster") else 0)
              for name in SINGLE}  # fmt: skip
    v, t, c = (join([piece.words[part] for piece in pieces]) for part in range(3))
    vote, closest = (join([piece.votes[part] for piece in pieces]) for part in range(2))
    return Evidence(**fields, words=(v, t, c), votes=(vote, closest))


def _rows(evidence: Evidence, chosen: np.ndarray) -> Evidence:
    fields = {name: getattr(evidence, name)[chosen] for name in SINGLE}
    v, t, c = (values[chosen] for values in evidence.words)
    vote, closest = (values[chosen] for values in evidence.votes)
    return Evidence(**fields, words=(v, t, c), votes=(vote, closest))
