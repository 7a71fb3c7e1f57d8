"""One stage of training, from its start to the best weights on disk.

Stage 1 and stage 2 differ only in what they are given: an index, and the weights to start from.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core.devices import torch_threads
from ..core.embedding_table import EmbeddingTable
from ..core.files import write_json
from ..core.progress import Progress
from ..core.rng import generator
from ..core.rounding import as_tensor
from ..core.settings import ONE_VERSUS_ALL, Settings, StageSettings, known, noise_seed
from ..encoders import Encoder
from ..index.label_index import LabelIndex
from ..network.network import Network, SearchSettings
from ..network.one_versus_all import OneVersusAll
from ..network.quantization import QuantizedRows
from ..network.storage import save_network
from .checkpoint import restore_checkpoint, save_checkpoint
from .initialization import (
    cluster_sums,
    label_sums,
    random_classifiers,
    scale_rows,
    unit_rows,
)
from .trainer import CHOICE, Trainer, TrainingPosition, TrainingRows

CHECKPOINT = "checkpoint.safetensors"
WRITE_SHARE = 0.1  # at most this share of the time goes into writing checkpoints


def new_network(
    encoder: Encoder,
    index: LabelIndex,
    train: TrainingRows,
    cluster_of_label: np.ndarray,
    settings: Settings,
    stage: StageSettings,
    *,
    name: str,
    device: torch.device,
    previous: Network | None = None,
) -> Network:
    """A network at the start of a stage: W_C from `previous` or from centroids, W_L as the setting says."""
    threads = known(settings.run.threads)
    rng = generator(noise_seed(settings), name, "classifiers")
    sums_LD = label_sums(encoder, train.prepared, train.labels)
    radius = settings.encoder.radius
    if previous is not None:
        clusters = previous.clusters
    else:
        clusters = _clusters(cluster_sums(sums_LD, cluster_of_label, index.n_clusters), stage.gain / radius)
    is_carried = previous is not None and stage.classifiers == "carried"
    if previous is not None and is_carried:
        carried = previous.classifier_weights
        weights = as_tensor(carried.rows) if isinstance(carried, QuantizedRows) else carried.values
        biases = previous.classifier_biases.values
    elif stage.classifiers == "random":
        weights, biases = map(torch.from_numpy, random_classifiers(index.n_labels, sums_LD.shape[1], rng))
        biases = biases[:, None]
    else:
        weights = torch.from_numpy(scale_rows(sums_LD, stage.gain / radius))
        biases = torch.full((index.n_labels, 1), -stage.gain / 2)
    kind = OneVersusAll if settings.model.kind == ONE_VERSUS_ALL else Network
    return kind(
        encoder,
        clusters.to(device),
        index,
        EmbeddingTable(weights.to(device, _dtype(settings), copy=is_carried), threads=threads),
        EmbeddingTable(biases.clone().to(device), threads=threads),
        SearchSettings(
            alpha=settings.index.alpha,
            beam_size=settings.index.beam_size,
            shortlist_size=known(settings.index.shortlist_size),
            training_shortlist_size=settings.index.training_shortlist_size,
            parent_slots=settings.index.parent_slots,
            random_clusters=settings.index.random_clusters,
        ),
        threads=threads,
    )


def _dtype(settings: Settings) -> torch.dtype:
    return torch.bfloat16 if settings.model.precision == "bfloat16" else torch.float32


def _clusters(sums_CD: np.ndarray, length: float) -> nn.Linear:
    """W_C from the sums of its labels."""
    clusters = nn.Linear(sums_CD.shape[1], len(sums_CD))
    clusters.weight.data = torch.from_numpy(unit_rows(sums_CD) * np.float32(length))
    nn.init.zeros_(clusters.bias)
    return clusters


def train_stage(
    make_network: Callable[[], Network],
    train: TrainingRows,
    validation: TrainingRows,
    settings: Settings,
    stage: StageSettings,
    *,
    name: str,
    folder: Path,
    progress: Progress,
    log: Callable[[dict[str, Any]], None],
) -> None:
    """Train in `folder` and leave there `network`, the best weights, and `stage.json`, how good they are.

    While it lasts, the state is in checkpoint.safetensors; the caller removes that when the step is done.
    """
    network, path = make_network(), folder / CHECKPOINT
    live = _Live(name, stage, progress)
    with _Interruption() as interruption:
        saver = _Saver(path, settings.run.checkpoint_seconds, interruption)

        def after_step(trainer: Trainer) -> None:
            live.step(trainer)
            saver.step(trainer)

        def after_epoch(record: dict[str, Any]) -> None:
            live.epoch(record)
            log(record)
            saver.epoch(trainer)

        trainer = Trainer(
            network, train, validation, stage, stage=name, seed=noise_seed(settings),
            keep_best=lambda network: save_network(network, folder / "network"),
            after_step=after_step, after_epoch=after_epoch,
        )  # fmt: skip
        if path.exists():
            restore_checkpoint(trainer, path)
            progress.say(f"  {name}: going on at epoch {trainer.at.epoch + 1}, step {trainer.at.step + 1}")
        fine_tuned = settings.encoder.kind == "transformer" and not settings.encoder.frozen
        with torch_threads(known(settings.run.threads) if fine_tuned else 1):
            trainer.run()
    write_json(folder / "stage.json", {"best": best_of(name, trainer.at), "history": trainer.at.history})


def best_of(name: str, at: TrainingPosition) -> dict[str, Any]:
    """Which weights were kept, and what they reached on the validation rows; empty without such rows."""
    for record in at.history:
        if record["epoch"] == at.best_epoch:
            reached = record["validation_mean" if at.best_is_mean else "validation"]
            return {**reached, "stage": name, "epoch": at.best_epoch, "averaged": at.best_is_mean}
    return {}


class _Interruption:
    """Ctrl-C waits for the end of the step, so that the checkpoint it leaves is whole. A second one does not wait."""

    def __enter__(self) -> _Interruption:
        self.asked = False
        # In another thread, or where somebody else handles Ctrl-C, nothing is changed.
        in_main = threading.current_thread() is threading.main_thread()
        self.watching = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.watching:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self.watching:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _Saver:
    """Writes a checkpoint every so many seconds (0: after every step), less often when writing is slow."""

    def __init__(self, path: Path, interval: float, interruption: _Interruption) -> None:
        self.path, self.interval, self.interruption, self.last = path, interval, interruption, time.monotonic()

    def step(self, trainer: Trainer) -> None:
        due = time.monotonic() - self.last >= self.interval
        if trainer.between_steps and (due or self.interruption.asked):
            self._save(trainer)

    def epoch(self, trainer: Trainer) -> None:
        if self.interruption.asked and trainer.between_steps:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        started = time.monotonic()
        save_checkpoint(trainer, self.path)
        self.last = time.monotonic()
        if self.interval:
            self.interval = max(self.interval, (self.last - started) / WRITE_SHARE)
        if self.interruption.asked:
            raise KeyboardInterrupt


class _Live:
    """Feeds the live line: loss, last validation, time left."""

    def __init__(self, name: str, stage: StageSettings, progress: Progress) -> None:
        self.name, self.epochs, self.progress, self.checked = name, known(stage.epochs), progress, ""

    def step(self, trainer: Trainer) -> None:
        at = trainer.at
        done = at.epoch * trainer.steps_per_epoch + at.step
        info = f"epoch {at.epoch + 1}/{self.epochs}  loss {at.loss_sum / max(1, at.step):.4f}  {self.checked}"
        self.progress.update(self.name, done, trainer.total_steps, at.seconds, info)

    def epoch(self, record: dict[str, Any]) -> None:
        scores = [record[kind][CHOICE] for kind in ("validation", "validation_mean") if kind in record]
        if scores:
            self.checked = f"{CHOICE} {max(scores):.2f}"
