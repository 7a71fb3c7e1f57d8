"""A few texts, answered with as little as possible between the texts and the kernels.

The same answer as the general way up to rounding (`tests/test_gathering.py`), for models whose every step has a kernel:
a bag of words on the CPU with ELIAS++ and a learned score. In: texts. Out: `Predictions` without parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .encoders.bag import BagEncoder
from .evidence import RELATIVE
from .features import TfIdf
from .finder import Finder, Look
from .fusion import Learned
from .gathering import search_arguments, to_be_found
from .kernels.embed import Embedding, embed_rows
from .kernels.fuse import learned_scores, rank_rows
from .kernels.gather import Gathered, gather_rows
from .model import Network
from .paths import Ragged
from .plus import Plus, shown
from .predictions import Predictions

FEW = 4  # texts; more are quicker where torch multiplies matrices


class Quick:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, vectorizer: TfIdf, network: Network, finder: Finder, plus: Plus, learned: Learned) -> None:
        assert isinstance(network.encoder, BagEncoder)
        self.vectorizer, self.finder, self.plus = vectorizer, finder, plus
        head = network.encoder.head
        self._embedding = Embedding(
            network.encoder.words.values.numpy(), *_linear(head.residual), *_linear(network.clusters),
            np.float32(head.radius),
        )  # fmt: skip
        self._words = plus.tables.table
        self._weights, self._log_counts = learned.weights, np.log1p(plus.counts).astype(np.float32)
        self._shape = network.encoder.dim, network.index.n_clusters

    @classmethod
    def of(cls, vectorizer: TfIdf | None, finder: Finder, plus: Plus | None) -> Quick | None:
        """None where a step has no kernel."""
        network = finder.network
        if vectorizer is None or plus is None or plus.fusion.learned is None or network.device.type != "cpu":
            return None
        if not isinstance(network.encoder, BagEncoder) or plus.embedding or network.projection is not None:
            return None
        return cls(vectorizer, network, finder, plus, plus.fusion.learned)

    def find(self, texts: Sequence[str], k: int, excluded: Ragged | None = None) -> Predictions:
        """The k best labels of each text."""
        n, x = len(texts), self._features(texts)
        excluded = excluded or Ragged.empty(n)
        phi_BD, logits_BC = self._embed(*x)
        sizes = self.plus.sizes(k)
        found, nearest, out = to_be_found(n, sizes)
        room = self.finder.cpu_search.room_for(excluded, self.finder.network.settings.beam_size)
        scratch, search = self.plus.tables.take(), self.finder.cpu_search.take_scratch(room)
        gather_rows(  # type: ignore[call-arg]
            0, n, phi_BD, logits_BC, *search_arguments(self.finder, sizes), *x, self._words, excluded.indptr,
            excluded.labels, search, *scratch[1:], found, nearest, out,
        )  # fmt: skip
        self.finder.cpu_search.give_back(search)
        self.plus.tables.give_back(scratch)
        return self._ranked(out, k)

    def look(self, indptr: np.ndarray, words: np.ndarray, values: np.ndarray) -> Look:
        """phi and W_C phi of some rows of tf-idf."""
        phi_BD, logits_BC = self._embed(indptr, words, values)
        return Look(torch.from_numpy(phi_BD), torch.from_numpy(logits_BC))

    def _embed(self, indptr: np.ndarray, words: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(indptr) - 1
        phi_BD, logits_BC = (np.empty((n, width), dtype=np.float32) for width in self._shape)
        embed_rows(0, n, indptr, words, values, self._embedding, phi_BD, logits_BC)
        return phi_BD, logits_BC

    def _features(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """tf-idf as (indptr, words, values)."""
        rows = [self.vectorizer.transform_one(text) for text in texts]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        if len(rows) == 1:
            indptr[1] = len(rows[0][0])
            return indptr, *rows[0]
        indptr[1:] = np.cumsum([len(words) for words, _ in rows])
        return indptr, np.concatenate([words for words, _ in rows]), np.concatenate([values for _, values in rows])

    def _ranked(self, out: Gathered, k: int) -> Predictions:
        labels, n = out.labels, len(out.labels)
        scores, places = np.empty(labels.shape, dtype=np.float32), np.empty((n, k), dtype=np.int64)
        best = np.full((n, RELATIVE), -np.inf, dtype=np.float32)
        learned_scores(0, n, out, self._log_counts[labels], self._weights, best, scores)
        rank_rows(0, n, labels, scores, places)
        return shown(self.plus.fusion, labels, scores, places)


def _linear(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()
