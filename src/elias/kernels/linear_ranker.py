"""The linear ranker on the CPU: one classifier per label by dual coordinate descent, and its training pairs.

    squared hinge   min_w  1/2 |w|^2 + C sum_i max(0, 1 - y_i w.x_i)^2      (Hsieh et al. 2008)
    logistic        min_w  1/2 |w|^2 + C sum_i log(1 + exp(-y_i w.x_i))     (Yu, Huang and Lin 2011)

Rows are sparse (CSR) with one more feature of value 1, the bias. A label sees its own pairs only: pairs[starts[l] :
ends[l]] are row numbers, signs say y. w lives in a scratch array as long as the vocabulary, which is zero before
and after each label, so a label costs time in proportion to its own pairs. The order of the pairs is shuffled by a
generator seeded with the label, so results depend neither on threads nor on timing.
The pairs are collected by label without a sparse matrix of all of them in between.
Definition: `ranking/linear_ranker.py`, with scikit-learn's liblinear as the solver.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SQUARED_HINGE, LOGISTIC = 0, 1
INNER = 30  # Newton steps for one dual variable at most; two or three are usual


@njit(cache=True, nogil=True)
def row_squares(start, stop, indptr, data, out):  # type: ignore[no-untyped-def]
    """out[row] = |x|^2 of the rows start .. stop."""
    for row in range(start, stop):
        total = 0.0
        for j in range(indptr[row], indptr[row + 1]):
            total += np.float64(data[j]) * data[j]
        out[row] = total


@njit(cache=True, nogil=True)
def _shuffle(order, n, state):  # type: ignore[no-untyped-def]
    """Fisher-Yates with xorshift64; returns the generator's new state."""
    for i in range(n - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _margin(w, begin, end, indices, data):  # type: ignore[no-untyped-def]
    """w . x of the row at indices[begin:end], without the bias."""
    total = np.float32(0.0)
    for j in range(begin, end):
        total += w[indices[j]] * data[j]
    return total


@njit(cache=True, nogil=True)
def _add(w, begin, end, indices, data, step):  # type: ignore[no-untyped-def]
    for j in range(begin, end):
        w[indices[j]] += np.float32(step) * data[j]


@njit(cache=True, nogil=True)
def _squared_hinge(rows, signs, indptr, indices, data, squares, cost, eps, passes, w, alpha, order, seed):  # type: ignore[no-untyped-def]
    """Fill w; return the bias. Stops when the projected gradients of a pass lie within eps of each other."""
    n = len(rows)
    diagonal = 0.5 / cost
    bias = 0.0
    for i in range(n):
        alpha[i], order[i] = 0.0, i
    state = np.uint64(2 * seed + 1) * np.uint64(0x9E3779B97F4A7C15)
    active, bar = n, np.inf
    for _ in range(passes):
        state = _shuffle(order, active, state)
        highest, lowest = -np.inf, np.inf
        at = 0
        while at < active:
            i = order[at]
            row, y = rows[i], np.float64(signs[i])
            begin, end = indptr[row], indptr[row + 1]
            gradient = y * (_margin(w, begin, end, indices, data) + bias) - 1.0 + diagonal * alpha[i]
            projected = gradient
            if alpha[i] == 0.0:
                if gradient > bar:  # shrink: this pair will stay at 0
                    active -= 1
                    order[at], order[active] = order[active], order[at]
                    continue
                projected = min(gradient, 0.0)
            highest, lowest = max(highest, projected), min(lowest, projected)
            if abs(projected) > 1e-12:
                old = alpha[i]
                alpha[i] = max(0.0, old - gradient / (squares[row] + 1.0 + diagonal))
                step = (alpha[i] - old) * y
                _add(w, begin, end, indices, data, step)
                bias += step
            at += 1
        if highest - lowest <= eps:
            if active == n:
                break
            active, bar = n, np.inf  # once more over all pairs
            continue
        bar = highest if highest > 0.0 else np.inf
    return bias


@njit(cache=True, nogil=True)
def _logistic(rows, signs, indptr, indices, data, squares, cost, eps, passes, w, alpha, order, seed):  # type: ignore[no-untyped-def]
    """Fill w; return the bias. Newton steps on each dual variable; alpha and cost - alpha both stay above 0."""
    n = len(rows)
    bias = 0.0
    start = min(0.001 * cost, 1e-8)
    rest = np.empty(n)  # cost - alpha, which would round to 0 where alpha is nearly the cost
    for i in range(n):
        alpha[i], rest[i], order[i] = start, cost - start, i
        row, step = rows[i], start * np.float64(signs[i])
        _add(w, indptr[row], indptr[row + 1], indices, data, step)
        bias += step
    state = np.uint64(2 * seed + 1) * np.uint64(0x9E3779B97F4A7C15)
    inner_eps = 1e-2
    for _ in range(passes):
        state = _shuffle(order, n, state)
        worst, newton = 0.0, 0
        for at in range(n):
            i = order[at]
            row, y = rows[i], np.float64(signs[i])
            begin, end = indptr[row], indptr[row + 1]
            square = squares[row] + 1.0
            margin = y * (_margin(w, begin, end, indices, data) + bias)
            # Minimise in z = alpha or cost - alpha, whichever is the smaller at the minimum.
            flipped = margin + square * 0.5 * (rest[i] - alpha[i]) < 0.0
            sign = -1.0 if flipped else 1.0
            old = rest[i] if flipped else alpha[i]
            z = 0.1 * old if old > 0.5 * cost else old
            gradient = square * (z - old) + sign * margin + math.log(z / (cost - z))
            worst = max(worst, abs(gradient))
            before = newton
            for _ in range(INNER):
                if abs(gradient) < inner_eps:
                    break
                curvature = square + cost / (cost - z) / z
                moved = z - gradient / curvature
                z = z * 0.1 if moved <= 0.0 else moved
                gradient = square * (z - old) + sign * margin + math.log(z / (cost - z))
                newton += 1
            if newton > before:
                step = (old - z if flipped else z - old) * y
                alpha[i], rest[i] = (cost - z, z) if flipped else (z, cost - z)
                _add(w, begin, end, indices, data, step)
                bias += step
        if worst < eps:
            break
        if newton <= n // 10:
            inner_eps = max(1e-8, 0.1 * inner_eps)
    return bias


@njit(cache=True, nogil=True)
def _emit(rows, indptr, indices, w, least, out_words, out_weights):  # type: ignore[no-untyped-def]
    """Write the weights of at least `least` in size by ascending word, make w zero again; returns how many."""
    count = 0
    for row in rows:
        for j in range(indptr[row], indptr[row + 1]):
            word = indices[j]
            if abs(w[word]) >= least and w[word] != 0.0:
                out_words[count], out_weights[count] = word, w[word]
                count += 1
            w[word] = np.float32(0.0)
    order = np.argsort(out_words[:count])
    out_words[:count] = out_words[:count][order]
    out_weights[:count] = out_weights[:count][order]
    return count


@njit(cache=True, nogil=True)
def solve_labels(  # type: ignore[no-untyped-def]
    first, last, starts, ends, pairs, signs, indptr, indices, data, squares, n_words, loss, cost, eps, passes, least
):  # fmt: skip
    """(words, weights, counts, biases) of the labels first .. last, one after the other."""
    longest = 0
    for label in range(first, last):
        longest = max(longest, ends[label] - starts[label])
    w = np.zeros(n_words, dtype=np.float32)
    alpha, order = np.empty(longest), np.empty(longest, dtype=np.int64)
    words, weights = np.empty(1 << 16, dtype=np.int32), np.empty(1 << 16, dtype=np.float32)
    counts, biases = np.zeros(last - first, dtype=np.int64), np.empty(last - first, dtype=np.float32)
    filled = 0
    for label in range(first, last):
        rows, y = pairs[starts[label] : ends[label]], signs[starts[label] : ends[label]]
        if loss == SQUARED_HINGE:
            bias = _squared_hinge(rows, y, indptr, indices, data, squares, cost, eps, passes, w, alpha, order, label)
        else:
            bias = _logistic(rows, y, indptr, indices, data, squares, cost, eps, passes, w, alpha, order, label)
        most = 0
        for row in rows:
            most += indptr[row + 1] - indptr[row]
        most = min(most, n_words)
        if filled + most > len(words):
            size = max(2 * len(words), filled + most)
            more_words, more_weights = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
            more_words[:filled], more_weights[:filled] = words[:filled], weights[:filled]
            words, weights = more_words, more_weights
        counts[label - first] = _emit(rows, indptr, indices, w, least, words[filled:], weights[filled:])
        biases[label - first] = bias
        filled += counts[label - first]
    return words[:filled].copy(), weights[:filled].copy(), counts, biases


# -- training pairs ---------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def pairs_by_label(  # type: ignore[no-untyped-def]
    found, indptr, labels, values, out_indptr, out_labels, out_values, last, places, rows, signs, write
):
    """Count (places[l] += 1) or write every pair once: positives, then candidates neither positive nor excluded.

    Writing, places[l] is where the next pair of label l goes. `last` [L] is all -1: the last row that had the label.
    """
    for row in range(len(indptr) - 1):
        for j in range(indptr[row], indptr[row + 1]):
            label = labels[j]
            if values[j] > 0 and last[label] != row:
                last[label] = row
                if write:
                    rows[places[label]], signs[places[label]] = row, np.int8(1)
                places[label] += 1
        if row >= len(found):
            continue
        for j in range(out_indptr[row], out_indptr[row + 1]):
            if out_values[j] > 0:
                last[out_labels[j]] = row
        for j in range(found.shape[1]):
            label = found[row, j]
            if label >= 0 and last[label] != row:
                last[label] = row
                if write:
                    rows[places[label]], signs[places[label]] = row, np.int8(-1)
                places[label] += 1


@njit(cache=True, nogil=True)
def pairs_of_siblings(  # type: ignore[no-untyped-def]
    start, stop, first, group, indptr, own, above_indptr, above, out_indptr, left_out, starts, ends, rows, signs
):
    """The texts of the parents of nodes first + start .. first + stop, with signs, without those excluded.

    All lists of texts rise. Node first + i writes from starts[i] to ends[i].
    """
    for i in range(start, stop):
        node, at = first + i, starts[i]
        ends[i] = at
        if group[node] < 0:
            continue
        mine, out = indptr[node], out_indptr[node]
        for j in range(above_indptr[group[node]], above_indptr[group[node] + 1]):
            row = above[j]
            while out < out_indptr[node + 1] and left_out[out] < row:
                out += 1
            is_mine = mine < indptr[node + 1] and own[mine] == row
            if is_mine:
                mine += 1
            elif out < out_indptr[node + 1] and left_out[out] == row:
                continue
            rows[at], signs[at] = row, np.int8(1) if is_mine else np.int8(-1)
            at += 1
        ends[i] = at
