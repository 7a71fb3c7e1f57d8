"""How good predictions are: P@k, nDCG@k, PSP@k, PSnDCG@k, R@k; by row, by decile and by label.

    P@k      = mean over rows of  hits among the top k / k
    nDCG@k   = mean over rows of  DCG@k / best DCG@k,       DCG@k = sum over hits of 1 / log2(1 + rank)
    R@k      = mean over rows of  hits among the top k / number of labels
    PSP@k    = sum over rows of   (sum over hits of 1 / p)  /  the best any ranking could reach, summed likewise
    PSnDCG@k = sum over rows of   (sum over hits of 1 / (p log2(1 + rank))) / IDCG@k  /  the best, summed likewise,
               IDCG@k = sum over the first min(k, number of labels) ranks of 1 / log2(1 + rank)
    p(label) = 1 / (1 + Cc (n + b)^-a),  Cc = (ln N - 1)(b + 1)^a,  n of N training rows have the label

In: predicted label numbers, rows x k, best first, -1 for nothing; the rows x L matrix of right labels (a weight above
0 is right). Out: percentages. Rows without labels are left out; a missing prediction is a miss, and so is a label's
second appearance in a row. Excluded pairs are first taken out of the labels and of the predictions, where later ones
move up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .errors import InputError
from .hits import find_hits

N_DECILES = 10


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Percentages by name ("P@1", "R@100", ...), over so many rows."""

    values: dict[str, float]
    rows: int
    rows_without_labels: int

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def as_dict(self) -> dict[str, float | int]:
        return {**self.values, "rows": self.rows, "rows_without_labels": self.rows_without_labels}


