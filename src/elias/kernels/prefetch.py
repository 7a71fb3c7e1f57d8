"""Request memory ahead of its use. Without it, rows at random places are waited for one by one.

Numba has no prefetch, so `prefetch` emits the LLVM instruction itself. It changes no result, only when memory arrives.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

LINE = 64  # bytes the processor fetches at a time


@intrinsic
def prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Fetch the cache line of a flat array's element, to be read soon; never faults, changes nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte_pointer)
        builder.call(function, [address, number(0), number(3), number(1)])  # to read, keep in every cache, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@register_jitable
def fetch(flat, row, dim):  # type: ignore[no-untyped-def]
    """Prefetch one row of a flat table."""
    for start in range(row * dim, (row + 1) * dim, LINE // flat.itemsize):
        prefetch(flat, start)  # type: ignore[call-arg]


@register_jitable
def fetch_one(flat, position):  # type: ignore[no-untyped-def]
    """Prefetch the surroundings of one element."""
    prefetch(flat, position)  # type: ignore[call-arg]
