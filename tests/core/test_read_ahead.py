"""Work that a thread does ahead: the same results in the same order, and errors where they belong."""

from __future__ import annotations

import threading

import pytest

from elias.core.read_ahead import read_ahead


@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_results_come_in_order(ahead: int) -> None:
    assert list(read_ahead(lambda number: number * number, range(10), ahead)) == [n * n for n in range(10)]
    assert list(read_ahead(str, [], ahead)) == []


def test_a_thread_works_ahead_and_no_further() -> None:
    made: list[int] = []
    reached = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        if number == 2:
            reached.set()
        return number

    results = read_ahead(make, range(100), 2)
    assert next(results) == 0
    assert reached.wait(10), "2 is made while 0 is used"
    results.close()
    assert made == [0, 1, 2]
    assert not any("read-ahead" in thread.name for thread in threading.enumerate())


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_error_is_raised_where_its_result_would_be(ahead: int) -> None:
    results = read_ahead(lambda number: 1 // number, [1, 0, 1], ahead)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
