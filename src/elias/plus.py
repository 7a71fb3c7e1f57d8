"""ELIAS++: the network and the words find, the ranker looks closer, the final score decides.

    candidates = best labels of the network, united with the best labels by words
    evidence   = every part of their scores (`evidence.py`)
    score      = learned from the evidence on rows held out of everything (`fusion.py`), shown as a probability

In: a `Finder`, rows prepared for the encoder, their tf-idf. Out: `Predictions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .config import FusionSettings
from .errors import ModelError
from .evidence import Evidence
from .finder import BATCH, Finder, Look, Parts
from .fusion import Fusion, fit_fusion
from .lexical import Lexical
from .model import ragged
from .paths import Ragged
from .persistence import read_object, write_json
from .predictions import NOTHING, NUMBERS, PART_TYPES, Predictions
from .probability import fit_probability
from .ranker import load_ranker, quality, save_ranker, with_embedding
from .sparse_rows import SparseRows

NAME = "plus.json"
FOLDS = 4
SHOWN = 10  # best labels of a row that probabilities are fitted to


@dataclass(kw_only=True)
class Plus:
    """Everything that ELIAS++ adds to a network. Holds no state of a query."""

    lexical: Lexical
    ranker: SparseRows
    fusion: Fusion
    counts: np.ndarray  # n_l
    by_network: int  # candidates
    by_words: int
    threads: int = 1
    embedding: float = 0.0  # length of phi beside the ranker's tf-idf; 0: the ranker sees tf-idf alone

    def find(
        self, finder: Finder, prepared: Any, bow: sp.csr_matrix, rows: np.ndarray, k: int,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best labels of some rows; `bow` holds those rows only."""
        evidence = self.gather(finder, finder.look(prepared, rows), bow, excluded, k)
        return self._rank(evidence, self.fusion.score(evidence), k, explain)

    def score(
        self, finder: Finder, prepared: Any, bow: sp.csr_matrix, rows: np.ndarray, k: int, wanted: Ragged,
        *, excluded: Ragged | None = None, explain: bool = False,
    ) -> Predictions:  # fmt: skip
        """The k best of each row's own candidates, each with the score it has among the labels that `find` finds."""
        look = finder.look(prepared, rows)
        freely = self.gather(finder, look, bow, excluded, k)
        best = freely.best(freely.columns())
        labels = padded(wanted)
        evidence = self._evidence(labels, finder.parts_of(look, labels), bow, look)
        return self._rank(evidence, self.fusion.score(evidence, best), k, explain)

    def gather(self, finder: Finder, look: Look, bow: sp.csr_matrix, excluded: Ragged | None, k: int) -> Evidence:
        """The candidates of some rows with all that speaks for them."""
        n_labels = len(self.counts)
        by_network = finder.find_from(look, min(max(k, self.by_network), n_labels), excluded=excluded)
        by_words, both = self.lexical.search(bow, min(self.by_words, n_labels), by_network.labels, excluded)
        labels, shared = united(by_network.labels, by_words.labels, both, by_words.scores)
        return self._evidence(labels, finder.parts_of(look, labels), bow, look, shared)

    def _evidence(
        self, labels: np.ndarray, parts: Parts, bow: sp.csr_matrix, look: Look, both: np.ndarray | None = None
    ) -> Evidence:
        """`both` is v . x where it is known."""
        seen = with_embedding(bow, look.phi_BD.cpu().numpy(), self.embedding) if self.embedding else bow
        margin = self.ranker.products(seen, labels, threads=self.threads)
        words = self.lexical.scores(bow, labels, both)
        counts = np.where(labels >= 0, self.counts[np.maximum(labels, 0)], 0)
        return Evidence(labels, *parts, margin, words, counts)

    def _rank(self, evidence: Evidence, scores: np.ndarray, k: int, explain: bool) -> Predictions:
        """The k best by the final score, ties to the lower label."""
        there = evidence.labels >= 0
        order = np.lexsort((evidence.labels, np.where(there, -scores, np.inf)), axis=1)[:, :k]
        missing = ~np.take_along_axis(there, order, axis=1)
        shown = np.take_along_axis(scores, order, axis=1)
        if self.fusion.probability is not None:
            shown = self.fusion.probability(shown)
        parts = None
        if explain:
            q = quality(evidence.margin, self.fusion.loss)
            named = {name: getattr(evidence, name).astype(kind) for name, kind in PART_TYPES.items()}
            named |= {"ranker": q, "words": evidence.words[0]}
            parts = {name: np.take_along_axis(values, order, axis=1) for name, values in named.items()}
            for name, values in parts.items():
                values[missing] = NOTHING if name in NUMBERS else 0
        labels = np.take_along_axis(evidence.labels, order, axis=1)
        found = Predictions(labels=labels, scores=np.where(missing, 0.0, shown).astype(np.float32), parts=parts)
        return found.widened(k)

    def save(self, folder: Path) -> None:
        self.lexical.save(folder)
        save_ranker(self.ranker, folder)
        self.write_score(folder)

    def write_score(self, folder: Path) -> None:
        """The final score alone."""
        self.fusion.save(folder)
        sizes = {"by_network": self.by_network, "by_words": self.by_words}
        write_json(folder / NAME, {**sizes, "embedding": self.embedding} if self.embedding else sizes)

    @classmethod
    def load(cls, folder: Path, counts: np.ndarray, n_words: int, *, threads: int, dim: int = 0) -> Plus:
        """`dim`: of phi, which the ranker may see."""
        sizes = read_object(folder / NAME, "by_network", "by_words")
        if not all(type(sizes[name]) is int and sizes[name] > 0 for name in ("by_network", "by_words")):
            raise ModelError(
                f"{folder / NAME}: by_network and by_words must be whole numbers above 0; restore the file"
            )
        embedding = sizes.get("embedding", 0.0)
        if not isinstance(embedding, float) or not 0.0 <= embedding < np.inf:
            raise ModelError(f"{folder / NAME}: embedding must be a number of at least 0; restore the file")
        return cls(
            lexical=Lexical.load(folder, n_labels=len(counts), n_words=n_words, threads=threads),
            ranker=load_ranker(folder, n_labels=len(counts), n_words=n_words + (dim if embedding else 0)),
            fusion=Fusion.load(folder), counts=counts, by_network=sizes["by_network"], by_words=sizes["by_words"],
            threads=threads, embedding=embedding,
        )  # fmt: skip


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
    """`plus` with a final score learned from rows that nothing else has seen, and its probabilities.

    Probabilities come from scores learned on the other folds, so that they are not too sure of themselves.
    """
    evidence, right = _evidence_of(plus, finder, prepared, bow, labels, excluded)
    loss = plus.fusion.loss
    there = evidence.labels >= 0
    crossed = np.zeros(evidence.labels.shape, dtype=np.float32)
    fold = np.arange(len(right)) % FOLDS
    for number in range(FOLDS):
        kept = fold != number
        learned = fit_fusion(_rows(evidence, kept), right[kept], settings, loss, seed)
        crossed[~kept] = learned.score(_rows(evidence, ~kept))
    best = np.argsort(np.argsort(np.where(there, -crossed, np.inf), axis=1), axis=1) < SHOWN
    probability = fit_probability(crossed, right, there & best)
    fusion = replace(fit_fusion(evidence, right, settings, loss, seed), probability=probability)
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
              for name in Evidence.__dataclass_fields__ if name != "words"}  # fmt: skip
    v, t, c = (join([piece.words[part] for piece in pieces]) for part in range(3))
    return Evidence(**fields, words=(v, t, c))


def _rows(evidence: Evidence, chosen: np.ndarray) -> Evidence:
    fields = {name: getattr(evidence, name)[chosen] for name in Evidence.__dataclass_fields__ if name != "words"}
    v, t, c = (values[chosen] for values in evidence.words)
    return Evidence(**fields, words=(v, t, c))
