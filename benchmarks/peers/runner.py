"""Train, predict and measure one system. Each half is a process of its own, so that peaks of memory are its own.

    python -m peers.ADAPTER train DATA MODEL OUTPUT SETTINGS      MODEL, OUTPUT/train.json
    python -m peers.ADAPTER predict DATA MODEL OUTPUT SETTINGS    OUTPUT/predictions.npz, OUTPUT/predict.json
    python -m peers.ADAPTER ask DATA MODEL OUTPUT SETTINGS        answers questions of in_turn.py

DATA is what shared_data.py wrote, SETTINGS is JSON; with "timed": false answers are not timed. Predictions are in the
dataset's label numbers; an adapter knows only the columns of labels.npz. Runs in the peers' environment: nothing here
imports more than numpy, scipy and our tf-idf. Times are from raw text to the 5 best labels, tf-idf included.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from timing import batch_ms, machine, peak_bytes, single_ms

from peers.in_turn import answer_questions
from peers.vectorizer import TfIdf

K, BATCH, BATCHES, SINGLES = 5, 256, 8, 300
LONGEST = 30.0  # seconds that singles, and then batches, are timed for: an ensemble of napkinXC takes 0.6 s per text


class TrainingRows:
    """The rows of DATA to learn from; texts are read only by an adapter that asks for them."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.features: sp.csr_matrix = sp.load_npz(data / "train.npz")
        self.labels: sp.csr_matrix = sp.load_npz(data / "labels.npz")

    def texts(self) -> list[str]:
        return read_texts(self.data / "train_texts.json")

    def kinds(self) -> np.ndarray:
        """0: a training text, 1: a label text."""
        return np.load(self.data / "kinds.npy")


class Adapter(Protocol):
    """What a peer's file defines. One that has `reads_texts = True` is given texts to predict, not tf-idf rows."""

    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None: ...

    def prepare(self, rows: TrainingRows) -> None:
        """Whatever the peer's own input format asks for; not timed."""

    def train(self, rows: TrainingRows) -> None:
        """Learn, and leave the model in the folder."""

    def load(self) -> None: ...

    def predict(self, inputs: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels and scores, rows x k, best first, label -1 where there are fewer."""


def main(adapter: type[Adapter]) -> None:
    step, data, model, output = sys.argv[1], *map(Path, sys.argv[2:5])
    given = json.loads(sys.argv[5])
    threads, timing = given.pop("threads"), given.pop("timed", True)
    peer = adapter(model, given, threads)
    if step == "train":
        write(output / "train.json", {**_train(peer, data), "model_bytes": size_of(model)})
    elif step == "ask":
        answer_questions(lambda: loaded(peer, data))
    else:
        write(output / "predict.json", _predict(peer, data, output, timing=timing))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _train(peer: Adapter, data: Path) -> dict[str, Any]:
    rows = TrainingRows(data)
    peer.prepare(rows)
    started = time.perf_counter()
    peer.train(rows)
    return {"train_seconds": time.perf_counter() - started, "train_peak_bytes": peak_bytes()}


def _predict(peer: Adapter, data: Path, output: Path, *, timing: bool) -> dict[str, Any]:
    about = json.loads((data / "data.json").read_text())
    started = time.perf_counter()
    peer.load()
    load_seconds = time.perf_counter() - started
    test = test_inputs(peer, data)
    labels, scores = peer.predict(test, about["ask"])
    numbers = np.load(data / "label_numbers.npy")
    write_predictions(output / "predictions.npz", np.where(labels >= 0, numbers[labels], -1), scores)
    speed = timed(answerer(peer, data, test), len(labels)) if timing else {}
    return {"load_seconds": load_seconds, **speed, "predict_peak_bytes": peak_bytes()}


def reads_texts(peer: Adapter) -> bool:
    return getattr(peer, "reads_texts", False)


def test_inputs(peer: Adapter, data: Path) -> Any:
    return read_texts(data / "texts.json") if reads_texts(peer) else sp.load_npz(data / "test.npz")


def loaded(peer: Adapter, data: Path) -> Callable[[Sequence[int]], None]:
    peer.load()
    return answerer(peer, data, test_inputs(peer, data))


def answerer(peer: Adapter, data: Path, test: Any) -> Callable[[Sequence[int]], None]:
    """A function that answers rows of the test texts, from raw text to the K best labels."""
    if reads_texts(peer):
        return lambda rows: peer.predict([test[row] for row in rows], K)
    if not (data / "vectorizer.json").exists():
        return lambda rows: peer.predict(test[rows], K)
    texts, vectorizer = read_texts(data / "texts.json"), TfIdf.load(data)

    def answer(rows: Sequence[int]) -> None:
        if len(rows) == 1:
            columns, values = vectorizer.transform_one(texts[rows[0]])
            shape = (1, vectorizer.n_features)
            peer.predict(sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape), K)
        else:
            peer.predict(vectorizer.transform([texts[row] for row in rows]), K)

    return answer


def read_texts(path: Path) -> list[str]:
    found: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def best_of_rows(matrix: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A sparse matrix of scores as labels and scores, best first, ties to the lower label."""
    n = int(matrix.shape[0])
    labels, scores = np.full((n, k), -1, dtype=np.int32), np.zeros((n, k), dtype=np.float32)
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    places = np.arange(len(order)) - matrix.indptr[:-1][rows]
    kept = places < k
    labels[rows[kept], places[kept]] = matrix.indices[order][kept]
    scores[rows[kept], places[kept]] = matrix.data[order][kept]
    return labels, scores


def votes(neighbors: np.ndarray, weights: np.ndarray, labels: sp.csr_matrix) -> sp.csr_matrix:
    """Rows x labels: the sum of the weights of each row's neighbors [rows, k] that have the label."""
    rows = np.repeat(np.arange(len(neighbors)), neighbors.shape[1])
    shape = (len(neighbors), labels.shape[0])
    chosen = sp.csr_matrix((weights.ravel().astype(np.float32), (rows, neighbors.ravel())), shape=shape)
    chosen.eliminate_zeros()
    return sp.csr_matrix(chosen @ labels)


def timed(answer: Any, n_rows: int) -> dict[str, float]:
    """Milliseconds per text, in batches and one at a time; `answer` takes row numbers."""
    size = min(BATCH, n_rows)
    batches = max(1, min(BATCHES, n_rows // size))
    p50, p99 = single_ms(lambda i: answer([i % n_rows]), SINGLES, LONGEST)
    batch = batch_ms(lambda i: answer([(i * size + j) % n_rows for j in range(size)]), size, batches, LONGEST)
    found = {"batch_ms": batch, "single_p50_ms": p50, "single_p99_ms": p99}
    busy = machine()["cpu_pressure"]  # of the last 10 seconds: while this was timed
    return found if busy == "unknown" else {**found, "cpu_pressure": float(busy)}


def write_predictions(path: Path, labels: np.ndarray, scores: np.ndarray) -> None:
    part = path.with_name("part-" + path.name)
    np.savez_compressed(part, labels=labels.astype(np.int32), scores=scores.astype(np.float32))
    part.replace(path)


def write(path: Path, content: dict[str, Any]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1))
    part.replace(path)
