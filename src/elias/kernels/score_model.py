"""The score model on the CPU: scores of the candidates of a text from their features, the k best, calibration.

    x = the inputs of `ranking/score_model.py`, standardized and clipped
    s = u . x + v . tanh(W x + b) + bias

tanh is a quotient of two polynomials, which vectorizes (eight candidates at once); off by less than 4e-7.
Definition: `LearnedScore` in `ranking/score_model.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .features import CLASSIFIER, CLUSTER_SCORE, EDGE_SCORE, FEATURES
from .shortlist import LOW32, key_of, top_k
from .steps import FAST

PLAIN = len(FEATURES)
RELATIVE = PLAIN - 1  # every feature but the last has its distance to the best candidate beside it
RANKED = tuple([FEATURES.index(name) for name in ("combined", "centroid", "vote")])  # and these their log rank
RANKS = PLAIN + RELATIVE  # where the log ranks begin
N_INPUTS = RANKS + len(RANKED)
HALF = np.uint64(32)  # bits of a key that are its value
LOG_RANKS = np.array([math.log1p(number) for number in range(1024)], dtype=np.float32)
BEYOND = np.float32(7.9)  # tanh is 1 up to rounding


class Weights(NamedTuple):
    """Of the score model, float32."""

    mean: np.ndarray
    inverse: np.ndarray  # 1 / spread
    linear: np.ndarray
    hidden: np.ndarray  # [units, inputs]
    shift: np.ndarray
    out: np.ndarray
    bias: np.float32
    farthest: np.float32
    least: np.float32  # of a probability


@njit(cache=True, nogil=True)
def score_rows(start, stop, features, weights, reference, scores):  # type: ignore[no-untyped-def]
    """The scores of rows start..stop, 0 at PAD.

    `reference`: (best, sorted) of other candidates that distances and ranks are relative to; where `sorted` is empty, a
    row is compared with its own candidates.
    """
    best, rising = reference
    width = features.labels.shape[1]
    inputs, keys = np.zeros((N_INPUTS, width), dtype=np.float32), np.empty(width, dtype=np.uint64)
    unit = np.empty(width, dtype=np.float32)
    for row in range(start, stop):
        labels, values = features.labels[row], features.values[row]
        for place in range(len(RANKED)):
            if rising.shape[2] == 0:
                own_log_ranks(labels, values[RANKED[place]], keys, inputs[RANKS + place])
            else:
                log_ranks(values[RANKED[place]], rising[row, place], inputs[RANKS + place])
        plain_inputs(labels, values, weights.least, inputs)
        for i in range(RELATIVE):
            reach = max(largest(labels, inputs[i]), best[row, i])
            distances(inputs[i], reach, inputs[PLAIN + i])
        scores_of_inputs(labels, inputs, weights, unit, scores[row])


@njit(cache=True, nogil=True)
def scores_of_inputs(labels, inputs, weights, unit, total):  # type: ignore[no-untyped-def]
    """The scores of one text from its inputs [N_INPUTS, m], which are standardized in place; `unit` is scratch [m].

    The candidates of a text lie side by side in every input, so that SIMD instructions handle eight at a time.
    """
    total[:] = weights.bias
    for i in range(N_INPUTS):
        standardize(inputs[i], weights.mean[i], weights.inverse[i], weights.farthest)
        add_times(total, inputs[i], weights.linear[i])
    for j in range(len(weights.out)):
        hidden_sums(inputs, weights.hidden[j], weights.shift[j], unit)
        add_tanh(total, unit, weights.out[j])
    for column in range(len(total)):
        if labels[column] < 0:
            total[column] = np.float32(0.0)


@njit(cache=True, nogil=True)
def hidden_sums(inputs, weights, shift, unit):  # type: ignore[no-untyped-def]
    """One hidden unit of many examples before its tanh: shift + weights . x, four inputs at a time."""
    unit[:] = shift
    i = 0
    while i + 4 <= N_INPUTS:
        add_four_times(unit, inputs[i : i + 4], weights[i : i + 4])
        i += 4
    while i < N_INPUTS:
        add_times(unit, inputs[i], weights[i])
        i += 1


@njit(cache=True, nogil=True, error_model="numpy")
def plain_inputs(labels, values, least, out):  # type: ignore[no-untyped-def]
    """log p, z and log yhat from the network's features; the other features as they are."""
    one = np.float32(1.0)
    for column in range(len(labels)):
        if labels[column] < 0:
            continue
        sigma, yhat = values[CLASSIFIER, column], values[CLUSTER_SCORE, column] * values[EDGE_SCORE, column]
        inside = min(max(sigma, least), one - least)
        out[0, column] = math.log(max(sigma * yhat, least))
        out[1, column] = math.log(inside) - math.log1p(-inside)
        out[2, column] = math.log(max(yhat, least))
    for i in range(CLASSIFIER + 1, PLAIN):
        out[i] = values[i]


