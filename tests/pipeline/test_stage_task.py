"""How the other ranks learn that the fit of rank 0 has ended."""

from __future__ import annotations

from contextlib import suppress

import pytest

from elias import kernels
from elias.core.distributed import Ranks
from elias.core.errors import DataError, RunError
from elias.pipeline.stage_task import DONE, FAILED, leading, run_tasks


class Told(Ranks):
    """A rank of two whose texts are kept in a list, by rank 0, and read from there, by the other."""

    def __init__(self, rank: int, texts: list[str]) -> None:
        super().__init__(rank=rank, size=2)
        self.texts = texts

    def text(self, text: str = "") -> str:
        if self.is_first:
            self.texts.append(text)
            return text
        return self.texts.pop(0)


@pytest.mark.parametrize("error", [None, DataError("train.csv: has no rows"), KeyboardInterrupt()])
def test_an_error_of_rank_0_outside_a_stage_is_one_of_the_others_too(error: BaseException | None) -> None:
    texts: list[str] = []
    with suppress(DataError, KeyboardInterrupt), leading(Told(0, texts)):
        if error is not None:
            raise error
    assert texts == [DONE if error is None else FAILED]
    if error is None:
        run_tasks(Told(1, texts))
        return
    with pytest.raises(RunError, match="rank 1: stopped, because rank 0 has ended with an error"):
        run_tasks(Told(1, texts))


def test_other_ranks_discard_stale_kernels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be on other machines, where nobody else does."""
    calls = []
    monkeypatch.setattr(kernels, "discard_stale", lambda: calls.append(1))
    run_tasks(Told(1, [DONE]))
    assert len(calls) == 1
