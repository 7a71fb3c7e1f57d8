"""Small random networks and batches, and the gradients of their loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import helpers.dense_equations as dense
from elias.core.devices import upload
from elias.core.embedding_table import EmbeddingTable, GradientBuffer
from elias.core.noise import Noise
from elias.core.ragged import Ragged
from elias.core.settings import StageSettings
from elias.encoders.dense import DenseEncoder
from elias.encoders.encoder import TrainingContext
from elias.index.label_index import LabelIndex
from elias.network.network import Batch, Network, SearchSettings
from elias.training.trainer import Optimizer


class GivenPhi:
    """An encoder whose prepared inputs are phi itself."""

    kind = "given"

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode(self, prepared: Any, rows: np.ndarray, context: TrainingContext | None = None) -> torch.Tensor:
        return prepared[torch.from_numpy(rows)]

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}


def small_network(
    rng: np.random.Generator, index: LabelIndex, dim: int, settings: SearchSettings, threads: int = 1
) -> Network:
    linear = torch.nn.Linear(dim, index.n_clusters)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(rng.normal(size=linear.weight.shape)))
        linear.bias.zero_()
    weights = torch.from_numpy(rng.normal(size=(index.n_labels, dim)).astype(np.float32))
    biases = torch.from_numpy(rng.normal(size=(index.n_labels, 1)).astype(np.float32))
    tables = EmbeddingTable(weights, threads=threads), EmbeddingTable(biases, threads=threads)
    return Network(GivenPhi(dim), linear, index, *tables, settings, threads=threads)


def random_batch(rng: np.random.Generator, n_rows: int, n_labels: int) -> Batch:
    positives = dense.random_ragged(rng, n_rows, n_labels, 4)
    excluded = dense.random_ragged(rng, n_rows, n_labels, 2)
    weights = rng.choice(np.float32([0.5, 1.0, 2.0]), len(positives.labels))
    return Batch(np.arange(n_rows), positives, weights, excluded, rng.choice(np.float32([1.0, 3.0]), n_rows))


def gradients_of(network: Network, phi: torch.Tensor, batch: Batch, lambda_: float = 0.3) -> dict[str, np.ndarray]:
    """The loss and its gradients, dense, by name."""
    phi = phi.clone().requires_grad_()
    network.clusters.zero_grad()
    context = TrainingContext(GradientBuffer(), Noise(1), torch.from_numpy(batch.rows))
    value = network.loss(phi, batch, network.learned_index().parents(), context, lambda_)
    value.backward()
    found = {"loss": value.detach().numpy(), "phi": phi.grad, "clusters": network.clusters.weight.grad}
    for name, table in network.tables().items():
        total = torch.zeros_like(table.values)
        for owner, rows, gradient in context.buffer.gradients():
            if owner is table:
                total += dense_gradient(table, rows, gradient)
        found[name] = total
    return {name: np.asarray(value) for name, value in found.items()}


def dense_gradient(table: EmbeddingTable, rows: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient of some rows (numbers, or one bool per row) as one of all."""
    if rows.dtype == torch.bool:
        return gradient * rows[:, None]
    return torch.zeros_like(table.values).index_add_(0, rows, gradient)


def random_case(rng: np.random.Generator) -> tuple[Network, np.ndarray, int, Ragged]:
    n_clusters, n_labels, dim = (int(rng.integers(1, top)) for top in (20, 200, 40))
    index = dense.random_index(
        rng, n_clusters, n_labels, density=rng.choice([0.02, 0.3, 1.0]), beta=rng.choice([1.0, 5.0, 100.0])
    )
    if rng.random() < 0.3:
        index = LabelIndex.from_clusters(rng.integers(-1, n_clusters, n_labels), n_clusters)
    search = SearchSettings(
        alpha=rng.choice([0.5, 3.0, 50.0]),
        beam_size=int(rng.integers(1, n_clusters + 3)),
        shortlist_size=int(rng.integers(1, n_labels + 10)),
    )
    network = small_network(rng, index, dim, search, threads=int(rng.integers(1, 4)))
    phi = (rng.normal(size=(5, dim)) * rng.choice([0.01, 1.0, 5.0])).astype(np.float32)
    return network, phi, int(rng.integers(1, n_labels + 3)), dense.random_ragged(rng, 5, n_labels, 5)


def network_on(
    device: torch.device, *, learned: bool, kind: type[Network] = Network, n_labels: int = 50
) -> tuple[Network, np.ndarray, Batch]:
    """A network on a device that can be trained whole, vectors for its encoder, and a batch of 5 rows."""
    rng = np.random.default_rng(0)
    index = LabelIndex.from_clusters(rng.integers(0, 8, n_labels), 8)
    if learned:
        index = dense.random_index(rng, 8, n_labels, density=0.4, beta=3.0)
    encoder = DenseEncoder(6, radius=3.0, dropout=0.2)
    linear = torch.nn.Linear(6, 8)
    values = [torch.from_numpy(rng.normal(size=(n_labels, width)).astype(np.float32)) for width in (6, 1)]
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(rng.normal(size=linear.weight.shape)))
        linear.bias.zero_()
    encoder.to(device)
    tables = [EmbeddingTable(value.to(device)) for value in values]
    settings = SearchSettings(beam_size=3, shortlist_size=10, random_clusters=True)
    network = kind(encoder, linear.to(device), index, *tables, settings)
    return network, rng.normal(size=(5, 6)).astype(np.float32), random_batch(rng, 5, n_labels)


def make_steps(network: Network, vectors: np.ndarray, batch: Batch, parents: np.ndarray, **settings: Any) -> None:
    """Two steps: in the second one optimizer state and pending decay are there."""
    optimizer = Optimizer(network, StageSettings(epochs=1, batch_size=len(batch.rows), **settings))
    for step in range(2):
        buffer = GradientBuffer(rates=optimizer.immediate_rates(1.0))
        context = TrainingContext(buffer, Noise(1), upload(batch.rows, network.device), batch.rows)
        network.loss(vectors, batch, parents, context, 0.05).backward()  # type: ignore[no-untyped-call]
        optimizer.step(buffer, 1.0, step, last=step == 1)
