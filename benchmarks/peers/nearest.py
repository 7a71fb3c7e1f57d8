"""k-NN: the training texts (label texts too) with the largest cosine of tf-idf rows vote for their labels.

vote = sum over the `neighbors` nearest texts that have the label of cosine ** power
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, best_of_rows, main, votes

AT_ONCE = 256


class Nearest:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.neighbors, self.power = folder, settings["neighbors"], settings["power"]

    def prepare(self, rows: TrainingRows) -> None:
        pass

    def train(self, rows: TrainingRows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        sp.save_npz(self.folder / "texts.npz", sp.csr_matrix(rows.features.T))  # rows have length 1: dot is cosine
        sp.save_npz(self.folder / "labels.npz", rows.labels)

    def load(self) -> None:
        self.texts, self.labels = (sp.load_npz(self.folder / f"{name}.npz") for name in ("texts", "labels"))

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        count = min(self.neighbors, self.labels.shape[0])
        found = []
        for start in range(0, inputs.shape[0], AT_ONCE):
            near, cosines = largest(sp.csr_matrix(inputs[start : start + AT_ONCE] @ self.texts), count)
            found.append(votes(near, cosines**self.power, self.labels))
        return best_of_rows(sp.csr_matrix(sp.vstack(found, format="csr")), k)


def largest(matrix: sp.csr_matrix, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the `count` largest entries of each row, in no order; value 0 where there are fewer."""
    columns = np.zeros((matrix.shape[0], count), dtype=np.int64)
    values = np.zeros(columns.shape, dtype=np.float32)
    for row in range(len(columns)):
        inside = slice(matrix.indptr[row], matrix.indptr[row + 1])
        found, own = matrix.indices[inside], matrix.data[inside]
        if len(found) > count:
            best = np.argpartition(own, -count)[-count:]
            found, own = found[best], own[best]
        columns[row, : len(found)], values[row, : len(found)] = found, own
    return columns, values


if __name__ == "__main__":
    main(Nearest)
