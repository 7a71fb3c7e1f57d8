"""A helper that stays for the next query: every query is done once, whether it was posted, asked for or done alone."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from numba import njit

from elias.kernels.board import cross_off, new_board, open_phase, take, wait_for
from elias.kernels.helper import Divided, Helper, Place, run_divided
from elias.kernels.linger import NOBODY, SOON, new_post, post_to, wait_at
from elias.predictor import Model
from test_divided import do, eventually, make_and_do, texts_of


@njit(nogil=True)
def lead(board, things, done, post):  # type: ignore[no-untyped-def]
    make_and_do(board, things, done)


@njit(nogil=True)
def stay(board, things, done, post):  # type: ignore[no-untyped-def]
    do(board, things, done)
    while wait_at(post):
        do(board, things, done)


def test_a_post_is_taken_or_the_helper_goes() -> None:
    post, board, came = new_post(), new_board(), []
    assert not wait_at(post)  # nobody is likely to ask
    post[SOON] = 1
    assert not wait_at(post)  # nobody asks
    assert not post_to(post, board)  # nobody waits
    for _ in range(1000):  # until one happens to be posted to while it waits
        board[0] = 7
        helper = Thread(target=lambda: came.append(wait_at(post)))
        helper.start()
        posted = False
        while helper.is_alive() and not posted:
            posted = post_to(post, board)
        helper.join(timeout=10)
        assert came[-1] == posted
        assert post[0] == NOBODY
        if posted:
            assert not board.any()
            return
    raise AssertionError("no post was taken")


@pytest.mark.parametrize("pause", [0.0, 0.0001, 0.0005])
def test_every_query_is_done_once(pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], Helper.ask

    def counted(*arguments: object) -> object:
        asked.append(1)
        return ask(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Helper, "ask", counted)
    place, divided, queries = Place(), Divided(lead, stay), 1500
    things, done = np.zeros(200, dtype=np.int64), np.zeros(200, dtype=np.int64)
    for _ in range(queries):
        done[:] = 0
        divided.in_place(place, things, done, place.post)
        np.testing.assert_array_equal(done, np.arange(1, 201))
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass
    if pause == 0.0:
        assert len(asked) < queries, "no query was posted"
    eventually(lambda: place.post[0] == NOBODY)  # the helper has gone


def test_what_fails_in_a_helper_that_has_lingered_is_raised() -> None:
    rounds: list[int] = []

    def lead(board: np.ndarray, post: np.ndarray) -> None:
        begun = len(rounds)
        open_phase(board, 0, 1, 1)
        if board is place.board:  # the helper was asked with it: it takes the only task
            eventually(lambda: len(rounds) > begun)
            assert wait_for(board, 0) == (begun == 0)

    def stay(board: np.ndarray, post: np.ndarray) -> None:
        while take(board, 0, 1) >= 0:
            rounds.append(1)
            if len(rounds) == 2:
                raise MemoryError("no room")
            cross_off(board, 0)
            deadline = time.monotonic() + 20
            while not wait_at(post):
                if time.monotonic() > deadline:
                    return

    place, divided = Place(), Divided(lead, stay)
    divided._compiled = True
    divided.in_place(place, place.post)
    with pytest.raises(MemoryError, match="no room"):
        again_and_again(lambda: divided.in_place(place, place.post))
    assert len(rounds) == 2


def again_and_again(call: Callable[[], None]) -> None:
    """Until the helper happens to wait at the post."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        call()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that interrupts")
def test_an_interrupted_query_leaves_the_helper_free() -> None:
    """Ctrl-C at any moment: nobody waits for ever, and the next queries are done."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    things, done = np.zeros(2000, dtype=np.int64), np.zeros(2000, dtype=np.int64)
    divided, interrupted, before = Divided(lead, stay), 0, signal.signal(signal.SIGALRM, interrupt)
    place = Place()
    divided.in_place(place, things, done, place.post)  # compiled
    rng = np.random.default_rng(0)
    try:
        for _ in range(150):
            place = Place()  # memory of an interrupted query is not used again
            things, done = np.zeros(2000, dtype=np.int64), np.zeros(2000, dtype=np.int64)
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                for _ in range(100):
                    done[:] = 0
                    divided.in_place(place, things, done, place.post)
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100
    helped: list[int] = []

    def ask() -> bool:
        run_divided(lambda board: time.sleep(0.002), lambda board: helped.append(1))
        return bool(helped)

    eventually(ask)


def test_texts_one_after_the_other_have_the_bits_of_one_thread(
    plus_model: Model, tiny_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plus_model.plus is not None
    asked, ask = [], Helper.ask

    def counted(*arguments: object) -> object:
        asked.append(1)
        return ask(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Helper, "ask", counted)
    alone = replace(plus_model, plus=replace(plus_model.plus, threads=1))
    texts, block = texts_of(tiny_dataset)[:40], list(plus_model.labels.ids[:3])
    plain = [alone.predict([text], 5) for text in texts]
    blocked = [alone.predict([text], 5, block=block) for text in texts]
    for labels in (None, block):
        plus_model.predict(texts[:1], 5, block=labels)  # compiled
    asked.clear()
    queries, turn, deadline = 0, 0, time.monotonic() + 60
    while turn < 5 or len(asked) == queries:  # on a busy machine a helper may not wait in time
        assert time.monotonic() < deadline, "no text was posted"
        for number, text in enumerate(texts):
            found, same = plus_model.predict([text], 5), plain[number]
            queries += 1
            if (turn + number) % 7 == 0:
                found, same = plus_model.predict([text], 5, block=block), blocked[number]
                queries += 1
            np.testing.assert_array_equal(found.labels, same.labels)
            np.testing.assert_array_equal(found.scores, same.scores)
        turn += 1
