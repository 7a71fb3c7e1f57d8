"""`Plus.gather` on the CPU: one compiled pass a text in place of a dozen calls (`kernels/gather.py`).

In: `Searcher`s, rows that they have looked at, the tf-idf of the rows. Out: `Evidence`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.ragged import Ragged
from ..encoders import Inputs
from ..kernels.beam_search import SearchResult
from ..kernels.closer import PairSums
from ..kernels.gather import Gathered, Words, gather_rows, member_rows, word_rows
from ..kernels.neighbours import Ballot
from ..kernels.postings import Sums
from ..network.searcher import EncodedQuery, Searcher
from .features import Evidence
from .inverted_index import Lexical
from .knn import Neighbours
from .label_tree import LabelTree
from .margins import CloserLook
from .sparse_rows import SparseRows, csr_arrays, no_sums

WIDER = 4


class Sizes(NamedTuple):
    """Candidates of a text."""

    by_network: int
    by_words: int

    def shortlist(self, searcher: Searcher) -> int:
        """K of the search: more than WIDER times as many as are kept change nothing that counts (docs/log.md)."""
        size: int = searcher.network.settings.shortlist_size
        return size if size >= searcher.index.n_labels else min(size, WIDER * self.by_network)


class Scratch(NamedTuple):
    """What one thread writes while it reads words."""

    place_of: np.ndarray  # int32 [L]
    sums: Sums
    x: np.ndarray  # float32 [W], zero
    ballot: Ballot
    summed: PairSums


@dataclass(eq=False)
class WordTables:
    """What ELIAS++ knows of labels by words. Holds no state of a query."""

    lexical: Lexical
    ranker: SparseRows
    tree: LabelTree
    neighbours: Neighbours
    counts: np.ndarray  # n_l
    _free: deque[Scratch] = field(default_factory=deque, repr=False)

    @cached_property
    def closer(self) -> CloserLook:
        return CloserLook(self.ranker, self.tree, len(self.lexical.postings))

    @cached_property
    def table(self) -> Words:
        lexical = self.lexical
        return Words(lexical.table, self.closer.table, lexical.texts.table, lexical.shares, self.neighbours.table)

    def take(self) -> Scratch:
        """Memory of an earlier call where there is one."""
        try:
            return self._free.pop()
        except IndexError:
            n_labels, n_words = len(self.counts), len(self.lexical.postings)
            place_of = np.zeros(n_labels, dtype=np.int32)
            x = np.zeros(n_words, dtype=np.float32)
            return Scratch(place_of, no_sums(n_labels), x, self.neighbours.new_ballot(), self.closer.new_sums())

    def give_back(self, scratch: Scratch) -> None:
        self._free.append(scratch)

    def evidence(self, out: Gathered) -> Evidence:
        counted = np.where(out.labels >= 0, self.counts[out.labels], 0)
        words, votes = (out.both, out.text, out.rows), (out.vote, out.closest)
        return Evidence(*out[:7], words, votes, counted)


def gather_at_once(
    searcher: Searcher, query: EncodedQuery, tables: WordTables, bow: sp.csr_matrix, excluded: Ragged | None,
    sizes: Sizes, *, threads: int = 1,
) -> Evidence:  # fmt: skip
    """The best labels of the network and of the words, each once, with all that speaks for them."""
    phi, logits = arrays_of(query)
    excluded = excluded or Ragged.empty(len(phi))
    found, nearest, out = to_be_found(len(phi), sizes)
    fixed = (
        phi,
        logits,
        *search_arguments(searcher, sizes),
        *csr_arrays(bow),
        tables.table,
        *excluded_arrays(excluded),
    )
    room = searcher.cpu_search.room_for(excluded, searcher.network.settings.beam_size)

    def rows(start: int, stop: int) -> None:
        scratch, search = tables.take(), searcher.cpu_search.scratch.take(room)
        gather_rows(start, stop, *fixed, search, *scratch[1:], found, nearest, out)  # type: ignore[call-arg]
        searcher.cpu_search.scratch.give_back(search)
        tables.give_back(scratch)

    kernels.run(rows, len(phi), threads)
    return tables.evidence(out)


def gather_together(
    searchers: Sequence[Searcher], queries: Sequence[EncodedQuery], tables: WordTables, bow: sp.csr_matrix,
    excluded: Ragged | None, sizes: Sizes, *, threads: int = 1,
) -> list[Evidence]:  # fmt: skip
    """`gather_at_once` of several networks with the same words, which are read once."""
    seen = [arrays_of(query) for query in queries]
    n_rows = len(seen[0][0])
    excluded = excluded or Ragged.empty(n_rows)
    found = []
    for searcher, (phi, logits) in zip(searchers, seen, strict=True):
        settings = replace(searcher.network.settings, shortlist_size=sizes.shortlist(searcher))
        found.append(searcher.cpu_search.search(phi, logits, sizes.by_network, settings, excluded=excluded))
    asked = np.concatenate([one.labels for one in found], axis=1)
    _, nearest, shared = to_be_found(n_rows, Sizes(asked.shape[1], sizes.by_words))
    shared.labels.fill(-1)
    outs = [to_be_found(n_rows, sizes)[2] for _ in found]
    # Tables are made here, not in `rows`: threads that wait for a table that needs these threads would wait forever.
    words, searches = tables.table, [search_arguments(searcher, sizes) for searcher in searchers]
    x, left_out = csr_arrays(bow), excluded_arrays(excluded)

    def rows(start: int, stop: int) -> None:
        scratch = tables.take()
        word_rows(start, stop, asked, *x, words, *left_out, *scratch, nearest, shared)
        for (alpha, _, _, _, classifiers, by_label), own, (phi, logits), out in zip(
            searches, found, seen, outs, strict=True
        ):
            rest = (own, nearest, shared, scratch.place_of, out)
            member_rows(start, stop, phi, logits, alpha, classifiers, by_label, *rest)
        tables.give_back(scratch)

    kernels.run(rows, n_rows, threads)
    return [tables.evidence(out) for out in outs]


def search_arguments(searcher: Searcher, sizes: Sizes) -> tuple[Any, ...]:
    """What the search of a network needs beside phi and logits."""
    settings, search = searcher.network.settings, searcher.cpu_search
    numbers = float(settings.alpha), settings.beam_size, sizes.shortlist(searcher)
    return (*numbers, search.edges, search.classifiers, searcher.edges_by_label)


def arrays_of(look: EncodedQuery) -> tuple[np.ndarray, np.ndarray]:
    return look.phi_BD.contiguous().numpy(), look.logits_BC.contiguous().numpy()


def excluded_arrays(excluded: Ragged) -> tuple[np.ndarray, np.ndarray]:
    return excluded.indptr, excluded.labels


def to_be_found(n_rows: int, sizes: Sizes) -> tuple[SearchResult, np.ndarray, Gathered]:
    """(labels of the network, labels by words, both with their parts), to be written to."""

    def empty(kind: Any, width: int) -> Any:
        numbers = ("labels", "cluster", "clusters")
        arrays = (np.empty((n_rows, width), np.int32 if name in numbers else np.float32) for name in kind._fields)
        return kind(*arrays)

    nearest = np.empty((n_rows, sizes.by_words), dtype=np.int32)
    return empty(SearchResult, sizes.by_network), nearest, empty(Gathered, sum(sizes))


def words_of(given: Inputs, rows: np.ndarray) -> sp.csr_matrix:
    """tf-idf of some inputs, or their sparse vectors."""
    assert given.bow is not None
    return given.bow if len(rows) == given.bow.shape[0] else sp.csr_matrix(given.bow[rows])
