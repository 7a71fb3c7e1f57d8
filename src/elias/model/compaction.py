"""A smaller model of a trained one: classifiers and word vectors in fewer bytes, fewer edges, no training texts.

The first two change the model a little. `compact` never guesses by how much: measure it with `elias compact --data`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError
from ..core.settings import PRECISIONS
from ..encoders import Encoder
from ..encoders.bag import BagEncoder
from ..index.label_index import LabelIndex
from ..network.network import Network
from ..network.quantization import QuantizedRows
from ..ranking.reranker import Reranker
from .model import Model


def compact(
    model: Model,
    *,
    precision: str | None = None,
    prune: int | None = None,
    prune_below: float | None = None,
    drop_texts: bool = False,
) -> Model:
    """`model` with its classifiers in `precision` and fewer edges: per cluster the `prune` strongest, and of them those
    that score at least `prune_below`.

    A label keeps its strongest edge, whatever the two say. Rows that were rounded once are not rounded again.
    `drop_texts`: without the excerpts and ids of training texts that explanations show.
    """
    network = model.network
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f'precision "{precision}": must be one of {", ".join(PRECISIONS)}')
    if prune is not None and prune < 1:
        raise InputError(f"prune={prune}: keep at least one edge per cluster")
    if prune_below is not None and not 0 <= prune_below <= 1:
        raise InputError(
            f"prune_below={prune_below:g}: edge scores are from 0 to 1; choose a number between, such as 0.01"
        )
    weights = network.classifier_weights
    if precision not in (None, _precision(weights)):
        if isinstance(weights, QuantizedRows):
            raise InputError(
                f"the classifiers are {weights.precision} already; fit with network.saved_precision={precision}, or "
                "compact the model they came from"
            )
        assert precision is not None
        weights = rounded(network, precision)
    index = network.learned_index()
    note = {"precision": _precision(weights), "edges": index.n_edges}
    if prune is not None or prune_below is not None:
        wanted: dict[str, Any] = {"keep": prune, "below": prune_below or 0.0}
        pruned = index.prune(**wanted, keep_parents=True)
        lost = index.n_reachable() - index.prune(**wanted).n_reachable()
        note |= {"edges": pruned.n_edges, "edges_cut": index.n_edges - pruned.n_edges, "labels_kept_reachable": lost}
        index = pruned
    ranker = model.reranker
    if drop_texts and isinstance(ranker, Reranker):
        ranker = replace(ranker, parts=replace(ranker.parts, texts=None))
    smaller = with_index(model, index, weights)
    return replace(smaller, reranker=ranker, about={**model.about, "compacted": note})


def with_index(model: Model, index: LabelIndex, weights: EmbeddingTable | QuantizedRows | None = None) -> Model:
    """The same model with another graph, and with other classifiers where they are given."""
    old = model.network
    weights = old.classifier_weights if weights is None else weights
    encoder = rounded_encoder(old.encoder, _precision(weights))
    network = Network(encoder, old.clusters, index, weights, old.classifier_biases, old.settings, threads=old.threads)
    return replace(model, network=network)


def rounded(network: Network, precision: str) -> EmbeddingTable | QuantizedRows:
    """The classifiers of a network that were not rounded, in `precision`."""
    weights = network.classifier_weights
    if isinstance(weights, QuantizedRows) or precision == "float32":
        return weights
    return QuantizedRows.of(weights.values.float().cpu().numpy(), precision, threads=network.threads)


def rounded_encoder(encoder: Encoder, precision: str) -> Encoder:
    """The encoder of a model whose classifiers have `precision`: a bag's word vectors are then bfloat16."""
    return encoder.rounded() if isinstance(encoder, BagEncoder) and precision != "float32" else encoder


def _precision(weights: EmbeddingTable | QuantizedRows) -> str:
    return weights.precision if isinstance(weights, QuantizedRows) else "float32"
