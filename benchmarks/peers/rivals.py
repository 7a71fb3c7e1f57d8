"""One rival on one dataset: its settings chosen on validation rows, then trained on all rows and measured.

    WORK/NAME-KEY/
        choice.json           nDCG@5 on the validation rows of every variant; which one is the best
        variant-I/            predictions for the validation rows
        final-THREADS/        model, predictions for the test rows, times and memory

KEY is a hash of the data, the variants and the versions: what is there is used again. The choice does not depend on
the number of threads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elias.core.files import write_json
from elias.dataset import Dataset
from peers.catalogue import PEERS, Peer
from peers.comparison import score_rows, value
from peers.environment import ROOT, Environment
from peers.in_turn import folders_of
from peers.shared_data import Given, choice_rows, final_rows, inputs_key, key_of, shared_data

CHOSEN_BY = "nDCG@5"
OF_SEARCH = ("beam_size", "neighbors", "power")  # settings that training does not see: such variants share a model


class LeftOut(Exception):
    """Why a rival has no answers for this dataset."""


@dataclass(frozen=True)
class Race:
    """What the rivals of one dataset share."""

    data: Dataset
    work: Path
    environment: Path
    threads: int
    label_texts: bool = True

    @cached_property
    def choice(self) -> Given:
        return choice_rows(self.data)

    @cached_property
    def inputs_key(self) -> str:
        return inputs_key(self.data, label_texts=self.label_texts)

    def inputs(self, part: str) -> Path:
        rows = self.choice if part == "choice" else final_rows(self.data)
        return shared_data(self.data, rows, self.work, label_texts=self.label_texts)


@dataclass(frozen=True)
class Measured:
    """Where the answers of a rival are, and how it came to its settings."""

    name: str
    folder: Path  # predictions.npz, train.json, predict.json
    key: str
    settings: dict[str, Any]
    tried: list[dict[str, Any]]  # every variant with CHOSEN_BY on the validation rows; empty where there is one only
    versions: dict[str, str]

    @property
    def model(self) -> Path:
        return self.folder / "model"


def key_of_rival(name: str, race: Race) -> tuple[str, dict[str, str]]:
    """(key, versions of its packages); LeftOut where it cannot be installed or the data is too large for it."""
    peer, data = PEERS[name], race.data
    labels = int(np.count_nonzero(data.training_counts()[0]))
    refusal = peer.refusal(len(data.train), labels)
    if refusal is not None:
        raise LeftOut(refusal)
    versions: dict[str, str] = {}
    if peer.package:
        environment = Environment(race.environment)
        reason = environment.require(peer)
        if reason is not None:
            raise LeftOut(reason)
        versions = environment.versions_of(peer)
    base = key_of_rival(peer.base, race)[0] if peer.base else ""
    return key_of(race.inputs_key, peer.adapter, peer.variants, peer.version, versions, base), versions


def measure(name: str, race: Race) -> Measured:
    """Choose, train, predict; whatever is there already is not done again."""
    peer, (key, versions) = PEERS[name], key_of_rival(name, race)
    folder = race.work / f"{name}-{key}"
    final = folder / f"final-{race.threads}"
    if peer.base:
        _rescore(measure(peer.base, race), final, race)
        return Measured(name, final, key, {}, [], versions)
    tried = _choose(peer, folder, race)
    best = max(range(len(peer.variants)), key=lambda i: tried[i][CHOSEN_BY])
    settings = peer.variants[best]
    write_json(folder / "choice.json", {"tried": tried, "best": best})
    _run(peer, "final", settings, final / "model", final, race)
    return Measured(name, final, key, settings, tried, versions)


def chosen_variant(measured: Measured) -> Path:
    """The folder with the chosen variant's answers for the validation rows."""
    folder = measured.folder.parent
    return folder / f"variant-{json.loads((folder / 'choice.json').read_text())['best']}"


