"""`bag`: a tf-idf weighted bag of word embeddings. The default on a CPU; needs no pretrained weights.

    h = sum over words w of tfidf_w * E_w,     phi = head(h)

E starts from a truncated SVD of the training texts' tf-idf matrix (`svd.py`: words that occur together start close),
with directions scaled by S^-power so that a few frequent themes do not drown the rest.
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

from .. import kernels
from ..core import model_schema
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable, GradientBuffer
from ..core.errors import InputError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.ragged import take_rows
from ..core.rounding import as_array, as_tensor
from ..core.schema import check_arrays, check_object
from .encoder import Inputs, TrainingContext, silent
from .head import Head


class BagEncoder:
    kind = "bag"

    def __init__(self, embeddings: Tensor, *, radius: float, dropout: float, threads: int = 1) -> None:
        self.dim = embeddings.shape[1]
        self.words = EmbeddingTable(embeddings, threads=threads)
        self.head = Head(self.dim, radius=radius, dropout=dropout, threads=threads)

    def module(self) -> nn.Module:
        return self.head

    def tables(self) -> dict[str, EmbeddingTable]:
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
        write_json(folder / "encoder.json", {"kind": self.kind, "dim": self.dim, **self.head.options()})
        write_tensors(folder / "encoder.safetensors", self.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """Parameters by name, for a file."""
        return {"words": as_array(self.words.values.cpu())} | self.head.arrays()

    def rounded(self) -> BagEncoder:
        """The same with its word vectors in bfloat16, for a smaller model. It is not trained further."""
        words = self.words.values.to(torch.bfloat16)
        encoder = BagEncoder(words, radius=self.head.radius, dropout=self.head.dropout, threads=self.words.threads)
        encoder.head = self.head
        return encoder

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> BagEncoder:
        path = folder / "encoder.json"
        about = check_object(path, read_json(path), model_schema.HEAD_OPTIONS)
        path = folder / "encoder.safetensors"
        arrays = check_arrays(path, read_tensors(path)[0], model_schema.BAG, {"dim": about["dim"]})
        words = as_tensor(arrays.pop("words"))
        encoder = cls(words, radius=float(about["radius"]), dropout=float(about["dropout"]), threads=threads)
        encoder.head.take_arrays(arrays)
        return encoder

    def encode(self, prepared: sp.csr_matrix, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        phi_BD: Tensor = self.head(self.h(prepared, rows, context), context)
        return phi_BD

    def h(self, prepared: sp.csr_matrix, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        """The weighted sum of word vectors."""
        words, weights, offsets = take_rows(prepared, rows)
        device = self.words.values.device
        if context is None:
            if self.words.values.dtype == torch.bfloat16:
                return self._rounded_h(words, weights, offsets)
            arrays = (upload(array, device) for array in (words, offsets[:-1], weights))
            words_N, offsets_B, weights_N = arrays
            table = self.words.values
            return F.embedding_bag(words_N.long(), table, offsets_B, mode="sum", per_sample_weights=weights_N)
        return bag_of_rows(self.words, words, offsets, upload(weights, device), context.buffer)

    def _rounded_h(self, words: np.ndarray, weights: np.ndarray, offsets: np.ndarray) -> Tensor:
        """h from word vectors in bfloat16, summed in float32."""
        device = self.words.values.device
        if kernels.serve(device):
            from ..kernels.bag import forward

            h_BD = np.empty((len(offsets) - 1, self.dim), dtype=np.float32)
            kernels.run(forward, len(h_BD), self.words.threads, offsets, words, weights, self.words.array(), h_BD)
            return torch.from_numpy(h_BD)
        unique, inverse = np.unique(words, return_inverse=True)
        rows = self.words.gather(upload(unique.astype(np.int64), device))
        words_N, offsets_B, weights_N = (upload(a, device) for a in (inverse.astype(np.int64), offsets[:-1], weights))
        return F.embedding_bag(words_N, rows, offsets_B, mode="sum", per_sample_weights=weights_N)

    def take(self, prepared: sp.csr_matrix, rows: np.ndarray) -> sp.csr_matrix:
        words, weights, offsets = take_rows(prepared, rows)
        return sp.csr_matrix((weights, words, offsets), shape=(len(rows), prepared.shape[1]))


def bag_of_rows(
    table: EmbeddingTable, words: np.ndarray, offsets: np.ndarray, weights_N: Tensor, buffer: GradientBuffer
) -> Tensor:
    """sum of weight * row over each bag; the rows get their gradients through the buffer."""
    if not kernels.serve(weights_N.device):
        return bag_of_rows_reference(table, words, offsets, weights_N, buffer)
    anchor = torch.zeros((), requires_grad=True)  # no input of the bag needs a gradient, but the bag does
    h_BD: Tensor = _Bag.apply(anchor, table, words, offsets, weights_N.numpy(), buffer)  # type: ignore[no-untyped-call]
    return h_BD


def bag_of_rows_reference(
    table: EmbeddingTable, words: np.ndarray, offsets: np.ndarray, weights_N: Tensor, buffer: GradientBuffer
) -> Tensor:  # fmt: skip
    """`bag_of_rows` on any device."""
    unique, inverse = np.unique(words, return_inverse=True)
    device = weights_N.device
    rows = buffer.gather(table, upload(unique.astype(np.int64), device))
    words_N, offsets_B = upload(inverse.astype(np.int64), device), upload(offsets[:-1], device)
    return F.embedding_bag(words_N, rows, offsets_B, mode="sum", per_sample_weights=weights_N)


class _Bag(torch.autograd.Function):
    """The CPU kernels as a differentiable function."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        table: EmbeddingTable,
        words: np.ndarray,
        offsets: np.ndarray,
        weights: np.ndarray,
        buffer: GradientBuffer,
    ) -> Tensor:
        from ..kernels.bag import forward
        from ..kernels.classifiers import group_by_label

        unique, starts, positions = group_by_label(words[None].astype(np.int64), np.empty(len(table), dtype=np.int32))
        rows, scaled = torch.from_numpy(unique), weights
        pending_decay = table.pending_decay(rows)
        if pending_decay is not None:
            scaled = np.empty_like(weights)
            scaled[positions] = weights[positions] * np.repeat(pending_decay.numpy(), np.diff(starts))
        h_BD = np.empty((len(offsets) - 1, table.width), dtype=np.float32)
        kernels.run(forward, len(h_BD), table.threads, offsets, words, scaled, table.values.numpy(), h_BD)
        ctx.table, ctx.rows, ctx.buffer = table, rows, buffer
        row_of = np.repeat(np.arange(len(h_BD)), np.diff(offsets))
        ctx.arguments = (starts, positions, row_of, weights)
        return torch.from_numpy(h_BD)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        from ..kernels.bag import backward

        grad_UD = np.empty((len(ctx.rows), ctx.table.width), dtype=np.float32)
        grad = grads[0].contiguous().numpy()
        kernels.run(backward, len(ctx.rows), ctx.table.threads, *ctx.arguments, grad, grad_UD)
        ctx.buffer.push(ctx.table, ctx.rows, torch.from_numpy(grad_UD))
        return None, None, None, None, None, None
