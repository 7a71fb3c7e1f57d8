"""Metrics of predictions: P@k, nDCG@k, PSP@k, PSnDCG@k, R@k; per row, per decile and per label; calibration error.

    P@k      = mean over rows of  hits among the top k / k
    nDCG@k   = mean over rows of  DCG@k / best DCG@k,       DCG@k = sum over hits of 1 / log2(1 + rank)
    R@k      = mean over rows of  hits among the top k / number of labels
    PSP@k    = sum over rows of   (sum over hits of 1 / p)  /  the best that any ranking reaches, summed likewise
    PSnDCG@k = sum over rows of   (sum over hits of 1 / (p log2(1 + rank))) / IDCG@k  /  the best, summed likewise,
               IDCG@k = sum over the first min(k, number of labels) ranks of 1 / log2(1 + rank)
    p = propensity of the label (`propensity`)

    calibration error (expected calibration error, ECE) of pairs with a probability each:
        mean over 15 bins of equally many pairs, sorted by probability, of |mean probability - share of right pairs|
    of predictions: the pairs are the first 5 labels of every row with labels

In: predicted label numbers, rows x k, best first, PAD where a row has fewer; the rows x L matrix of relevant labels (a
weight above 0 is relevant). Out: percentages. Rows without labels are left out; a missing prediction is a miss, and so
is a second occurrence of a label in a row. Excluded pairs are first removed from the labels and from the predictions,
where later ones move up. A calibration error is no percentage: 0 to 1.

Every metric follows from the ranks of the relevant labels, so those are found first (`rank_relevant`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .errors import InputError
from .predictions import PAD
from .propensity import PropensityModel

N_DECILES = 10
CALIBRATION_BINS = 15
CALIBRATED_LABELS = 5  # of each row, whose probabilities the calibration error is about
_BLOCK = 1 << 21  # comparisons of predictions with labels made at once: bounds memory, not results


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
    """One entry per label; precision and recall in percent, 0 where there is nothing to divide by."""

    training_count: np.ndarray
    test_count: np.ndarray
    predicted_count: np.ndarray  # times the label is among the top k
    hits: np.ndarray
    precision: np.ndarray
    recall: np.ndarray


class CalibrationBin(NamedTuple):
    """Pairs of similar probability."""

    pairs: int
    probability: float  # mean
    right: float  # share


def evaluate(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    propensity: PropensityModel,
    *,
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 20, 100),
    excluded: sp.csr_matrix | None = None,
) -> Metrics:
    """All metrics of one set of predictions."""
    rows = per_row(predicted, labels, propensity, ks=ks, recall_ks=recall_ks, excluded=excluded)
    return Metrics(
        values={name: 100.0 * _share(reached.sum(), best.sum()) for name, (reached, best) in rows.shares.items()},
        rows=rows.n_scored,
        rows_without_labels=int(labels.shape[0]) - rows.n_scored,
    )


def per_row(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    propensity: PropensityModel,
    *,
    ks: Sequence[int] = (1, 3, 5),
    recall_ks: Sequence[int] = (10, 20, 100),
    excluded: sp.csr_matrix | None = None,
) -> PerRow:
    """What each row with labels adds to every metric: what `evaluate` sums, and what a bootstrap resamples."""
    _check_ks([*ks, *recall_ks])
    relevant = rank_relevant(
        predicted, labels, propensity.label_counts, max([*ks, *recall_ks], default=1), excluded=excluded
    )
    weights = 1.0 / propensity.propensities()[relevant.labels]
    rows, ranks, counts = relevant.rows, relevant.ranks, relevant.counts
    with_labels, ones = counts > 0, np.ones(relevant.n_scored)
    best_order = np.lexsort((-weights, rows))  # the best ranking: in each row by falling weight
    best_weights = weights[best_order]
    best_ranks = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    discounts = 1.0 / np.log2(2.0 + np.arange(max(ranks.max(initial=0), best_ranks.max(initial=0)) + 1))
    ideal = np.concatenate(([1.0], np.cumsum(discounts)))

    def summed(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return np.bincount(rows[chosen], weights=values[chosen], minlength=len(counts))[with_labels]

    measures = ("P", "nDCG", "PSP", "PSnDCG", "R")
    shares: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {name: {} for name in measures}
    for k in ks:
        hit, best = ranks < k, best_ranks < k
        idcg = ideal[np.minimum(counts, k)][rows]  # of the row of each pair
        shares["P"][k] = summed(np.full(len(rows), 1.0 / k), hit), ones
        shares["nDCG"][k] = summed(discounts[ranks] / idcg, hit), ones
        shares["PSP"][k] = summed(weights, hit), summed(best_weights, best)
        shares["PSnDCG"][k] = (
            summed(weights * discounts[ranks] / idcg, hit), summed(best_weights * discounts[best_ranks] / idcg, best)
        )  # fmt: skip
    for k in recall_ks:
        shares["R"][k] = summed(1.0 / counts[rows], ranks < k), ones
    flat = {f"{name}@{k}": share for name, by_k in shares.items() for k, share in by_k.items()}
    return PerRow(shares=flat, rows=np.flatnonzero(with_labels))


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
    relevant = rank_relevant(predicted, labels, label_counts, k, excluded=excluded)
    of_label = deciles(label_counts)
    of_pair, hit = of_label[relevant.labels], relevant.ranks < k

    def summed(places: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(places, weights=weights, minlength=N_DECILES)

    training_pairs = summed(of_label, np.asarray(label_counts, dtype=np.float64))
    contribution = summed(of_pair[hit], 1.0 / relevant.counts[relevant.rows][hit]) / max(1, relevant.n_scored)
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
    relevant = rank_relevant(predicted, labels, label_counts, k, excluded=excluded)
    top = relevant.predicted[relevant.counts > 0, :k]
    test_count = np.bincount(relevant.labels, minlength=relevant.n_labels)
    predicted_count = np.bincount(top[top >= 0], minlength=relevant.n_labels)
    hits = np.bincount(relevant.labels[relevant.ranks < k], minlength=relevant.n_labels)
    return PerLabel(
        training_count=np.asarray(label_counts),
        test_count=test_count,
        predicted_count=predicted_count,
        hits=hits,
        precision=100.0 * hits / np.maximum(predicted_count, 1),
        recall=100.0 * hits / np.maximum(test_count, 1),
    )


def mean_by_decile(values: np.ndarray, of_value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(how many, mean) of the values of each decile, by the decile of each value; NaN of none."""
    counts = np.bincount(of_value, minlength=N_DECILES)
    sums = np.bincount(of_value, weights=values, minlength=N_DECILES)
    return counts, np.divide(sums, counts, out=np.full(N_DECILES, np.nan), where=counts > 0)


