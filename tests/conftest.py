"""What every test shares: two threads, hypothesis without deadlines, and one small dataset that can be learned."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from helpers.processes import SMALL, STACKED
from helpers.tiny_dataset import fit_tiny, write_tiny_dataset

if TYPE_CHECKING:
    from elias import Dataset, Ensemble, Model
    from helpers.serving import Running

# Before numpy, torch or numba are imported: they read these once.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "2")

# The first call of a kernel compiles it, which no per-example deadline survives.
settings.register_profile("elias", deadline=None, derandomize=True)  # the same examples on every machine
settings.load_profile("elias")

# A shell starts background jobs with Ctrl-C ignored, and so would be the tests of Ctrl-C and the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_kernels_of_old() -> None:
    from elias import kernels

    kernels.discard_stale()


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small dataset that can be learned; shared by all tests, so read only."""
    return write_tiny_dataset(tmp_path_factory.mktemp("tiny-dataset"))


@pytest.fixture(scope="session")
def tiny_model_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the small dataset, both stages, saved; with its run folder beside it. Read only."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("tiny-model") / "model", SMALL)


@pytest.fixture(scope="session")
def tiny_model(tiny_model_folder: Path) -> Model:
    """The same model, loaded."""
    from elias.model.storage import load_model

    return load_model(tiny_model_folder, threads=2)


@pytest.fixture(scope="session")
def stacked_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the stacked ranker, its score learned on held-out rows."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("stacked-model") / "model", STACKED)


@pytest.fixture(scope="session")
def stacked_model(stacked_folder: Path) -> Model:
    from elias.model.storage import load_model

    return load_model(stacked_folder, threads=2)


@pytest.fixture(scope="session")
def ensemble_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two members of it."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("ensemble") / "both", STACKED, members=2)


@pytest.fixture(scope="session")
def ensemble(ensemble_folder: Path) -> Ensemble:
    from elias import Ensemble, load

    loaded = load(ensemble_folder, threads=2)
    assert isinstance(loaded, Ensemble)
    return loaded


@pytest.fixture(scope="session")
def service(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    """The small model as a service with two names; shared, so leave it as it is."""
    from helpers.serving import running

    folders = {"tiny": tiny_model_folder, "again": tiny_model_folder}
    with running(folders, lambda folder: tiny_model) as found:
        yield found


@pytest.fixture(scope="session")
def data(tiny_dataset: Path) -> Dataset:
    """The small dataset, read."""
    import elias

    return elias.load_dataset(tiny_dataset)


@pytest.fixture(scope="session")
def texts(data: Dataset) -> list[str]:
    """Its test texts."""
    assert data.test is not None
    assert data.test.texts is not None
    return list(data.test.texts)
