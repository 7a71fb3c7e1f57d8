"""The final score of a label from all that speaks for it.

    learned    s = u . x + v . tanh(W x + b)     x the columns of `evidence`, each at mean 0 and spread 1
    tree       s = w T(p, q, p q, n_l) + (1 - w) p q     T a decision tree; the paper's, up to a factor of 2
    product    s = p q

`learned` minimises, on rows held out of everything else, the softmax cross-entropy of each right label among the wrong
ones of its row (which come first) plus a binary cross-entropy (how sure). Then `probability` turns s into a
probability.
In: `Evidence`, and which labels are right. Out: a score for each label; arrays on disk.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..core.errors import ModelError
from ..core.files import read_object, write_json
from ..core.settings import FusionSettings, known
from .calibration import NO_CURVE, ProbabilityMap
from .features import LEAST, N_COLUMNS, Evidence, Field
from .linear_ranker import LOSSES, quality
from .published import Tree, fit_tree

if TYPE_CHECKING:
    from ..kernels.fuse import Weights

NAME = "fusion.json"
KINDS = ("learned", "tree", "product")
FARTHEST = 6.0  # spreads from the mean
RATE, DECAY, BATCH = 5e-3, 1e-3, 64


@dataclass(frozen=True)
class Learned:
    """The weights of the learned score."""

    mean: np.ndarray
    spread: np.ndarray
    linear: np.ndarray  # u
    hidden: np.ndarray  # W, [columns, units]
    shift: np.ndarray  # b
    out: np.ndarray  # v
    bias: float

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        x = np.clip((columns - self.mean) / self.spread, -FARTHEST, FARTHEST)
        score: np.ndarray = x @ self.linear + np.tanh(x @ self.hidden + self.shift) @ self.out + np.float32(self.bias)
        return score

    def of(self, evidence: Evidence, field: Field | None = None, *, threads: int = 1) -> np.ndarray:
        """The scores of labels with their evidence, in one pass a row."""
        from ..kernels.fuse import learned_scores
        from ..kernels.gather import Gathered

        labels = evidence.labels
        field = field or Field.own(len(labels))
        given = (evidence.cluster_score, evidence.edge_score, evidence.classifier, evidence.margin, evidence.path,
                 *evidence.words, *evidence.votes, np.log1p(evidence.counts))  # fmt: skip
        *parts, log_counts = (np.ascontiguousarray(part, dtype=np.float32) for part in given)
        whole = (np.ascontiguousarray(numbers, dtype=np.int32) for numbers in (labels, evidence.cluster))
        scores = np.empty(labels.shape, dtype=np.float32)
        kernels.run(
            learned_scores, len(labels), threads, Gathered(*whole, *parts), log_counts, self.weights, field.best,
            field.rising, scores,
        )  # fmt: skip
        return scores

    @cached_property
    def weights(self) -> Weights:
        """As the kernel reads them."""
        from ..kernels.fuse import Weights

        arrays = (self.mean, self.spread, self.linear, self.hidden, self.shift, self.out)
        mean, spread, linear, hidden, shift, out = (np.ascontiguousarray(array, dtype=np.float32) for array in arrays)
        limits = np.float32(self.bias), np.float32(FARTHEST), np.float32(LEAST)
        return Weights(mean, 1 / spread, linear, np.ascontiguousarray(hidden.T), shift, out, *limits)


@dataclass(frozen=True)
class Fusion:
    """A final score and, where there were rows to learn it from, its probability."""

    kind: str
    loss: str  # of the ranker
    learned: Learned | None = None
    tree: Tree | None = None
    tree_weight: float = 0.5
    probability: ProbabilityMap | None = None

    def score(self, evidence: Evidence, field: Field | None = None, *, threads: int = 1) -> np.ndarray:
        """float32 [rows, m]; `field` as in `Evidence.columns`."""
        if self.learned is not None:
            return self.learned.of(evidence, field, threads=threads)
        q = quality(evidence.margin, self.loss)
        product = evidence.p * q
        if self.tree is None:
            return np.asarray(product, dtype=np.float32)
        columns = np.stack([evidence.p, q, product, evidence.counts], axis=-1).astype(np.float32)
        return np.asarray(self.tree_weight * self.tree(columns) + (1 - self.tree_weight) * product, dtype=np.float32)

    @property
    def curve(self) -> tuple[np.ndarray, np.ndarray, float]:
        """From scores to probabilities as the kernel reads it; nothing where there are none."""
        return NO_CURVE if self.probability is None else self.probability.curve

    def save(self, folder: Path) -> None:
        content: dict[str, Any] = {"kind": self.kind, "loss": self.loss, "tree_weight": self.tree_weight}
        if self.learned is not None:
            content["learned"] = {name: np.asarray(value).tolist() for name, value in asdict(self.learned).items()}
        if self.tree is not None:
            content["tree"] = self.tree.as_dict()
        if self.probability is not None:
            content["probability"] = self.probability.as_dict()
        write_json(folder / NAME, content)

    @classmethod
    def load(cls, folder: Path) -> Fusion:
        path = folder / NAME
        content = read_object(path, "kind", "loss", "tree_weight")
        try:
            kind, loss, probability = content["kind"], content["loss"], content.get("probability")
            if kind not in KINDS or loss not in LOSSES:
                raise ValueError(f"kind {kind}, loss {loss}")
            return cls(
                kind, loss, _learned(content["learned"]) if kind == "learned" else None,
                Tree.from_dict(content["tree"]) if kind == "tree" else None, float(content["tree_weight"]),
                None if probability is None else ProbabilityMap.from_dict(probability),
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise ModelError(f"{path}: not a final score of elias ({problem}); restore it from a copy") from None


def _learned(content: dict[str, Any]) -> Learned:
    arrays = {name: np.asarray(value, dtype=np.float32) for name, value in content.items() if name != "bias"}
    units = arrays["out"].shape
    if len(arrays["mean"]) == 15:  # of a model made before neighbours voted
        _insert_nothing(arrays, [7, 7, 15, 15])
    if len(arrays["mean"]) == 19:  # of one made before labels were ranked
        _insert_nothing(arrays, [19] * 3)
    if len(arrays["mean"]) == 22:  # of one made before there was a tree of labels
        _insert_nothing(arrays, [4, 14])
    shapes = {"mean": (N_COLUMNS,), "spread": (N_COLUMNS,), "linear": (N_COLUMNS,), "hidden": (N_COLUMNS, *units)}
    for name, shape in {**shapes, "shift": units}.items():
        if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has shape {arrays[name].shape}, not {shape}, or numbers that are none")
    return Learned(**arrays, bias=float(content["bias"]))


def _insert_nothing(arrays: dict[str, np.ndarray], places: list[int]) -> None:
    """Columns that change no score, before those at some places."""
    for name, nothing in {"mean": 0.0, "spread": 1.0, "linear": 0.0, "hidden": 0.0}.items():
        arrays[name] = np.insert(arrays[name], places, nothing, axis=0)


def fit_fusion(evidence: Evidence, right: np.ndarray, settings: FusionSettings, loss: str, seed: int) -> Fusion:
    """Learn the final score from labels that were found [rows, m] and whether each is right."""
    if settings.kind == "product":
        return Fusion("product", loss)
    if settings.kind == "tree":
        q, there = quality(evidence.margin, loss), evidence.labels >= 0
        columns = np.stack([evidence.p, q, evidence.p * q, evidence.counts], axis=-1)[there]
        return Fusion("tree", loss, tree=fit_tree(columns, right[there]), tree_weight=settings.tree_weight)
    return Fusion("learned", loss, learned=_fit_learned(evidence, right, settings, seed))


def _fit_learned(evidence: Evidence, right: np.ndarray, settings: FusionSettings, seed: int) -> Learned:
    import torch

    columns, there = evidence.columns(), evidence.labels >= 0
    mean = columns[there].mean(axis=0)
    spread = columns[there].std(axis=0) + np.float32(1e-6)
    x = torch.from_numpy(np.clip((columns - mean) / spread, -FARTHEST, FARTHEST))
    y, mask = torch.from_numpy(right.astype(np.float32)), torch.from_numpy(there)
    generator = torch.Generator().manual_seed(seed)
    n_units, epochs = known(settings.hidden), known(settings.epochs)
    hidden = torch.randn(N_COLUMNS, n_units, generator=generator) / N_COLUMNS**0.5
    units = [torch.zeros(n_units), torch.zeros(n_units)]
    weights = [torch.zeros(N_COLUMNS), hidden, *units, torch.zeros(1)]
    for weight in weights:
        weight.requires_grad_()
    linear, hidden, shift, out, bias = weights
    optimiser = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY)
    rows = np.flatnonzero((right & there).any(axis=1))
    steps = epochs * max(1, -(-len(rows) // BATCH))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps + 1)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(rows)
        for start in range(0, len(order), BATCH):
            batch = torch.from_numpy(order[start : start + BATCH])
            z = x[batch] @ linear + torch.tanh(x[batch] @ hidden + shift) @ out + bias
            total = _against_the_wrong_and_binary(z, y[batch], mask[batch])
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            schedule.step()
    u, w, b, v, last = (weight.detach().numpy().copy() for weight in weights)
    return Learned(mean, spread, u, w, b, v, float(last[0]))


def _against_the_wrong_and_binary(z: Any, y: Any, mask: Any) -> Any:
    """Softmax cross-entropy of each right label among itself and the wrong ones, plus binary cross-entropy; row means.

    In one softmax over all labels the right ones of a row would compete, which costs P@1 where there are several.
    """
    import torch
    from torch.nn import functional as F

    y = y * mask
    wrong = torch.logsumexp(z.masked_fill((y > 0) | ~mask, -1e9), dim=1, keepdim=True)
    listwise = (F.softplus(wrong - z) * y).sum(1) / y.sum(1).clamp(min=1.0)
    binary = (F.binary_cross_entropy_with_logits(z, y, reduction="none") * mask).sum(1) / y.sum(1).clamp(min=1.0)
    return (listwise + binary).mean()
