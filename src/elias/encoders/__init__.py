"""Encoders phi: bag (tf-idf weighted word embeddings), dense (the user's vectors), transformer, hybrid.

`load_encoder(folder)` opens whatever was saved there.
"""

from __future__ import annotations

from pathlib import Path

from ..core.errors import ModelError
from ..core.files import read_json
from .encoder import Encoder, Inputs, TrainingContext

__all__ = ["Encoder", "Inputs", "TrainingContext", "load_encoder"]


def load_encoder(folder: Path, *, threads: int = 1) -> Encoder:
    """The encoder saved in `folder`, whichever kind it is."""
    about = folder / "encoder.json"
    try:
        return _load(read_json(about)["kind"], folder, threads)
    except (KeyError, TypeError, RuntimeError) as problem:
        raise ModelError(f"{about}: does not fit encoder.safetensors ({problem}); restore both from a copy") from None


def _load(kind: str, folder: Path, threads: int) -> Encoder:
    if kind == "bag":
        from .bag import BagEncoder

        return BagEncoder.load(folder, threads=threads)
    if kind == "dense":
        from .dense import DenseEncoder

        return DenseEncoder.load(folder, threads=threads)
    if kind == "transformer":
        from .transformer import TransformerEncoder

        return TransformerEncoder.load(folder, threads=threads)
    if kind == "hybrid":
        from .hybrid import SENTENCES, HybridEncoder

        return HybridEncoder.load(folder, load_encoder(folder / SENTENCES, threads=threads), threads=threads)
    raise ModelError(f'{folder / "encoder.json"}: kind "{kind}" is not known to this version of elias')