def recall_curve(
    predicted: np.ndarray, labels: sp.csr_matrix, longest: int, *, excluded: sp.csr_matrix | None = None
) -> np.ndarray:
    """R@1 to R@longest."""
    _check_ks([longest])
    no_counts = np.zeros(labels.shape[1], dtype=np.int64)
    relevant = rank_relevant(predicted, labels, no_counts, longest, excluded=excluded)
    hit = relevant.ranks < longest
    shares = 1.0 / relevant.counts[relevant.rows][hit]
    return 100.0 * np.cumsum(np.bincount(relevant.ranks[hit], shares, longest)) / max(1, relevant.n_scored)


def calibration_bins(probabilities: np.ndarray, right: np.ndarray) -> list[CalibrationBin]:
    """Pairs sorted by probability, in 15 bins of equally many; fewer where there are fewer pairs."""
    order = np.argsort(probabilities, kind="stable")
    bins = [one for one in np.array_split(order, CALIBRATION_BINS) if len(one)]
    return [CalibrationBin(len(b), float(probabilities[b].mean()), float(right[b].mean())) for b in bins]


def calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """ECE of pairs; 0 of none."""
    gaps = [one.pairs * abs(one.probability - one.right) for one in calibration_bins(probabilities, right)]
    return float(sum(gaps) / max(1, len(probabilities)))


