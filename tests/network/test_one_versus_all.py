"""One-versus-all: its loss is the dense cross-entropy, its answers are brute force; it trains, resumes and saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from elias import Model, Settings, fit, load, load_dataset
from elias.core.defaults import DataSize, resolve
from elias.core.devices import torch_threads
from elias.core.embedding_table import EmbeddingTable, GradientBuffer, RowOptimizer
from elias.core.errors import SettingsError
from elias.core.noise import Noise
from elias.core.ragged import Ragged
from elias.dataset import Dataset
from elias.encoders import Inputs, TrainingContext
from elias.encoders.dense import DenseEncoder
from elias.index.label_index import LabelIndex
from elias.model.evaluate import evaluate_model
from elias.network.network import Batch, SearchSettings
from elias.network.one_versus_all import BLOCK, RANGE, OneVersusAll
from elias.pipeline.estimate import Workload, estimate
from elias.training.checkpoint import restore_checkpoint, save_checkpoint
from elias.training.initialization import new_network
from elias.training.trainer import Callbacks, Stage, Trainer, TrainingRows
from elias.training.weight_averaging import weights_of
from helpers.dense_equations import random_ragged
from helpers.processes import SMALL

KIND = {"network.kind": "one-versus-all"}
TINY = {**{key: value for key, value in SMALL.items() if key.startswith(("encoder", "ranking", "run"))}, **KIND}


class GivenPhi:
    """An encoder that hands out its input; phi can be asked for its gradient."""

    def __init__(self, phi: Tensor) -> None:
        self.phi, self.dim = phi, phi.shape[1]

    def encode(self, prepared: Any, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        return self.phi[rows]

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}

    def module(self) -> torch.nn.Module:
        return torch.nn.Module()


def problem(n_labels: int, *, threads: int = 2, kind: str = "rowwise", missing: int = 0) -> tuple[OneVersusAll, Batch]:
    """A network over random phi, and a batch with weighted positives, weighted rows and excluded pairs.

    The first and every third of the next labels, `missing` in all, have no training row.
    """
    rng, n_rows, dim = np.random.default_rng(n_labels), 7, 5
    phi = torch.from_numpy(rng.normal(size=(n_rows, dim)).astype(np.float32)).requires_grad_()
    tables = [
        EmbeddingTable(
            torch.from_numpy(rng.normal(size=(n_labels, width)).astype(np.float32)),
            RowOptimizer(kind=kind, decay=0.1 if width > 1 else 0.0), threads=threads,
        )
        for width in (dim, 1)
    ]  # fmt: skip
    clusters = np.zeros(n_labels, dtype=np.int64)
    clusters[: 3 * missing : 3] = -1
    index = LabelIndex.from_clusters(clusters, 1)
    settings = SearchSettings(shortlist_size=n_labels, training_shortlist_size=50)
    network = OneVersusAll(GivenPhi(phi), torch.nn.Linear(dim, 1), index, *tables, settings, threads=threads)  # type: ignore[arg-type]
    positives = random_ragged(rng, n_rows, index.n_edges, 4)
    positives = Ragged(positives.indptr, index.labels[positives.labels])
    excluded = random_ragged(rng, n_rows, n_labels, 3)
    taken = set(zip(positives.rows.tolist(), positives.labels.tolist(), strict=True))
    free = [pair not in taken for pair in zip(excluded.rows.tolist(), excluded.labels.tolist(), strict=True)]
    kept = np.array(free, dtype=bool)
    counts = np.bincount(excluded.rows[kept], minlength=n_rows)
    excluded = Ragged(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), excluded.labels[kept])
    weights = rng.uniform(0.2, 2.0, size=len(positives.labels)).astype(np.float32)
    return network, Batch(np.arange(n_rows), positives, weights, excluded, rng.uniform(0.5, 2, n_rows).astype("f4"))


def dense_loss(network: OneVersusAll, batch: Batch) -> tuple[float, Tensor, Tensor, Tensor]:
    """Loss and gradients of phi, W and b: every label of every row at once, in float64, by autograd."""
    phi = network.encoder.phi.detach().double().requires_grad_()  # type: ignore[attr-defined]
    w = network.trained_weights.values.double().clone().requires_grad_()
    b = network.classifier_biases.values.double().clone().requires_grad_()
    z = phi @ w.T + b[:, 0]
    y, counted = torch.zeros_like(z), torch.ones_like(z)
    y[batch.positives.rows, batch.positives.labels.astype(np.int64)] = torch.from_numpy(batch.positive_weights).double()
    counted[batch.excluded.rows, batch.excluded.labels.astype(np.int64)] = 0.0
    counted[:, np.setdiff1d(np.arange(len(w)), network.index.labels)] = 0.0
    terms = torch.where(y > 0, y * F.logsigmoid(z), F.logsigmoid(-z)) * counted
    rows = torch.from_numpy(batch.weights).double()[:, None]
    loss = -(terms * rows).sum() / (len(phi) * min(50, network.index.n_edges))
    loss.backward()  # type: ignore[no-untyped-call]
    assert phi.grad is not None
    assert w.grad is not None
    assert b.grad is not None
    return float(loss.detach()), phi.grad, w.grad, b.grad


def run(network: OneVersusAll, batch: Batch, buffer: GradientBuffer) -> float:
    context = TrainingContext(buffer, Noise.of(0, "stage", 0), torch.from_numpy(batch.rows))
    loss = network.loss(None, batch, np.empty(0, dtype=np.int32), context, 0.0)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())


@pytest.mark.parametrize(
    ("n_labels", "missing"), [(1, 0), (30, 0), (30, 6), (RANGE + 1, 0), (BLOCK + RANGE + 3, 0), (BLOCK + RANGE, 900)]
)
def test_loss_and_gradients_are_the_dense_ones(n_labels: int, missing: int) -> None:
    network, batch = problem(n_labels, missing=missing)
    loss, phi, w, b = dense_loss(network, batch)
    buffer = GradientBuffer()
    assert run(network, batch, buffer) == pytest.approx(loss, rel=1e-5)
    found = {table: dense(grads, rows, n_labels) for table, rows, grads in buffer.gradients()}
    for theirs, ours in (
        (phi, network.encoder.phi.grad),  # type: ignore[attr-defined]
        (w, found[network.trained_weights]),
        (b, found[network.classifier_biases]),
    ):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6 * float(theirs.abs().max()))


def dense(gradients: Tensor, rows: Tensor, n_rows: int) -> Tensor:
    return torch.zeros((n_rows, gradients.shape[1])).index_add_(0, rows, gradients)


@pytest.mark.parametrize("kind", ["rowwise", "adamw"])
def test_stepping_at_once_is_the_same_step(kind: str) -> None:
    """Block by block, or all gradients first: the same weights after three steps, decay included."""
    (at_once, batch), (later, _) = problem(BLOCK + 5, kind=kind, missing=2), problem(BLOCK + 5, kind=kind, missing=2)
    for _ in range(3):
        buffer = GradientBuffer(rates={at_once.trained_weights: 0.01})
        run(at_once, batch, buffer)
        assert [table for table, _, _ in buffer.gradients()] == [at_once.classifier_biases]
        buffer = GradientBuffer()
        run(later, batch, buffer)
        for table, rows, grads in buffer.gradients():
            if table is later.trained_weights:
                table.apply(rows, grads, 0.01)
    for network in (at_once, later):
        network.trained_weights.flush()  # decay of labels without a row is still pending
    assert torch.equal(at_once.trained_weights.values, later.trained_weights.values)


def test_threads_do_not_change_a_bit() -> None:
    results = []
    for threads in (1, 2):
        network, batch = problem(BLOCK + 5, threads=threads)
        buffer = GradientBuffer()
        with torch_threads(1):  # as in a fit: torch itself computes on one thread
            results.append((run(network, batch, buffer), [grads for _, _, grads in buffer.gradients()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


@pytest.fixture(scope="module")
def model(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    changes = {**TINY, "stage1.epochs": 8}
    found = fit(load_dataset(tiny_dataset), settings=Settings().updated(changes))
    folder = tmp_path_factory.mktemp("model") / "model"
    found.save(folder)
    return load(folder, threads=2)


def test_it_learns_and_answers_exactly(model: Model, tiny_dataset: Path) -> None:
    """A saved model's answers are sigmoid(W phi + b) over all labels, best first."""
    data = load_dataset(tiny_dataset)
    assert data.test is not None
    assert evaluate_model(model, data).metrics["P@1"] > 60
    texts = data.test.texts
    assert texts is not None
    found = model.predict(list(texts), k=len(model.labels))
    prepared = model.network.encoder.prepare(model.read(list(texts)))
    with torch.no_grad():
        phi = model.network.encoder.encode(prepared, np.arange(len(texts))).double()
    weights = model.network.trained_weights.values.double()
    p = torch.sigmoid(phi @ weights.T + model.network.classifier_biases.values[:, 0].double()).numpy()
    assert (np.sort(found.labels, axis=1) == np.arange(len(model.labels))).all(), "every label has its place"
    np.testing.assert_allclose(found.scores, -np.sort(-p, axis=1), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.scores, np.take_along_axis(p, found.labels, axis=1), rtol=1e-4, atol=1e-7)


