"""Cells: one system on one dataset, as a JSON file that can be kept and compared later.

    FOLDER/DATASET/SYSTEM.json

A cell holds metrics, cost, settings, and the rank of every test label among the predictions, from which metrics and
paired intervals are computed again without the predictions. A rival's cell has a key of data, settings and versions
and serves any commit of ours; a cell of ours belongs to one commit.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from elias.core.files import write_json
from elias.core.metrics import PerRow, rank_relevant
from elias.dataset import Dataset
from peers.comparison import METRICS, score_rows, value

WIDTH = 100  # ranks from here on are not told apart


class CellError(Exception):
    """A cell that cannot be used; the message names the file and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    dataset: str
    fingerprint: str  # of the dataset
    system: str
    kind: str
    key: str  # of a rival: data, settings and versions; of ours: the commit
    versions: dict[str, str]
    settings: dict[str, Any]
    threads: int
    metrics: dict[str, float]
    cost: dict[str, float]
    ranks: str  # of the test labels, row by row: uint8, deflated, base 64
    tried: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 0

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(self))

    def shares(self, data: Dataset) -> PerRow:
        """What each test row adds to each metric."""
        return score_rows(predictions_of(self.ranks, data), data)


def read_cell(path: Path) -> Cell:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise CellError(f"{path}: not JSON: {problem}; remove it, and it is measured anew") from None
    names = {item.name for item in fields(Cell)}
    if not isinstance(content, dict) or set(content) != names:
        raise CellError(f"{path}: a cell is an object with exactly the keys {', '.join(sorted(names))}; remove it")
    if not all(isinstance(number, int | float) for number in content["metrics"].values()):
        raise CellError(f"{path}: every metric must be a number; remove the file, and it is measured anew")
    return Cell(**content)


def metrics_of(shares: PerRow) -> dict[str, float]:
    return {metric: round(value(shares, metric), 4) for metric in METRICS}


def ranks_of(predicted: np.ndarray, data: Dataset) -> str:
    """The ranks of the test labels among predictions [rows, k] without excluded pairs."""
    assert data.test is not None
    counts = data.training_counts()[0]
    found = rank_relevant(predicted, data.test.labels, counts, WIDTH, excluded=data.test.excluded)
    return base64.b64encode(zlib.compress(found.ranks.astype(np.uint8).tobytes(), 9)).decode("ascii")


def predictions_of(ranks: str, data: Dataset) -> np.ndarray:
    """Predictions [rows, WIDTH] in which the test labels have these ranks; every other place has a wrong label."""
    assert data.test is not None
    found = np.frombuffer(zlib.decompress(base64.b64decode(ranks)), dtype=np.uint8)
    nothing = np.full((len(data.test), 1), -1, dtype=np.int32)
    pairs = rank_relevant(nothing, data.test.labels, data.training_counts()[0], WIDTH, excluded=data.test.excluded)
    if len(found) != len(pairs.rows):
        raise CellError(f"{len(found)} ranks for {len(pairs.rows)} test labels: the cell belongs to other data")
    predicted = np.repeat(_wrong_labels(data)[:, None], WIDTH, axis=1)
    hit = found < WIDTH
    predicted[pairs.rows[hit], found[hit]] = pairs.labels[hit]
    return predicted


def _wrong_labels(data: Dataset) -> np.ndarray:
    """For each test row the first label that it neither has nor excludes, -1 if there is none."""
    assert data.test is not None
    known = (data.test.labels > 0) + data.test.excluded
    wrong = np.full(len(data.test), -1, dtype=np.int32)
    for row in range(len(wrong)):
        taken = set(known.indices[known.indptr[row] : known.indptr[row + 1]].tolist())
        wrong[row] = next((label for label in range(len(data.labels)) if label not in taken), -1)
    return wrong


def mean_of(shares: Sequence[PerRow]) -> PerRow:
    """The mean over seeds of what each row reaches; the best it could reach does not depend on the seed."""
    first = shares[0]
    names = {
        name: (np.mean([one.shares[name][0] for one in shares], axis=0), best)
        for name, (_, best) in first.shares.items()
    }
    return PerRow(shares=names, rows=first.rows)
