"""scikit-learn's LinearSVC, one classifier per label against all other rows. Its weights are kept dense."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, main

AT_ONCE = 512


class OneVersusRest:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.cost, self.threads = folder, settings["C"], threads

    def prepare(self, rows: TrainingRows) -> None:
        pass

    def train(self, rows: TrainingRows) -> None:
        from sklearn.svm import LinearSVC

        members = sp.csc_matrix(rows.labels)
        count, width = members.shape[1], rows.features.shape[1]
        weights, intercepts = np.zeros((width, count), dtype=np.float32), np.zeros(count, dtype=np.float32)
        features = rows.features.astype(np.float64)  # liblinear's own type: converted once, not once per label

        def learn(label: int) -> None:
            y = np.zeros(features.shape[0], dtype=np.int8)
            y[members.indices[members.indptr[label] : members.indptr[label + 1]]] = 1
            if y.all():  # no row without the label
                intercepts[label] = 1.0
                return
            model = LinearSVC(C=self.cost, random_state=0).fit(features, y)
            weights[:, label], intercepts[label] = model.coef_[0], model.intercept_[0]

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(learn, range(count)))
        self.folder.mkdir(parents=True, exist_ok=True)
        np.save(self.folder / "weights.npy", weights)
        np.save(self.folder / "intercepts.npy", intercepts)

    def load(self) -> None:
        self.weights, self.intercepts = (np.load(self.folder / f"{name}.npy") for name in ("weights", "intercepts"))

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        labels, scores = [], []
        for start in range(0, inputs.shape[0], AT_ONCE):
            margins = inputs[start : start + AT_ONCE] @ self.weights + self.intercepts
            best = np.argsort(-margins, axis=1, kind="stable")[:, :k].astype(np.int32)
            labels.append(best)
            scores.append(np.take_along_axis(margins, best, axis=1))
        return np.concatenate(labels), np.concatenate(scores)


if __name__ == "__main__":
    main(OneVersusRest)