def _choose(peer: Peer, folder: Path, race: Race) -> list[dict[str, Any]]:
    if (folder / "choice.json").exists():
        found: list[dict[str, Any]] = json.loads((folder / "choice.json").read_text())["tried"]
        return found
    needed = any(other.base and PEERS[other.base] == peer for other in PEERS.values())
    if len(peer.variants) == 1 and not needed:
        return [{"settings": peer.variants[0], CHOSEN_BY: 0.0}]
    rows, tried, models = race.choice.test, [], set()
    for number, settings in enumerate(peer.variants):
        of_training = {name: value for name, value in settings.items() if name not in OF_SEARCH}
        model, output = folder / f"model-{key_of(of_training)}", folder / f"variant-{number}"
        models.add(model)
        _run(peer, "choice", settings, model, output, race)
        scored = score_rows(np.load(output / "predictions.npz")["labels"], race.data, rows)
        tried.append({"settings": settings, CHOSEN_BY: value(scored, CHOSEN_BY)})
    for model in models:
        shutil.rmtree(model, ignore_errors=True)
    return tried


def _run(peer: Peer, part: str, settings: dict[str, Any], model: Path, output: Path, race: Race) -> None:
    """Train unless the model is there, then predict unless the predictions are there."""
    if (output / "predict.json").exists():
        return
    data = race.inputs(part)
    trained = model.with_name(model.name + ".json")  # a model is whole once its figures are written
    for step in ("train", "predict"):
        if step == "train" and trained.exists():
            shutil.copyfile(trained, output_file(output, "train.json"))
            continue
        if step == "train":
            shutil.rmtree(model, ignore_errors=True)  # of a training that was cut
        print(f"{race.data.name}: {peer.title} {settings or ''}: {step}", file=sys.stderr, flush=True)
        given = {**settings, "threads": race.threads, "timed": part == "final"}
        arguments = [step, str(data), str(model), str(output), json.dumps(given)]
        log = output_file(output, f"{step}.log")
        python = race.environment / "bin" / "python" if peer.package else Path(sys.executable)
        problem = run([str(python), "-m", f"peers.{peer.adapter}", *arguments], log, race.threads)
        if problem:
            raise LeftOut(f"{step} failed: {problem}; see {log}")
        if step == "train":
            figures = json.loads((output / "train.json").read_text())
            seconds = json.loads((data / "data.json").read_text())["seconds"]
            figures["train_seconds"] += seconds  # tf-idf counts as training, as it does in ours
            write_json(output / "train.json", figures)
            shutil.copyfile(output / "train.json", trained)


def output_file(output: Path, name: str) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    return output / name


def _rescore(base: Measured, output: Path, race: Race) -> None:
    if (output / "predict.json").exists():
        return
    specification = output_file(output, "specification.json")
    folders = {
        "choice_data": race.inputs("choice"), "choice": chosen_variant(base), "final_data": race.inputs("final"),
        "final": base.folder, "output": output,
    }  # fmt: skip
    write_json(specification, {**{name: str(path) for name, path in folders.items()}, "threads": race.threads})
    (output / "model").mkdir(exist_ok=True)
    print(f"{race.data.name}: score model on the candidates of {base.name}", file=sys.stderr, flush=True)
    log = output / "train.log"
    problem = run([sys.executable, "-m", "peers.rescored", str(specification)], log, race.threads)
    if problem:
        raise LeftOut(f"failed: {problem}; see {log}")


def run(command: list[str], log: Path, threads: int) -> str | None:
    """Run a step with its output in a log; the last line of it if it fails."""
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **limits, "PYTHONPATH": folders_of(ROOT)}
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return None if done.returncode == 0 else (said or [f"exit code {done.returncode}"])[-1]


def figures_of(output: Path) -> dict[str, float]:
    """Times, memory and size of one system."""
    found: dict[str, float] = {}
    for name in ("train.json", "predict.json"):
        if (output / name).exists():
            found |= json.loads((output / name).read_text())
    return found
