"""The models being served: opened, warmed, asked what they offer, and swapped while requests go on.

A `Served` never changes. A reload puts a new one in its place; requests that were accepted before keep the old one
until they are answered, then its memory is free. Whatever a model offers beyond `predict` is asked of it, not assumed:
an ensemble has no index of its own, a model without calibration refuses a threshold.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import EliasError, InputError, ModelError, did_you_mean
from .errors import ServiceError, busy, shown

if TYPE_CHECKING:
    from ..model.model import Model
    from .explore import Explorer
    from .label_search import LabelSearch

log = logging.getLogger("elias.server")
Opener = Callable[[Path], "Model"]


@dataclass(frozen=True)
class Served:
    """A model with everything the routes ask about it."""

    name: str
    model: Model
    parts: tuple[str, ...]  # of an explained score
    threshold_refused: str | None  # why, or None: a threshold may be given
    about: Mapping[str, Any]
    loaded: datetime

    @cached_property
    def search(self) -> LabelSearch:
        from .label_search import LabelSearch

        return LabelSearch(self.model.labels, self.label_counts)

    @cached_property
    def label_counts(self) -> np.ndarray:
        """Training rows of each label; none are known of a model that does not say."""
        unknown = np.zeros(len(self.model.labels), dtype=np.int64)
        return np.asarray(getattr(self.model, "label_counts", unknown))

    @property
    def can_explore(self) -> bool:
        """Whether there is an index to look into."""
        return hasattr(self.model, "searcher") and hasattr(self.model, "stage1_clusters")

    @cached_property
    def explorer(self) -> Explorer:
        from .explore import Explorer

        if not self.can_explore:
            message = f'model "{self.name}" has no index of its own to look into; serve one of its members'
            raise ServiceError(404, message, code="not_offered")
        return Explorer(self.model)

    def facts(self, *, default: bool) -> dict[str, Any]:
        index = self.model.searcher.index if self.can_explore else None
        return {
            "name": self.name,
            "default": default,
            "labels": len(self.model.labels),
            "clusters": None if index is None else index.n_clusters,
            "edges": None if index is None else index.n_edges,
            "training_rows": getattr(self.model, "n_train", None),
            "data": str(self.about.get("dataset", {}).get("name", "unknown data")),
            "parts": list(self.parts),
            "threshold": self.threshold_refused is None,
            "explore": self.can_explore,
            "loaded": self.loaded.isoformat(timespec="seconds"),
        }


class Registry:
    """Names and folders; the models behind them once they are open."""

    def __init__(self, folders: Mapping[str, Path], opener: Opener) -> None:
        assert folders
        self.folders, self._open = dict(folders), opener
        self.served: dict[str, Served] = {}
        self._one_at_a_time = Lock()

    @property
    def ready(self) -> bool:
        return len(self.served) == len(self.folders)

    @property
    def default(self) -> str:
        return next(iter(self.folders))

    def get(self, name: str | None) -> Served:
        if name is not None and name not in self.folders:
            message = f'there is no model "{shown(name)}"{did_you_mean(name[:100], self.folders)}'
            raise ServiceError(404, message, field="model")
        served = self.served.get(name or self.default)
        if served is None:
            raise busy("the model is still being opened; try again in a few seconds", after=2)
        return served

    def open_all(self) -> None:
        """Open what is not open yet. A model that cannot be opened is an EliasError."""
        with self._one_at_a_time:
            for name in self.folders:
                if name not in self.served:
                    self.served[name] = self._opened(name)

    def reload(self, name: str | None = None) -> list[str]:
        """Open the folders again and swap, all or none; if one is broken the old models go on."""
        with self._one_at_a_time:
            names = [name] if name is not None else list(self.folders)
            fresh = {each: self._opened(each) for each in names}
            self.served = {**self.served, **fresh}
            return names

    def _opened(self, name: str) -> Served:
        started = datetime.now(UTC)
        folder = self.folders[name]
        try:
            model = self._open(folder)
            served = Served(
                name=name,
                model=model,
                parts=warm_up(model),
                threshold_refused=why_no_threshold(model),
                about=read_about(folder, model),
                loaded=datetime.now(UTC),
            )
        except InputError as problem:  # it was trained on vectors, which nobody can type
            raise ModelError(f"{folder}: cannot be served: {problem}") from None
        except (OSError, ValueError, KeyError, TypeError, IndexError, RuntimeError) as problem:
            # A model that opens but cannot answer: damaged in a way no reader noticed.
            raise EliasError(f"{folder}: the model cannot be used ({type(problem).__name__}: {problem})") from problem
        seconds = (datetime.now(UTC) - started).total_seconds()
        log.info("model opened", extra={"facts": {"model": name, "seconds": round(seconds, 2)}})
        return served


def warm_up(model: Model) -> tuple[str, ...]:
    """Compile what requests will call, read what they will read; returns the parts of an explained score."""
    found = model.predict(["warm up"], k=1, explain=True)
    model.predict(["warm up", "twice"], k=2)
    model.predict(["many"] * 8, k=2)
    if len(model.labels):
        model.predict(["warm up"], k=1, allow=[model.labels.ids[0]])
    return tuple(found.parts or ())


def why_no_threshold(model: Model) -> str | None:
    """What the model says to a threshold: nothing, or why it cannot take one."""
    predict: Callable[..., Any] = model.predict
    try:
        predict(["warm up"], k=1, threshold=0.5)
    except InputError as refusal:
        return str(refusal)
    except TypeError:  # a model from before there was calibration
        return "the scores of this model are not probabilities, so a threshold means nothing; leave it out and use k"
    return None


def read_about(folder: Path, model: Model) -> dict[str, Any]:
    """Settings, data, metrics and versions, as far as the folder has them; without paths of this machine."""
    about = dict(getattr(model, "about", {}) or {})
    for name in ("config.json", "ensemble.json"):
        try:
            about["versions"] = json.loads((folder / name).read_text(encoding="utf-8")).get("versions", {})
            break
        except (OSError, ValueError, AttributeError):
            continue
    cleaned = _without_paths(about)
    assert isinstance(cleaned, dict)
    return cleaned


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value
