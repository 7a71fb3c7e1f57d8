"""A helper that stays for the next query of the same kind, for a fraction of a millisecond.

Waking a thread takes the one that asks some 20 microseconds, and the thread itself as long. Queries often come one
after the other, so a helper that is done waits beside a post for a while, giving way to any other thread. Who asks next
posts the query if the helper waits there, and else wakes it.

    NOBODY    the helper is at work, or gone
    WAITING   it waits for a query
    POSTED    a query is there, and its board is clean

Only a helper that waits is posted to: it has left the board of the query before, which may be cleaned then. It waits
only where the last query came soon after the one before: elsewhere it would spin in vain, beside threads that work.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .board import LINE, atomic_exchange, atomic_load, atomic_store, give_way

NOBODY, WAITING, POSTED = 0, 1, 2
STATE, SOON = 0, 1  # places of a post: one of these, and whether the next query is likely to come soon
LOOKS = 8192  # at the post before the helper goes: a quarter of a millisecond
GIVE_WAY = 64  # looks after which others may have the processor


def new_post() -> np.ndarray:
    return np.zeros(LINE, dtype=np.int64)


@njit(cache=True, nogil=True)
def wait_at(post):  # type: ignore[no-untyped-def]
    """The helper: True once a query is posted, False if none has come."""
    if not atomic_load(post, SOON):
        return False
    atomic_store(post, STATE, WAITING)
    for look in range(LOOKS):
        if atomic_load(post, STATE) == POSTED:
            break
        if look % GIVE_WAY == GIVE_WAY - 1:
            give_way()
    if atomic_exchange(post, STATE, WAITING, NOBODY):
        return False
    atomic_store(post, STATE, NOBODY)
    return True


@njit(cache=True, nogil=True)
def post_to(post, board):  # type: ignore[no-untyped-def]
    """Who asks: True if the helper waits and will come to this board, which is cleaned."""
    if atomic_load(post, STATE) != WAITING:
        return False
    board[:] = 0
    return atomic_exchange(post, STATE, WAITING, POSTED)
