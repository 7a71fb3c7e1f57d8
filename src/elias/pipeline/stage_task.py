"""A stage of training as every rank runs it: which folders it starts from, which rows it learns, where it works.

Rank 0 runs the steps of a fit. When it comes to a stage, it writes the training rows to the run folder and sends the
task to the other ranks, as JSON; these open the folders themselves (all machines see the run folder under one path),
train their part and wait for the next task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import kernels
from ..core.devices import pick_device, pick_threads
from ..core.distributed import Ranks
from ..core.errors import RunError, SettingsError
from ..core.progress import SILENT, Progress
from ..core.settings import ONE_VERSUS_ALL, Settings, StageSettings, known
from ..encoders import load_encoder
from ..index.clustering import read_clusters
from ..index.label_index import LabelIndex
from ..network.network import Network
from ..network.storage import load_index, load_network
from ..training.initialization import new_network
from ..training.stage import train_stage
from ..training.stored_rows import open_rows
from ..training.trainer import Stage, TrainingRows

TRAIN, VALIDATION = "train", "validation"  # folders of the rows
DONE, FAILED = "", "failed"  # in the place of a task: there is none left; rank 0 ended with an error


class StageStart(NamedTuple):
    """The folders that a stage starts from; PREVIOUS and EDGES of a stage that learns the index."""

    clusters: Path
    encoder: Path | None = None
    previous: Path | None = None
    edges: Path | None = None


class StageTask(NamedTuple):
    """One stage, in the folder of its step."""

    stage: Stage
    start: StageStart
    folder: Path

    def text(self, rows: Path) -> str:
        """As `of_text` reads it; `rows`: the folder of the training rows."""
        folders = {**self.start._asdict(), "rows": rows, "folder": self.folder}
        content = {
            "name": self.stage.name,
            "settings": self.stage.settings.as_dict(),
            "own": vars(self.stage.own),
            "folders": {name: str(path.absolute()) for name, path in folders.items() if path is not None},
        }
        return json.dumps(content)

    @classmethod
    def of_text(cls, text: str) -> tuple[StageTask, Path]:
        """A task, and the folder of the training rows."""
        content: dict[str, Any] = json.loads(text)
        folders = {name: Path(path) for name, path in content["folders"].items()}
        rows, folder = folders.pop("rows"), folders.pop("folder")
        stage = Stage(content["name"], Settings.from_dict(content["settings"]), StageSettings(**content["own"]))
        return cls(stage, StageStart(**folders), folder), rows


class Report(NamedTuple):
    """Where a stage reports to."""

    progress: Progress
    log: Callable[[Mapping[str, Any]], None]


class Place(NamedTuple):
    """Where a stage is trained."""

    device: torch.device
    ranks: Ranks


def run_task(task: StageTask, train: TrainingRows, validation: TrainingRows, place: Place, report: Report) -> None:
    """Train the stage; every rank calls this. Ranks on one machine share its threads."""
    settings, ranks = task.stage.settings, place.ranks
    threads = max(1, known(settings.run.threads) // ranks.local_size)
    stage = replace(task.stage, settings=settings.updated({"run.threads": threads}))
    with ranks.stage():
        train_stage(
            lambda: _network(task.start, train, stage, place), train, validation, stage,
            folder=task.folder, progress=report.progress, log=report.log,
        )  # fmt: skip


def _network(start: StageStart, train: TrainingRows, stage: Stage, place: Place) -> Network:
    device, ranks = place
    cluster_of_label, threads = read_clusters(start.clusters), known(stage.settings.run.threads)
    if start.previous is None or start.edges is None:
        assert start.encoder is not None
        encoder, previous = load_encoder(start.encoder, threads=threads), None
        encoder.to(device)
        index = LabelIndex.from_clusters(cluster_of_label, known(stage.settings.clustering.clusters))
    else:
        previous = load_network(start.previous / "network", device=device, threads=threads)
        encoder, index = previous.encoder, load_index(start.edges / "index.safetensors")
    return new_network(
        encoder, index, train, cluster_of_label, stage, device=device, previous=previous, ranks=ranks
    )  # fmt: skip


# -- tasks between ranks ----------------------------------------------------------------------------------------------


def check_ranks(settings: Settings, ranks: Ranks) -> None:
    """Refuse what one process alone can train."""
    if ranks.size > 1 and settings.network.kind == ONE_VERSUS_ALL:
        raise SettingsError(
            f"network.kind={ONE_VERSUS_ALL} with {ranks.size} processes: it trains in one; start it without torchrun"
        )


def run_tasks(ranks: Ranks) -> None:
    """What every rank but the first does during a fit: the stages, until there is none left."""
    kernels.discard_stale()  # on other machines there are other caches
    while (text := ranks.text()) != DONE:
        if text == FAILED:
            raise RunError(f"rank {ranks.rank}: stopped, because rank 0 has ended with an error, which it shows")
        task, rows = StageTask.of_text(text)
        settings = task.stage.settings
        pick_threads(settings.run.threads)
        with kernels.reference(not settings.run.kernels):
            parts = open_rows(rows / TRAIN), open_rows(rows / VALIDATION)
            place, report = Place(pick_device(settings.run.device), ranks), Report(SILENT, lambda record: None)
            run_task(task, *parts, place, report)


@contextmanager
def leading(ranks: Ranks) -> Iterator[None]:
    """Around the fit of rank 0: when it ends, the other ranks do too, with an error if it does.

    After an error in a stage they do not wait for a task, but for rank 0 in that stage: they notice that it is gone.
    """
    last = FAILED
    try:
        yield
        last = DONE
    finally:
        if not ranks.in_stage:
            with suppress(RunError):  # another rank may be gone, and the first error is the one to show
                ranks.text(last)
