"""A second thread for single queries: it waits to be asked, and helps through a board (`board.py`).

A pool's queue takes 70 to 130 microseconds, a good part of a query; one job handed over through a lock takes 20 to 60.
The helper is asked by one query at a time: where several come at once, each keeps a processor busy by itself.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

from .board import new_board


class Helper:
    def __init__(self) -> None:
        self._free, self._asked = Lock(), Lock()
        self._asked.acquire()
        self._job: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        self.owner = os.getpid()
        Thread(target=self._work, name="elias-helper", daemon=True).start()

    def ask(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have `call` called soon, if nobody else is being helped; the result goes nowhere."""
        if self._free.acquire(blocking=False):
            self._job = call, arguments
            self._asked.release()

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            assert self._job is not None
            (call, arguments), self._job = self._job, None
            try:
                call(*arguments)
            except Exception:  # the leader does all of it then; the next one can be helped again
                traceback.print_exc()
            del call, arguments  # an idle thread keeps no model alive
            self._free.release()


_helper: Helper | None = None


def run_divided(lead: Callable[..., Any], lend_a_hand: Callable[..., Any], *arguments: Any) -> None:
    """Call `lead(board, *arguments)` here, and `lend_a_hand` with the same in the helper's thread if it is free.

    They share the work through the board; who does what changes no result.
    """
    global _helper
    if _helper is None or _helper.owner != os.getpid():  # threads do not survive a fork
        _helper = Helper()
    board = new_board()
    _helper.ask(lend_a_hand, board, *arguments)
    lead(board, *arguments)
