"""The training loop: cut at any step and resumed it ends in the same bits; the best weights are kept."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from elias import kernels
from elias.core.defaults import resolve
from elias.core.devices import pick_threads
from elias.core.embedding_table import GradientBuffer
from elias.core.errors import RunError
from elias.core.metrics import Metrics, evaluate
from elias.core.noise import Noise
from elias.core.progress import SILENT
from elias.core.rounding import as_array
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.encoders import TrainingContext, load_encoder
from elias.index.label_index import LabelIndex
from elias.network.network import Network
from elias.pipeline.context import FitContext
from elias.pipeline.features_step import FeatureSet, features_step
from elias.pipeline.run_folder import Run
from elias.pipeline.tokens_step import tokens_step
from elias.training.checkpoint import REPLICATED, restore_checkpoint, save_checkpoint
from elias.training.initialization import new_network
from elias.training.stage import CHECKPOINT, train_stage
from elias.training.trainer import AHEAD, Callbacks, Stage, Trainer, rate_factor
from elias.training.weight_averaging import AveragedWeights, weights_of
from helpers.processes import SMALL

NAMES = [f"p{number}" for number in range(12)]
CPU = torch.device("cpu")


class Cut(Exception):
    """The end of a run that is to be resumed."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, FeatureSet]:
    """60 rows, 12 labels; each row's own id is a label that is excluded from it."""
    texts = [f"{NAMES[row % 12]} like {NAMES[(row + 1) % 12]} and {row % 7}" for row in range(60)]
    labels = [[NAMES[(row + 1) % 12], NAMES[(row + 5) % 12]] for row in range(60)]
    data = Dataset.from_lists(texts, labels, ids=[NAMES[row % 12] for row in range(60)], exclude_own_id=True)
    changes = {"split.validation_rows": 10, "stage1.batch_size": 8, "stage2.batch_size": 8, "stage2.epochs": 3}
    changes |= {"features.own_ids": False}  # excluded pairs stay excluded
    changes |= {"index.parent_slots": 1, "stage2.learning_rate_edges": 1}  # parents matter, and change within an epoch
    settings = resolve(Settings().updated({**SMALL, **changes}), data.size())
    pick_threads(2)
    with Run(tmp_path_factory.mktemp("prepared"), SILENT) as run:
        run.freeze(settings, settings, data.fingerprint())
        return settings, features_step(FitContext(data, settings, run, SILENT, CPU, tokens_step(data, settings, run)))


def network_of(settings: Settings, rows: FeatureSet, *, learned: bool = True, beam: int = 4) -> Network:
    clusters = np.arange(12, dtype=np.int32) % 4
    index = LabelIndex.from_clusters(clusters, 4)
    if learned:  # every label in every cluster
        labels = np.tile(np.arange(12, dtype=np.int32), 4)
        logits = np.random.default_rng(0).uniform(size=48).astype(np.float32)
        index = LabelIndex(indptr=np.arange(5) * 12, labels=labels, n_labels=12, logits=logits, beta=3.0)
    encoder = load_encoder(rows.encoder_folder, threads=2)
    settings = settings.updated({"index.beam_size": beam})
    stage = Stage("50-stage2", settings, settings.stage2)
    return new_network(encoder, index, rows.train, clusters, stage, device=CPU)


def trainer_of(settings: Settings, rows: FeatureSet, *, learned: bool = True, **options: Any) -> Trainer:
    seed, callbacks = options.pop("seed", 0), Callbacks(**{"keep_best": lambda network: None, **options})
    network = network_of(settings, rows, learned=learned, beam=1)
    return Trainer(
        network, rows.train, rows.validation, settings.stage2, stage="50-stage2", seed=seed, callbacks=callbacks
    )


