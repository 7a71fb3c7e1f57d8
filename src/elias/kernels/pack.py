"""Many arrays handed to a kernel as one thing.

Every array that a kernel is called with costs most of a microsecond before it begins, and a query of ELIAS++ needs a
hundred.
`packed(tables)` takes them in once; a kernel is then called with the pack and reads `pack.inside`.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.experimental import structref
from numba.extending import overload


@structref.register
class PackType(types.StructRef):
    """One field, `inside`."""

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Pack(structref.StructRefProxy):
    """What Python holds of a pack; it keeps the arrays alive."""


structref.define_boxing(PackType, Pack)
new: Any = structref.new


def _pack(value: Any) -> Any:
    """`packed` inside kernels."""


@overload(_pack)
def _pack_of(value: Any) -> Any:
    kind = PackType([("inside", types.unliteral(value))])

    def pack(value: Any) -> Any:
        made = new(kind)
        made.inside = value
        return made

    return pack


@njit(cache=True)
def packed(value):  # type: ignore[no-untyped-def]
    """A (named) tuple of arrays, numbers and tuples as a `Pack`."""
    return _pack(value)
