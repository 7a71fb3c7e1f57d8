"""`hybrid`: sentence vectors of a frozen pretrained transformer, projected and added to the bag of words.

    h = b / |b|  +  weight * P t / |t|,     b = sum over words w of tfidf_w * E_w,     phi = head(h)

t is computed once for each text and read back from a file, as with a frozen `transformer`; P, E and the head are
learned together. P starts as a random rotation: the cosine of two texts starts as a mean of the cosine of their words
and that of their sentences. Words decide where they are known; t knows words that no training text has.
Where t comes from is a part of its own: a frozen transformer, or `dense` for vectors that come with the input.
Shapes: B batch, D dimension, S dimension of t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import model_schema
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.rng import key
from ..core.schema import check_arrays, check_object
from .bag import BagEncoder
from .encoder import Encoder, Inputs, TrainingContext, silent

SENTENCES = "sentences"  # the folder of what gives t


@dataclass(frozen=True)
class Mixed:
    """Inputs as the hybrid encoder takes rows of them."""

    bow: sp.csr_matrix
    vectors: np.ndarray  # t

    def __len__(self) -> int:
        return len(self.vectors)


class HybridEncoder:
    kind = "hybrid"

    def __init__(self, bag: BagEncoder, sentences: Encoder, *, weight: float = 1.0, seed: int = 0) -> None:
        """`sentences` prepares inputs as a matrix of vectors; nothing else of it is used."""
        self.bag, self.sentences, self.weight = bag, sentences, weight
        self.dim = bag.dim
        self.projection = nn.Linear(sentences.dim, self.dim, bias=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key(seed, "projection"))
            # A projection to fewer dimensions would shorten t.
            nn.init.orthogonal_(self.projection.weight, gain=max(1.0, sentences.dim / self.dim) ** 0.5)
        self._learned = nn.ModuleDict({"head": bag.head, "projection": self.projection})

    def module(self) -> nn.Module:
        return self._learned

    def tables(self) -> dict[str, EmbeddingTable]:
        return self.bag.tables()

    def to(self, device: torch.device) -> None:
        self.bag.to(device)
        self.sentences.to(device)
        self.projection.to(device)

    def prepare(
        self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent
    ) -> Mixed:
        bow = self.bag.prepare(inputs)
        vectors = self.sentences.prepare(inputs, folder, progress)
        if len(vectors) != bow.shape[0]:
            raise InputError(f"{len(vectors)} vectors for {bow.shape[0]} texts; give one for each")
        return Mixed(bow, vectors)

    def encode(self, prepared: Mixed, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        b_BD = self.bag.h(prepared.bow, rows, context)
        t_BS = upload(np.asarray(prepared.vectors[rows], dtype=np.float32), b_BD.device)
        h_BD = F.normalize(b_BD, dim=1) + self.weight * self.projection(F.normalize(t_BS, dim=1))
        phi_BD: Tensor = self.bag.head(h_BD, context)
        return phi_BD

    def take(self, prepared: Mixed, rows: np.ndarray) -> Mixed:
        return Mixed(self.bag.take(prepared.bow, rows), np.asarray(prepared.vectors[rows], dtype=np.float32))

    def save(self, folder: Path) -> None:
        """encoder.json, encoder.safetensors (words, head, P), sentences/ as its own kind writes it."""
        folder.mkdir(parents=True, exist_ok=True)
        own = {"kind": self.kind, "dim": self.dim, "weight": self.weight}
        write_json(folder / "encoder.json", {**own, **self.bag.head.options()})
        projection = {"projection": self.projection.weight.detach().cpu().numpy()}
        write_tensors(folder / "encoder.safetensors", self.bag.arrays() | projection)
        self.sentences.save(folder / SENTENCES)

    @classmethod
    def load(cls, folder: Path, sentences: Encoder, *, threads: int = 1) -> HybridEncoder:
        path = folder / "encoder.json"
        about = check_object(path, read_json(path), model_schema.HYBRID)
        path, sizes = folder / "encoder.safetensors", {"dim": about["dim"], "sentence dim": sentences.dim}
        arrays = check_arrays(path, read_tensors(path)[0], model_schema.PROJECTION, sizes)
        encoder = cls(BagEncoder.load(folder, threads=threads), sentences, weight=float(about["weight"]))
        encoder.projection.load_state_dict({"weight": torch.from_numpy(arrays["projection"])})
        return encoder
