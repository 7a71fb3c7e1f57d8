"""PECOS XR-Linear: a label tree over the labels' mean features (PIFA), one linear classifier per edge.

beam_size            of the search; 10 is the package's default
negative_sampling    tfn (default): teacher forcing; tfn+man: negatives that the layers above find, too
trees                more than one: trees of different seeds, whose scores are averaged
"""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, best_of_rows, main


class XrLinear:
    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.settings, self.threads = settings, threads
        self.folders = [folder / str(seed) for seed in range(settings.get("trees", 1))]

    def prepare(self, rows: TrainingRows) -> None:
        pass

    def train(self, rows: TrainingRows) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        features, labels, threads = rows.features, rows.labels, self.threads
        scheme = self.settings.get("negative_sampling", "tfn")
        of_labels = LabelEmbeddingFactory.create(labels, features, method="pifa", threads=threads)
        for seed, folder in enumerate(self.folders):
            tree = Indexer.gen(of_labels, indexer_type="hierarchicalkmeans", seed=seed, threads=threads)
            model = XLinearModel.train(features, labels, C=tree, negative_sampling_scheme=scheme, threads=threads)
            folder.mkdir(parents=True, exist_ok=True)
            model.save(str(folder))

    def load(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.models = [XLinearModel.load(str(folder), is_predict_only=True) for folder in self.folders]

    def predict(self, inputs: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        threads = 1 if inputs.shape[0] == 1 else self.threads  # rows are what it shares among threads
        beam = self.settings["beam_size"]
        found = [model.predict(inputs, only_topk=k, beam_size=beam, threads=threads) for model in self.models]
        return best_of_rows(sp.csr_matrix(reduce(add, found) / len(found)), k)


if __name__ == "__main__":
    main(XrLinear)
