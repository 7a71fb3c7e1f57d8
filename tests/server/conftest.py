"""Fixtures of the tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elias.model.model import Model
from helpers.serving import SMALL_LIMITS, Running, running


@pytest.fixture(scope="module")
def narrow(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    """A service that allows very little."""
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=SMALL_LIMITS) as found:
        yield found
