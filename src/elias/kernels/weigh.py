"""tf-idf of one text from the numbers of its words: `TfIdf.transform_one` without the interpreter, the same bits.

value(word) = (1 + ln tf) * idf(word), divided by the length of all values
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit


class Scale(NamedTuple):
    """What words weigh."""

    sublinear: np.ndarray  # float64: 1 + ln tf by tf
    idf: np.ndarray  # float64 [W]


@njit(cache=True, nogil=True, error_model="numpy")
def weigh(numbers, scale, words, values):  # type: ignore[no-untyped-def]
    """Words (rising, each once) and their values, of word numbers in any order, -1 for none; returns how many.

    `numbers` are sorted on the way; `words` and `values` have room for as many.
    """
    numbers.sort()
    raw, count, square, at = np.empty(len(numbers)), 0, 0.0, 0
    while at < len(numbers) and numbers[at] < 0:
        at += 1
    while at < len(numbers):
        word, first = numbers[at], at
        while at < len(numbers) and numbers[at] == word:
            at += 1
        words[count] = word
        raw[count] = scale.sublinear[min(at - first, len(scale.sublinear) - 1)] * scale.idf[word]
        square += raw[count] * raw[count]
        count += 1
    length = math.sqrt(square)
    for place in range(count):
        values[place] = raw[place] / length
    return count
