"""Search while the ranks share the label classifiers: validation rows in training. All ranks call it together.

Each rank searches the shortlists of its rows, every rank scores the labels that it owns, and the scores go back.
The result is that of `Searcher.search_all`, to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ..core.predictions import Predictions, stack
from ..core.ragged import Ragged
from ..index.shortlist import shortlist, take
from . import classifiers
from .network import Network
from .searcher import BATCH, Searcher, sigmoid
from .sharding import own_rows


def search_all(
    network: Network, prepared: Any, n_rows: int, k: int, *, excluded: sp.csr_matrix | None = None
) -> Predictions:
    """The k best labels of all prepared rows, on every rank."""
    searcher = Searcher(network)
    if network.ranks.size == 1:
        return searcher.search_all(prepared, n_rows, k, excluded=excluded)
    at_once = BATCH * network.ranks.size
    pieces = [
        _search(searcher, prepared, np.arange(start, min(start + at_once, n_rows)), k, excluded)
        for start in range(0, n_rows, at_once)
    ]
    return stack(pieces) if pieces else Predictions.empty(k, explain=False)


@torch.no_grad()
def _search(searcher: Searcher, prepared: Any, rows: np.ndarray, k: int, excluded: sp.csr_matrix | None) -> Predictions:
    network, ranks = searcher.network, searcher.network.ranks
    own = rows[ranks.share(len(rows))]
    counts = [count for (count,) in ranks.numbers(len(own))]
    query = searcher.encode_reference(prepared, own)
    beam_BT, s_BT = searcher.beam(query)
    found = shortlist(
        beam_BT, s_BT, searcher.all_edges, size=network.settings.shortlist_size, n_labels=network.index.n_labels,
        excluded=None if excluded is None else Ragged.from_rows(excluded, own)[0], threads=network.threads,
    )  # fmt: skip
    labels_BS = own_rows(ranks.gather(found.labels_BS.int(), counts), ranks).long()
    phi_BD, tables = ranks.gather(query.phi_BD, counts), (network.classifier_weights, network.classifier_biases)
    z_BS = ranks.scatter_sum(classifiers.scores(phi_BD, labels_BS, *tables), counts)
    slots_BS = found.slots_BS.clamp(min=0)
    parts = (
        beam_BT.gather(1, slots_BS),
        s_BT.gather(1, slots_BS),
        take(searcher.edge_scores, found.edges_BS),
        sigmoid(z_BS),
    )
    labels_BK, scores_BK = searcher.rank(found.labels_BS, parts, k)[:2]
    labels_BK, scores_BK = ranks.gather(labels_BK.int(), counts), ranks.gather(scores_BK, counts)
    return Predictions(labels=labels_BK.cpu().numpy(), scores=scores_BK.cpu().numpy())
