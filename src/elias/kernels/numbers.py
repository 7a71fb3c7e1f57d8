"""Stored numbers as float32 inside a kernel, whatever they are stored as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload


def as_float(value: Any) -> Any:
    """A float32 as it is, the bits of a bfloat16 (uint16), or an int8 code. Compiled code only."""
    raise NotImplementedError


@overload(as_float)
def _as_float(value):  # type: ignore[no-untyped-def]
    if str(value) == "uint16":
        return lambda value: np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)
    return lambda value: np.float32(value)
