"""How a stage starts: the network with its cluster weights W_C and label classifiers W_L.

    centroids   w_l = gain / length * unit(sum of phi over the training rows of label l)       b_l = -gain / 2
                w_c = gain / length * unit(sum of unit(w_l) over the labels of cluster c)      b_c = 0
    random      w_l Kaiming-uniform, b_l uniform(0, 1);   W_C and its biases as nn.Linear draws them
    carried     W_L as stage 1 left it; a label that it had no row of starts from its centroid

Centroids put every label where its texts are before the first step; every training row is encoded for them, and only
for them. `length` is that of phi: `encoder.radius`, or without a head the mean over the training rows. Random draws
depend on the seed, the member and the stage. W_C of stage 2 is always that of stage 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from ..core.distributed import ALONE, Ranks
from ..core.embedding_table import EmbeddingTable
from ..core.rng import generator
from ..core.rounding import as_tensor
from ..core.settings import ONE_VERSUS_ALL, Settings, known, noise_seed
from ..encoders.encoder import Encoder
from ..index.label_index import LabelIndex
from ..network.network import Network, SearchSettings
from ..network.one_versus_all import OneVersusAll
from ..network.quantization import QuantizedRows
from ..network.sharding import own_labels
from .trainer import Stage, TrainingRows

ENCODE_BATCH = 1024
COLUMNS = 64  # of all label sums that are copied at once
DRAWN_AT_ONCE = 1 << 16  # labels


def new_network(
    encoder: Encoder,
    index: LabelIndex,
    train: TrainingRows,
    cluster_of_label: np.ndarray,
    stage: Stage,
    *,
    device: torch.device,
    previous: Network | None = None,
    ranks: Ranks = ALONE,
) -> Network:
    """A network at the start of a stage: W_C from `previous`, or by the settings; W_L by the settings.

    Of several `ranks` each gets the classifiers of its own labels only.
    """
    settings = stage.settings
    threads = known(settings.run.threads)
    clusters_from, classifiers_from = starts(stage, has_previous=previous is not None)
    own = own_labels(index.n_labels, ranks)
    carried = _carried(previous, own) if previous is not None and classifiers_from == "carried" else None
    new = np.empty(0, dtype=np.int64) if carried is None else _untrained(carried[0], train.labels, own)
    phi = None
    if "centroids" in (clusters_from, classifiers_from) or any(count for (count,) in ranks.numbers(len(new))):
        phi = phi_by_label(encoder, train.prepared, train.labels, ranks)
        if settings.encoder.head == "residual":
            phi = phi._replace(length=settings.encoder.radius)  # of all texts but those without words
    if previous is not None:
        clusters = previous.clusters
    elif phi is not None and clusters_from == "centroids":
        sums_CD = centroid_sums_by_cluster(phi.sums_LD, cluster_of_label[own], index.n_clusters)
        ranks.sum(torch.from_numpy(sums_CD))
        clusters = _cluster_layer(sums_CD, stage.own.gain / phi.length)
    else:
        clusters = random_clusters(index.n_clusters, encoder.dim, _rng(stage, "clusters"))
    if carried is not None:
        weights, biases = carried
        if phi is not None:  # labels that are new since
            weights, biases = weights.clone(), biases.clone()
            weights[new], biases[new] = _from_centroids(phi._replace(sums_LD=phi.sums_LD[new]), stage.own.gain)
    elif phi is not None and classifiers_from == "centroids":
        weights, biases = _from_centroids(phi, stage.own.gain)
    else:
        drawn = random_classifiers(index.n_labels, encoder.dim, _rng(stage, "classifiers"), own)
        weights, biases = torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])[:, None]
    dtype = torch.bfloat16 if settings.network.precision == "bfloat16" else torch.float32
    kind = OneVersusAll if settings.network.kind == ONE_VERSUS_ALL else Network
    network = kind(
        encoder,
        clusters.to(device),
        index,
        # Carried weights may be a memory map of the stage before, which must not be trained in.
        EmbeddingTable(weights.to(device, dtype, copy=carried is not None), threads=threads),
        EmbeddingTable(biases.clone().to(device), threads=threads),
        search_settings(settings),
        threads=threads,
    )
    network.ranks = ranks
    return network


def starts(stage: Stage, *, has_previous: bool) -> tuple[str, str]:
    """What W_C and W_L start from: centroids, random or carried."""
    clusters, classifiers = stage.settings.index.cluster_weights, stage.own.classifiers
    if has_previous:
        return "carried", classifiers
    return clusters, "centroids" if classifiers == "carried" else classifiers


def _rng(stage: Stage, what: str) -> np.random.Generator:
    return generator(noise_seed(stage.settings), stage.name, what)


def search_settings(settings: Settings) -> SearchSettings:
    """The part of the settings that a network is searched with."""
    return SearchSettings(
        alpha=settings.index.alpha,
        beam_size=settings.index.beam_size,
        shortlist_size=known(settings.index.shortlist_size),
        training_shortlist_size=settings.index.training_shortlist_size,
        parent_slots=settings.index.parent_slots,
        random_clusters=settings.index.random_clusters,
    )


def _cluster_layer(sums_CD: np.ndarray, length: float) -> nn.Linear:
    """W_C with rows of one length along the sums, biases 0."""
    clusters = nn.Linear(sums_CD.shape[1], len(sums_CD))
    clusters.weight.data = torch.from_numpy(normalized_rows(sums_CD) * np.float32(length))
    nn.init.zeros_(clusters.bias)
    return clusters


def _carried(previous: Network, own: slice) -> tuple[Tensor, Tensor]:
    """W_L and its biases as the stage before left them, of some labels."""
    carried = previous.classifier_weights
    weights = as_tensor(carried.rows) if isinstance(carried, QuantizedRows) else carried.values
    return weights[own], previous.classifier_biases.values[own]


def _untrained(weights: Tensor, labels: sp.csr_matrix, own: slice) -> np.ndarray:
    """Labels that have a row and no weights: the network before was trained without their rows."""
    with_rows = np.bincount(labels.indices, minlength=labels.shape[1])[own] > 0
    return np.flatnonzero(with_rows & ~(weights != 0).any(dim=1).cpu().numpy())


def _from_centroids(phi: PhiByLabel, gain: float) -> tuple[Tensor, Tensor]:
    """W_L and its biases; the sums become W_L in place."""
    weights = rows_of_length(phi.sums_LD, gain / phi.length)
    return torch.from_numpy(weights), torch.full((len(weights), 1), -gain / 2)


class PhiByLabel(NamedTuple):
    """phi of the training rows, summed."""

    sums_LD: np.ndarray  # over the rows of each label (of several ranks: of its own labels), float32
    length: float  # mean length of phi over all rows; 1 if there are none


@torch.no_grad()
def phi_by_label(encoder: Encoder, prepared: Any, labels: sp.csr_matrix, ranks: Ranks = ALONE) -> PhiByLabel:
    """One pass over all rows, without holding phi of all of them. Several ranks encode a batch each at a time."""
    own = own_labels(labels.shape[1], ranks)
    sums = np.zeros((len(range(labels.shape[1])[own]), encoder.dim), dtype=np.float32)
    length = 0.0
    for rows, phi in _encoded(encoder, prepared, labels.shape[0], ranks):
        length += float(np.linalg.norm(phi, axis=1).sum())
        share = labels[rows].T.tocsr()
        share = share if ranks.size == 1 else share[own]
        touched = np.flatnonzero(np.diff(share.indptr))
        sums[touched] += share[touched] @ phi
    return PhiByLabel(sums, length / labels.shape[0] if length else 1.0)


def _encoded(encoder: Encoder, prepared: Any, n_rows: int, ranks: Ranks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(row numbers, phi) of all rows, batch by batch, on every rank."""
    batches = [np.arange(start, min(start + ENCODE_BATCH, n_rows)) for start in range(0, n_rows, ENCODE_BATCH)]
    for first in range(0, len(batches), ranks.size):
        together = batches[first : first + ranks.size]
        own = together[ranks.rank] if ranks.rank < len(together) else np.empty(0, dtype=np.int64)
        phi = encoder.encode(prepared, own) if len(own) else torch.empty((0, encoder.dim))
        counts = [len(rows) for rows in together] + [0] * (ranks.size - len(together))
        whole = ranks.gather(phi.cpu(), counts).numpy()
        yield from zip(together, np.split(whole, np.cumsum(counts)[: len(together) - 1]), strict=True)