def bits(network: Network) -> dict[str, np.ndarray]:
    return {name: as_array(tensor).copy() for name, tensor in weights_of(network).items()}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stage2.optimizer": "adamw", "stage2.average_every": 2},
        {"stage2.accumulate": 3, "stage2.average_from": 0.0},
        {"stage2.accumulate": 3, "stage2.accumulated": "all", "stage2.optimizer": "adamw"},
        {"network.precision": "bfloat16"},
        {"network.precision": "bfloat16", "stage2.optimizer": "adamw", "stage2.average_every": 2},
        {"network.precision": "bfloat16", "stage2.optimizer": "adamw", "stage2.accumulate": 3},
    ],
)
@pytest.mark.parametrize("learned", [True, False])
def test_cut_at_any_step_and_resumed(
    prepared: tuple[Settings, FeatureSet], tmp_path: Path, changes: dict[str, Any], learned: bool
) -> None:
    settings, rows = prepared[0].updated(changes), prepared[1]
    whole = trainer_of(settings, rows, learned=learned)
    whole.run()
    assert whole.total_steps == 21
    path = tmp_path / "checkpoint"

    def cut(at: int) -> Callable[[Trainer], None]:
        def after_step(trainer: Trainer) -> None:
            if trainer.between_steps and trainer.at.epoch * 7 + trainer.at.step >= at:
                save_checkpoint(trainer, path)
                raise Cut

        return after_step

    for at in (1, 4, 7, 11, 14, 20):
        first = trainer_of(settings, rows, learned=learned, after_step=cut(at))
        with pytest.raises(Cut):
            first.run()
        second = trainer_of(settings, rows, learned=learned)
        restore_checkpoint(second, path)
        second.run()
        assert same(bits(second.network), bits(whole.network)), at
        assert all(torch.equal(tensor, whole.mean.tensors[name]) for name, tensor in second.mean.tensors.items())
        assert (second.at.best, second.at.best_epoch) == (whole.at.best, whole.at.best_epoch)


