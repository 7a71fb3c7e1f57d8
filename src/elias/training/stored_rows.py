"""Training rows in a folder, so that other processes can open them: what rank 0 has prepared, memory-mapped.

labels/, excluded/         sparse matrices (`core/sparse_files.py`)
rows.safetensors           weights, kinds
bow/, vectors.npy          the prepared inputs of the encoder: words, vectors, or both
ids.npy, offsets.npy       or its tokens
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.errors import RunError
from ..core.files import read_tensors, write_array, write_tensors
from ..core.sparse_files import open_csr, write_csr
from ..encoders.hybrid import Mixed
from ..encoders.tokens import Tokens
from .trainer import TrainingRows


def write_rows(rows: TrainingRows, folder: Path) -> None:
    """Everything `open_rows` needs, into a folder that exists."""
    write_csr(folder / "labels", rows.labels)
    write_csr(folder / "excluded", rows.excluded)
    kinds = {} if rows.kinds is None else {"kinds": rows.kinds}
    write_tensors(folder / "rows.safetensors", {"weights": rows.weights, **kinds})
    for prepared in (rows.prepared.bow, rows.prepared.vectors) if isinstance(rows.prepared, Mixed) else [rows.prepared]:
        if isinstance(prepared, sp.csr_matrix):
            write_csr(folder / "bow", prepared)
        elif isinstance(prepared, Tokens):
            write_array(folder / "ids.npy", prepared.ids)
            write_array(folder / "offsets.npy", prepared.offsets)
        else:
            write_array(folder / "vectors.npy", prepared)


def open_rows(folder: Path) -> TrainingRows:
    """The rows that `write_rows` stored, memory-mapped."""
    arrays, _ = read_tensors(folder / "rows.safetensors", RunError)
    labels, excluded = open_csr(folder / "labels"), open_csr(folder / "excluded")
    return TrainingRows(_prepared(folder), labels, excluded, arrays["weights"], arrays.get("kinds"))


def _prepared(folder: Path) -> Any:
    if (folder / "ids.npy").exists():
        return Tokens(_mapped(folder / "ids.npy"), _mapped(folder / "offsets.npy"))
    bow = open_csr(folder / "bow") if (folder / "bow").exists() else None
    vectors = _mapped(folder / "vectors.npy") if (folder / "vectors.npy").exists() else None
    if bow is not None and vectors is not None:
        return Mixed(bow, vectors)
    return vectors if bow is None else bow


def _mapped(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)
