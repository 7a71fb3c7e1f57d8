"""One stage of training as a step of a run: it can be killed at any time and leaves the best weights on disk.

Stage 1 and stage 2 differ only in the network they start from. In: a network, training and validation rows. Out, in
the folder of the step: `network/`, the best weights, and `stage.json`, their metrics and the history of the epochs.
While a stage lasts, its state is in the folder `checkpoint`. Several ranks call this together; rank 0 alone writes the
network and reports.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.devices import tensor_cores, torch_threads
from ..core.files import restore_replaced, write_json
from ..core.progress import Progress
from ..core.settings import StageSettings, known, noise_seed
from ..network.network import Network
from ..network.storage import save_network
from .checkpoint import restore_checkpoint, save_checkpoint
from .trainer import CHOICE, Callbacks, Stage, Trainer, TrainingPosition, TrainingRows

CHECKPOINT = "checkpoint"  # a folder
WRITE_SHARE = 0.1  # at most this share of the time goes into writing checkpoints


def train_stage(
    make_network: Callable[[], Network],
    train: TrainingRows,
    validation: TrainingRows,
    stage: Stage,
    *,
    folder: Path,
    progress: Progress,
    log: Callable[[dict[str, Any]], None],
) -> None:
    """Train in `folder`, from its checkpoint if there is one; the caller removes that when the step is done."""
    path, settings = folder / CHECKPOINT, stage.settings
    threads = known(settings.run.threads) if settings.encoder.is_fine_tuned else 1
    with torch_threads(threads):  # centroids encode every text
        network = make_network()
    live = _Live(stage.name, stage.own, progress)
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
            network, train, validation, stage.own, stage=stage.name, seed=noise_seed(settings),
            callbacks=Callbacks(lambda network: save_network(network, folder / "network"), after_step, after_epoch),
        )  # fmt: skip
        if network.ranks.is_first:
            restore_replaced(path)
        # Rank 0 decides: what another machine sees of a shared folder can be some seconds old.
        ((found, *_), *_) = network.ranks.numbers(int(path.exists()))
        if found:
            restore_checkpoint(trainer, path)
            progress.say(f"  {stage.name}: continuing at epoch {trainer.at.epoch + 1}, step {trainer.at.step + 1}")
        with torch_threads(threads), tensor_cores(network.device):
            trainer.run()
    if network.ranks.is_first:
        write_json(folder / "stage.json", {"best": best_of(stage.name, trainer.at), "history": trainer.at.history})


def best_of(name: str, at: TrainingPosition) -> dict[str, Any]:
    """Which weights were kept, and what they reached on the validation rows; empty without such rows."""
    for record in at.history:
        if record["epoch"] == at.best_epoch:
            reached = record["validation_mean" if at.best_is_mean else "validation"]
            return {**reached, "stage": name, "epoch": at.best_epoch, "averaged": at.best_is_mean}
    return {}


class _Interruption:
    """Delays Ctrl-C to the end of the step, so that a whole checkpoint is left. A second one interrupts at once."""

    def __enter__(self) -> _Interruption:
        self.requested = False
        # Signals can be handled in the main thread only, and another handler of the program keeps its place.
        in_main = threading.current_thread() is threading.main_thread()
        self.watching = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.watching:
            signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        if self.watching:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _Saver:
    """Writes a checkpoint every `interval` seconds (0: after every step), less often when writing is slow."""

    def __init__(self, path: Path, interval: float, interruption: _Interruption) -> None:
        self.path, self.interval, self.interruption, self.last = path, interval, interruption, time.monotonic()

    def step(self, trainer: Trainer) -> None:
        if trainer.between_steps:
            self._save_if(trainer, time.monotonic() - self.last >= self.interval)

    def epoch(self, trainer: Trainer) -> None:
        if trainer.between_steps:
            self._save_if(trainer, False)

    def _save_if(self, trainer: Trainer, due: bool) -> None:
        """Where a checkpoint is due, by the clock of rank 0, or some rank was interrupted."""
        ranks = trainer.network.ranks
        flags = ranks.numbers(int(due and ranks.is_first), int(self.interruption.requested))
        # `requested` stays as it is: Ctrl-C may have come since the ranks told each other, and counts in the next step.
        interrupted = any(one for _, one in flags)
        if not any(map(any, flags)):
            return
        started = time.monotonic()
        save_checkpoint(trainer, self.path)
        self.last = time.monotonic()
        if self.interval:
            self.interval = max(self.interval, (self.last - started) / WRITE_SHARE)
        if interrupted:
            raise KeyboardInterrupt


class _Live:
    """Keeps the progress line up to date: loss, last validation, time left."""

    def __init__(self, name: str, stage: StageSettings, progress: Progress) -> None:
        self.name, self.epochs, self.progress, self.checked = name, known(stage.epochs), progress, ""

    def step(self, trainer: Trainer) -> None:
        at = trainer.at
        done = at.epoch * trainer.steps_per_epoch + at.step

        def info() -> str:
            loss = trainer.read_loss() / max(1, at.step)
            return f"epoch {at.epoch + 1}/{self.epochs}  loss {loss:.4f}  {self.checked}"

        self.progress.update(self.name, done, trainer.total_steps, at.seconds, info)

    def epoch(self, record: dict[str, Any]) -> None:
        scores = [record[kind][CHOICE] for kind in ("validation", "validation_mean") if kind in record]
        if scores:
            self.checked = f"{CHOICE} {max(scores):.2f}"