def normalized_rows(matrix: np.ndarray) -> np.ndarray:
    """Rows of length 1; zero rows stay zero."""
    return np.asarray(matrix / row_lengths(matrix), dtype=np.float32)


def row_lengths(matrix: np.ndarray) -> np.ndarray:
    """Lengths of the rows, as a column; 1 for zero rows."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(np.where(lengths > 0, lengths, np.ones_like(lengths)))


def rows_of_length(matrix: np.ndarray, length: float) -> np.ndarray:
    """Rows of this length, in place; zero rows stay zero."""
    matrix /= row_lengths(matrix)
    matrix *= np.float32(length)
    return matrix


def centroid_sums_by_cluster(sums_LD: np.ndarray, cluster_of_label: np.ndarray, n_clusters: int) -> np.ndarray:
    """Sum over each cluster's labels of their unit centroids, so that no popular label rules its cluster."""
    member = np.flatnonzero(cluster_of_label >= 0)
    gather = sp.csr_matrix(
        (np.ones(len(member), dtype=np.float32), (cluster_of_label[member], member)),
        shape=(n_clusters, len(cluster_of_label)),
    )
    lengths_L1 = row_lengths(sums_LD)
    out = np.empty((n_clusters, sums_LD.shape[1]), dtype=np.float32)
    for start in range(0, sums_LD.shape[1], COLUMNS):  # a copy of all sums may be most of the memory
        columns = slice(start, start + COLUMNS)
        out[:, columns] = gather @ (sums_LD[:, columns] / lengths_L1)
    return out


