"""Randomness as a function of where it is used, never of a stream.

Every draw is keyed by numbers such as (seed, stage, epoch, row), so a run that was killed and resumed
draws exactly what an undisturbed run draws, and two members of an ensemble differ only by their seed.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(*parts: int | str) -> int:
    """A 63-bit number that depends on every part and on their order."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator for one place in the program."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def permutation(size: int, *parts: int | str) -> np.ndarray:
    """The order in which one epoch visits its rows."""
    return generator(*parts).permutation(size)
