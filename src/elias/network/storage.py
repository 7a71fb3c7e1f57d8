"""A network on disk: encoder/, clusters.safetensors, index.safetensors (CSR), classifiers.safetensors, network.json."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core.embedding_table import EmbeddingTable
from ..core.errors import ModelError
from ..core.files import read_object, read_tensors, replacing, write_json, write_tensors
from ..encoders import Encoder, load_encoder
from ..index.label_index import LabelIndex
from .network import Network, SearchSettings
from .quantization import QuantizedRows


def save_network(network: Network, folder: Path) -> None:
    """Write everything `load_network` needs; the folder appears whole or not at all."""
    with replacing(folder) as part:
        part.mkdir()
        write_network(network, part)


def write_network(network: Network, folder: Path) -> None:
    """The files themselves, into a folder that exists."""
    network.encoder.save(folder / "encoder")
    write_tensors(
        folder / "clusters.safetensors",
        {name: p.detach().cpu().numpy() for name, p in network.clusters.named_parameters()},
    )
    save_index(network.learned_index(), folder / "index.safetensors")
    weights, biases = network.classifier_weights, network.classifier_biases.values.cpu().numpy()
    stored = weights.arrays() if isinstance(weights, QuantizedRows) else {"weights": weights.array()}
    write_tensors(folder / "classifiers.safetensors", {**stored, "biases": biases})
    write_json(folder / "network.json", {"search": asdict(network.settings)})


def load_network(folder: Path, *, device: torch.device, threads: int) -> Network:
    """The network saved in a folder, memory-mapped on a CPU. Files that do not belong together are refused."""
    index = load_index(folder / "index.safetensors")
    encoder: Encoder = load_encoder(folder / "encoder", threads=threads)
    clusters = folder / "clusters.safetensors"
    classifiers = folder / "classifiers.safetensors"
    arrays, _ = read_tensors(clusters)
    weight = _wanted(arrays, "weight", clusters, (index.n_clusters, encoder.dim))
    bias = _wanted(arrays, "bias", clusters, (index.n_clusters,))
    arrays, _ = read_tensors(classifiers)
    weights = _classifiers(arrays, classifiers, (index.n_labels, encoder.dim), device, threads)
    biases = _wanted(arrays, "biases", classifiers, (index.n_labels, 1))
    encoder.to(device)
    return Network(
        encoder,
        _linear(weight, bias).to(device),
        index,
        weights,
        EmbeddingTable(torch.from_numpy(biases).to(device), threads=threads),
        _search_settings(folder / "network.json"),
        threads=threads,
    )


def _classifiers(
    arrays: dict[str, np.ndarray], path: Path, shape: tuple[int, int], device: torch.device, threads: int
) -> EmbeddingTable | QuantizedRows:
    """Rows as they were saved; a GPU gets them as float32."""
    dtype = arrays["weights"].dtype if "weights" in arrays else np.dtype(np.float32)
    weights = _wanted(arrays, "weights", path, shape, dtype if dtype in (np.uint16, np.int8) else np.float32)
    if weights.dtype == np.float32:
        return EmbeddingTable(torch.from_numpy(weights).to(device), threads=threads)
    scales = _wanted(arrays, "scales", path, (shape[0],)) if weights.dtype == np.int8 else None
    stored = QuantizedRows(weights, scales, threads=threads)
    if device.type == "cpu":
        return stored
    return EmbeddingTable(torch.from_numpy(stored.decoded()).to(device), threads=threads)


def _search_settings(path: Path) -> SearchSettings:
    try:
        return SearchSettings(**read_object(path, "search")["search"])
    except TypeError as problem:
        raise ModelError(f"{path}: not settings of a search ({problem}); the file is damaged") from None


def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(torch.from_numpy(weight)), nn.Parameter(torch.from_numpy(bias))
    return layer


def _wanted(
    arrays: dict[str, np.ndarray], name: str, path: Path, shape: tuple[int, ...] | None, dtype: Any = np.float32
) -> np.ndarray:
    """An array of a file, of the type and (None: one-dimensional) shape that the other files ask for."""
    if name not in arrays:
        raise ModelError(f'{path}: has no "{name}"; this is not a file of elias')
    array = arrays[name]
    if array.dtype != dtype or (array.ndim != 1 if shape is None else array.shape != shape):
        raise ModelError(
            f'{path}: "{name}" is {array.dtype} of shape {array.shape}, but the other files of this model ask for '
            f"{np.dtype(dtype)} of {shape or 'one dimension'}; these files do not belong together"
        )
    return array


def save_index(index: LabelIndex, path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"indptr": index.indptr, "labels": index.labels}
    if index.logits is not None:
        arrays["logits"] = index.logits
    write_tensors(path, arrays, {"beta": repr(index.beta), "n_labels": str(index.n_labels)})


def load_index(path: Path) -> LabelIndex:
    arrays, about = read_tensors(path)
    try:
        details: dict[str, Any] = {"beta": float(about["beta"]), "n_labels": int(about["n_labels"])}
    except (KeyError, ValueError):
        raise ModelError(f"{path}: its header lacks beta or n_labels; this is not an index of elias") from None
    indptr = _wanted(arrays, "indptr", path, None, np.int64)
    labels = _wanted(arrays, "labels", path, None, np.int32)
    logits = _wanted(arrays, "logits", path, labels.shape) if "logits" in arrays else None
    ok = len(indptr) >= 1 and indptr[0] == 0 and indptr[-1] == len(labels) and bool(np.all(np.diff(indptr) >= 0))
    if not ok or (len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < details["n_labels"]):
        raise ModelError(f"{path}: edges point outside the index; the file is damaged, restore it from a copy")
    return LabelIndex(indptr=indptr, labels=labels, logits=logits, **details)
