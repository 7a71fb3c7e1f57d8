"""omikuji: forests of label trees. Its defaults are Parabel's; other settings make it like Bonsai.

It trains on a text file and answers one row at a time; rows of a batch are shared among threads, as its own command
line does. A test row without a known word gets no answer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, main


class Trees:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.settings = {name: value for name, value in settings.items() if name != "beam_size"}  # of training
        self.beam_size = settings["beam_size"]
        self.rows = folder.with_name(folder.name + ".txt")

    def prepare(self, rows: TrainingRows) -> None:
        write_rows(self.rows, rows.features, rows.labels)

    def train(self, rows: TrainingRows) -> None:
        import omikuji

        parameters = omikuji.Model.default_hyper_param()
        for name, value in self.settings.items():
            setattr(parameters, name, value)
        omikuji.Model.train_on_data(str(self.rows), parameters, n_threads=self.threads).save(str(self.folder))
        self.rows.unlink()

    def load(self) -> None:
        import omikuji

        self.model = omikuji.Model.load(str(self.folder))
        self.model.init_prediction_thread_pool(self.threads)
        self.pool = ThreadPoolExecutor(self.threads)

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        n = int(inputs.shape[0])
        labels, scores = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
        bounds, columns, values = inputs.indptr.tolist(), inputs.indices.tolist(), inputs.data.tolist()

        def answer(row: int) -> None:
            start, end = bounds[row], bounds[row + 1]
            if start == end:
                return
            pairs = list(zip(columns[start:end], values[start:end], strict=True))
            found = self.model.predict(pairs, beam_size=self.beam_size, top_k=k)
            if found:
                labels[row, : len(found)], scores[row, : len(found)] = zip(*found, strict=True)

        if n == 1:
            answer(0)
        else:
            list(self.pool.map(answer, range(n)))
        return labels, scores


def write_rows(path: Path, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
    """The format of the extreme classification repository: sizes, then `label,label column:value ...` per row."""
    with path.open("w", encoding="ascii") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
        for row in range(features.shape[0]):
            names = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
            part = slice(features.indptr[row], features.indptr[row + 1])
            pairs = zip(features.indices[part].tolist(), features.data[part].tolist(), strict=True)
            file.write(",".join(map(str, names)) + "".join(f" {column}:{value:.7g}" for column, value in pairs) + "\n")


if __name__ == "__main__":
    main(Trees)
