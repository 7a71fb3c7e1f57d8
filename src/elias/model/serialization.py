"""How a model is pickled, copied and sent to other processes: by its folder, or by the bytes of its files.

    folder     where it was loaded from or saved to, as long as the files there are the same; the other process opens it
               again, memory-mapped, so that all processes share the pages
    bytes      every file of the folder that `save` would write, for a model that has no such folder

What is pickled is the name of the folder, or safetensors, JSON and .npy bytes: no object of ours, and no file of ours
is a pickle. Arrays that were changed in place do not go with the folder: make another model with `dataclasses.replace`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import ModelError

if TYPE_CHECKING:
    from .predict import Predictor

Stamp = tuple[tuple[str, int, int], ...]  # name, bytes and time of every file
Options = dict[str, Any]  # of `load`
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Home:
    """The folder with the files of a model, as it was when the model was loaded from it or saved to it."""

    folder: Path
    stamp: Stamp
    content: tuple[Any, ...]  # the attributes of the model then: a model with others is another one

    @classmethod
    def of(cls, folder: Path, content: tuple[Any, ...]) -> Home:
        return cls(Path(os.path.abspath(folder)), _stamp(folder), content)

    def holds(self, content: tuple[Any, ...]) -> bool:
        """Whether the folder still has the files of this model."""
        same = len(content) == len(self.content) and all(a is b for a, b in zip(content, self.content, strict=True))
        return same and _stamp(self.folder) == self.stamp


def reduced(model: Predictor) -> Reduced:
    """What `__reduce__` returns."""
    network = model.first.network
    options = {"device": str(network.device), "threads": network.threads, "kernels": model.first.use_kernels}
    if model.home is not None and model.home.holds(model.content()):
        return opened_again, (str(model.home.folder), model.home.stamp, options)
    return unpacked, (packed(model), options)


def opened_again(folder: str, stamp: Stamp, options: Options) -> Predictor:
    """The model of a folder, in this process or another."""
    from .ensemble import load

    if _stamp(Path(folder)) != stamp:
        raise ModelError(
            f"{folder}: the model that was pickled is not there, or its files have changed since; pickle it again, or "
            "copy the folder and open it with elias.load"
        )
    return load(folder, **options)


def packed(model: Predictor) -> dict[str, bytes]:
    """The files that `save` writes, by their names."""
    with tempfile.TemporaryDirectory(prefix="elias-") as folder:
        place = Path(folder) / "model"
        model.write(place)
        files = {name: (place / name).read_bytes() for name, _, _ in _stamp(place)}
    once: dict[bytes, bytes] = {}  # members of an ensemble have files in common, and an object is pickled once
    return {name: once.setdefault(content, content) for name, content in files.items()}


def unpacked(files: dict[str, bytes], options: Options) -> Predictor:
    """The inverse of `packed`."""
    from .ensemble import load

    with tempfile.TemporaryDirectory(prefix="elias-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load(folder, **options)  # its memory maps outlive the folder


def _stamp(folder: Path) -> Stamp:
    """Names, sizes and times of the files of a folder; empty where there are none."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    try:
        return tuple(sorted((path.relative_to(folder).as_posix(), s.st_size, s.st_mtime_ns) for path, s in found))
    except OSError:  # a file went away meanwhile
        return ()