@dataclass(frozen=True, kw_only=True)
class PerRow:
    """By metric, what each row reaches and the best it could: the metric is 100 * sum(reached) / sum(best)."""

    shares: dict[str, tuple[np.ndarray, np.ndarray]]
    rows: np.ndarray  # numbers of the rows that have labels, in the order of the arrays

    @property
    def n_scored(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class Decile:
    """Labels that hold a tenth of the training pairs; 0 is the decile of the most frequent labels."""

    decile: int
    labels: int
    training_pairs: int
    test_pairs: int
    contribution: float  # to R@k: these add up to it
    recall: float  # share of the decile's test pairs found among the top k


@dataclass(frozen=True, kw_only=True)
class PerLabel:
    """One entry a label; precision and recall in percent, 0 where there is nothing to divide by."""

    training_count: np.ndarray
    test_count: np.ndarray
    predicted_count: np.ndarray  # times the label is among the top k
    hits: np.ndarray
    precision: np.ndarray
    recall: np.ndarray


def propensities(label_counts: np.ndarray, n_train: int, a: float = 0.55, b: float = 1.5) -> np.ndarray:
    """The chance that a right label was noted, by training frequency, above 0 and at most 1.

    Cc is negative for fewer than 3 training rows; it is then taken as 0.
    """
    if a < 0 or b <= 0:
        raise InputError(f"propensity a = {a}, b = {b}: a must not be negative and b must be above 0")
    scale = max(0.0, (np.log(max(n_train, 1)) - 1.0) * (b + 1.0) ** a)
    return np.asarray(1.0 / (1.0 + scale * (np.asarray(label_counts, dtype=np.float64) + b) ** -a))


def deciles(label_counts: np.ndarray) -> np.ndarray:
    """The decile (0..9) of each label: labels by falling frequency, a new decile after every 10 % of the pairs.

    A label belongs where its first pair falls; labels without a training pair belong to the last decile.
    """
    counts = np.asarray(label_counts, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    found = np.empty(len(counts), dtype=np.int64)
    found[order] = np.minimum(before * N_DECILES // max(1, int(counts.sum())), N_DECILES - 1)
    found[counts == 0] = N_DECILES - 1
    return found


def evaluate(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    *,
    label_counts: np.ndarray,
    n_train: int,
    a: float = 0.55,
    b: float = 1.5,
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 20, 100),
    excluded: sp.csr_matrix | None = None,
) -> Metrics:
    """All metrics of one set of predictions."""
    rows = per_row(
        predicted, labels, label_counts=label_counts, n_train=n_train, a=a, b=b,
        ks=ks, recall_ks=recall_ks, excluded=excluded,
    )  # fmt: skip
    return Metrics(
        values={name: 100.0 * _share(reached.sum(), best.sum()) for name, (reached, best) in rows.shares.items()},
        rows=rows.n_scored,
        rows_without_labels=int(labels.shape[0]) - rows.n_scored,
    )


def per_row(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    *,
    label_counts: np.ndarray,
    n_train: int,
    a: float = 0.55,
    b: float = 1.5,
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 20, 100),
    excluded: sp.csr_matrix | None = None,
) -> PerRow:
    """What each row with labels adds to every metric: what `evaluate` sums, and what a bootstrap draws from."""
    _check_ks([*ks, *recall_ks])
    scored = find_hits(predicted, labels, label_counts, max([*ks, *recall_ks], default=1), excluded)
    weights = 1.0 / propensities(label_counts, n_train, a, b)[scored.labels]
    rows, ranks, counts = scored.rows, scored.ranks, scored.counts
    with_labels, ones = counts > 0, np.ones(scored.n_scored)
    best_order = np.lexsort((-weights, rows))  # the best ranking: in each row by falling weight
    best_weights = weights[best_order]
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    discounts = 1.0 / np.log2(2.0 + np.arange(max(ranks.max(initial=0), places.max(initial=0)) + 1))
    ideal = np.concatenate(([1.0], np.cumsum(discounts)))

    def summed(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return np.bincount(rows[chosen], weights=values[chosen], minlength=len(counts))[with_labels]

    measures = ("P", "nDCG", "PSP", "PSnDCG", "R")
    shares: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {name: {} for name in measures}
    for k in ks:
        hit, best = ranks < k, places < k
        idcg = ideal[np.minimum(counts, k)][rows]  # of the row of each pair
        shares["P"][k] = summed(np.full(len(rows), 1.0 / k), hit), ones
        shares["nDCG"][k] = summed(discounts[ranks] / idcg, hit), ones
        shares["PSP"][k] = summed(weights, hit), summed(best_weights, best)
        shares["PSnDCG"][k] = (
            summed(weights * discounts[ranks] / idcg, hit), summed(best_weights * discounts[places] / idcg, best)
        )  # fmt: skip
    for k in recall_ks:
        shares["R"][k] = summed(1.0 / counts[rows], ranks < k), ones
    flat = {f"{name}@{k}": share for name, by_k in shares.items() for k, share in by_k.items()}
    return PerRow(shares=flat, rows=np.flatnonzero(with_labels))


def by_decile(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    *,
    label_counts: np.ndarray,
    k: int = 100,
    excluded: sp.csr_matrix | None = None,
) -> list[Decile]:
    """What each decile adds to R@k, and the recall within it."""
    _check_ks([k])
    scored = find_hits(predicted, labels, label_counts, k, excluded)
    of_label = deciles(label_counts)
    of_pair, hit = of_label[scored.labels], scored.ranks < k

    def summed(places: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(places, weights=weights, minlength=N_DECILES)

    training_pairs = summed(of_label, np.asarray(label_counts, dtype=np.float64))
    contribution = summed(of_pair[hit], 1.0 / scored.counts[scored.rows][hit]) / max(1, scored.n_scored)
    n_labels, test_pairs, hits = summed(of_label), summed(of_pair), summed(of_pair[hit])
    return [
        Decile(
            decile=decile,
            labels=int(n_labels[decile]),
            training_pairs=int(training_pairs[decile]),
            test_pairs=int(test_pairs[decile]),
            contribution=100.0 * float(contribution[decile]),
            recall=100.0 * _share(hits[decile], test_pairs[decile]),
        )
        for decile in range(N_DECILES)
    ]


def per_label(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    *,
    label_counts: np.ndarray,
    k: int = 5,
    excluded: sp.csr_matrix | None = None,
) -> PerLabel:
    """Precision and recall of each label among the top k of the rows that have labels."""
    _check_ks([k])
    scored = find_hits(predicted, labels, label_counts, k, excluded)
    top = scored.predicted[scored.counts > 0, :k]
    test_count = np.bincount(scored.labels, minlength=scored.n_labels)
    predicted_count = np.bincount(top[top >= 0], minlength=scored.n_labels)
    hits = np.bincount(scored.labels[scored.ranks < k], minlength=scored.n_labels)
    return PerLabel(
        training_count=np.asarray(label_counts),
        test_count=test_count,
        predicted_count=predicted_count,
        hits=hits,
        precision=100.0 * hits / np.maximum(predicted_count, 1),
        recall=100.0 * hits / np.maximum(test_count, 1),
    )


def format_metrics(metrics: Metrics) -> str:
    """A table: one line a measure, one column a k."""
    names = [name.split("@") for name in metrics.values]
    ks = sorted({int(k) for _, k in names})
    lines = [f"{'':8}" + "".join(f"{'@' + str(k):>8}" for k in ks)]
    for measure in dict.fromkeys(name for name, _ in names):
        cells = (metrics.values.get(f"{measure}@{k}") for k in ks)
        lines.append(f"{measure:8}" + "".join(f"{'' if cell is None else f'{cell:.2f}':>8}" for cell in cells))
    left_out = f", {metrics.rows_without_labels:,} without labels left out" if metrics.rows_without_labels else ""
    return "\n".join([*(line.rstrip() for line in lines), f"{metrics.rows:,} rows{left_out}"])


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _check_ks(ks: list[int]) -> None:
    if any(k < 1 for k in ks):
        raise InputError(f"k is {min(ks)}; it must be 1 or more")
