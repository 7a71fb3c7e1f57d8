"""Our inverted index by itself: each label is its normalized tf-idf centroid plus its text; nothing is learned.

The same settings as in a fit. Runs in our own environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from elias.core.settings import Settings
from elias.ranking.inverted_index import InvertedIndex, build_inverted_index
from peers.runner import TrainingRows, main, write


class Words:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.threads = folder, threads

    def prepare(self, rows: TrainingRows) -> None:
        pass

    def train(self, rows: TrainingRows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        index_of(rows.features, rows.labels, rows.kinds(), self.threads).save(self.folder)
        write(self.folder / "sizes.json", {"n_labels": rows.labels.shape[1], "n_words": rows.features.shape[1]})

    def load(self) -> None:
        self.index = loaded_index(self.folder, self.threads)

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = self.index.search(inputs, k)
        return found.labels, found.scores


def index_of(features: sp.csr_matrix, labels: sp.csr_matrix, kinds: np.ndarray, threads: int) -> InvertedIndex:
    given = Settings().inverted_index
    sizes = {"words_per_label": given.words_per_label, "label_text_weight": given.label_text_weight}
    return build_inverted_index(features, labels, kinds, **sizes, threads=threads)


def loaded_index(folder: Path, threads: int) -> InvertedIndex:
    from elias.core.files import read_object

    return InvertedIndex.load(folder, **read_object(folder / "sizes.json"), threads=threads)


if __name__ == "__main__":
    main(Words)
