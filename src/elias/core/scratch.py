"""One pool of scratch memory: arrays that a kernel writes while it works, reused by later calls.

Scratch of a search is as long as there are labels. To allocate it for every query would cost more than many
queries, and one array per thread would live as long as the thread; so a call takes one from a pool and gives it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Scratch = TypeVar("Scratch")


class ScratchPool(Generic[Scratch]):
    """As many scratches as calls ever ran at once; any number of threads may use the pool.

    `make(size)` allocates one. `fits(scratch, size)` tells whether one that was made earlier is large enough; by
    default every one is, for scratches that are all of one size.
    """

    def __init__(
        self, make: Callable[[int], Scratch], fits: Callable[[Scratch, int], bool] = lambda scratch, size: True
    ) -> None:
        self._make, self._fits = make, fits
        self._free: deque[Scratch] = deque()  # its append and pop are atomic: no lock is needed

    def take(self, size: int = 0) -> Scratch:
        """A scratch for one call, of an earlier call where there is one that is large enough."""
        try:
            scratch = self._free.pop()
        except IndexError:
            return self._make(size)
        # One that is too small is dropped: the pool grows to what calls need and does not collect small ones.
        return scratch if self._fits(scratch, size) else self._make(size)

    def give_back(self, scratch: Scratch) -> None:
        """End of a call. A call that failed keeps its scratch, which may hold anything."""
        self._free.append(scratch)
