"""What the steps of ELIAS++ make: the words of some rows, the labels that rows find, the ranker, the label tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.predictions import PAD
from ..core.ragged import Ragged
from ..core.settings import Settings, known
from ..dataset.rows import KIND_LABEL_TEXT
from ..network.searcher import BATCH, Searcher
from ..ranking.inverted_index import Lexical, build_lexical
from ..ranking.knn import Neighbours, build_neighbours
from ..ranking.label_tree import grow, tree_of
from ..ranking.linear_ranker import load_ranker, save_ranker, train_ranker, with_embedding
from ..ranking.reranker import Plus
from ..ranking.score_model import Fusion

ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class WordRows:
    """Rows as the sparse side learns from them."""

    bow: sp.csr_matrix
    labels: sp.csr_matrix
    excluded: sp.csr_matrix
    kinds: np.ndarray
    texts: Sequence[str] | None = None  # where an encoder may need them


def write_lexical(folder: Path, rows: WordRows, s: Settings) -> Lexical:
    """The lexical index of some rows, into a folder."""
    lexical = build_lexical(
        rows.bow, rows.labels, rows.kinds, words_per_label=s.lexical.words_per_label,
        text_weight=s.lexical.label_text_weight, threads=known(s.run.threads),
    )  # fmt: skip
    lexical.save(folder)
    return lexical


def write_neighbours(folder: Path, rows: WordRows, s: Settings) -> None:
    """The texts among some rows, by their words, into a folder."""
    if s.lexical.neighbours == 0:
        return
    build_neighbours(
        rows.bow, rows.labels, rows.kinds, most=s.lexical.neighbours, words_per_text=s.lexical.words_per_text,
        budget=s.lexical.neighbour_postings,
    ).save(folder)  # fmt: skip


def nothing_found(rows: WordRows, s: Settings) -> np.ndarray:
    """[rows, m] where nobody has found a label yet."""
    return np.full((len(rows.kinds), min(s.ranker.negatives, rows.labels.shape[1])), PAD, dtype=np.int32)


def found_by_words(lexical: Lexical, rows: WordRows, s: Settings) -> np.ndarray:
    """The best labels by words of every row that is no label text."""
    found = nothing_found(rows, s)
    ordinary = np.flatnonzero(rows.kinds != KIND_LABEL_TEXT)
    for start in range(0, len(ordinary), ROWS_AT_A_TIME):
        some = ordinary[start : start + ROWS_AT_A_TIME]
        found[some] = lexical.find(
            sp.csr_matrix(rows.bow[some]), found.shape[1], Ragged.from_rows(rows.excluded, some)[0]
        ).labels
    return found


def found_by_network(
    searcher: Searcher, prepared: Any, rows: np.ndarray, excluded: sp.csr_matrix, found: np.ndarray
) -> None:
    """The best labels by p of the given rows, of all that their beams match, into their rows of `found`."""
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        found[some] = searcher.search_rows(
            prepared, some, found.shape[1], excluded=Ragged.from_rows(excluded, some)[0]
        ).labels


def embedded(bow: sp.csr_matrix, searcher: Searcher, prepared: Any, scale: float) -> sp.csr_matrix:
    """[tf-idf, phi] of all rows."""
    batches = [np.arange(start, min(start + BATCH, bow.shape[0])) for start in range(0, bow.shape[0], BATCH)]
    phi = np.concatenate([searcher.encode(prepared, rows).phi_BD.cpu().numpy() for rows in batches])
    return with_embedding(bow, phi, scale)


def write_ranker(folder: Path, rows: WordRows, features: sp.csr_matrix, found: np.ndarray, s: Settings) -> None:
    """The ranker of some rows, into a folder. `features`: their tf-idf, or [tf-idf, phi]."""
    ranker = train_ranker(
        features, found, rows.labels, rows.excluded, s.ranker, n_words=rows.bow.shape[1], threads=known(s.run.threads)
    )
    save_ranker(ranker, folder)


def write_tree(folder: Path, rows: WordRows, s: Settings) -> None:
    """The label tree of some rows, into a folder."""
    if s.ranker.label_tree:
        grow(rows.bow, rows.labels, rows.excluded, s.ranker, seed=s.run.seed, threads=known(s.run.threads)).save(folder)


def what_a_tree_depends_on(s: Settings) -> dict[str, Any]:
    """The ranker's settings that it heeds, and the seed."""
    if not s.ranker.label_tree:
        return {"label_tree": False}
    names = ("label_tree", "leaf", "cost", "passes", "least_weight")
    return {**{name: getattr(s.ranker, name) for name in names}, "seed": s.run.seed}


def _neighbours(folder: Path, s: Settings, n_labels: int, n_words: int) -> Neighbours:
    if s.lexical.neighbours == 0:
        return Neighbours.nobody(n_labels, n_words)
    return Neighbours.load(folder, n_labels=n_labels, n_words=n_words, threads=known(s.run.threads))


def unscored(words: Path, ranker: Path, searcher: Searcher, n_words: int, counts: np.ndarray, s: Settings) -> Plus:
    """What the steps have made, with p q in place of a final score."""
    threads, n_labels = known(s.run.threads), len(counts)
    width = n_words + (searcher.network.encoder.dim if s.ranker.embedding else 0)
    return Plus(
        lexical=Lexical.load(words, n_labels=n_labels, n_words=n_words, threads=threads),
        ranker=load_ranker(ranker, n_labels=n_labels, n_words=width),
        tree=tree_of(words, s.ranker.label_tree, n_labels, n_words),
        neighbours=_neighbours(words, s, n_labels, n_words),
        fusion=Fusion("product", s.ranker.loss), counts=counts, by_network=s.fusion.candidates,
        by_words=s.lexical.candidates, threads=threads, embedding=s.ranker.embedding_scale * s.ranker.embedding,
    )  # fmt: skip
