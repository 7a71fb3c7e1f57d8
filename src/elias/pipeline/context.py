"""What every step of a fit works with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..core.distributed import ALONE, Ranks
from ..core.progress import Progress
from ..core.settings import Settings, known
from ..dataset import Dataset
from .run_folder import Run
from .tokens_step import RunTokens


@dataclass(frozen=True)
class FitContext:
    """The data, the resolved settings and where a run keeps its steps."""

    data: Dataset
    settings: Settings
    run: Run
    progress: Progress
    device: torch.device
    tokens: RunTokens | None = None  # of step 05, shared by all folds; None: the data are vectors
    ranks: Ranks = ALONE  # that train the network together
    whole: Path | None = None  # of a fold: step 10 of the run around it, whose vocabulary and encoder it takes over

    @property
    def threads(self) -> int:
        return known(self.settings.run.threads)

    def of_fold(self, settings: Settings, run: Run, whole: Path) -> FitContext:
        """The same for a run inside this one, with settings of its own. `whole`: step 10 of this one."""
        return replace(self, settings=settings, run=run, whole=whole)
