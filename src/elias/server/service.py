"""What the routes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.errors import EliasError
from .batching import Batcher
from .limits import Limits
from .metrics import Metrics
from .models import Registry


@dataclass(frozen=True)
class Service:
    registry: Registry
    limits: Limits
    metrics: Metrics
    batcher: Batcher
    has_token: bool
    on_failure: Callable[[EliasError], None]  # told when the models cannot be opened
