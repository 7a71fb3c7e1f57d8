"""A few texts, answered with as little as possible between the texts and the kernels.

The same answer as the general way up to rounding (`tests/test_quick.py`), for models whose every step has a kernel: a
bag of words on the CPU with ELIAS++ and a learned score. In: texts. Out: `Predictions` without parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .encoders.bag import BagEncoder
from .features import TfIdf
from .finder import Finder
from .fusion import Learned
from .kernels.embed import Embedding, embed_rows
from .kernels.find import Found, Scratch
from .kernels.fuse import Parts, learned_scores, rank_rows
from .kernels.gather import Gathered, Words, gather_rows
from .kernels.postings import Sums
from .model import Network
from .paths import Ragged
from .plus import Plus, shown
from .predictions import Predictions

FEW = 4  # texts; more are quicker where torch multiplies matrices


class Work(NamedTuple):
    """What one call at a time writes to."""

    room: int
    search: Scratch
    sums: Sums
    words: np.ndarray  # float32, zero


class Quick:
    """Holds no state of a query; any number of threads may call it."""

    def __init__(self, vectorizer: TfIdf, network: Network, finder: Finder, plus: Plus, learned: Learned) -> None:
        assert isinstance(network.encoder, BagEncoder)
        self.vectorizer, self.finder, self.plus = vectorizer, finder, plus
        settings, search, head = network.settings, finder.cpu_search, network.encoder.head
        self._embedding = Embedding(
            network.encoder.words.values.numpy(), *_linear(head.residual), *_linear(network.clusters),
            np.float32(head.radius),
        )  # fmt: skip
        self._search = (
            float(settings.alpha), settings.beam_size, settings.shortlist_size, search.edges, search.classifiers,
            finder.by_label,
        )  # fmt: skip
        lexical, ranker = plus.lexical, plus.ranker
        self._words = Words(lexical.table, ranker.by_word, ranker.biases, lexical.texts.table, lexical.shares)
        self._weights, self._log_counts = learned.weights, np.log1p(plus.counts).astype(np.float32)
        self._shape = network.encoder.dim, network.index.n_clusters
        self._free: deque[Work] = deque()

    @classmethod
    def of(cls, vectorizer: TfIdf | None, finder: Finder, plus: Plus | None) -> Quick | None:
        """None where a step has no kernel."""
        network = finder.network
        if vectorizer is None or plus is None or plus.fusion.learned is None or network.device.type != "cpu":
            return None
        if not isinstance(network.encoder, BagEncoder):
            return None
        return cls(vectorizer, network, finder, plus, plus.fusion.learned)

    def find(self, texts: Sequence[str], k: int, excluded: Ragged | None = None) -> Predictions:
        """The k best labels of each text."""
        n, n_labels = len(texts), len(self._log_counts)
        x = self._features(texts)
        excluded = excluded or Ragged.empty(n)
        phi_BD, logits_BC = (np.empty((n, width), dtype=np.float32) for width in self._shape)
        embed_rows(0, n, *x, self._embedding, phi_BD, logits_BC)
        by_network, by_words = min(max(k, self.plus.by_network), n_labels), min(self.plus.by_words, n_labels)
        found, out = _empty(Found, n, by_network), _empty(Gathered, n, by_network + by_words)
        work = self._take(excluded)
        gather_rows(
            0, n, phi_BD, logits_BC, *self._search, *x, self._words, excluded.indptr, excluded.labels, by_words,
            work.search, work.sums, work.words, found, out,
        )  # fmt: skip
        self._free.append(work)
        return self._ranked(out, k)

    def _features(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """tf-idf as (indptr, words, values)."""
        rows = [self.vectorizer.transform_one(text) for text in texts]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        if len(rows) == 1:
            indptr[1] = len(rows[0][0])
            return indptr, *rows[0]
        indptr[1:] = np.cumsum([len(words) for words, _ in rows])
        return indptr, np.concatenate([words for words, _ in rows]), np.concatenate([values for _, values in rows])

    def _ranked(self, out: Any, k: int) -> Predictions:
        labels, n = out.labels, len(out.labels)
        scores, places = np.empty(labels.shape, dtype=np.float32), np.empty((n, k), dtype=np.int64)
        best = np.full((n, 7), -np.inf, dtype=np.float32)
        parts = Parts(labels, *out[2:], self._log_counts[labels])
        learned_scores(0, n, parts, self._weights, best, scores)
        rank_rows(0, n, labels, scores, places)
        return shown(self.plus.fusion, labels, scores, places)

    def _take(self, excluded: Ragged) -> Work:
        """Memory of an earlier call where there is one with enough of it."""
        room = self.finder.cpu_search.room_for(excluded, self.finder.network.settings.beam_size)
        try:
            work = self._free.pop()
            if work.room >= room:
                return work
        except IndexError:
            pass
        lexical = self.plus.lexical
        return Work(room, self.finder.cpu_search.take_scratch(room), lexical.take_scratch(), lexical.no_words())


def _linear(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def _empty(kind: Any, n: int, width: int) -> Any:
    """Found or Gathered, to be written to: numbers in the first columns."""
    numbers = ("labels", "cluster", "clusters")
    return kind(*(np.empty((n, width), np.int32 if name in numbers else np.float32) for name in kind._fields))