@pytest.mark.parametrize("reference", [False, True])
def test_batches_read_ahead_change_nothing(
    prepared: tuple[Settings, FeatureSet], tmp_path: Path, reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an undisturbed run nor one that is cut while a thread is ahead of it."""
    path, records = tmp_path / "checkpoint", []

    def cut(trainer: Trainer) -> None:
        if trainer.at.epoch == 1 and trainer.at.step == 3:
            save_checkpoint(trainer, path)
            raise Cut

    with kernels.reference(reference):
        whole = trainer_of(*prepared)
        whole.run()
        monkeypatch.setitem(AHEAD, "cpu", 2)
        ahead = trainer_of(*prepared, after_epoch=records.append)
        ahead.run()
        with pytest.raises(Cut):
            trainer_of(*prepared, after_step=cut).run()
        resumed = trainer_of(*prepared)
        restore_checkpoint(resumed, path)
        resumed.run()
    for trainer in (ahead, resumed):
        assert same(bits(trainer.network), bits(whole.network))
        assert [record["loss"] for record in trainer.at.history] == [record["loss"] for record in whole.at.history]


@pytest.mark.parametrize("changes", [{}, {"stage2.optimizer": "adamw", "stage2.accumulate": 3}])
def test_the_reference_implementation_trains_as_the_kernels_do(
    prepared: tuple[Settings, FeatureSet], changes: dict[str, Any]
) -> None:
    """The same start, the same batches and the same noise; only the order of sums differs."""
    settings, rows = prepared[0].updated(changes), prepared[1]
    losses: list[list[float]] = []
    weights = []
    for on in (False, True):
        losses.append([])
        with kernels.reference(on):
            trainer = trainer_of(settings, rows, after_step=lambda trainer: losses[-1].append(trainer.read_loss()))
            trainer.run()
        weights.append(bits(trainer.network))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], rtol=1e-3, atol=2e-4, err_msg=name)


def test_a_checkpoint_with_a_flipped_bit_is_refused(prepared: tuple[Settings, FeatureSet], tmp_path: Path) -> None:
    """Wherever it is: in weights, optimizer state or position, in the length or the text of the header."""
    path, draw = tmp_path / "checkpoint", Random(0)
    trainer = trainer_of(*prepared)
    save_checkpoint(trainer, path)
    files = sorted(path.iterdir())
    assert [file.name for file in files] == [REPLICATED, "shard-0-of-1.safetensors"]
    for file in files:
        whole = file.read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        places = [*range(8), header, len(whole) - 1]
        places += [draw.randrange(*part) for part in ((8, header), (header, len(whole))) for _ in range(30)]
        for place in places:
            raw = bytearray(whole)
            raw[place] ^= 1 << draw.randrange(8)
            file.write_bytes(bytes(raw))
            with pytest.raises(RunError, match=f"{file.name}: .*remove the folder {path} to start the stage again"):
                restore_checkpoint(trainer, path)
        file.write_bytes(whole)
    restore_checkpoint(trainer, path)


def test_a_checkpoint_of_another_network_is_refused(prepared: tuple[Settings, FeatureSet], tmp_path: Path) -> None:
    settings, rows = prepared
    path = tmp_path / "checkpoint"
    save_checkpoint(trainer_of(settings, rows, learned=False), path)
    with pytest.raises(RunError, match="not a checkpoint of this run"):
        restore_checkpoint(trainer_of(settings, rows), path)
    file = path / REPLICATED
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(RunError, match="not a whole safetensors file"):
        restore_checkpoint(trainer_of(settings, rows, learned=False), path)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(prepared: tuple[Settings, FeatureSet]) -> None:
    results = []
    for seed in (0, 0, 1):
        trainer = trainer_of(*prepared, seed=seed)
        trainer.run()
        results.append(bits(trainer.network))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_training_learns(prepared: tuple[Settings, FeatureSet]) -> None:
    settings, rows = prepared
    trainer = trainer_of(settings.updated({"stage2.epochs": 12, "encoder.dropout": 0}), rows)
    trainer.run()
    losses = [record["loss"] for record in trainer.at.history]
    assert losses[-1] < 0.8 * losses[0]
    assert trainer.at.best > 60


def test_the_best_weights_are_kept(prepared: tuple[Settings, FeatureSet]) -> None:
    kept: list[dict[str, np.ndarray]] = []
    trainer = trainer_of(*prepared, keep_best=lambda network: kept.append(bits(network)))
    scores = iter([10.0, 30.0, 20.0, 40.0])  # epoch 2: last, mean; epoch 3: last, mean
    seen: list[dict[str, np.ndarray]] = []

    def consider(*, is_mean: bool) -> dict[str, float]:
        score = next(scores)
        seen.append(bits(trainer.network))
        if score > trainer.at.best:
            trainer.at.best, trainer.at.best_epoch, trainer.at.best_is_mean = score, trainer.at.epoch + 1, is_mean
            trainer.callbacks.keep_best(trainer.network)
        return {"nDCG@5": score}

    trainer._consider = consider  # type: ignore[method-assign]
    trainer.run()
    assert len(kept) == 3
    assert same(kept[-1], seen[3])
    assert not same(seen[2], seen[3])
    assert same(bits(trainer.network), seen[2])  # the mean was put back
    assert (trainer.at.best, trainer.at.best_epoch, trainer.at.best_is_mean) == (40.0, 3, True)


def test_without_validation_labels_the_last_weights_are_kept(prepared: tuple[Settings, FeatureSet]) -> None:
    settings, rows = prepared
    nothing = replace(rows.validation, labels=rows.validation.labels * 0)
    nothing.labels.eliminate_zeros()
    kept: list[dict[str, np.ndarray]] = []
    rows = replace(rows, validation=nothing)
    trainer = trainer_of(settings, rows, keep_best=lambda network: kept.append(bits(network)))
    trainer.run()
    assert len(kept) == 1
    assert same(kept[0], bits(trainer.network))


def test_an_excluded_pair_is_in_no_shortlist_of_the_loss(prepared: tuple[Settings, FeatureSet]) -> None:
    settings, rows = prepared
    network = network_of(settings, rows)
    parents = network.learned_index().parents()
    for row in range(10):
        own = rows.train.excluded[row].indices
        assert len(own) == 1
        buffer = GradientBuffer()
        context = TrainingContext(buffer, Noise.of(0, "x", 0), torch.tensor([row]))
        batch = rows.train.batch(np.array([row]))
        network.loss(rows.train.prepared, batch, parents, context, 0.05).backward()  # type: ignore[no-untyped-call]
        touched = [numbers for table, numbers, _ in buffer.gradients() if table is network.classifier_weights]
        assert touched
        assert sorted(torch.cat(touched).tolist()) == sorted(set(range(12)) - set(own.tolist()))


def test_an_excluded_pair_is_not_predicted_in_validation(
    prepared: tuple[Settings, FeatureSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, rows = prepared
    trainer = trainer_of(settings, rows)
    seen: list[np.ndarray] = []

    def spy(predicted: np.ndarray, *arguments: Any, **options: Any) -> Metrics:
        seen.append(predicted)
        return evaluate(predicted, *arguments, **options)

    monkeypatch.setattr("elias.training.trainer.evaluate", spy)
    for own in range(12):
        trainer.network.classifier_biases.values[:] = -20
        trainer.network.classifier_biases.values[own] = 20  # everybody's best answer, but not its own row's
        trainer._consider(is_mean=False)
        is_own = rows.validation.excluded[:, [own]].toarray().ravel()
        assert ((seen[-1] == own).any(axis=1) == ~is_own).all()


def test_ctrl_c_waits_for_the_end_of_a_step(prepared: tuple[Settings, FeatureSet], tmp_path: Path) -> None:
    settings, rows = prepared
    settings = settings.updated({"stage2.accumulate": 2})
    make = lambda: network_of(settings, rows)  # noqa: E731
    log: list[dict[str, Any]] = []

    def stage(folder: Path, interrupt: bool) -> None:
        folder.mkdir(exist_ok=True)
        before = Trainer._step
        count = iter(range(1000))

        def step(self: Trainer, *arguments: Any) -> float:
            if interrupt and next(count) == 9:
                signal.raise_signal(signal.SIGINT)
            return before(self, *arguments)

        Trainer._step = step  # type: ignore[method-assign]
        try:
            stage = Stage("50-stage2", settings, settings.stage2)
            train_stage(make, rows.train, rows.validation, stage, folder=folder, progress=SILENT, log=log.append)
        finally:
            Trainer._step = before  # type: ignore[method-assign]

    stage(tmp_path / "whole", interrupt=False)
    with pytest.raises(KeyboardInterrupt):
        stage(tmp_path / "cut", interrupt=True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (tmp_path / "cut" / CHECKPOINT).exists()
    stage(tmp_path / "cut", interrupt=False)
    for name in ("classifiers.safetensors", "index.safetensors", "encoder/encoder.safetensors"):
        left, right = (tmp_path / folder / "network" / name for folder in ("cut", "whole"))
        assert left.read_bytes() == right.read_bytes()


@pytest.mark.parametrize("total", [1, 2, 10, 1000])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 1.0])
def test_rates_rise_and_fall(total: int, warmup: float) -> None:
    factors = [rate_factor(step, total, warmup) for step in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    top = int(np.argmax(factors))
    assert (np.diff(factors[: top + 1]) >= 0).all()
    assert (np.diff(factors[top:]) <= 0).all()
    if total == 1000 and warmup == 0.1:
        assert factors[0] == pytest.approx(0.01)
        assert factors[100] == pytest.approx(1.0)
        assert factors[-1] == pytest.approx(1 / 900)


def test_weights_are_averaged_from_the_named_epoch_every_so_many_batches(
    prepared: tuple[Settings, FeatureSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the authors' program: from epoch 8 of 50, every 5 batches."""
    changes = {"stage2.epochs": 50, "stage2.average_from": 0.16, "stage2.average_every": 5, "stage2.evaluate_every": 99}
    trainer = trainer_of(prepared[0].updated(changes), prepared[1])
    moments: list[int] = []
    monkeypatch.setattr(trainer, "_step", lambda *_: torch.zeros(()))
    monkeypatch.setattr(trainer.mean, "add", lambda _: moments.append(trainer.at.epoch * 7 + trainer.at.step))
    trainer.run()
    assert trainer.total_steps == 350
    assert moments == list(range(8 * 7 + 4, 351, 5))  # 56 steps are 8 epochs


def test_the_running_mean_is_the_mean(prepared: tuple[Settings, FeatureSet]) -> None:
    network = network_of(*prepared)
    mean, seen = AveragedWeights(), []
    rng = np.random.default_rng(0)
    for _ in range(5):
        for tensor in weights_of(network).values():
            tensor.copy_(torch.from_numpy(rng.normal(size=tensor.shape).astype(np.float32)))
        mean.add(network)
        seen.append(bits(network))
    edges = network.edges
    assert edges is not None
    before, logits = bits(network), edges.values.clone()
    mean.swap(network)
    for name, tensor in bits(network).items():
        if name != "edges":
            np.testing.assert_allclose(tensor, np.mean([one[name] for one in seen], axis=0), rtol=1e-4, atol=1e-6)
    assert torch.equal(edges.values, logits)
    mean.swap(network)
    assert same(bits(network), before)
    for tensor in weights_of(network).values():
        tensor.zero_()
    assert all(not tensor.any() for tensor in bits(network).values())


def test_the_error_of_a_diverged_loss_on_a_rank_without_rows(prepared: tuple[Settings, FeatureSet]) -> None:
    settings, rows = prepared
    trainer = trainer_of(settings, rows)
    nothing = rows.train.batch(np.empty(0, dtype=np.int64))
    for batch in (nothing, None):
        assert "the loss is not a finite number. The largest row weight is 1 (" in str(trainer._diverged(batch))
