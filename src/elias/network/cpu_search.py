"""Search on the CPU: the tables that `kernels/beam_search.py` reads, made once from a network, and the call itself.

    edges         by descending score within each cluster, so that a search stops at its threshold
    classifiers   the rows themselves, and int8 codes of them from which bounds of p are computed

The result is that of `Searcher.search_reference`, exactly (docs/explanation/search.md): codes only decide which rows
need not be read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import kernels
from ..core.embedding_table import EmbeddingTable
from ..core.ragged import Ragged
from ..core.scratch import ScratchPool
from ..index.label_index import LabelIndex
from ..kernels.beam_search import Classifiers, Edges, Scratch, SearchResult, search_rows, sort_edges
from ..kernels.quantization import code_errors, encode_rows
from .network import SearchSettings
from .quantization import QuantizedRows

NO_SCALES = np.empty(0, dtype=np.float32)


class CpuSearch:
    """Holds no state of a query; any number of threads may call `search`."""

    def __init__(self, edges: Edges, classifiers: Classifiers, *, threads: int = 1) -> None:
        self.edges, self.classifiers, self.threads = edges, classifiers, threads
        self.scratch: ScratchPool[Scratch] = ScratchPool(
            partial(new_scratch, len(classifiers.codes)), lambda scratch, room: len(scratch.keys) >= room
        )
        self._reachable = np.cumsum(np.sort(np.diff(edges.indptr))[::-1])  # by the t largest clusters, at most

    @classmethod
    def of(
        cls, index: LabelIndex, weights: EmbeddingTable | QuantizedRows, biases: EmbeddingTable, *, threads: int = 1
    ) -> CpuSearch:
        """The tables of a network as it is now."""
        weights.flush()
        biases.flush()
        edges = edges_by_score(index, threads=threads)
        return cls(edges, classifiers_with_codes(weights, biases, threads=threads), threads=threads)

    def search(
        self,
        phi_BD: np.ndarray,
        logits_BC: np.ndarray,
        k: int,
        settings: SearchSettings,
        *,
        excluded: Ragged | None = None,
    ) -> SearchResult:
        """The k best labels of each row from phi and W_C phi."""
        n_rows = len(phi_BD)
        excluded = excluded or Ragged.empty(n_rows)
        result, room = empty_result(n_rows, k), self.room_for(excluded, settings.beam_size)
        arguments = (
            phi_BD, logits_BC, float(settings.alpha), settings.beam_size, settings.shortlist_size,
            self.edges, self.classifiers, excluded.indptr, excluded.labels,
        )  # fmt: skip
        kernels.run(partial(self._search_rows, room, result, arguments), n_rows, self.threads)
        return result

    def _search_rows(self, room: int, result: SearchResult, arguments: Any, start: int, stop: int) -> None:
        scratch = self.scratch.take(room)
        search_rows(start, stop, *arguments, scratch, result)  # type: ignore[call-arg]
        self.scratch.give_back(scratch)

    def room_for(self, excluded: Ragged, beam_size: int) -> int:
        """Candidates that a row can have at most: what a scratch must hold."""
        most_excluded = int(np.diff(excluded.indptr).max(initial=0)) if len(excluded.labels) else 0
        return most_excluded + self._most_reached(beam_size)

    def _most_reached(self, beam_size: int) -> int:
        """Labels that a beam can reach at most."""
        width = min(beam_size, len(self._reachable))
        return min(int(self._reachable[width - 1]), len(self.classifiers.codes)) if width else 0


def edges_by_score(index: LabelIndex, *, threads: int = 1) -> Edges:
    """The index as the search reads it."""
    labels, scores = np.empty_like(index.labels), np.empty(index.n_edges, dtype=np.float32)
    kernels.run(sort_edges, index.n_clusters, threads, index.indptr, index.labels, index.edge_scores(), labels, scores)
    return Edges(index.indptr, labels, scores)


def classifiers_with_codes(
    weights: EmbeddingTable | QuantizedRows, biases: EmbeddingTable, *, threads: int = 1
) -> Classifiers:
    """The rows and their int8 codes; rows that are int8 already are their own codes."""
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
    """What the bounds of a label need beside its codes, side by side, so that one cache line holds all of it."""
    return np.ascontiguousarray(np.stack([scales, biases, errors, np.zeros_like(scales)], axis=1), dtype=np.float32)


def new_scratch(n_labels: int, room: int) -> Scratch:
    floats, numbers = partial(np.empty, room, dtype=np.float32), partial(np.empty, room, dtype=np.int32)
    place_of = np.zeros(n_labels, dtype=np.int32)
    return Scratch(
        place_of, numbers(), floats(), floats(), numbers(), floats(), floats(), np.empty(room, dtype=np.uint64)
    )


def empty_result(n_rows: int, k: int) -> SearchResult:
    """Where a kernel writes its result, every place of it."""
    shape, number, real = (n_rows, k), np.int32, np.float32
    return SearchResult(
        np.empty(shape, number), np.empty(shape, real), np.empty(shape, number),
        np.empty(shape, real), np.empty(shape, real), np.empty(shape, real),
    )  # fmt: skip
