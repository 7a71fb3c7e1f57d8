"""Train, predict and measure one system. Each half is a process of its own, so that peaks of memory are its own.

    python -m peers.ADAPTER train DATA OUTPUT SETTINGS      OUTPUT/model, OUTPUT/train.json
    python -m peers.ADAPTER predict DATA OUTPUT SETTINGS    OUTPUT/predictions.npz, OUTPUT/predict.json
    python -m peers.ADAPTER ask DATA OUTPUT SETTINGS        answers questions of in_turn.py

DATA is what shared_data.py wrote, SETTINGS is JSON. Runs in the peers' environment: nothing here imports more than
numpy, scipy and elias.encoders.tfidf. Times are from raw text to the 5 best labels, tf-idf included.
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

from elias.encoders.tfidf import TfIdf
from peers.in_turn import answer_questions

K, BATCH, BATCHES, SINGLES = 5, 256, 8, 300


class Adapter(Protocol):
    """What a peer's file defines."""

    def __init__(self, folder: Path, settings: dict[str, Any], threads: int) -> None: ...

    def prepare(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        """Whatever the peer's own input format asks for; not timed."""

    def train(self, features: sp.csr_matrix, labels: sp.csr_matrix) -> None:
        """Learn, and leave the model in the folder."""

    def load(self) -> None: ...

    def predict(self, features: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels and scores, rows x k, best first, label -1 where there are fewer."""


def main(adapter: type[Adapter]) -> None:
    step, data, output, given = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    threads = given.pop("threads")
    peer = adapter(output / "model", given, threads)
    if step == "train":
        found = _train(peer, data)
        size = sum(path.stat().st_size for path in (output / "model").rglob("*") if path.is_file())
        write(output / "train.json", {**found, "model_bytes": size})
    elif step == "ask":
        answer_questions(lambda: loaded(peer, data))
    else:
        write(output / "predict.json", _predict(peer, data, output))


def _train(peer: Adapter, data: Path) -> dict[str, Any]:
    features, labels = sp.load_npz(data / "train.npz"), sp.load_npz(data / "labels.npz")
    peer.prepare(features, labels)
    started = time.perf_counter()
    peer.train(features, labels)
    return {"train_seconds": time.perf_counter() - started, "train_peak_bytes": peak_bytes()}


def _predict(peer: Adapter, data: Path, output: Path) -> dict[str, Any]:
    about = json.loads((data / "data.json").read_text())
    started = time.perf_counter()
    peer.load()
    load_seconds = time.perf_counter() - started
    test = sp.load_npz(data / "test.npz")
    labels, scores = peer.predict(test, about["ask"])
    write_predictions(output / "predictions.npz", labels, scores)
    speed = timed(answerer(peer, data, test), test.shape[0])
    return {"load_seconds": load_seconds, **speed, "predict_peak_bytes": peak_bytes()}


def loaded(peer: Adapter, data: Path) -> Callable[[Sequence[int]], None]:
    peer.load()
    return answerer(peer, data, sp.load_npz(data / "test.npz"))


def answerer(peer: Adapter, data: Path, test: sp.csr_matrix) -> Callable[[Sequence[int]], None]:
    """A function that answers rows of the test texts, from raw text to the K best labels."""
    texts, vectorizer = raw_texts(data), TfIdf.load(data) if (data / "vectorizer.json").exists() else None

    def answer(rows: Sequence[int]) -> None:
        if vectorizer is None or texts is None:
            peer.predict(test[rows], K)
        elif len(rows) == 1:
            columns, values = vectorizer.transform_one(texts[rows[0]])
            shape = (1, vectorizer.n_features)
            peer.predict(sp.csr_matrix((values, columns, np.array([0, len(columns)])), shape=shape), K)
        else:
            peer.predict(vectorizer.transform([texts[row] for row in rows]), K)

    return answer


def raw_texts(data: Path) -> list[str] | None:
    path = data / "texts.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def timed(answer: Any, n_rows: int) -> dict[str, float]:
    """Milliseconds per text, in batches and one at a time; `answer` takes row numbers."""
    size = min(BATCH, n_rows)
    batches = max(1, min(BATCHES, n_rows // size))
    p50, p99 = single_ms(lambda i: answer([i % n_rows]), SINGLES)
    batch = batch_ms(lambda i: answer([(i * size + j) % n_rows for j in range(size)]), size, batches)
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
