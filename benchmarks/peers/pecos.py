"""PECOS XR-Linear: a label tree over the labels' mean features (PIFA), one linear classifier per edge.

Defaults of the package; predicted with the beam it recommends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import main


class XrLinear:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.beam_size, self.threads = folder, settings["beam_size"], threads

    def prepare(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        pass

    def train(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        of_labels = LabelEmbeddingFactory.create(labels, features, method="pifa", threads=self.threads)
        tree = Indexer.gen(of_labels, indexer_type="hierarchicalkmeans", threads=self.threads)
        XLinearModel.train(features, labels, C=tree, threads=self.threads).save(str(self.folder))

    def load(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.model = XLinearModel.load(str(self.folder), is_predict_only=True)

    def predict(self, features: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        threads = 1 if features.shape[0] == 1 else self.threads  # rows are what it shares among threads
        found = self.model.predict(features, only_topk=k, beam_size=self.beam_size, threads=threads)
        return best_of_rows(found.tocsr(), k)


def best_of_rows(matrix: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A sparse matrix of scores as labels and scores, best first."""
    n = int(matrix.shape[0])
    labels, scores = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    places = np.arange(len(order)) - matrix.indptr[:-1][rows]
    kept = places < k
    labels[rows[kept], places[kept]] = matrix.indices[order][kept]
    scores[rows[kept], places[kept]] = matrix.data[order][kept]
    return labels, scores


if __name__ == "__main__":
    main(XrLinear)
