"""The learned final score of labels from their parts, row by row: `fusion.Learned` of `Evidence.columns`, compiled.

    x = the columns of `evidence`, each at mean 0 and spread 1, held within FARTHEST spreads
    s = u . x + v . tanh(W x + b) + bias

tanh is a quotient of two polynomials, which the processor computes for all units at once; it is off by less than 4e-7.
Twin: `Learned.__call__`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .paths import key_of
from .steps import FAST

PARTS = 8  # columns of their own; all but the last have a distance to the best label beside them
BEYOND = np.float32(7.9)  # tanh is 1 up to rounding


class Parts(NamedTuple):
    """Of the labels at each place [rows, m]; -1 is nobody. float32 but for the labels."""

    labels: np.ndarray  # int32
    cluster_score: np.ndarray
    edge_score: np.ndarray
    classifier: np.ndarray
    margin: np.ndarray
    both: np.ndarray
    text: np.ndarray
    rows: np.ndarray
    log_counts: np.ndarray  # [rows, m]


class Weights(NamedTuple):
    """Of the learned score, float32."""

    mean: np.ndarray
    spread: np.ndarray
    linear: np.ndarray
    hidden: np.ndarray  # [columns, units]
    shift: np.ndarray
    out: np.ndarray
    bias: np.float32
    farthest: np.float32
    least: np.float32  # of a probability


@njit(cache=True, nogil=True)
def learned_scores(start, stop, parts, weights, best, scores):  # type: ignore[no-untyped-def]
    """The scores of rows start..stop; `best` [rows, PARTS - 1] raises what distances are measured from."""
    n_columns = parts.labels.shape[1]
    plain = np.empty((n_columns, PARTS), dtype=np.float32)
    reach, x = np.empty(PARTS - 1, dtype=np.float32), np.empty(2 * PARTS - 1, dtype=np.float32)
    units = np.empty(len(weights.out), dtype=np.float32)
    for row in range(start, stop):
        plain_columns(row, parts, weights.least, plain)
        best_of_row(parts.labels[row], plain, best[row], reach)
        for column in range(n_columns):
            if parts.labels[row, column] < 0:
                scores[row, column] = np.float32(0.0)
                continue
            for part in range(PARTS):
                x[part] = plain[column, part]
            for part in range(PARTS - 1):
                x[PARTS + part] = plain[column, part] - reach[part]
            scores[row, column] = learned_score(x, weights, units)


@njit(cache=True, nogil=True, error_model="numpy")
def plain_columns(row, parts, least, out):  # type: ignore[no-untyped-def]
    """The columns of the labels of a row without their distances."""
    one = np.float32(1.0)
    for column in range(out.shape[0]):
        if parts.labels[row, column] < 0:
            continue
        sigma, yhat = parts.classifier[row, column], parts.cluster_score[row, column] * parts.edge_score[row, column]
        inside = min(max(sigma, least), one - least)
        out[column, 0] = math.log(max(sigma * yhat, least))
        out[column, 1] = math.log(inside) - math.log1p(-inside)
        out[column, 2] = math.log(max(yhat, least))
        out[column, 3] = parts.margin[row, column]
        out[column, 4] = parts.both[row, column]
        out[column, 5] = parts.text[row, column]
        out[column, 6] = parts.rows[row, column]
        out[column, 7] = parts.log_counts[row, column]


@njit(cache=True, nogil=True)
def best_of_row(labels, plain, raised, reach):  # type: ignore[no-untyped-def]
    """The largest value of the labels in each column, 0 where there are none, and not below `raised`."""
    for part in range(len(reach)):
        largest = np.float32(-np.inf)
        for column in range(len(labels)):
            if labels[column] >= 0:
                largest = max(largest, plain[column, part])
        reach[part] = max(largest if np.isfinite(largest) else np.float32(0.0), raised[part])


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def learned_score(x, weights, units):  # type: ignore[no-untyped-def]
    """s of one label; `units` is scratch."""
    total = weights.bias
    for j in range(len(units)):
        units[j] = weights.shift[j]
    for i in range(len(x)):
        value = (x[i] - weights.mean[i]) / weights.spread[i]
        value = min(max(value, -weights.farthest), weights.farthest)
        total += weights.linear[i] * value
        for j in range(len(units)):
            units[j] += value * weights.hidden[i, j]
    for j in range(len(units)):
        total += weights.out[j] * tanh_of(units[j])
    return total


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy", inline="always")
def tanh_of(value):  # type: ignore[no-untyped-def]
    """tanh in float32: the odd over the even polynomial of the minimax approximation that Eigen uses."""
    x = min(max(value, -BEYOND), BEYOND)
    y = x * x
    top = np.float32(-2.76076847742355e-16)
    top = y * top + np.float32(2.00018790482477e-13)
    top = y * top + np.float32(-8.60467152213735e-11)
    top = y * top + np.float32(5.12229709037114e-08)
    top = y * top + np.float32(1.48572235717979e-05)
    top = y * top + np.float32(6.37261928875436e-04)
    top = y * top + np.float32(4.89352455891786e-03)
    bottom = np.float32(1.19825839466702e-06)
    bottom = y * bottom + np.float32(1.18534705686654e-04)
    bottom = y * bottom + np.float32(2.26843463243900e-03)
    bottom = y * bottom + np.float32(4.89352518554385e-03)
    return x * top / bottom


@njit(cache=True, nogil=True)
def rank_rows(start, stop, labels, scores, places):  # type: ignore[no-untyped-def]
    """Places of the best labels of each row by falling score, then rising label; -1 where there are fewer."""
    n_columns, room = labels.shape[1], places.shape[1]
    keys, place_of = np.empty(n_columns, dtype=np.uint64), np.empty(n_columns, dtype=np.int64)
    for row in range(start, stop):
        count = 0
        for column in range(n_columns):
            if labels[row, column] >= 0:
                keys[count], place_of[count] = key_of(scores[row, column], labels[row, column]), column
                count += 1
        best = np.argsort(keys[:count])
        for j in range(room):
            places[row, j] = place_of[best[count - 1 - j]] if j < count else -1