@njit(cache=True, nogil=True)
def largest(labels, column):  # type: ignore[no-untyped-def]
    """The largest value of the labels, 0 where there are none."""
    most = np.float32(-np.inf)
    for place in range(len(labels)):
        if labels[place] >= 0:
            most = max(most, column[place])
    return most if np.isfinite(most) else np.float32(0.0)


@njit(cache=True, nogil=True)
def own_log_ranks(labels, column, keys, out):  # type: ignore[no-untyped-def]
    """log(1 + how many values of the row's own candidates are larger), from one sort; `keys` is scratch for it."""
    count = 0
    for place in range(len(labels)):
        out[place] = np.float32(0.0)
        if labels[place] >= 0:
            keys[count] = key_of(column[place], place)
            count += 1
    rising = keys[:count]
    rising.sort()
    more = 0
    for i in range(count):
        at = np.int64(LOW32 - (rising[count - 1 - i] & LOW32))
        if i and rising[count - 1 - i] >> HALF != rising[count - i] >> HALF:
            more = i
        out[at] = LOG_RANKS[more] if more < len(LOG_RANKS) else math.log1p(more)


@njit(cache=True, nogil=True)
def log_ranks(column, rising, out):  # type: ignore[no-untyped-def]
    """log(1 + how many of the values are larger)."""
    for place in range(len(column)):
        low, high = 0, len(rising)
        while low < high:  # the first one that is larger
            middle = (low + high) // 2
            if rising[middle] > column[place]:
                high = middle
            else:
                low = middle + 1
        out[place] = math.log1p(len(rising) - low)


@njit(cache=True, nogil=True)
def distances(column, reach, out):  # type: ignore[no-untyped-def]
    for place in range(len(column)):
        out[place] = column[place] - reach


@njit(cache=True, nogil=True)
def standardize(column, mean, inverse, farthest):  # type: ignore[no-untyped-def]
    for place in range(len(column)):
        value = (column[place] - mean) * inverse
        # A number that is none stays none, so that a damaged table is noticed by the answer.
        column[place] = min(max(value, -farthest), farthest) if value == value else value


@njit(cache=True, nogil=True, fastmath=FAST)
def add_times(total, column, factor):  # type: ignore[no-untyped-def]
    for place in range(len(total)):
        total[place] += factor * column[place]


@njit(cache=True, nogil=True, fastmath=FAST)
def add_four_times(total, columns, factors):  # type: ignore[no-untyped-def]
    """Four columns at a time, so that totals are read and written once for all of them."""
    a, b, c, d = columns[0], columns[1], columns[2], columns[3]
    by_a, by_b, by_c, by_d = factors[0], factors[1], factors[2], factors[3]
    for place in range(len(total)):
        total[place] += by_a * a[place] + by_b * b[place] + by_c * c[place] + by_d * d[place]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def add_tanh(total, unit, factor):  # type: ignore[no-untyped-def]
    for place in range(len(total)):
        total[place] += factor * tanh_of(unit[place])


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


@njit(cache=True, nogil=True, error_model="numpy")
def top_rows(start, stop, labels, scores, curve, places, best, values):  # type: ignore[no-untyped-def]
    """The best candidates of each row by falling score, then rising label: their places, labels and calibrated scores.

    PAD and 0 where there are fewer. `curve`: (scores, probabilities, slope) of an `IsotonicCalibration`; empty: values
    are the scores themselves.
    """
    places[start:stop] = -1
    top_k(start, stop, scores, labels, places)
    knots, heights, slope = curve
    for row in range(start, stop):
        for j in range(places.shape[1]):
            place = places[row, j]
            if place < 0:
                best[row, j], values[row, j] = -1, np.float32(0.0)
                continue
            best[row, j], values[row, j] = labels[row, place], scores[row, place]
            if len(knots):
                score = np.float64(scores[row, place])
                rise = 1.0 / (1.0 + math.exp(min(max(-score, -60.0), 60.0)))
                values[row, j] = (1.0 - slope) * height_at(score, knots, heights) + slope * rise


@njit(cache=True, nogil=True, error_model="numpy")
def height_at(score, knots, heights):  # type: ignore[no-untyped-def]
    """A curve that is linear between its knots and constant beyond the ends."""
    low, high = -1, len(knots)  # knots[low] <= score < knots[high]
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= score:
            low = middle
        else:
            high = middle
    if low < 0:
        return heights[0]
    if high == len(knots):
        return heights[-1]
    share = (score - knots[low]) / (knots[high] - knots[low])
    return heights[low] + share * (heights[high] - heights[low])
