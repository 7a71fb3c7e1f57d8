"""A stage among several ranks: who decides where it begins, and when it stops."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elias.core.distributed import Ranks
from elias.core.progress import SILENT
from elias.core.settings import Settings
from elias.training import stage as module
from elias.training.stage import CHECKPOINT, _Interruption, _Saver, train_stage
from elias.training.trainer import Stage


class Second(Ranks):
    """Rank 1 of two, who is told what rank 0 says."""

    def __init__(self, of_first: tuple[int, ...], meanwhile: Any = lambda: None) -> None:
        super().__init__(rank=1, size=2)
        self.of_first, self.meanwhile = of_first, meanwhile

    def numbers(self, *mine: int) -> list[tuple[int, ...]]:
        self.meanwhile()
        return [self.of_first, mine]


@pytest.mark.parametrize("there", [0, 1])
def test_rank_0_decides_whether_there_is_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    """What this rank sees is the opposite: a folder on a network that is some seconds old."""
    restored = []
    at = SimpleNamespace(epoch=0, step=0)
    monkeypatch.setattr(module, "Trainer", lambda *a, **k: SimpleNamespace(run=lambda: None, at=at))
    monkeypatch.setattr(module, "restore_checkpoint", lambda trainer, path: restored.append(path))
    monkeypatch.setattr(module, "tensor_cores", lambda device: nullcontext())
    if not there:
        (tmp_path / CHECKPOINT).mkdir()
    settings = Settings().updated({"run.threads": 1, "stage2.epochs": 1})
    network: Any = SimpleNamespace(ranks=Second((there,)), device=None)
    rows: Any = None
    train_stage(
        lambda: network, rows, rows, Stage("50-stage2", settings, settings.stage2),
        folder=tmp_path, progress=SILENT, log=lambda record: None,
    )  # fmt: skip
    assert len(restored) == there


def test_ctrl_c_while_ranks_tell_each_other_counts_in_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    monkeypatch.setattr(module, "save_checkpoint", lambda trainer, path: saved.append(path))
    with _Interruption() as interruption:
        saver = _Saver(tmp_path, 1e9, interruption)
        ranks = Second((0, 0), lambda: signal.raise_signal(signal.SIGINT))
        trainer: Any = SimpleNamespace(network=SimpleNamespace(ranks=ranks), between_steps=True)
        saver.step(trainer)
        assert not saved, "the other ranks do not know of it"
        ranks.meanwhile = lambda: None
        with pytest.raises(KeyboardInterrupt):
            saver.step(trainer)
        assert len(saved) == 1
