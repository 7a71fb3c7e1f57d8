"""The method's equations as dense float64 numpy, straight from the formulas: what the real code is compared with.

Clusters without an edge to a label have NaN there. No sampling, no sparsity, no kernels.
"""

from __future__ import annotations

import numpy as np
import torch

from elias.core.ragged import Ragged
from elias.index.label_index import LabelIndex


def random_index(
    rng: np.random.Generator, n_clusters: int, n_labels: int, *, density: float = 0.4, beta: float = 3.0
) -> LabelIndex:
    """Each (cluster, label) is an edge with probability `density`; some clusters may be empty."""
    exists = rng.random((n_clusters, n_labels)) < density
    clusters, labels = np.nonzero(exists)
    indptr = np.searchsorted(clusters, np.arange(n_clusters + 1)).astype(np.int64)
    logits = rng.normal(size=len(labels)).astype(np.float32)
    return LabelIndex(indptr=indptr, labels=labels.astype(np.int32), n_labels=n_labels, logits=logits, beta=beta)


def random_ragged(rng: np.random.Generator, n_rows: int, n_labels: int, most: int) -> Ragged:
    """Up to `most` different labels per row, in rising order."""
    rows = [
        np.sort(rng.choice(n_labels, min(n_labels, rng.integers(0, most + 1)), replace=False)) for _ in range(n_rows)
    ]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Ragged(indptr, np.concatenate([*rows, []]).astype(np.int32))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    raised = np.exp(x - np.nanmax(x, axis=axis, keepdims=True, initial=-1e300))
    return raised / np.maximum(np.nansum(raised, axis=axis, keepdims=True), 1e-300)


def dense_logits(index: LabelIndex) -> np.ndarray:
    logits = np.full((index.n_clusters, index.n_labels), np.nan)
    logits[index.clusters, index.labels] = 0.0 if index.logits is None else index.logits
    return logits


def cluster_scores(logits_BC: np.ndarray, alpha: float) -> np.ndarray:
    """(1)"""
    return np.minimum(1.0, alpha * softmax(logits_BC.astype(np.float64), axis=1))


def beam(logits_BC: np.ndarray, size: int) -> np.ndarray:
    """(2) by logit: s_c is clamped, its order is the logit's."""
    return np.argsort(-logits_BC, axis=1, kind="stable")[:, :size]


def parents(index: LabelIndex) -> np.ndarray:
    """(3) argmax over clusters of the unclamped edge probability; -1 where a label has no edge."""
    probability = np.zeros((index.n_clusters, index.n_labels))
    probability[index.clusters, index.labels] = index.probabilities()
    return np.where(probability.max(axis=0) > 0, probability.argmax(axis=0), -1)


def edge_scores(index: LabelIndex) -> np.ndarray:
    """(5) C x L, NaN where there is no edge."""
    if index.logits is None:
        return dense_logits(index) + 1.0
    return np.minimum(1.0, index.beta * softmax(dense_logits(index), axis=1))


def best_paths(
    clusters: list[int], s_C: np.ndarray, e_CL: np.ndarray, excluded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(6) of one row: yhat of every label (-1 where no path leads) and the slot of its best path."""
    paths = np.array([s_C[cluster] * e_CL[cluster] for cluster in clusters]).reshape(len(clusters), e_CL.shape[1])
    paths = np.vstack([np.nan_to_num(paths, nan=-1.0), np.full((1, e_CL.shape[1]), -1.0)])
    paths[:, excluded] = -1.0
    return paths.max(axis=0), paths.argmax(axis=0)


def shortlist(yhat_L: np.ndarray, size: int) -> np.ndarray:
    """(6) the labels of the `size` best, ties by lower label."""
    order = np.argsort(-yhat_L, kind="stable")
    return order[yhat_L[order] >= 0][:size]


def loss(
    phi_BD: torch.Tensor,
    cluster_weights: torch.Tensor,
    logits_CL: torch.Tensor,
    classifiers: torch.Tensor,
    biases: torch.Tensor,
    index: LabelIndex,
    *,
    alpha: float,
    beam_size: int,
    shortlist_size: int,
    lambda_: float,
    positives: list[dict[int, float]],
    excluded: list[set[int]],
    row_weights: list[float],
) -> torch.Tensor:
    """(1) to (8) in float64 autograd, one row after another; every parent fits."""
    parent_of, exists_CL = parents(index), torch.from_numpy(~np.isnan(dense_logits(index)))
    e_CL = torch.softmax(logits_CL.masked_fill(~exists_CL, -1e30), dim=1)
    e_CL = (index.beta * e_CL).clamp(max=1.0) if index.logits is not None else torch.ones_like(e_CL)
    terms_c, terms_s, width = [], [], 0
    for row, phi in enumerate(phi_BD):
        logits_C = cluster_weights @ phi
        s_C = (alpha * torch.softmax(logits_C, dim=0)).clamp(max=1.0)
        chosen = set(beam(logits_C.detach().numpy()[None], beam_size)[0].tolist())
        chosen |= {int(parent_of[label]) for label in positives[row] if parent_of[label] >= 0}
        paths = torch.stack([(s_C[c] * e_CL[c]).masked_fill(~exists_CL[c], -1.0) for c in sorted(chosen)])
        yhat_L = paths.max(dim=0).values
        yhat_L = yhat_L.masked_fill(torch.tensor([label in excluded[row] for label in range(len(biases))]), -1.0)
        listed = shortlist(yhat_L.detach().numpy(), shortlist_size)
        width = max(width, len(listed))
        for label in listed:
            p = torch.sigmoid(classifiers[label] @ phi + biases[label]) * yhat_L[label]
            y = positives[row].get(int(label), 0.0)
            terms_c.append(-row_weights[row] * (y * torch.log(p) if y else torch.log(1 - p)))
        reached = [label for label in positives[row] if yhat_L[label] >= 0]
        terms_s += [-row_weights[row] * positives[row][label] * torch.log(yhat_L[label]) for label in reached]
    zero = phi_BD.sum() * 0.0
    most = max(len(row) for row in positives)
    first = sum(terms_c, start=zero) / max(1, len(phi_BD) * width)
    return first + lambda_ * sum(terms_s, start=zero) / max(1, len(phi_BD) * most)
