"""A smaller model of a trained one: classifier rows in fewer bytes, fewer edges a cluster, no training texts.

The first two change the model a little. `compact` never guesses by how much: measure it with `elias compact --data`.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError
from ..core.settings import PRECISIONS
from ..network.network import Network
from ..network.quantization import QuantizedRows
from .model import Model


def compact(model: Model, *, precision: str | None = None, prune: int | None = None, drop_texts: bool = False) -> Model:
    """`model` with its classifiers in `precision` and the `prune` strongest edges of each cluster.

    A label keeps its strongest edge, whatever `prune` says. Rows that were rounded once are not rounded again.
    `drop_texts`: without the excerpts and ids of training texts that explanations show.
    """
    network = model.network
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f'precision "{precision}": must be one of {", ".join(PRECISIONS)}')
    if prune is not None and prune < 1:
        raise InputError(f"prune={prune}: keep at least one edge a cluster")
    weights = network.classifier_weights
    if precision not in (None, _precision(weights)):
        if isinstance(weights, QuantizedRows):
            raise InputError(
                f"the classifiers are {weights.precision} already; compact the model they came from to {precision}"
            )
        assert precision is not None
        weights = QuantizedRows.of(weights.values.cpu().numpy(), precision, threads=network.threads)
    index = network.learned_index()
    if prune is not None:
        index = index.prune(keep=prune, keep_parents=True)
    smaller = Network(
        network.encoder, network.clusters, index, weights, network.classifier_biases, network.settings,
        threads=network.threads,
    )  # fmt: skip
    ranker = model.reranker
    if drop_texts and ranker is not None:
        ranker = replace(ranker, parts=replace(ranker.parts, texts=None))
    note = {"precision": _precision(weights), "edges": index.n_edges}
    return replace(model, network=smaller, reranker=ranker, about={**model.about, "compacted": note})


def _precision(weights: EmbeddingTable | QuantizedRows) -> str:
    return weights.precision if isinstance(weights, QuantizedRows) else "float32"
