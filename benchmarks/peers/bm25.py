"""bm25s: BM25 over training texts and label texts, with the package's own tokenizer and defaults; nothing is learned.

document = text      every training text and label text is a document; the `neighbors` best vote for their labels,
                     each with its score
document = label     a label is one document: its text and its training texts
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from peers.runner import TrainingRows, best_of_rows, main, votes


class Bm25:
    reads_texts = True

    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.by_label = settings.get("document", "text") == "label"
        self.neighbors = settings.get("neighbors", 0)

    def prepare(self, rows: TrainingRows) -> None:
        self.texts = rows.texts()

    def train(self, rows: TrainingRows) -> None:
        import bm25s

        labels = rows.labels
        if self.by_label:
            members = sp.csr_matrix(labels.T)
            lists = np.split(members.indices, members.indptr[1:-1])
            self.texts = [" ".join(self.texts[row] for row in some.tolist()) for some in lists]
            labels = sp.identity(len(lists), dtype=np.float32, format="csr")
        index = bm25s.BM25()
        index.index(bm25s.tokenize(self.texts, stopwords="en", show_progress=False), show_progress=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        index.save(str(self.folder))
        sp.save_npz(self.folder / "document_labels.npz", labels)

    def load(self) -> None:
        import bm25s

        self.index = bm25s.BM25.load(str(self.folder))
        self.labels = sp.load_npz(self.folder / "document_labels.npz")

    def predict(self, inputs: list[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        import bm25s

        # Words, not ids: ids of the tokenizer are those of this batch alone.
        asked = bm25s.tokenize(inputs, stopwords="en", return_ids=False, show_progress=False)
        count = min(k if self.by_label else self.neighbors, self.labels.shape[0])
        known = [[word for word in words if word in self.index.vocab_dict] for words in asked]
        found, scores = self.index.retrieve(known, k=count, n_threads=self.threads, show_progress=False)
        return best_of_rows(votes(found.astype(np.int64), np.maximum(scores, 0), self.labels), k)


if __name__ == "__main__":
    main(Bm25)
