"""The pool of scratch memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from elias.core.scratch import ScratchPool


def test_scratch_is_reused_and_grows_with_what_is_needed() -> None:
    pool: ScratchPool[list[int]] = ScratchPool(lambda size: [0] * size, lambda scratch, size: len(scratch) >= size)
    first = pool.take(3)
    assert pool.take(3) is not first, "two calls at once never share"
    pool.give_back(first)
    assert pool.take(2) is first
    pool.give_back(first)
    assert len(pool.take(5)) == 5


def test_threads_never_hold_the_same_scratch() -> None:
    pool: ScratchPool[list[int]] = ScratchPool(lambda _: [0])

    def work(number: int) -> bool:
        scratch = pool.take()
        scratch[0] = number
        unchanged = all(scratch[0] == number for _ in range(100))
        pool.give_back(scratch)
        return unchanged

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(2000)))
