"""A small network trained by any number of ranks. As a script, started by torchrun, it does what its arguments say:

distributed_training.py CASES RESULT        train each case of a JSON file; rank 0 writes what came out
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import helpers.dense_equations as dense
from elias import kernels
from elias.core.distributed import ALONE, Ranks, launched_ranks
from elias.core.settings import Settings
from elias.encoders.bag import BagEncoder
from elias.network.storage import save_network
from elias.training.checkpoint import restore_checkpoint, save_checkpoint
from elias.training.initialization import new_network
from elias.training.trainer import Callbacks, Stage, Trainer, TrainingRows

ROWS, LABELS, WORDS, CLUSTERS, DIM = 400, 103, 300, 8, 16
SETTINGS = {
    "stage2.epochs": 5, "stage2.batch_size": 19, "index.shortlist_size": 30, "index.training_shortlist_size": 30,
    "index.beam_size": 3, "run.threads": 1, "encoder.dim": DIM, "clustering.clusters": CLUSTERS,
    "stage2.classifiers": "centroids",
}  # fmt: skip


class Cut(Exception):
    """Training ends here."""


def new_trainer(ranks: Ranks, changes: dict[str, Any], after_step: Callable[[Trainer], None]) -> Trainer:
    """The same start for any ranks."""
    rng = np.random.default_rng(0)
    labels = sp.random(ROWS, LABELS, 0.03, format="csr", random_state=1, dtype=np.float32)
    labels.data[:] = 1.0
    words = sp.random(ROWS, WORDS, 0.05, format="csr", random_state=2, dtype=np.float32)
    excluded = sp.random(ROWS, LABELS, 0.01, format="csr", random_state=3, dtype=np.float32)
    settings = Settings().updated({**SETTINGS, **changes})
    train = TrainingRows(words, labels, excluded, np.ones(ROWS, np.float32))
    validation = TrainingRows(words[:50], labels[:50], excluded[:50], np.ones(50, np.float32))
    embeddings = torch.from_numpy(rng.normal(size=(WORDS, DIM)).astype(np.float32))
    stage = Stage("50-stage2", settings, settings.stage2)
    index = dense.random_index(rng, CLUSTERS, LABELS, density=0.4, beta=3.0)
    network = new_network(
        BagEncoder(embeddings, radius=3.0, dropout=0.1), index,
        train, rng.integers(0, CLUSTERS, LABELS), stage, device=torch.device("cpu"), ranks=ranks,
    )  # fmt: skip
    callbacks = Callbacks(lambda network: None, after_step)
    return Trainer(network, train, validation, settings.stage2, stage=stage.name, seed=0, callbacks=callbacks)


def train(ranks: Ranks, case: dict[str, Any]) -> dict[str, Any]:
    """`changes` of the settings; `reference` code or kernels; `restore` from, `save` to a checkpoint after `cut` steps;
    `network`: where to save what was trained.

    Returns the sum of the losses after each step, the history, rows of the tables of this rank, and sums of weights.
    """
    losses: list[float] = []

    def after_step(trainer: Trainer) -> None:
        losses.append(trainer.read_loss())
        if len(losses) == case.get("cut") and trainer.between_steps:
            save_checkpoint(trainer, Path(case["save"]))
            raise Cut

    with kernels.reference(case.get("reference", False)):
        trainer = new_trainer(ranks, case.get("changes", {}), after_step)
        if "restore" in case:
            restore_checkpoint(trainer, Path(case["restore"]))
        with suppress(Cut):
            trainer.run()
    if "network" in case:
        save_network(trainer.network, Path(case["network"]))
    tables = trainer.network.tables()
    sums = {name: table.values.double().abs().sum() for name, table in tables.items()}
    for name in ("classifier_weights", "classifier_biases"):
        ranks.sum(sums[name])
    return {
        "losses": losses,
        "history": [
            {name: value for name, value in record.items() if name != "seconds"} for record in trainer.at.history
        ],
        "rows": {name: len(table) for name, table in tables.items()},
        "sums": {name: float(value) for name, value in sums.items()},
    }


def main() -> None:
    torch.set_num_threads(1)
    cases = json.loads(Path(sys.argv[1]).read_text())
    with launched_ranks() as ranks:
        found = [train(ranks, case) for case in cases]
        if ranks.is_first:
            Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

__all__ = ["ALONE", "LABELS", "train"]
