"""search.safetensors of a saved model: what the CPU search reads, made once at save time, memory-mapped at load.

Everything in it follows from index.safetensors and classifiers.safetensors. It may be deleted: a model without it
makes the tables when it is first asked. It is checked against the other files on a few rows and clusters, so that a
file of another model is refused.

    codes [L, D] int8           the first look at classifiers; rows that are int8 are their own codes
    facts [L, 4]                scale of the codes, bias, error bound
    edge_labels, edge_scores    edges by falling score within each cluster
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from .. import kernels
from ..core.errors import ModelError
from ..core.files import read_tensors, write_tensors
from ..index.label_index import LabelIndex
from ..kernels.beam_search import Classifiers, Edges, sort_edges
from .cpu_search import NO_SCALES, CpuSearch
from .network import Network
from .quantization import QuantizedRows

NAME = "search.safetensors"
LOOKED_AT = 16  # rows and clusters that are compared at load


def write_search(network: Network, folder: Path) -> None:
    search = CpuSearch.of(
        network.learned_index(), network.classifier_weights, network.classifier_biases, threads=network.threads
    )
    made = search.classifiers
    arrays = {} if made.row_scales.size else {"codes": made.codes}
    arrays |= {"facts": made.facts, "edge_labels": search.edges.labels, "edge_scores": search.edges.scores}
    write_tensors(folder / NAME, arrays)


def read_search(network: Network, folder: Path) -> CpuSearch | None:
    """The tables of a folder's search.safetensors; None where there is no such file, or no use for it."""
    path = folder / NAME
    if network.device.type != "cpu" or not path.exists():
        return None
    arrays, _ = read_tensors(path)
    weights, index = network.classifier_weights, network.index
    n_labels = len(weights)
    own = isinstance(weights, QuantizedRows) and weights.scales is not None
    wanted: dict[str, tuple[type, tuple[int, ...]]] = {"facts": (np.float32, (n_labels, 4))}
    wanted["edge_labels"] = (np.int32, (index.n_edges,))
    wanted["edge_scores"] = (np.float32, (index.n_edges,))
    if not own:
        wanted["codes"] = (np.int8, (n_labels, weights.width))
    for name, (dtype, shape) in wanted.items():
        if name not in arrays or arrays[name].dtype != dtype or arrays[name].shape != shape:
            raise _stranger(path, f'"{name}" is missing or has another shape')
    biases = network.classifier_biases.values.numpy().reshape(-1)
    if isinstance(weights, QuantizedRows) and weights.scales is not None:
        classifiers = Classifiers(weights.rows, weights.scales, biases, weights.rows, arrays["facts"])
    else:
        rows = weights.rows if isinstance(weights, QuantizedRows) else weights.array()
        classifiers = Classifiers(rows, NO_SCALES, biases, arrays["codes"], arrays["facts"])
    edges = Edges(index.indptr, arrays["edge_labels"], arrays["edge_scores"])
    labels = edges.labels
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n_labels:
        raise _stranger(path, "its edges point outside the index")
    _check_rows(path, network, classifiers)
    _check_edges(path, network, edges)
    return CpuSearch(edges, classifiers, threads=network.threads)


def _check_rows(path: Path, network: Network, classifiers: Classifiers) -> None:
    places = np.unique(np.linspace(0, len(classifiers.codes) - 1, LOOKED_AT).astype(np.int64))
    rows = network.classifier_weights.gather(torch.from_numpy(places)).double().numpy()
    scales, biases, errors, _ = classifiers.facts[places].astype(np.float64).T
    rest = rows - scales[:, None] * classifiers.codes[places]
    if (np.linalg.norm(rest, axis=1) > errors).any() or (biases != classifiers.biases[places]).any():
        raise _stranger(path, "its codes are of other classifiers")


def _check_edges(path: Path, network: Network, edges: Edges) -> None:
    clusters = np.unique(np.linspace(0, max(0, len(edges.indptr) - 2), LOOKED_AT).astype(np.int64))
    index, logits = network.index, network.learned_index().logits
    indptr, positions = index.positions_of(clusters)
    part = LabelIndex(
        indptr=indptr, labels=index.labels[positions], n_labels=index.n_labels, beta=index.beta,
        logits=None if logits is None else logits[positions],
    )  # fmt: skip
    labels, scores = np.empty_like(part.labels), np.empty(part.n_edges, dtype=np.float32)
    kernels.run(sort_edges, part.n_clusters, 1, indptr, part.labels, part.edge_scores(), labels, scores)
    same = np.array_equal(labels, edges.labels[positions])
    if not same or not np.allclose(scores, edges.scores[positions], rtol=1e-5, atol=0.0):
        raise _stranger(path, "its edges are of another index")


def _stranger(path: Path, reason: str) -> ModelError:
    return ModelError(
        f"{path}: {reason}; it does not belong to this model. Restore it from a copy, or delete it: it is made again "
        "when it is needed"
    )
