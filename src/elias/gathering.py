"""`Plus.gather` on the CPU: one compiled pass a text in place of a dozen calls (`kernels/gather.py`).

In: a `Finder`, rows that it has looked at, their tf-idf. Out: `Evidence`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import kernels
from .evidence import Evidence
from .finder import Finder, Look
from .lexical import Lexical
from .paths import Ragged
from .predictions import NOTHING
from .sparse_rows import SparseRows, csr_arrays


def gather_at_once(
    finder: Finder, look: Look, lexical: Lexical, ranker: SparseRows, counts: np.ndarray, bow: sp.csr_matrix,
    excluded: Ragged | None, by_network: int, by_words: int, *, threads: int = 1,
) -> Evidence:  # fmt: skip
    """The best labels of the network and of the words, each once, with all that speaks for them."""
    from .cpu_search import nothing_found
    from .kernels.gather import Gathered, Words

    search, settings, n_rows = finder.cpu_search, finder.network.settings, len(look.phi_BD)
    shape = (n_rows, by_network + by_words)
    excluded = excluded or Ragged.empty(n_rows)
    labels, clusters = np.full(shape, NOTHING, dtype=np.int32), np.full(shape, NOTHING, dtype=np.int32)
    out = Gathered(labels, clusters, *np.zeros((7, *shape), dtype=np.float32))
    arguments = (
        look.phi_BD.contiguous().numpy(), look.logits_BC.contiguous().numpy(), float(settings.alpha),
        settings.beam_size, settings.shortlist_size, search.edges, search.classifiers, finder.by_label,
        *csr_arrays(bow), Words(lexical.table, ranker.by_word, ranker.biases, lexical.texts.table, lexical.shares),
        excluded.indptr, excluded.labels, by_words,
    )  # fmt: skip
    room = search.room_for(excluded, settings.beam_size)
    found = nothing_found(n_rows, by_network)
    kernels.run(partial(_gather, finder, lexical, room, arguments, found, out), n_rows, threads)
    counted = np.where(labels >= 0, counts[np.maximum(labels, 0)], 0)
    return Evidence(*out[:6], counts=counted, words=(out.both, out.text, out.rows))


def _gather(
    finder: Finder, lexical: Lexical, room: int, arguments: Any, found: Any, out: Any, start: int, stop: int
) -> None:
    from .kernels.gather import gather_rows

    search_scratch, sums = finder.cpu_search.take_scratch(room), lexical.take_scratch()
    gather_rows(start, stop, *arguments, search_scratch, sums, lexical.no_words(), found, out)
    finder.cpu_search.give_back(search_scratch)
    lexical.give_back(sums)
