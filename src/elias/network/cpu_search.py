"""Search on the CPU: the tables that `kernels.find` reads, made once from a network, and the call itself.

    edges         by falling score within each cluster, so that a search stops where its bar is
    classifiers   the rows themselves, and int8 codes of them with an error bound for the first look

The answer is that of `Searcher.search_reference`, exactly (docs/search.md): codes only decide which rows need not be
read.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np

from .. import kernels
from ..core.embedding_table import RowTable
from ..index.label_index import LabelIndex
from ..index.shortlist import Ragged
from ..kernels.find import Classifiers, Edges, Found, Scratch, find_rows
from ..kernels.narrow import code_errors, encode_rows, sort_edges
from .network import SearchSettings
from .quantization import QuantizedRows

NO_SCALES = np.empty(0, dtype=np.float32)


class CpuSearch:
    """Holds no state of a query; any number of threads may call `search`."""

    def __init__(self, edges: Edges, classifiers: Classifiers, *, threads: int = 1) -> None:
        self.edges, self.classifiers, self.threads = edges, classifiers, threads
        self._free: deque[Scratch] = deque()  # of calls that have ended
        self._reachable = np.cumsum(np.sort(np.diff(edges.indptr))[::-1])  # by the t largest clusters, at most

    @classmethod
    def of(
        cls, index: LabelIndex, weights: RowTable | QuantizedRows, biases: RowTable, *, threads: int = 1
    ) -> CpuSearch:
        """The tables of a network as it is now."""
        weights.settle()
        biases.settle()
        edges, classifiers = (
            edges_by_score(index, threads=threads),
            classifiers_with_codes(weights, biases, threads=threads),
        )
        return cls(edges, classifiers, threads=threads)

    def search(
        self, phi_BD: np.ndarray, logits_BC: np.ndarray, k: int, settings: SearchSettings,
        *, excluded: Ragged | None = None,
    ) -> Found:  # fmt: skip
        """The k best labels of each row from phi and W_C phi."""
        n_rows = len(phi_BD)
        excluded = excluded or Ragged.empty(n_rows)
        found, room = room_for_answers(n_rows, k), self.room_for(excluded, settings.beam_size)
        arguments = (
            phi_BD, logits_BC, float(settings.alpha), settings.beam_size, settings.shortlist_size,
            self.edges, self.classifiers, excluded.indptr, excluded.labels,
        )  # fmt: skip
        kernels.run(partial(self._search_rows, room, found, arguments), n_rows, self.threads)
        return found

    def _search_rows(self, room: int, found: Found, arguments: Any, start: int, stop: int) -> None:
        scratch = self.take_scratch(room)
        find_rows(start, stop, *arguments, scratch, found)  # type: ignore[call-arg]
        self.give_back(scratch)

    def room_for(self, excluded: Ragged, beam_size: int) -> int:
        """Candidates that a row can have at most."""
        most_excluded = int(np.diff(excluded.indptr).max(initial=0)) if len(excluded.labels) else 0
        return most_excluded + self._most_reached(beam_size)

    def take_scratch(self, room: int) -> Scratch:
        """Memory of a size that depends on L, of an earlier call where there is one."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = _scratch(len(self.classifiers.codes), room)
        return scratch if len(scratch.keys) >= room else _scratch(len(scratch.place_of), room)

    def give_back(self, scratch: Scratch) -> None:
        self._free.append(scratch)

    def _most_reached(self, beam_size: int) -> int:
        """Labels that a beam can reach at most."""
        width = min(beam_size, len(self._reachable))
        return min(int(self._reachable[width - 1]), len(self.classifiers.codes)) if width else 0


def edges_by_score(index: LabelIndex, *, threads: int = 1) -> Edges:
    """The index as the search reads it."""
    labels, scores = np.empty_like(index.labels), np.empty(index.n_edges, dtype=np.float32)
    kernels.run(sort_edges, index.n_clusters, threads, index.indptr, index.labels, index.edge_scores(), labels, scores)
    return Edges(index.indptr, labels, scores)


def classifiers_with_codes(weights: RowTable | QuantizedRows, biases: RowTable, *, threads: int = 1) -> Classifiers:
    """The rows and their int8 codes; rows that are int8 already are their own."""
    n_labels, scales = len(weights), np.empty(len(weights), dtype=np.float32)
    biases_L, errors = biases.array().reshape(-1), np.empty(n_labels, dtype=np.float32)
    if isinstance(weights, QuantizedRows) and weights.scales is not None:
        kernels.run(code_errors, n_labels, threads, weights.rows, weights.scales, errors)
        facts = facts_of(weights.scales, biases_L, errors)
        return Classifiers(weights.rows, weights.scales, biases_L, weights.rows, facts)
    rows = weights.rows if isinstance(weights, QuantizedRows) else weights.array()
    codes = np.empty(rows.shape, dtype=np.int8)
    kernels.run(encode_rows, n_labels, threads, rows, codes, scales, errors)
    return Classifiers(rows, NO_SCALES, biases_L, codes, facts_of(scales, biases_L, errors))


def facts_of(scales: np.ndarray, biases: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """What the first look needs of a label beside its codes, in one place."""
    return np.ascontiguousarray(np.stack([scales, biases, errors, np.zeros_like(scales)], axis=1), dtype=np.float32)


def _scratch(n_labels: int, room: int) -> Scratch:
    floats, numbers = partial(np.empty, room, dtype=np.float32), partial(np.empty, room, dtype=np.int32)
    place_of = np.zeros(n_labels, dtype=np.int32)
    return Scratch(
        place_of, numbers(), floats(), floats(), numbers(), floats(), floats(), np.empty(room, dtype=np.uint64)
    )


def room_for_answers(n_rows: int, k: int) -> Found:
    """Where an answer goes; every place of it is written."""
    shape, number, real = (n_rows, k), np.int32, np.float32
    return Found(
        np.empty(shape, number), np.empty(shape, real), np.empty(shape, number),
        np.empty(shape, real), np.empty(shape, real), np.empty(shape, real),
    )  # fmt: skip
