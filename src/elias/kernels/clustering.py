"""One balanced spherical 2-means over the labels of one node of the clustering.

    d = sum(left) / |sum(left)| - sum(right) / |sum(right)|      scores = x . d
    left = the n_left labels with the largest scores, ties to the smallest label number

In: the centroids, sparse or dense, and the labels of the node, ascending. Out: True for each label that goes left.
Definition: `elias.index.clustering.split_reference`. A call works on one thread; threads split different nodes, each
with a scratch of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _add_row(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, row: int, sums: np.ndarray) -> None:
    if data.ndim == 2:  # known when compiled: the other branch is not compiled at all
        for column in range(data.shape[1]):
            sums[column] += data[row, column]
    else:
        for place in range(indptr[row], indptr[row + 1]):
            sums[indices[place]] += data[place]


@njit(cache=True, nogil=True)
def _dot_row(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, row: int, direction: np.ndarray) -> float:
    total = 0.0
    if data.ndim == 2:
        for column in range(data.shape[1]):
            total += data[row, column] * direction[column]
    else:
        for place in range(indptr[row], indptr[row + 1]):
            total += data[place] * direction[indices[place]]
    return total


@njit(cache=True, nogil=True)
def _touched(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, members: np.ndarray, marks: np.ndarray
) -> np.ndarray:
    """The columns in which some member has a value: a small node must not pay for every column there is."""
    if data.ndim == 2:
        return np.arange(data.shape[1])
    count = 0
    for row in members:
        for place in range(indptr[row], indptr[row + 1]):
            if not marks[indices[place]]:
                marks[indices[place]] = True
                count += 1
    columns = np.empty(count, dtype=np.int64)
    count = 0
    for row in members:
        for place in range(indptr[row], indptr[row + 1]):
            if marks[indices[place]]:
                marks[indices[place]] = False
                columns[count] = indices[place]
                count += 1
    return columns


@njit(cache=True, nogil=True)
def _point(left: np.ndarray, right: np.ndarray, columns: np.ndarray) -> None:
    """left becomes left / |left| - right / |right|; right is cleared."""
    left_square, right_square = 0.0, 0.0
    for column in columns:
        left_square += left[column] * left[column]
        right_square += right[column] * right[column]
    left_scale = 1.0 / np.sqrt(left_square) if left_square > 0.0 else 0.0
    right_scale = 1.0 / np.sqrt(right_square) if right_square > 0.0 else 0.0
    for column in columns:
        left[column] = left[column] * left_scale - right[column] * right_scale
        right[column] = 0.0


@njit(cache=True, nogil=True)
def split_node(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    members: np.ndarray,
    n_left: int,
    first: int,
    second: int,
    iterations: int,
    left: np.ndarray,
    right: np.ndarray,
    marks: np.ndarray,
) -> np.ndarray:
    """True for the members that go left. The scratch (left, right, marks) is all zero before and after."""
    columns = _touched(data, indices, indptr, members, marks)
    goes_left = np.zeros(len(members), dtype=np.bool_)
    scores = np.empty(len(members), dtype=np.float32)  # rounded, so that equal labels tie whatever the order of sums
    for iteration in range(iterations):
        if iteration == 0:
            _add_row(data, indices, indptr, first, left)
            _add_row(data, indices, indptr, second, right)
        else:
            for place in range(len(members)):
                _add_row(data, indices, indptr, members[place], left if goes_left[place] else right)
        _point(left, right, columns)
        for place in range(len(members)):
            scores[place] = -_dot_row(data, indices, indptr, members[place], left)
        for column in columns:
            left[column] = 0.0
        order = np.argsort(scores, kind="mergesort")  # stable: members rise, so ties go to the smallest label
        changed = iteration == 0
        for rank in range(len(order)):
            if goes_left[order[rank]] != (rank < n_left):
                goes_left[order[rank]] = rank < n_left
                changed = True
        if not changed:
            break
    return goes_left
