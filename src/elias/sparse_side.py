"""The steps of a run that make ELIAS++: the words and the ranker of some rows, and the final score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .config import Settings, known, noise_seed
from .dataset.rows import KIND_LABEL_TEXT
from .finder import Finder
from .fusion import Fusion
from .lexical import Lexical, build_lexical
from .model import ragged
from .plus import Plus, fit_plus
from .predictions import NOTHING
from .ranker import load_ranker, save_ranker, train_ranker
from .training import TrainingRows

ENOUGH = 20  # rows; what the defaults reserve is more
ROWS_AT_A_TIME = 1 << 16


def write_words(
    folder: Path, bow: sp.csr_matrix, labels: sp.csr_matrix, excluded: sp.csr_matrix, kinds: np.ndarray, s: Settings
) -> None:
    """The lexical index and the ranker of some rows, into a folder."""
    threads = known(s.run.threads)
    lexical = build_lexical(
        bow, labels, kinds, words_per_label=s.lexical.words_per_label, text_weight=s.lexical.label_text_weight,
        threads=threads,
    )  # fmt: skip
    lexical.save(folder)
    ordinary = np.flatnonzero(kinds != KIND_LABEL_TEXT)
    found = np.full((len(kinds), min(s.ranker.negatives, labels.shape[1])), NOTHING, dtype=np.int32)
    for start in range(0, len(ordinary), ROWS_AT_A_TIME):
        rows = ordinary[start : start + ROWS_AT_A_TIME]
        found[rows] = lexical.find(sp.csr_matrix(bow[rows]), found.shape[1], ragged(excluded, rows)[0]).labels
    save_ranker(train_ranker(bow, found, labels, excluded, s.ranker, threads=threads), folder)


def write_score(
    folder: Path,
    words: Path,
    finder: Finder,
    rows: TrainingRows,
    bow: sp.csr_matrix | np.ndarray,
    counts: np.ndarray,
    s: Settings,
    say: Callable[[str], None],
) -> None:
    """The final score, learned on the calibration rows; p q where there are too few of them."""
    threads, given = known(s.run.threads), sp.csr_matrix(bow)
    size = {"n_labels": len(counts), "n_words": given.shape[1]}
    plus = Plus(
        lexical=Lexical.load(words, **size, threads=threads), ranker=load_ranker(words, **size),
        fusion=Fusion("product", s.ranker.loss), counts=counts, by_network=s.fusion.candidates,
        by_words=s.lexical.candidates, threads=threads,
    )  # fmt: skip
    if given.shape[0] >= ENOUGH and rows.labels.nnz:
        plus = fit_plus(plus, finder, rows.prepared, given, rows.labels, rows.excluded, s.fusion, noise_seed(s), say)
    plus.write_score(folder)