def calibrated_pairs(
    predicted: np.ndarray, probabilities: np.ndarray, labels: sp.csr_matrix, *, k: int = CALIBRATED_LABELS
) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the first k labels of the rows that have labels, and whether each of them is right."""
    rows, numbers = _pairs(labels)
    top = predicted[:, :k]
    used = (top >= 0) & (np.bincount(rows, minlength=len(top)) > 0)[:, None]
    n_labels = int(labels.shape[1])
    keys = (np.arange(len(top), dtype=np.int64)[:, None] * n_labels + top)[used]
    return probabilities[:, :k][used].astype(np.float64), np.isin(keys, rows * n_labels + numbers)


def calibration_error_of(
    predicted: np.ndarray, probabilities: np.ndarray, labels: sp.csr_matrix, *, k: int = CALIBRATED_LABELS
) -> float:
    """ECE of the first k labels of the rows that have labels."""
    return calibration_error(*calibrated_pairs(predicted, probabilities, labels, k=k))


def format_metrics(metrics: Metrics) -> str:
    """A table: one line per measure, one column per k."""
    lines = [f"{line[0]:8}" + "".join(f"{cell:>8}" for cell in line[1:]) for line in metrics_table(metrics)]
    return "\n".join([*(line.rstrip() for line in lines), rows_of(metrics)])


def metrics_table(metrics: Metrics) -> list[list[str]]:
    """Its cells, the head first."""
    names = [name.split("@") for name in metrics.values]
    ks = sorted({int(k) for _, k in names})
    lines = [["", *(f"@{k}" for k in ks)]]
    for measure in dict.fromkeys(name for name, _ in names):
        cells = (metrics.values.get(f"{measure}@{k}") for k in ks)
        lines.append([measure, *("" if cell is None else f"{cell:.2f}" for cell in cells)])
    return lines


def rows_of(metrics: Metrics) -> str:
    """How many rows were measured: the line below the table."""
    left_out = f", {metrics.rows_without_labels:,} without labels left out" if metrics.rows_without_labels else ""
    return f"{metrics.rows:,} rows{left_out}"


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _check_ks(ks: list[int]) -> None:
    if any(k < 1 for k in ks):
        raise InputError(f"k is {min(ks)}; it must be 1 or more")


@dataclass(frozen=True)
class RelevantPairs:
    """The relevant (row, label) pairs, row by row, with the rank of each among the predictions of its row."""

    predicted: np.ndarray  # without excluded pairs and gaps, the first `width` columns
    rows: np.ndarray
    labels: np.ndarray
    ranks: np.ndarray  # 0 is the best; `width` where the label was not predicted
    counts: np.ndarray  # relevant labels of each row
    n_labels: int

    @property
    def n_scored(self) -> int:
        return int((self.counts > 0).sum())


def rank_relevant(
    predicted: np.ndarray,
    labels: sp.csr_matrix,
    label_counts: np.ndarray,
    width: int,
    *,
    excluded: sp.csr_matrix | None,
) -> RelevantPairs:
    """Check the arguments, remove excluded pairs, and rank each relevant pair among the first `width` predictions."""
    n_rows, n_labels = (int(size) for size in labels.shape)
    if predicted.ndim != 2 or len(predicted) != n_rows:
        raise InputError(f"predictions of shape {predicted.shape} for {n_rows} rows; pass rows x k label numbers")
    if len(label_counts) != n_labels:
        raise InputError(f"{len(label_counts)} label counts for {n_labels} labels; pass one per label")
    if predicted.size and not PAD <= predicted.min() <= predicted.max() < n_labels:
        found = f"{predicted.min()} to {predicted.max()}"
        raise InputError(f"predicted label numbers from {found}; there are {n_labels} labels, and {PAD} is padding")
    rows, numbers = _pairs(labels)
    if excluded is not None:
        if excluded.shape != labels.shape:
            raise InputError(f"excluded pairs of shape {excluded.shape} for labels of shape {labels.shape}")
        out_rows, out_numbers = _pairs(excluded)
        kept = np.isin(rows * n_labels + numbers, out_rows * n_labels + out_numbers, invert=True)
        rows, numbers = rows[kept], numbers[kept]
        predicted = _without(predicted, out_rows, out_numbers)
    predicted = _close_gaps(predicted)[:, :width]
    counts = np.bincount(rows, minlength=n_rows)
    return RelevantPairs(predicted, rows, numbers, _ranks(predicted, rows, numbers, width), counts, n_labels)


def _pairs(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the values above 0, row by row, each once."""
    n_columns = max(1, int(matrix.shape[1]))
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    keys = rows * n_columns + matrix.indices
    keys = np.unique(keys[matrix.data > 0])
    return keys // n_columns, keys % n_columns


def _blocks(predicted: np.ndarray, n_pairs: int) -> list[slice]:
    size = max(1, _BLOCK // max(1, predicted.shape[1]))
    return [slice(start, start + size) for start in range(0, n_pairs, size)]


def _ranks(predicted: np.ndarray, rows: np.ndarray, labels: np.ndarray, width: int) -> np.ndarray:
    """The column of each pair's label in its row, `width` where it is not there. argmax: the first occurrence."""
    ranks = np.full(len(rows), width, dtype=np.int64)
    if predicted.shape[1]:
        for block in _blocks(predicted, len(rows)):
            same = predicted[rows[block]] == labels[block, None]
            ranks[block] = np.where(same.any(axis=1), same.argmax(axis=1), width)
    return ranks


def _without(predicted: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A copy with PAD in place of the given pairs."""
    predicted = predicted.copy()
    for block in _blocks(predicted, len(rows)):
        pair, column = np.nonzero(predicted[rows[block]] == labels[block, None])
        predicted[rows[block][pair], column] = PAD
    return predicted


def _close_gaps(predicted: np.ndarray) -> np.ndarray:
    """Each row's labels in order, all pads after them; only rows with gaps are copied, as most have none."""
    missing = predicted < 0
    gaps = np.flatnonzero((missing[:, :-1] & ~missing[:, 1:]).any(axis=1))
    if len(gaps):
        predicted = predicted.copy()
        order = np.argsort(missing[gaps], axis=1, kind="stable")
        predicted[gaps] = np.take_along_axis(predicted[gaps], order, axis=1)
    return predicted
