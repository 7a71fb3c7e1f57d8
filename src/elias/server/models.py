"""The models being served: opened in the background, warmed up, replaced while requests continue.

A `Served` never changes. A reload puts a new one in its place; requests admitted before the reload keep the old one
until they are answered, and then its memory is freed. `ServedModel` lists everything that the service needs of a model.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..core.errors import EliasError, InputError, ModelError, did_you_mean
from .admission import not_ready, reload_failed
from .errors import ServiceError, shorten
from .metrics import Metrics

if TYPE_CHECKING:
    from ..core.predictions import Predictions
    from ..dataset.labels import LabelSet
    from ..encoders.encoder import Inputs
    from ..network.network import Network
    from ..network.searcher import Searcher

log = logging.getLogger("elias.server")


class ServedModel(Protocol):
    """What the service needs of a model; `Model` and `Ensemble` have it.

    The last group serves the inspect routes. A model without a `network` can be served without them.
    """

    @property
    def labels(self) -> LabelSet: ...
    @property
    def label_counts(self) -> np.ndarray: ...
    @property
    def n_train(self) -> int: ...
    @property
    def about(self) -> dict[str, Any]: ...
    @property
    def gives_probabilities(self) -> bool: ...
    def predict(
        self,
        inputs: Any,
        k: int = 5,
        *,
        ids: Sequence[str] | None = None,
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        threshold: float | None = None,
        rare: float = 0.0,
        explain: bool = False,
    ) -> Predictions: ...

    @property
    def network(self) -> Network: ...
    @property
    def searcher(self) -> Searcher: ...
    def read(self, inputs: Any) -> Inputs: ...
    @property
    def stage1_clusters(self) -> np.ndarray: ...
    @property
    def cluster_words(self) -> list[list[str]]: ...


Opener = Callable[[Path], ServedModel]


@dataclass(frozen=True, eq=False)
class Served:
    """An open model under the name that requests use."""

    name: str
    model: ServedModel
    parts: tuple[str, ...]  # names of the parts of an explained score
    about: Mapping[str, Any]
    loaded: datetime

    @property
    def can_inspect(self) -> bool:
        return hasattr(self.model, "network")

    def facts(self, *, default: bool) -> dict[str, Any]:
        """What GET /v1/models lists."""
        index = self.model.network.index if self.can_inspect else None
        return {
            "name": self.name,
            "default": default,
            "labels": len(self.model.labels),
            "clusters": None if index is None else index.n_clusters,
            "edges": None if index is None else index.n_edges,
            "training_rows": self.model.n_train,
            "data": str(self.about.get("dataset", {}).get("name", "unknown data")),
            "parts": list(self.parts),
            "threshold": self.model.gives_probabilities,
            "explore": self.can_inspect,
            "loaded": self.loaded.isoformat(timespec="seconds"),
        }


class Registry:
    """Names and folders, and the models behind them once they are open. The first name is the default."""

    def __init__(self, folders: Mapping[str, Path], opener: Opener) -> None:
        assert folders
        self.folders, self._open = dict(folders), opener
        self.served: dict[str, Served] = {}
        self.is_held = False  # not ready before the other workers are (workers.py)
        self._opening = Lock()  # two reloads at once would need memory for three copies of a model

    @property
    def ready(self) -> bool:
        return len(self.served) == len(self.folders) and not self.is_held

    @property
    def default(self) -> str:
        return next(iter(self.folders))

    def get(self, name: str | None) -> Served:
        """The model of a request: 404 for an unknown name, 503 while it is being opened."""
        if name is not None and name not in self.folders:
            message = f'there is no model "{shorten(name)}"{did_you_mean(name[:100], self.folders)}'
            raise ServiceError(404, message, field="model")
        served = self.served.get(name or self.default)
        if served is None:
            raise not_ready()
        return served

    def open_all(self) -> None:
        """Open what is not open yet; EliasError if a model cannot be opened."""
        with self._opening:
            for name in self.folders:
                if name not in self.served:
                    self.served[name] = self._opened(name)

    def opened_again(self, name: str | None = None) -> dict[str, Served]:
        """One folder or all, opened anew for `replace`."""
        with self._opening:
            return {each: self._opened(each) for each in ([name] if name is not None else self.folders)}

    def replace(self, fresh: Mapping[str, Served]) -> None:
        self.served = {**self.served, **fresh}

    def _opened(self, name: str) -> Served:
        started = datetime.now(UTC)
        folder = self.folders[name]
        try:
            model = self._open(folder)
            parts = warm_up(model)
            served = Served(name, model, parts, about=read_about(folder, model), loaded=datetime.now(UTC))
        except InputError as problem:  # raised by the warm-up of a model that was trained on vectors
            raise ModelError(f"{folder}: cannot be served: {problem}") from None
        except EliasError:
            raise
        except Exception as problem:
            # Too large for the memory, or it opens but cannot predict: damaged in a way that no check of its files
            # finds. Whoever waits for the model hears of this class alone.
            raise EliasError(f"{folder}: the model cannot be used ({type(problem).__name__}: {problem})") from problem
        seconds = (datetime.now(UTC) - started).total_seconds()
        log.info("model opened", extra={"facts": {"model": name, "seconds": round(seconds, 2)}})
        return served


async def reload(registry: Registry, metrics: Metrics, name: str | None = None) -> list[str]:
    """Open the folders again, for POST /v1/reload and for SIGHUP; the names of the models that were replaced."""
    try:
        fresh = await asyncio.to_thread(registry.opened_again, name)
    except EliasError as problem:
        note_failed_reload(metrics, str(problem))
        raise reload_failed() from None
    registry.replace(fresh)
    return note_reload(metrics, list(fresh))


def note_reload(metrics: Metrics, names: list[str]) -> list[str]:
    metrics.reloads.inc(outcome="done")
    log.info("reloaded", extra={"facts": {"models": names}})
    return names


def note_failed_reload(metrics: Metrics, reason: str) -> None:
    metrics.reloads.inc(outcome="failed")
    log.error("reload failed, the old model keeps serving", extra={"facts": {"error": reason}})


def warm_up(model: ServedModel) -> tuple[str, ...]:
    """Compile the kernels that requests will call and read the pages they will read.

    Returns the names of the parts of an explained score.
    """
    found = model.predict(["warm up"], k=1, explain=True)
    # One text, a few and many may take different paths through the kernels.
    model.predict(["warm up", "twice"], k=2)
    model.predict(["many"] * 8, k=2)
    if len(model.labels):
        model.predict(["warm up"], k=1, allow=[model.labels.ids[0]])
    return tuple(found.parts or ())


def read_about(folder: Path, model: ServedModel) -> dict[str, Any]:
    """Settings, data, metrics and versions, as far as they are known; without paths of this machine."""
    about = dict(model.about)
    for name in ("config.json", "ensemble.json"):
        try:
            about["versions"] = json.loads((folder / name).read_text(encoding="utf-8")).get("versions", {})
            break
        except (OSError, ValueError, AttributeError):
            continue
    return {name: _without_paths(value) for name, value in about.items()}


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value
