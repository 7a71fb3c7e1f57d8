"""`bag`: a tf-idf weighted bag of word embeddings. The default on a CPU; needs no pretrained weights.

    h = sum over words w of tfidf_w * E_w,     phi = head(h)

E starts as V of a truncated SVD of the training texts' tf-idf matrix, X ~ U S V^T (words that occur together
start close), with directions scaled by S^-power so that a few frequent themes do not drown the rest.
The same class serves sparse vectors of the user's own in place of tf-idf.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..persistence import read_json, read_tensors, write_json, write_tensors
from ..tables import RowTable
from .head import Head
from .protocol import Inputs, Learning, silent

SVD_ROWS = 200_000  # more rows than this are sampled for the SVD


class BagEncoder:
    kind = "bag"

    def __init__(
        self, embeddings: Tensor, *, radius: float, dropout: float, word_dropout: float = 0.0, threads: int = 1
    ) -> None:
        self.dim = embeddings.shape[1]
        self.word_dropout = word_dropout
        self.words = RowTable(embeddings, threads=threads)
        self.head = Head(self.dim, radius=radius, dropout=dropout)

    def module(self) -> nn.Module:
        return self.head

    def tables(self) -> dict[str, RowTable]:
        return {"words": self.words}

    def prepare(
        self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent
    ) -> sp.csr_matrix:
        if inputs.bow is None:
            raise InputError("this model reads texts or sparse vectors, and was given dense vectors")
        if inputs.bow.shape[1] != len(self.words):
            raise InputError(f"rows of {inputs.bow.shape[1]} columns; this model reads rows of {len(self.words)}")
        return inputs.bow

    def to(self, device: torch.device) -> None:
        self.head.to(device)
        self.words.to(device)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(
            folder / "encoder.json",
            {"kind": self.kind, "dim": self.dim, "word_dropout": self.word_dropout, **self.head.options()},
        )
        words = {"words": self.words.values.cpu().numpy()}
        write_tensors(folder / "encoder.safetensors", words | self.head.arrays())

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> BagEncoder:
        about: dict[str, Any] = read_json(folder / "encoder.json")
        arrays, _ = read_tensors(folder / "encoder.safetensors")
        words = torch.from_numpy(arrays.pop("words"))
        options = {name: float(about[name]) for name in ("radius", "dropout", "word_dropout")}
        encoder = cls(words, threads=threads, **options)
        encoder.head.take_arrays(arrays)
        return encoder

    def encode(self, prepared: sp.csr_matrix, rows: np.ndarray, learning: Learning | None = None) -> Tensor:
        words, weights, offsets = take_rows(prepared, rows)
        device = self.words.values.device
        weights_N = torch.from_numpy(weights).to(device)
        offsets_B = torch.from_numpy(offsets[:-1]).to(device)
        if learning is None:
            words_N, table = torch.from_numpy(words).to(device), self.words.values
        else:
            weights_N = self._drop_words(weights_N, words, offsets, learning)
            unique, inverse = np.unique(words, return_inverse=True)
            words_N = torch.from_numpy(inverse).to(device)
            table = learning.tape.gather(self.words, torch.from_numpy(unique).long().to(device))
        h_BD = F.embedding_bag(words_N.long(), table, offsets_B, mode="sum", per_sample_weights=weights_N)
        phi_BD: Tensor = self.head(h_BD, learning)
        return phi_BD

    def _drop_words(self, weights_N: Tensor, words: np.ndarray, offsets: np.ndarray, learning: Learning) -> Tensor:
        """Leave each word of a text out with probability `word_dropout`; the others make up for it."""
        if self.word_dropout <= 0.0:
            return weights_N
        rows_N = learning.rows_B.repeat_interleave(torch.from_numpy(np.diff(offsets)).to(weights_N.device))
        columns_N = torch.from_numpy(words).to(weights_N.device).long() + self.dim  # beyond those of the head's dropout
        keep_N = learning.noise.uniform(rows_N, columns_N) >= self.word_dropout
        return weights_N * keep_N / (1.0 - self.word_dropout)


def take_rows(matrix: sp.csr_matrix, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(columns, values, offsets) of some rows of a CSR matrix, which may be memory-mapped."""
    starts, stops = matrix.indptr[rows], matrix.indptr[rows + 1]
    lengths = stops - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return matrix.indices[positions], matrix.data[positions].astype(np.float32, copy=False), offsets


def svd_embeddings(features: Any, dim: int, *, power: float, seed: int) -> np.ndarray:
    """E = V S^-power of a truncated SVD, float32 [words, dim]; missing directions are small noise."""
    from sklearn.utils.extmath import randomized_svd

    rng = np.random.default_rng(seed)
    if features.shape[0] > SVD_ROWS:
        features = features[np.sort(rng.choice(features.shape[0], SVD_ROWS, replace=False))]
    rank = max(1, min(dim, min(features.shape) - 1))
    _, strength, directions = randomized_svd(features, rank, n_iter=2, random_state=seed)
    scale = np.maximum(strength, 1e-6 * strength[0] or 1.0) ** -power
    table = np.empty((features.shape[1], dim), dtype=np.float32)
    table[:, :rank] = (directions * scale[:, None]).T
    spread = 0.1 * float(table[:, :rank].std()) or 1e-3
    table[:, rank:] = spread * rng.standard_normal((len(table), dim - rank))
    return table
