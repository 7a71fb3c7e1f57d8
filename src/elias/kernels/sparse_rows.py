"""The largest entries of sparse rows on the CPU. Definition: `largest_entries` in `ranking/sparse_rows.py`."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def keep_largest(start, stop, indptr, indices, data, out_indptr, out_indices, out_data):  # type: ignore[no-untyped-def]
    """Fill rows start .. stop of the output, whose `out_indptr` says how many entries each row keeps."""
    for row in range(start, stop):
        begin, end, at = indptr[row], indptr[row + 1], out_indptr[row]
        kept = out_indptr[row + 1] - at
        if kept == 0:
            continue
        sizes = np.abs(data[begin:end])
        least = np.partition(sizes, len(sizes) - kept)[len(sizes) - kept]
        equal = kept - np.count_nonzero(sizes > least)  # of those as large as the least, the first so many
        for place in range(begin, end):
            size = abs(data[place])
            if size > least or (size == least and equal > 0):
                equal -= size == least
                out_indices[at], out_data[at] = indices[place], data[place]
                at += 1
