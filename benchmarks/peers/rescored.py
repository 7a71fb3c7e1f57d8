"""A score model on top of a peer's candidates: what is left of our lead when the peer has one too.

    python -m peers.rescored SPECIFICATION      a JSON file that rivals.py writes; OUTPUT/predictions.npz, train.json,
                                                predict.json as runner.py writes them

    inputs    log score and log rank of the peer; label-text, centroid and combined score of our inverted index; log
              count of training rows; beside each score its distance to the best candidate of the same text
    score     s = u . x + v . tanh(W x + b) + bias, the form of our own score model
    loss      softmax cross-entropy of each right label among itself and the wrong ones, plus binary cross-entropy

It is learned on the validation rows: candidates of the peer that was trained without them, and an inverted index
without them. Then it scores the candidates of the peer that was trained on all rows. Written apart from our own score
model, so that this rival does not change with it. Runs in our own environment.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from timing import batch_ms, peak_bytes
from torch.nn import functional as F

from elias.ranking.inverted_index import InvertedIndex
from peers.runner import BATCH, BATCHES, TrainingRows, size_of, write, write_predictions
from peers.words import index_of

CANDIDATES, UNITS, EPOCHS, STEPS, ROWS_AT_ONCE, RATE = 100, 16, 20, 1500, 64, 5e-3
LEAST = 1e-6


class Candidates:
    """The candidates of a peer for the rows of one part of the shared data, and their inputs."""

    def __init__(self, data: Path, predictions: Path, threads: int) -> None:
        rows = TrainingRows(data)
        self.numbers = np.load(data / "label_numbers.npy")
        self.index: InvertedIndex = index_of(rows.features, rows.labels, rows.kinds(), threads)
        self.log_counts = np.log1p(np.bincount(rows.labels.indices, minlength=len(self.numbers)))
        self.x: sp.csr_matrix = sp.load_npz(data / "test.npz")
        found = np.load(predictions)
        self.labels, self.scores = found["labels"][:, :CANDIDATES], found["scores"][:, :CANDIDATES]

    def inputs(self, rows: np.ndarray) -> np.ndarray:
        """float32 [rows, candidates, inputs]."""
        labels, real = self.labels[rows], self.labels[rows] >= 0
        columns = np.where(real, np.searchsorted(self.numbers, labels), -1).astype(np.int32)
        words = self.index.scores(sp.csr_matrix(self.x[rows]), columns)
        scores = np.stack([np.log(np.maximum(self.scores[rows], LEAST)), *words], axis=-1)
        best = np.where(real[..., None], scores, -np.inf).max(axis=1, keepdims=True, initial=-1e3)
        ranks = np.broadcast_to(np.log1p(np.arange(labels.shape[1])), labels.shape)
        counts = np.where(real, self.log_counts[columns], 0)
        return np.concatenate([scores, scores - best, np.stack([ranks, counts], axis=-1)], axis=-1).astype(np.float32)


class Score:
    """Learned on candidates [rows, m] with their inputs and whether each is right."""

    def __init__(self, inputs: np.ndarray, right: np.ndarray, real: np.ndarray) -> None:
        self.mean, self.spread = inputs[real].mean(axis=0), inputs[real].std(axis=0) + 1e-6
        rows = np.flatnonzero(right.any(axis=1))  # a text without a right candidate cannot be ranked better
        generator = torch.Generator().manual_seed(0)
        width = inputs.shape[2]
        first = torch.randn(width, UNITS, generator=generator) / width**0.5
        self.weights = [torch.zeros(width), first, torch.zeros(UNITS), torch.zeros(UNITS), torch.zeros(1)]
        if len(rows) == 0:
            return
        for weight in self.weights:
            weight.requires_grad_()
        optimizer = torch.optim.AdamW(self.weights, lr=RATE, weight_decay=1e-3)
        per_epoch = -(-len(rows) // ROWS_AT_ONCE)
        epochs = max(EPOCHS, -(-STEPS // per_epoch))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * per_epoch + 1)
        rng = np.random.default_rng(0)
        x, y, known = (torch.from_numpy(a) for a in (self.standardized(inputs), right.astype(np.float32), real))
        for _ in range(epochs):
            order = torch.from_numpy(rng.permutation(rows))
            for batch in order.split(ROWS_AT_ONCE):
                optimizer.zero_grad()
                loss(self._of(x[batch]), y[batch], known[batch]).backward()
                optimizer.step()
                schedule.step()
        for weight in self.weights:
            weight.requires_grad_(False)

    def standardized(self, inputs: np.ndarray) -> np.ndarray:
        return np.clip((inputs - self.mean) / self.spread, -6, 6).astype(np.float32)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._of(torch.from_numpy(self.standardized(inputs))).numpy()
        return found

    def _of(self, x: Any) -> Any:
        linear, hidden, shift, out, bias = self.weights
        return x @ linear + torch.tanh(x @ hidden + shift) @ out + bias


def loss(z: Any, y: Any, real: Any) -> Any:
    n_right = y.sum(1).clamp(min=1.0)
    wrong = torch.logsumexp(z.masked_fill(~real | (y > 0), -1e9), dim=1, keepdim=True)
    listwise = (F.softplus(wrong - z) * y).sum(1) / n_right
    binary = (F.binary_cross_entropy_with_logits(z, y, reduction="none") * real).sum(1) / n_right
    return (listwise + binary).mean()


def right_of(labels: np.ndarray, answers: sp.csr_matrix) -> np.ndarray:
    """Whether each candidate [rows, m] is a label of its row."""
    rows = np.repeat(np.arange(len(labels)), labels.shape[1])
    found = np.asarray(answers[rows, np.maximum(labels, 0).ravel()]).ravel() > 0
    return found.reshape(labels.shape) & (labels >= 0)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    output, threads = Path(given["output"]), given["threads"]
    torch.set_num_threads(threads)
    started = time.perf_counter()
    data = Path(given["choice_data"])
    held_out = Candidates(data, Path(given["choice"]) / "predictions.npz", threads)
    real = (held_out.labels >= 0) & ~right_of(held_out.labels, sp.load_npz(data / "excluded.npz"))
    right = right_of(held_out.labels, sp.load_npz(data / "answers.npz")) & real
    score = Score(held_out.inputs(np.arange(len(real))), right, real)
    asked = Candidates(Path(given["final_data"]), Path(given["final"]) / "predictions.npz", threads)
    seconds = time.perf_counter() - started
    labels, scores = answered(asked, score, np.arange(len(asked.labels)))
    write_predictions(output / "predictions.npz", labels, scores)
    # The peer's own figures are added: it trains twice and finds the candidates.
    choice, trained = (json.loads((Path(given[name]) / "train.json").read_text()) for name in ("choice", "final"))
    answers = json.loads((Path(given["final"]) / "predict.json").read_text())
    asked.index.save(output / "model")
    own_ms = batch_ms(lambda i: answered(asked, score, batch_of(i, len(labels))), min(BATCH, len(labels)), BATCHES)
    write(output / "train.json", {
        "train_seconds": seconds + choice["train_seconds"] + trained["train_seconds"],
        "train_peak_bytes": max(peak_bytes(), choice["train_peak_bytes"], trained["train_peak_bytes"]),
        "model_bytes": trained["model_bytes"] + size_of(output / "model"),
    })  # fmt: skip
    write(output / "predict.json", {
        "batch_ms": own_ms + answers["batch_ms"],
        "predict_peak_bytes": max(peak_bytes(), answers["predict_peak_bytes"]),
    })  # fmt: skip


def batch_of(i: int, n_rows: int) -> np.ndarray:
    size = min(BATCH, n_rows)
    return (i * size + np.arange(size)) % n_rows


def answered(asked: Candidates, score: Score, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The candidates by falling score."""
    scores = np.where(asked.labels[rows] >= 0, score(asked.inputs(rows)), -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(asked.labels[rows], order, axis=1), np.take_along_axis(scores, order, axis=1)


if __name__ == "__main__":
    main()
