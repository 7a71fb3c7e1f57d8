"""Work for the next steps, done by a thread while the device computes the current one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def read_ahead(make: Callable[[T], U], items: Iterable[T], ahead: int) -> Iterator[U]:
    """make(item) of every item in order, by a thread that stays `ahead` items in front; 0: when it is asked for.

    What `make` raises is raised where its result would have been.
    """
    if ahead == 0:
        yield from map(make, items)
        return
    pool, waiting = ThreadPoolExecutor(1, thread_name_prefix="elias-read-ahead"), deque[Future[U]]()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