def random_classifiers(
    n_labels: int, dim: int, rng: np.random.Generator, own: slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """Kaiming-uniform weights and uniform(0, 1) biases, as the authors' program starts; those of some labels."""
    mine = np.zeros(n_labels, dtype=bool)
    mine[own] = True
    weights, filled = np.empty((int(mine.sum()), dim), dtype=np.float32), 0  # this may be most of the memory
    for start in range(0, n_labels, DRAWN_AT_ONCE):
        drawn = rng.random((min(DRAWN_AT_ONCE, n_labels - start), dim), dtype=np.float32)
        drawn = drawn[mine[start : start + DRAWN_AT_ONCE]]
        weights[filled : filled + len(drawn)] = drawn
        filled += len(drawn)
    weights -= np.float32(0.5)
    weights *= np.float32(2.0 / np.sqrt(dim))
    return weights, rng.random(n_labels, dtype=np.float32)[own]


def random_clusters(n_clusters: int, dim: int, rng: np.random.Generator) -> nn.Linear:
    """W_C and its biases as a new nn.Linear has them: uniform(-1 / sqrt(d), 1 / sqrt(d)), but from our own draws."""
    clusters, bound = nn.Linear(dim, n_clusters), 1.0 / np.sqrt(dim)
    clusters.weight.data = torch.from_numpy(rng.uniform(-bound, bound, (n_clusters, dim)).astype(np.float32))
    clusters.bias.data = torch.from_numpy(rng.uniform(-bound, bound, n_clusters).astype(np.float32))
    return clusters
