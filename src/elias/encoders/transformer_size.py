"""How large a pretrained transformer is, read from its files without opening it.

Parameters are counted in the headers of its safetensors files, the rest is in config.json. Nothing is downloaded: a
model that is not on this machine yet counts as BERT-base, the paper's encoder.
"""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .pretrained import packaged_model_folder

HEADER_LENGTH = 8  # bytes in front of the JSON header of a safetensors file


@dataclass(frozen=True)
class TransformerSize:
    """Numbers of one transformer; `embeddings` (looked up) and `pooler` (not used) are among the parameters."""

    parameters: int
    embeddings: int
    pooler: int
    hidden: int
    layers: int
    intermediate: int
    heads: int
    assumed: bool = False  # not on this machine yet

    @property
    def multiplied(self) -> int:
        """Parameters that every token is multiplied with."""
        return self.parameters - self.embeddings - self.pooler


BERT_BASE = TransformerSize(
    parameters=109_482_240, embeddings=23_837_184, pooler=590_592, hidden=768, layers=12, intermediate=3072, heads=12,
    assumed=True,
)  # fmt: skip


def transformer_size(name: str) -> TransformerSize:
    """Of the model that `open_pretrained(name)` would open; files that cannot be read are its business, not ours."""
    folder = _local_folder(name)
    if folder is None:
        return BERT_BASE
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        counts = {name: n for file in folder.glob("*.safetensors") for name, n in _parameters(file).items()}
        if not counts:
            return BERT_BASE
        hidden = int(config.get("hidden_size") or config["dim"])  # DistilBERT has names of its own
        return TransformerSize(
            parameters=sum(counts.values()),
            embeddings=sum(n for name, n in counts.items() if "embeddings" in name),
            pooler=sum(n for name, n in counts.items() if "pooler" in name),
            hidden=hidden,
            layers=int(config.get("num_hidden_layers") or config["n_layers"]),
            intermediate=int(config.get("intermediate_size") or config.get("hidden_dim") or 4 * hidden),
            heads=int(config.get("num_attention_heads") or config["n_heads"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return BERT_BASE


def _parameters(file: Path) -> dict[str, int]:
    """Numbers of each floating-point tensor of a safetensors file; buffers of positions are whole numbers."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(HEADER_LENGTH), "little")
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {name: math.prod(about["shape"]) for name, about in header.items() if "F" in about["dtype"]}


def _local_folder(name: str) -> Path | None:
    """Where `open_pretrained` finds it, if that needs no network."""
    if not name:
        return None
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    packaged = packaged_model_folder(name)
    if packaged is not None:
        return packaged
    try:
        hub = importlib.import_module("huggingface_hub")
        return Path(hub.snapshot_download(name, local_files_only=True))
    except (ImportError, OSError, ValueError):  # no such extra; no such model here; not a name of the hub
        return None
