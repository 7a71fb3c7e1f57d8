"""Encoders phi: bag (tf-idf weighted word embeddings), dense (the user's vectors), transformer, hybrid.

`load_encoder(folder)` opens whatever was saved there.
"""

from __future__ import annotations

from pathlib import Path

from ..core import model_schema
from ..core.files import read_json
from ..core.schema import check_object
from .encoder import Encoder, Inputs, TrainingContext

__all__ = ["Encoder", "Inputs", "TrainingContext", "load_encoder"]


def load_encoder(folder: Path, *, threads: int = 1) -> Encoder:
    """The encoder saved in `folder`, whichever kind it is."""
    about = folder / "encoder.json"
    return _load(check_object(about, read_json(about), model_schema.ENCODER)["kind"], folder, threads)


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
    assert kind == "hybrid"
    from .hybrid import SENTENCES, HybridEncoder

    return HybridEncoder.load(folder, load_encoder(folder / SENTENCES, threads=threads), threads=threads)