def test_cut_and_resumed(tmp_path: Path) -> None:
    """W_C has no gradient here; a checkpoint must do without its state."""
    path = tmp_path / "checkpoint"

    def save(trainer: Trainer) -> None:
        if trainer.at.epoch == 0 and trainer.at.step == 4:
            save_checkpoint(trainer, path)

    whole = small_trainer(after_step=save)
    whole.run()
    second = small_trainer()
    restore_checkpoint(second, path)
    assert second.at.step == 4
    second.run()
    expected = weights_of(whole.network)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights_of(second.network).items())


def small_trainer(**options: Any) -> Trainer:
    """40 vectors with one of 9 labels each, two epochs of 5 steps."""
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(40, 6)).astype(np.float32), sp.csr_matrix(np.eye(9)[rng.integers(9, size=40)])
    data = Dataset.from_arrays(vectors, labels)
    changes = {**KIND, "stage1.batch_size": 8, "stage1.epochs": 2, "run.threads": 2}
    settings = resolve(Settings().updated(changes), data.size())
    torch.manual_seed(0)
    encoder = DenseEncoder(vectors.shape[1], radius=8.0, dropout=0.5)
    prepared = encoder.prepare(Inputs(vectors=vectors))
    rows = TrainingRows(prepared, data.train.labels, data.train.excluded, data.train.weights)
    clusters = np.zeros(9, dtype=np.int64)
    stage = Stage("30-stage1", settings, settings.stage1)
    index = LabelIndex.from_clusters(clusters, 1)
    network = new_network(encoder, index, rows, clusters, stage, device=torch.device("cpu"))
    assert isinstance(network, OneVersusAll)
    callbacks = Callbacks(keep_best=lambda network: None, **options)
    return Trainer(network, rows, rows, settings.stage1, stage=stage.name, seed=0, callbacks=callbacks)


