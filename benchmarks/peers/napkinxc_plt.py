"""napkinXC: a probabilistic label tree, searched exactly; `ensemble`: several of them, averaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, main


class LabelTree:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        from napkinxc.models import PLT

        folder.mkdir(parents=True, exist_ok=True)
        self.model = PLT(str(folder), threads=threads, seed=0, **settings)

    def prepare(self, rows: TrainingRows) -> None:
        self.lists = [row.tolist() for row in np.split(rows.labels.indices, rows.labels.indptr[1:-1])]

    def train(self, rows: TrainingRows) -> None:
        self.model.fit(rows.features, self.lists)

    def load(self) -> None:
        self.model.load()

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        n = int(inputs.shape[0])
        labels, scores = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
        for row, found in enumerate(self.model.predict_proba(inputs, top_k=k)):
            if found:
                labels[row, : len(found)], scores[row, : len(found)] = zip(*found, strict=True)
        return labels, scores


if __name__ == "__main__":
    main(LabelTree)
