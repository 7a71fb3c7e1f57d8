"""A network on disk.

    encoder/                    its own files
    clusters.safetensors        weight [C, D] and bias [C] of W_C
    index.safetensors           the edges in CSR form: indptr [C + 1], labels, logits (none in stage 1); beta
    classifiers.safetensors     weights [L, D] (float32, bfloat16 bits or int8 codes with scales), biases [L, 1]
    network.json                the settings of the search
    search.safetensors          tables of the CPU search, which follow from the files above (of a model only):
        codes [L, D] int8           from which scores are bounded; rows that are int8 are their own codes
        facts [L, 4]                scale of the codes, bias, error bound, 0
        edge_labels, edge_scores    edges by descending score within each cluster

Everything is memory-mapped on a CPU, and checked against `core/model_schema.py` before a kernel reads it. Files that do
not belong together are refused: shapes must agree, and the tables of the search are compared with the other files on a
few rows and clusters. search.safetensors may be deleted; the tables are then made for the first search.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import kernels
from ..core import model_schema
from ..core.embedding_table import EmbeddingTable
from ..core.errors import ModelError
from ..core.files import RowBlocks, read_json, read_tensors, replacing, write_json, write_tensors
from ..core.rounding import as_array
from ..core.schema import REMEDY, Arrays, Sizes, check_arrays, check_object
from ..encoders import Encoder, load_encoder
from ..index.label_index import LabelIndex
from ..kernels.beam_search import Classifiers, Edges
from .cpu_search import NO_SCALES, CpuSearch, edges_by_score
from .network import Network, SearchSettings
from .quantization import QuantizedRows
from .sharding import all_rows

SEARCH_TABLES = "search.safetensors"
CHECKED = 16  # rows and clusters of the search tables that are compared at load


def save_network(network: Network, folder: Path) -> None:
    """Write everything `load_network` needs; the folder appears whole or not at all.

    Where ranks share the classifiers, all call this together: rank 0 writes, the others send it their rows.
    """
    if not network.ranks.is_first:
        for table in (network.trained_weights, network.classifier_biases):
            for _ in all_rows(table.values, network.index.n_labels, network.ranks):
                pass
        return
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
    write_classifiers(network, folder)
    write_json(folder / "network.json", {"search": asdict(network.settings)})


def write_classifiers(network: Network, folder: Path) -> None:
    if network.ranks.size > 1:
        tables = {"weights": network.trained_weights, "biases": network.classifier_biases}
        shared = {name: _rows_of_ranks(table, network) for name, table in tables.items()}
        write_tensors(folder / "classifiers.safetensors", shared)
        return
    weights, biases = network.classifier_weights, network.classifier_biases.values.cpu().numpy()
    stored = weights.arrays() if isinstance(weights, QuantizedRows) else {"weights": weights.array()}
    write_tensors(folder / "classifiers.safetensors", {**stored, "biases": biases})


def _rows_of_ranks(table: EmbeddingTable, network: Network) -> RowBlocks:
    """A table of the classifiers that the ranks share, whole."""
    n_labels = network.index.n_labels
    blocks = (as_array(block) for block in all_rows(table.values, n_labels, network.ranks))
    return RowBlocks(blocks, (n_labels, table.width), as_array(table.values[:0]).dtype)


def load_network(folder: Path, *, device: torch.device, threads: int) -> Network:
    """The network saved in a folder, memory-mapped on a CPU. Files that do not belong together are refused."""
    index = load_index(folder / "index.safetensors")
    encoder: Encoder = load_encoder(folder / "encoder", threads=threads)
    sizes = {"labels": index.n_labels, "clusters": index.n_clusters, "dim": encoder.dim}
    clusters = _opened(folder / "clusters.safetensors", model_schema.CLUSTERS, sizes)
    classifiers = _opened(folder / "classifiers.safetensors", model_schema.CLASSIFIERS, sizes)
    path = folder / "network.json"
    search = check_object(path, read_json(path), model_schema.NETWORK)["search"]
    encoder.to(device)
    return Network(
        encoder,
        _linear(clusters["weight"], clusters["bias"]).to(device),
        index,
        _classifiers(classifiers, folder / "classifiers.safetensors", device, threads),
        EmbeddingTable(torch.from_numpy(classifiers["biases"]).to(device), threads=threads),
        SearchSettings(**search),
        threads=threads,
    )


def _opened(path: Path, schema: Arrays, sizes: Sizes) -> dict[str, np.ndarray]:
    return check_arrays(path, read_tensors(path)[0], schema, sizes)


def _classifiers(
    arrays: dict[str, np.ndarray], path: Path, device: torch.device, threads: int
) -> EmbeddingTable | QuantizedRows:
    """Rows as they were saved; a GPU gets them as float32."""
    weights = arrays["weights"]
    if weights.dtype == np.float32:
        return EmbeddingTable(torch.from_numpy(weights).to(device), threads=threads)
    if weights.dtype == np.int8 and "scales" not in arrays:
        raise ModelError(f'{path}: has int8 weights without "scales"; restore the whole folder from one copy')
    stored = QuantizedRows(weights, arrays["scales"] if weights.dtype == np.int8 else None, threads=threads)
    if device.type == "cpu":
        return stored
    return EmbeddingTable(torch.from_numpy(stored.decoded()).to(device), threads=threads)


def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(torch.from_numpy(weight)), nn.Parameter(torch.from_numpy(bias))
    return layer


def save_index(index: LabelIndex, path: Path) -> None:
    """The edges in CSR form."""
    arrays: dict[str, np.ndarray] = {"indptr": index.indptr, "labels": index.labels}
    if index.logits is not None:
        arrays["logits"] = index.logits
    write_tensors(path, arrays, {"beta": repr(index.beta), "n_labels": str(index.n_labels)})


def load_index(path: Path) -> LabelIndex:
    """The index of a file; edges that point outside of it are refused, because kernels do not check them again."""
    arrays, about = read_tensors(path)
    try:
        details: dict[str, Any] = {"beta": float(about["beta"]), "n_labels": int(about["n_labels"])}
    except (KeyError, ValueError):
        raise ModelError(
            f"{path}: its header lacks beta or n_labels; this is not an index of elias: restore it from a copy"
        ) from None
    details = check_object(path, details, model_schema.INDEX_HEADER)
    found = check_arrays(path, arrays, model_schema.INDEX, {"labels": details["n_labels"]})
    n_clusters, n_labels = len(found["indptr"]) - 1, details["n_labels"]
    if n_clusters < 1 or n_labels < 1:
        message = f"an index of {n_clusters} clusters and {n_labels} labels; a model has one of each at least"
        raise ModelError(f"{path}: {message}: {REMEDY}")
    return LabelIndex(indptr=found["indptr"], labels=found["labels"], logits=found.get("logits"), **details)


# -- tables of the CPU search ------------------------------------------------------------------------------------------


def write_search_tables(network: Network, folder: Path) -> None:
    """search.safetensors, so that a model that is loaded can search at once. Definitions have no use for it."""
    if not kernels.serve():
        return
    search = CpuSearch.of(
        network.learned_index(), network.classifier_weights, network.classifier_biases, threads=network.threads
    )
    made = search.classifiers
    arrays = {} if made.row_scales.size else {"codes": made.codes}
    arrays |= {"facts": made.facts, "edge_labels": search.edges.labels, "edge_scores": search.edges.scores}
    write_tensors(folder / SEARCH_TABLES, arrays)


def read_search_tables(network: Network, folder: Path) -> CpuSearch | None:
    """The tables of search.safetensors; None where there is no such file, or no kernel to read it."""
    path = folder / SEARCH_TABLES
    if not kernels.serve(network.device) or not path.exists():
        return None
    weights, index = network.classifier_weights, network.index
    sizes = {"labels": len(weights), "dim": weights.width, "edges": index.n_edges}
    arrays = _opened(path, model_schema.SEARCH, sizes)
    own_codes = isinstance(weights, QuantizedRows) and weights.scales is not None
    if not own_codes and "codes" not in arrays:
        raise _foreign(path, '"codes" is missing')
    biases = network.classifier_biases.values.numpy().reshape(-1)
    if isinstance(weights, QuantizedRows) and weights.scales is not None:
        classifiers = Classifiers(weights.rows, weights.scales, biases, weights.rows, arrays["facts"])
    else:
        rows = weights.rows if isinstance(weights, QuantizedRows) else weights.array()
        classifiers = Classifiers(rows, NO_SCALES, biases, arrays["codes"], arrays["facts"])
    edges = Edges(index.indptr, arrays["edge_labels"], arrays["edge_scores"])
    _check_rows(path, network, classifiers)
    _check_edges(path, network, edges)
    return CpuSearch(edges, classifiers, threads=network.threads)


def _check_rows(path: Path, network: Network, classifiers: Classifiers) -> None:
    places = np.unique(np.linspace(0, len(classifiers.codes) - 1, CHECKED).astype(np.int64))
    rows = network.classifier_weights.gather(torch.from_numpy(places)).double().numpy()
    scales, biases, errors, _ = classifiers.facts[places].astype(np.float64).T
    rest = rows - scales[:, None] * classifiers.codes[places]
    if (np.linalg.norm(rest, axis=1) > errors).any() or (biases != classifiers.biases[places]).any():
        raise _foreign(path, "its codes are of other classifiers")


def _check_edges(path: Path, network: Network, edges: Edges) -> None:
    clusters = np.unique(np.linspace(0, max(0, len(edges.indptr) - 2), CHECKED).astype(np.int64))
    index, logits = network.index, network.learned_index().logits
    indptr, positions = index.positions_of(clusters)
    part = LabelIndex(
        indptr=indptr, labels=index.labels[positions], n_labels=index.n_labels, beta=index.beta,
        logits=None if logits is None else logits[positions],
    )  # fmt: skip
    expected = edges_by_score(part)
    same = np.array_equal(expected.labels, edges.labels[positions])
    if not same or not np.allclose(expected.scores, edges.scores[positions], rtol=1e-5, atol=0.0):
        raise _foreign(path, "its edges are of another index")


def _foreign(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}; it does not belong to this model. Restore it from a copy, or delete it: it is made again "
        "when it is needed"
    )