def test_settings_follow_from_the_kind() -> None:
    size = DataSize(rows=50_000, labels=40_000, pairs=200_000)
    both, one = resolve(Settings(), size), resolve(Settings().updated(KIND), size)
    assert (one.clustering.clusters, one.index.shortlist_size, one.stage2.epochs) == (1, 40_000, 0)
    assert one.stage1.epochs == (both.stage1.epochs or 0) + (both.stage2.epochs or 0), "as many epochs as both stages"
    assert resolve(one, size) == one
    assert resolve(Settings().updated({**KIND, "stage1.epochs": 3}), size).stage1.epochs == 3
    work = Workload(size, n_labels=40_000, n_words=10_000, words_per_text=50.0)
    assert estimate(one, work).seconds > estimate(both, work).seconds


def test_what_it_cannot_have_is_listed() -> None:
    wrong = {**KIND, "clustering.clusters": 8, "stage2.epochs": 2, "clustering.again_after": 1}
    with pytest.raises(SettingsError) as error:
        Settings().updated(wrong)
    for path in ("clustering.clusters=8", "stage2.epochs=2", "clustering.again_after=1"):
        assert f"{path}: network.kind=one-versus-all trains one stage without an index; leave it out" in str(
            error.value
        )
    with pytest.raises(SettingsError, match="classifies all 30 labels"):
        resolve(Settings().updated({**KIND, "index.shortlist_size": 10}), DataSize(rows=9, labels=30, pairs=9))
    with pytest.raises(SettingsError, match='did you mean "one-versus-all"'):
        Settings().updated({"network.kind": "one-vs-all"})
