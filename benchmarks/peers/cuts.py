"""Cuts of a dataset: some of its training rows, without its validation file; everything else as it is.

The rows are drawn once with a fixed seed and keep their order. A test label that no training row of the cut has stays
a test label: all systems miss it alike.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elias.core.files import replacing

MANY = 10_000  # rows; smaller datasets are small data by themselves


def cuts(source: Path, sizes: list[int], work: Path) -> Iterator[Path]:
    """The folders of the cuts of a dataset folder, made unless they are there; none of a dataset that is small."""
    file = next((source / name for name in ("train.jsonl.gz", "train.jsonl") if (source / name).is_file()), None)
    if file is None:
        return
    lines: list[str] = []
    for size in sizes:
        folder = work / f"{source.resolve().name}-{size}"
        if not folder.exists():
            lines = lines or _lines(file)
            if len(lines) <= max(MANY, size):
                return
            _cut(source, folder, lines, size)
        yield folder


def _lines(file: Path) -> list[str]:
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8")
    return [line + "\n" for line in text.split("\n") if line.strip()]


def _cut(source: Path, folder: Path, lines: list[str], size: int) -> None:
    chosen = np.sort(np.random.default_rng(0).permutation(len(lines))[:size])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as part:
        part.mkdir()
        for path in sorted(source.iterdir()):
            if path.name.split(".")[0] in ("test", "labels", "dataset"):
                shutil.copyfile(path, part / path.name)
        (part / "train.jsonl").write_text("".join(lines[row] for row in chosen.tolist()), encoding="utf-8")
