"""Learning the score model on the CPU: loss, gradients and AdamW in one pass per batch of texts.

    z = u . x + v . tanh(W x + b) + bias                                              per candidate
    wrong = log sum over wrong candidates of counts exp(z)                            per text
    loss  = mean over texts of (sum over right ones of softplus(wrong - z)
                                + sum over all of counts (softplus(z) - y z)) / number of right ones

All weights stand in one array, so that a step of the optimizer is one loop. The examples of a batch lie side by side in
every input, so that SIMD instructions handle several at a time. Definition: `_TorchLearner` in `ranking/score_fit.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .exponent import exp
from .score_model import N_INPUTS, add_times, hidden_sums, tanh_of
from .steps import FAST

EPSILON = np.float32(1e-8)  # of AdamW


class Parameters(NamedTuple):
    """Weights in one array (`split` gives their places), with the moments of AdamW; float32."""

    values: np.ndarray
    first: np.ndarray
    second: np.ndarray
    gradient: np.ndarray  # scratch
    n_units: int

    @classmethod
    def of(cls, hidden: np.ndarray) -> Parameters:
        """`hidden` [inputs, units] as it starts; all other weights are 0."""
        n_units = hidden.shape[1]
        size = N_INPUTS * (n_units + 1) + 2 * n_units + 1
        values, first, second, gradient = np.zeros((4, size), dtype=np.float32)
        found = cls(values, first, second, gradient, n_units)
        split(found.values, n_units)[1][:] = hidden.T
        return found


@njit(cache=True, nogil=True)
def split(values, n_units):  # type: ignore[no-untyped-def]
    """(u, W [units, inputs], b, v, bias): views of an array with all weights."""
    hidden, shift = N_INPUTS, N_INPUTS * (n_units + 1)
    return (
        values[:hidden],
        values[hidden:shift].reshape(n_units, N_INPUTS),
        values[shift : shift + n_units],
        values[shift + n_units : shift + 2 * n_units],
        values[shift + 2 * n_units :],
    )


@njit(cache=True, nogil=True)
def fit_steps(inputs, texts, examples, standardization, schedule, batch, parameters):  # type: ignore[no-untyped-def]
    """One step per `batch` texts.

    `inputs` [texts, m, N_INPUTS]; `texts`: rows of it; `examples`: (columns, y, counts) [len(texts), M];
    `standardization`: (mean, 1 / spread, farthest); `schedule`: (rates, beta1 of each step, beta2, weight decay, number
    of steps done before).
    """
    columns, _, _ = examples
    rates, betas, beta2, decay, done = schedule
    n_units = parameters.n_units
    most = min(batch, len(texts)) * columns.shape[1]
    all_x, all_units = np.empty(N_INPUTS * most, dtype=np.float32), np.empty(n_units * most, dtype=np.float32)
    z, back, through = (
        np.empty(most, dtype=np.float32),
        np.empty(most, dtype=np.float32),
        np.empty(most, dtype=np.float32),
    )
    right, weight = np.empty(most, dtype=np.float32), np.empty(most, dtype=np.float32)
    starts = np.empty(batch + 1, dtype=np.int64)
    for step in range(len(rates)):
        first, last = step * batch, min((step + 1) * batch, len(texts))
        size = np.sum(examples[2][first:last] > 0)
        # Contiguous in either direction: a part of the columns would not be read by SIMD instructions.
        x = all_x[: N_INPUTS * size].reshape(N_INPUTS, size)
        units = all_units[: n_units * size].reshape(n_units, size)
        gather(inputs, texts[first:last], examples, first, standardization, x, right, weight, starts)
        forward(parameters, x, units, z[:size])
        loss_gradient(z[:size], right, weight, starts[: last - first + 1], back)
        backward(parameters, x, units, back[:size], through[:size])
        adamw(parameters, rates[step], betas[step], beta2, decay, done + step + 1)


@njit(cache=True, nogil=True)
def gather(inputs, texts, examples, first, standardization, x, right, weight, starts):  # type: ignore[no-untyped-def]
    """The standardized examples of some texts, those of text i from starts[i] on; their rows begin at `first`."""
    columns, y, counts = examples
    mean, inverse, farthest = standardization
    size = 0
    for i in range(len(texts)):
        starts[i] = size
        for j in range(columns.shape[1]):
            if counts[first + i, j] > 0:
                found = inputs[texts[i], columns[first + i, j]]
                for k in range(N_INPUTS):
                    x[k, size] = min(max((found[k] - mean[k]) * inverse[k], -farthest), farthest)
                right[size], weight[size] = y[first + i, j], counts[first + i, j]
                size += 1
    starts[len(texts)] = size


@njit(cache=True, nogil=True)
def forward(parameters, x, units, z):  # type: ignore[no-untyped-def]
    """z of every example, and the hidden units on the way."""
    linear, hidden, shift, out, bias = split(parameters.values, parameters.n_units)
    z[:] = bias[0]
    for i in range(N_INPUTS):
        add_times(z, x[i], linear[i])
    for j in range(len(out)):
        unit = units[j]
        hidden_sums(x, hidden[j], shift[j], unit)
        tanh_in_place(unit)
        add_times(z, unit, out[j])


@njit(cache=True, nogil=True, error_model="numpy")
def loss_gradient(z, right, weight, starts, back):  # type: ignore[no-untyped-def]
    """dloss / dz of every example of a batch; the examples of text i are starts[i] : starts[i + 1]."""
    n_texts = len(starts) - 1
    for i in range(n_texts):
        highest, n_right = -np.inf, 0
        for e in range(starts[i], starts[i + 1]):
            if right[e] > 0:
                n_right += 1
            else:
                highest = max(highest, z[e])
        total, pulled = 0.0, 0.0
        for e in range(starts[i], starts[i + 1]):
            if right[e] == 0:
                total += weight[e] * exp(np.float64(z[e]) - highest)
        wrong = highest + np.log(total) if total > 0 else -np.inf
        scale = 1.0 / (n_texts * max(1, n_right))
        for e in range(starts[i], starts[i + 1]):
            chance = 1.0 / (1.0 + exp(-np.float64(z[e])))
            slope = weight[e] * (chance - right[e])
            if right[e] > 0 and total > 0:
                above = 1.0 / (1.0 + exp(z[e] - wrong))
                slope -= above
                pulled += above
            back[e] = slope * scale
        for e in range(starts[i], starts[i + 1]):
            if right[e] == 0:
                back[e] += pulled * weight[e] * exp(np.float64(z[e]) - wrong) * scale


@njit(cache=True, nogil=True)
def backward(parameters, x, units, back, through):  # type: ignore[no-untyped-def]
    """The gradient of all weights from that of z; `through` is scratch."""
    _, _, _, out, _ = split(parameters.values, parameters.n_units)
    linear, hidden, shift, by_out, bias = split(parameters.gradient, parameters.n_units)
    for i in range(N_INPUTS):
        linear[i] = dot(back, x[i])
    bias[0] = sum_of(back)
    for j in range(len(out)):
        by_out[j] = dot(back, units[j])
        through_tanh(back, units[j], out[j], through)
        shift[j] = sum_of(through)
        for i in range(N_INPUTS):
            hidden[j, i] = dot(through, x[i])


@njit(cache=True, nogil=True)
def adamw(parameters, rate, beta1, beta2, decay, step):  # type: ignore[no-untyped-def]
    """A step of AdamW over all weights."""
    b1, b2 = np.float32(beta1), np.float32(beta2)
    keep, size = np.float32(1.0 - rate * decay), np.float32(rate / (1.0 - beta1**step))
    root = np.float32(np.sqrt(1.0 - beta2**step))
    for i in range(len(parameters.values)):
        slope = parameters.gradient[i]
        parameters.first[i] += (np.float32(1.0) - b1) * (slope - parameters.first[i])
        parameters.second[i] = b2 * parameters.second[i] + (np.float32(1.0) - b2) * slope * slope
        moved = parameters.first[i] / (np.sqrt(parameters.second[i]) / root + EPSILON)
        parameters.values[i] = parameters.values[i] * keep - size * moved


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def tanh_in_place(unit):  # type: ignore[no-untyped-def]
    for place in range(len(unit)):
        unit[place] = tanh_of(unit[place])


@njit(cache=True, nogil=True, fastmath=FAST)
def through_tanh(back, unit, factor, out):  # type: ignore[no-untyped-def]
    """The gradient before the tanh from that of z: back factor (1 - tanh^2)."""
    for place in range(len(unit)):
        out[place] = back[place] * factor * (np.float32(1.0) - unit[place] * unit[place])


@njit(cache=True, nogil=True, fastmath=FAST)
def dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for place in range(len(a)):
        total += a[place] * b[place]
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def sum_of(values):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for place in range(len(values)):
        total += values[place]
    return total
