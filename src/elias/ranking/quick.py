"""Texts answered with as little as possible between the texts and the kernels.

The same answer as the general way up to rounding (`tests/test_gathering.py`), for models whose every step has a kernel:
a bag of words on the CPU with ELIAS++ and a learned score. In: texts. Out: `Predictions` without parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..core.predictions import Predictions
from ..core.ragged import Ragged
from ..encoders.bag import BagEncoder
from ..encoders.tfidf import TfIdf
from ..kernels.embed import Embedding, embed_rows
from ..kernels.fuse import learned_scores, rank_rows
from ..kernels.gather import gather_rows
from ..network.network import Network
from ..network.searcher import EncodedQuery, Searcher
from .features import Field
from .gathering import search_arguments, to_be_found
from .reranker import Plus, shown
from .score_model import Learned
from .sparse_rows import csr_arrays

FEW = 4  # texts; the words of more are counted together
ALONE = 32  # texts that one thread answers: for fewer, waking another costs more than it gives


class Quick:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, vectorizer: TfIdf, network: Network, searcher: Searcher, plus: Plus, learned: Learned) -> None:
        assert isinstance(network.encoder, BagEncoder)
        self.vectorizer, self.searcher, self.plus = vectorizer, searcher, plus
        head = network.encoder.head
        self._embedding = Embedding(
            network.encoder.words.values.numpy(), *_linear(head.residual), *_linear(network.clusters),
            np.float32(head.radius),
        )  # fmt: skip
        self._words = plus.tables.table
        self._weights, self._log_counts = learned.weights, np.log1p(plus.counts).astype(np.float32)
        self._shape = network.encoder.dim, network.index.n_clusters

    @classmethod
    def of(cls, vectorizer: TfIdf | None, searcher: Searcher, plus: Plus | None) -> Quick | None:
        """None where a step has no kernel."""
        network = searcher.network
        if vectorizer is None or plus is None or plus.fusion.learned is None or network.device.type != "cpu":
            return None
        if not isinstance(network.encoder, BagEncoder) or plus.embedding:
            return None
        return cls(vectorizer, network, searcher, plus, plus.fusion.learned)

    def find(self, texts: Sequence[str], k: int, excluded: Ragged | None = None) -> Predictions:
        """The k best labels of each text."""
        n, x = len(texts), self._features(texts)
        excluded, search = excluded or Ragged.empty(n), self.searcher.cpu_search
        sizes = self.plus.sizes(k)
        found, nearest, out = to_be_found(n, sizes)
        log_counts, scores = (np.empty(out.labels.shape, dtype=np.float32) for _ in range(2))
        places = np.empty((n, k), dtype=np.int64)
        phi_BD, logits_BC = self._to_be_embedded(n)
        field, arguments = Field.own(n), search_arguments(self.searcher, sizes)
        room = search.room_for(excluded, self.searcher.network.settings.beam_size)

        def rows(start: int, stop: int) -> None:
            own, searching = self.plus.tables.take(), search.scratch.take(room)
            embed_rows(start, stop, *x, self._embedding, phi_BD, logits_BC)
            gather_rows(  # type: ignore[call-arg]
                start, stop, phi_BD, logits_BC, *arguments, *x, self._words, excluded.indptr, excluded.labels,
                searching, *own[1:], found, nearest, out,
            )  # fmt: skip
            np.take(self._log_counts, out.labels[start:stop], out=log_counts[start:stop], mode="clip")
            learned_scores(start, stop, out, log_counts, self._weights, field.best, field.rising, scores)
            rank_rows(start, stop, out.labels, scores, places)
            search.scratch.give_back(searching)
            self.plus.tables.give_back(own)

        kernels.run(rows, n, self._threads(n))
        return shown(self.plus.fusion, out.labels, scores, places)

    def look(self, indptr: np.ndarray, words: np.ndarray, values: np.ndarray) -> EncodedQuery:
        """phi and W_C phi of some rows of tf-idf."""
        phi_BD, logits_BC = self._embed(indptr, words, values)
        return EncodedQuery(torch.from_numpy(phi_BD), torch.from_numpy(logits_BC))

    def _embed(self, indptr: np.ndarray, words: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(indptr) - 1
        phi_BD, logits_BC = self._to_be_embedded(n)
        x = indptr, words, values
        kernels.run(embed_rows, n, self._threads(n), *x, self._embedding, phi_BD, logits_BC)
        return phi_BD, logits_BC

    def _threads(self, n: int) -> int:
        return 1 if n <= ALONE else self.plus.threads

    def _to_be_embedded(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        dim, n_clusters = self._shape
        return np.empty((n, dim), dtype=np.float32), np.empty((n, n_clusters), dtype=np.float32)

    def _features(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """tf-idf as (indptr, words, values)."""
        if len(texts) > FEW:
            return csr_arrays(self.vectorizer.transform(texts))
        rows = [self.vectorizer.transform_one(text) for text in texts]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        if len(rows) == 1:
            indptr[1] = len(rows[0][0])
            return indptr, *rows[0]
        indptr[1:] = np.cumsum([len(words) for words, _ in rows])
        return indptr, np.concatenate([words for words, _ in rows]), np.concatenate([values for _, values in rows])


def _linear(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()
