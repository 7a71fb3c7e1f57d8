"""A second thread for single queries: it waits to be asked, and helps through a board (`board.py`).

A pool's queue takes 70 to 130 microseconds, a good part of a query; one job handed over through a lock takes 20 to 60.
The helper is asked by one query at a time: where several come at once, each keeps a processor busy by itself. A helper
that has just helped may linger for the next query (`linger.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import perf_counter
from typing import Any

import numpy as np

from .board import close, new_board
from .linger import SOON, new_post, post_to

SOON_IS = 0.00025  # seconds between two queries that a helper stays for


class Helper:
    def __init__(self) -> None:
        self._free, self._asked = Lock(), Lock()
        self._asked.acquire()
        self._job: tuple[Callable[..., Any], np.ndarray, tuple[Any, ...], list[BaseException]] | None = None
        self.owner = os.getpid()
        Thread(target=self._work, name="elias-helper", daemon=True).start()

    def ask(self, call: Callable[..., Any], board: np.ndarray, *arguments: Any) -> list[BaseException] | None:
        """Have `call(board, ...)` called soon; its failure comes into the answer. None: another one is being helped."""
        if not self._free.acquire(blocking=False):
            return None
        failed: list[BaseException] = []
        self._job = call, board, arguments, failed
        self._asked.release()
        return failed

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            assert self._job is not None
            (call, board, arguments, failed), self._job = self._job, None
            try:
                call(board, *arguments)
            except BaseException as problem:  # a task may have been begun: the leader must not wait for it
                failed.append(problem)
                close(board)
            del call, board, arguments, failed  # an idle thread keeps no model alive
            self._free.release()


_helper: Helper | None = None
_making = Lock()


def the_helper() -> Helper | None:
    """The one of this process; None where no more threads are to be had."""
    global _helper
    if _helper is None or _helper.owner != os.getpid():  # threads do not survive a fork
        with _making, suppress(RuntimeError):
            if _helper is None or _helper.owner != os.getpid():
                _helper = Helper()
    return _helper


def run_divided(lead: Callable[..., Any], lend_a_hand: Callable[..., Any], *arguments: Any) -> None:
    """Call `lead(board, *arguments)` here, and `lend_a_hand` with the same in the helper's thread if it is free.

    They share the work through the board; who does what changes no result. What fails in either is raised here, and
    then nothing that they wrote may be used again.
    """
    board, helper, failed = new_board(), the_helper(), None
    try:
        if helper is not None:
            failed = helper.ask(lend_a_hand, board, *arguments)
        lead(board, *arguments)
    except BaseException:
        close(board)  # or a helper that was asked would wait for ever
        raise
    if failed:
        raise failed[0]


class Divided:
    """`run_divided` of queries whose arguments have the same types.

    The helper's half is compiled, or read from the cache, before it is first asked, by the thread that asks. A helper
    that compiles would be cut off where a process ends after a query or two: nothing would be kept for the next
    process, and LLVM, in the middle of its work, may abort this one.
    """

    def __init__(self, lead: Callable[..., Any], lend_a_hand: Callable[..., Any]) -> None:
        self._lead, self._lend_a_hand, self._compiled = lead, lend_a_hand, False

    def __call__(self, *arguments: Any) -> None:
        if self.is_compiled(*arguments):
            run_divided(self._lead, self._lend_a_hand, *arguments)

    def is_compiled(self, *arguments: Any) -> bool:
        """False the first time: then the query has been answered meanwhile."""
        if self._compiled:
            return True
        board = new_board()
        close(board)  # nothing to be done, nobody to be waited for
        self._lend_a_hand(board, *arguments)
        self._lead(new_board(), *arguments)  # alone: while it is compiled, a helper would wait for it at full speed
        self._compiled = True
        return False

    def in_place(self, place: Place, *arguments: Any) -> None:
        """The same for a helper that lingers at a place: `lend_a_hand` waits at the post for the next query."""
        if not self.is_compiled(*arguments):
            return
        board, failed = place.board, place.failed
        place.post[SOON] = perf_counter() - place.ended < SOON_IS
        try:
            if not post_to(place.post, board):
                board, helper = new_board(), the_helper()
                failed = None if helper is None else helper.ask(self._lend_a_hand, board, *arguments)
                if failed is not None:
                    place.board, place.failed = board, failed
            self._lead(board, *arguments)
        except BaseException:
            close(board)
            raise
        place.ended = perf_counter()
        if failed:
            raise failed[0]


class Place:
    """Where queries that write to the same memory, one after the other, meet a helper that lingers."""

    def __init__(self) -> None:
        self.post, self.board = new_post(), new_board()  # the board that the helper was last asked with
        self.failed: list[BaseException] | None = None
        self.ended = 0.0  # when the last query was done
