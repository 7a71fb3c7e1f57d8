"""napkinXC: a probabilistic label tree, searched exactly, with the defaults of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import main


class LabelTree:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        from napkinxc.models import PLT

        folder.mkdir(parents=True, exist_ok=True)
        self.model = PLT(str(folder), threads=threads, **settings)

    def prepare(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        pass

    def train(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        self.model.fit(features, [row.tolist() for row in np.split(labels.indices, labels.indptr[1:-1])])

    def load(self) -> None:
        self.model.load()

    def predict(self, features: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        n = int(features.shape[0])
        labels, scores = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
        for row, found in enumerate(self.model.predict_proba(features, top_k=k)):
            if found:
                labels[row, : len(found)], scores[row, : len(found)] = zip(*found, strict=True)
        return labels, scores


if __name__ == "__main__":
    main(LabelTree)
