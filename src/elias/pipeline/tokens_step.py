"""Step 05 of a run: the texts of the training file and of the labels, tokenized once.

Every later vocabulary and tf-idf matrix of the run (near-duplicates, training rows, held-out rows, all rows, every fold
of cross-fitting, every member of an ensemble) is made from these counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.files import read_object, write_json
from ..core.predictions import PAD
from ..core.settings import Settings
from ..core.sparse_files import open_csr, write_csr
from ..core.tokenize import TokenCounts
from ..dataset import Dataset
from ..dataset.label_texts import texts_of
from .run_folder import Run


@dataclass(frozen=True)
class RunTokens:
    """Counts of the training texts, then of the texts of all labels that have one."""

    counts: TokenCounts
    row_of_label: np.ndarray  # int64 [L], PAD where a label has no text

    def of(self, rows: np.ndarray, labels: np.ndarray) -> TokenCounts:
        """Some training texts, then the texts of some labels."""
        return self.counts.take(np.concatenate([rows, self.row_of_label[labels]]))


def tokens_step(data: Dataset, settings: Settings, run: Run) -> RunTokens | None:
    """Build step 05, or open it; None for vectors."""
    if data.train.texts is None:
        return None
    labels = data.labels
    named = np.flatnonzero([bool(text) for text in labels.texts]) if settings.features.label_texts else np.empty(0, int)

    def texts() -> Iterator[str]:
        yield from data.train.texts or ()
        yield from texts_of(labels, named, ids=settings.features.label_ids)

    def build(folder: Path) -> None:
        tokens = TokenCounts.of(texts())
        write_csr(folder / "counts", tokens.counts)
        write_json(folder / "words.json", {"words": list(tokens.words)}, indent=None)

    depends = {"label_texts": settings.features.label_texts, "label_ids": settings.features.label_ids}
    folder = run.step("05-tokens", depends, build)
    counts = TokenCounts(read_object(folder / "words.json", "words")["words"], open_csr(folder / "counts"))
    row_of_label = np.full(len(labels), PAD, dtype=np.int64)
    row_of_label[named] = len(data.train) + np.arange(len(named))
    return RunTokens(counts, row_of_label)
