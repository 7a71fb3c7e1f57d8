"""How two threads share the work of one query: a board on which tasks are taken and crossed off.

A query has phases, one after the other. The thread that asks (the leader) does what cannot be divided and opens a phase
with a number of tasks; then whoever is free takes the next task, until there are none. The leader waits for tasks that
the helper has begun, never for the helper to come: where it is late or never comes, the leader does it all.

    leader:  open_phase, then as the helper
    helper:  take a task and cross it off when it is done, until take returns -1; wait_for

Where one of them fails, the board is closed: nobody waits any longer, and `wait_for` says that the work is not done.

A task is a stretch of `each` things. While the leader is still making the things, it says from time to time how many
there are (`so_far`), and the helper begins with those. Neither needs the interpreter.

Tasks own what they write, so who does a task changes no result.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

PHASES = 4  # at most
LINE = 8  # numbers in a line of the processor's cache: what one thread writes does not disturb what the other reads
OPEN, NEXT, DONE, LENGTH = 0, LINE, 2 * LINE, 3 * LINE  # of a phase: tasks + 1, the next task, tasks done, things
SIZE = 4 * LINE
CLOSED = PHASES * SIZE  # one number behind all phases
PATIENCE = 4096  # looks at the board after which a thread that waits lets others have the processor
PAUSE = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else ""  # of a thread that waits


def new_board() -> np.ndarray:
    return np.zeros(PHASES * SIZE + LINE, dtype=np.int64)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


def _atomic_add(typing_context: Any, array: Any, place: Any) -> Any:
    """array[place] += 1; returns what was there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = ir.IntType(64)(1)
        return builder.atomic_rmw("add", _place(context, builder, signature, arguments), one, "seq_cst")

    return types.int64(array, types.intp), generate


def _atomic_load(typing_context: Any, array: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, PAUSE), [])
        return builder.load_atomic(_place(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(array, types.intp), generate


def _atomic_store(typing_context: Any, array: Any, place: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _place(context, builder, signature, arguments), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


def _atomic_exchange(typing_context: Any, array: Any, place: Any, old: Any, new: Any) -> Any:
    """array[place] = new if it is `old`; returns whether it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        found = builder.cmpxchg(place, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), generate


def _give_way(typing_context: Any) -> Any:
    """Let another thread have the processor, where the system can be told so."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


atomic_add: Any = intrinsic(_atomic_add)
atomic_load: Any = intrinsic(_atomic_load)
atomic_store: Any = intrinsic(_atomic_store)
atomic_exchange: Any = intrinsic(_atomic_exchange)
give_way: Any = intrinsic(_give_way)


@njit(cache=True, nogil=True)
def so_far(board, phase, length):  # type: ignore[no-untyped-def]
    """The first `length` things of a phase are there; more may come."""
    atomic_store(board, phase * SIZE + LENGTH, length)


@njit(cache=True, nogil=True)
def open_phase(board, phase, length, each):  # type: ignore[no-untyped-def]
    """All things of a phase are there, `length` of them."""
    atomic_store(board, phase * SIZE + LENGTH, length)
    atomic_store(board, phase * SIZE + OPEN, (length + each - 1) // each + 1)


@njit(cache=True, nogil=True)
def take(board, phase, each):  # type: ignore[no-untyped-def]
    """The next task of a phase, or -1 where there are no more; waits until its things are there, and takes it then."""
    turn = 0
    while atomic_load(board, phase * SIZE + OPEN) == 0:
        if atomic_load(board, phase * SIZE + LENGTH) >= (atomic_load(board, phase * SIZE + NEXT) + 1) * each:
            break
        turn = rest(board, turn)
        if turn < 0:
            return -1
    task = atomic_add(board, phase * SIZE + NEXT)
    while True:  # at once, unless another was quicker
        tasks = atomic_load(board, phase * SIZE + OPEN) - 1
        if tasks >= 0:
            return task if task < tasks else -1
        if atomic_load(board, phase * SIZE + LENGTH) >= (task + 1) * each:
            return task
        turn = rest(board, turn)
        if turn < 0:
            return -1


@njit(cache=True, nogil=True)
def rest(board, turn):  # type: ignore[no-untyped-def]
    """The next turn of somebody who waits; -1 on a closed board."""
    if turn % PATIENCE == PATIENCE - 1:
        if atomic_load(board, CLOSED):
            return -1
        give_way()
    return turn + 1


@njit(cache=True, nogil=True)
def close(board):  # type: ignore[no-untyped-def]
    """Nobody goes on."""
    atomic_store(board, CLOSED, 1)


@njit(cache=True, nogil=True)
def length_of(board, phase):  # type: ignore[no-untyped-def]
    """How many things are there of a phase; all of them once it is open."""
    return atomic_load(board, phase * SIZE + LENGTH)


@njit(cache=True, nogil=True)
def cross_off(board, phase):  # type: ignore[no-untyped-def]
    atomic_add(board, phase * SIZE + DONE)


@njit(cache=True, nogil=True)
def wait_for(board, phase):  # type: ignore[no-untyped-def]
    """Until every task of an open phase is done; False on a board that was closed."""
    tasks, turn = atomic_load(board, phase * SIZE + OPEN) - 1, 0
    while atomic_load(board, phase * SIZE + DONE) < tasks:
        turn = rest(board, turn)
        if turn < 0:
            return False
    return True
