"""One query divided between two threads: every task done once, whoever comes when, and the bits of one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread, current_thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import dense_equations as dense
from elias import closer, lexical, load, load_dataset
from elias.cpu_search import _scratch, room_for_answers
from elias.finder import Finder
from elias.kernels.board import CLOSED, cross_off, length_of, new_board, open_phase, so_far, take, wait_for
from elias.kernels.find_one import Room, lead, lend_a_hand
from elias.kernels.helper import Divided, Helper, run_divided
from elias.kernels.pack import packed
from elias.model import SearchSettings
from elias.paths import Ragged
from elias.predictor import Model
from test_cpu_search import random_case
from test_equations import small_network

EACH = 7


@njit(nogil=True)
def make_and_do(board, things, done):  # type: ignore[no-untyped-def]
    """Things become there one after the other; each is to be done once."""
    for i in range(len(things)):
        things[i] = i + 1
        so_far(board, 0, i + 1)
    open_phase(board, 0, len(things), EACH)
    do(board, things, done)


@njit(nogil=True)
def do(board, things, done):  # type: ignore[no-untyped-def]
    task = take(board, 0, EACH)
    while task >= 0:
        for i in range(task * EACH, min((task + 1) * EACH, length_of(board, 0))):
            done[i] += things[i]
        cross_off(board, 0)
        task = take(board, 0, EACH)
    wait_for(board, 0)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 20_000])
@pytest.mark.parametrize("delay", [None, 0.0, 0.0005, 0.05])
def test_every_task_is_done_once(size: int, delay: float | None) -> None:
    for _ in range(20):
        board, things, done = new_board(), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)

        def come(later: float | None = delay, *arguments: np.ndarray) -> None:
            time.sleep(later or 0.0)
            do(*arguments)

        helper = Thread(target=come, args=(delay, board, things, done))
        if delay is not None:
            helper.start()
        make_and_do(board, things, done)
        np.testing.assert_array_equal(done, np.arange(1, size + 1))  # the leader has waited for the helper's tasks
        if delay is not None:
            helper.join(timeout=10)
            assert not helper.is_alive()
            np.testing.assert_array_equal(done, np.arange(1, size + 1))


def test_a_leader_that_fails_leaves_the_helper_free() -> None:
    came = []

    def lead(board: np.ndarray) -> None:
        while not came:
            time.sleep(0.001)
        raise KeyboardInterrupt

    def lend_a_hand(board: np.ndarray) -> None:
        came.append(True)
        do(board, np.zeros(9, dtype=np.int64), np.zeros(9, dtype=np.int64))  # waits for a phase that never opens

    with pytest.raises(KeyboardInterrupt):
        run_divided(lead, lend_a_hand)
    helped = []
    deadline = time.monotonic() + 20
    while not helped and time.monotonic() < deadline:
        run_divided(lambda board: time.sleep(0.01), lambda board: helped.append(True))
    assert helped


def test_what_fails_in_the_helper_is_raised_and_nobody_waits() -> None:
    taken = []

    def lead(board: np.ndarray) -> None:
        open_phase(board, 0, 2 * EACH, EACH)
        while not taken:
            time.sleep(0.001)
        assert take(board, 0, EACH) == 1
        cross_off(board, 0)
        assert not wait_for(board, 0)  # for the task that the helper has begun

    def lend_a_hand(board: np.ndarray) -> None:
        taken.append(take(board, 0, EACH))
        raise MemoryError("no room")

    for _ in range(3):
        taken.clear()
        with pytest.raises(MemoryError, match="no room"):
            run_divided(lead, lend_a_hand)
        time.sleep(0.05)  # until the helper is free


def big_case(seed: int) -> tuple[Finder, np.ndarray]:
    """Enough labels for many tasks of every phase."""
    rng = np.random.default_rng(seed)
    index = dense.random_index(rng, 300, 3000, density=0.2, beta=50.0)
    network = small_network(rng, index, 24, SearchSettings(beam_size=12, shortlist_size=900), threads=2)
    return Finder(network), rng.normal(size=(40, 24)).astype(np.float32)


def test_one_row_has_the_bits_of_many() -> None:
    finder, phi = big_case(0)
    excluded = Ragged.of([np.arange(row) * 17 for row in range(len(phi))])
    looks = [finder.look(torch.from_numpy(phi), np.array([row])) for row in range(len(phi))]
    for k in (1, 30, 2000):
        for row, look in enumerate(looks):
            left_out = Ragged.of([excluded.labels[excluded.indptr[row] : excluded.indptr[row + 1]]])
            one = finder.find(torch.from_numpy(phi), np.array([row]), k, excluded=left_out, explain=True)
            same = finder.find_from(look, k, excluded=left_out, explain=True)
            np.testing.assert_array_equal(one.labels, same.labels)
            np.testing.assert_array_equal(one.scores, same.scores)
            assert one.parts is not None
            assert same.parts is not None
            for name, values in one.parts.items():
                np.testing.assert_array_equal(values, same.parts[name], err_msg=name)


@settings(max_examples=80)
@given(st.integers(0, 1_000_000))
def test_small_networks_have_the_same_bits_too(seed: int) -> None:
    network, phi, k, excluded = random_case(np.random.default_rng(seed))
    network.threads = 2
    finder = Finder(network)
    for row in range(2):
        left_out = Ragged.of([excluded.labels[excluded.indptr[row] : excluded.indptr[row + 1]]])
        rows = torch.from_numpy(phi), np.array([row])
        one, same = (
            finder.find(*rows, k, excluded=left_out),
            finder.find_from(finder.look(*rows), k, excluded=left_out),
        )
        np.testing.assert_array_equal(one.labels, same.labels)
        np.testing.assert_array_equal(one.scores, same.scores)


def test_a_helper_that_comes_too_late_touches_nothing() -> None:
    finder, phi = big_case(1)
    room, found = packed(Room(_scratch(3000, 3000), np.empty(300, dtype=np.float32))), room_for_answers(1, 20)
    nobody = np.empty(0, dtype=np.int32)
    tables, numbers = finder._one, (float(finder.network.settings.alpha), 12, 900)
    board = new_board()
    arguments = (board, phi[0], phi[0], tables, *numbers, nobody, room, found)
    lead(*arguments)
    alone = [part.copy() for part in found]
    for part in found:
        part[:] = 77
    lend_a_hand(*arguments)
    assert all((part == 77).all() for part in found)
    expected = finder.find_from(finder.look(torch.from_numpy(phi), np.array([0])), 20)
    np.testing.assert_array_equal(alone[0], expected.labels)
    np.testing.assert_array_equal(alone[1], expected.scores)


def test_the_helper_is_asked_by_one_at_a_time() -> None:
    helper, begun, answers = Helper(), [], []

    def slow(board: np.ndarray) -> None:
        begun.append(1)
        time.sleep(0.05)

    def fail(board: np.ndarray) -> None:
        begun.append(2)
        raise ValueError("a helper goes on after this")

    for call in (slow, slow, slow):
        helper.ask(call, new_board())
    eventually(lambda: begun == [1])
    time.sleep(0.1)
    failed = helper.ask(fail, new_board())
    eventually(lambda: [str(problem) for problem in failed] == ["a helper goes on after this"])
    time.sleep(0.05)
    helper.ask(lambda board: answers.append("here"), new_board())
    eventually(lambda: answers == ["here"])


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("not within 5 seconds")


def test_without_a_free_helper_the_leader_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(Helper, "ask", lambda self, *arguments: asked.append(arguments))
    things, done = np.zeros(100, dtype=np.int64), np.zeros(100, dtype=np.int64)
    run_divided(make_and_do, do, things, done)
    assert len(asked) == 1
    np.testing.assert_array_equal(done, np.arange(1, 101))


def texts_of(folder: Path) -> list[str]:
    test = load_dataset(folder).test
    assert test is not None
    assert test.texts is not None
    return list(test.texts)


def test_a_text_has_the_bits_of_one_thread(plus_model: Model, tiny_dataset: Path) -> None:
    assert plus_model.plus is not None
    alone = replace(plus_model, plus=replace(plus_model.plus, threads=1))
    texts = ["", "no known word", *texts_of(tiny_dataset)[:25]]
    block = list(plus_model.labels.ids[:3])
    for text in texts * 2:
        for k in (1, 5, 10_000):
            one, same = plus_model.predict([text], k), alone.predict([text], k)
            np.testing.assert_array_equal(one.labels, same.labels)
            np.testing.assert_array_equal(one.scores, same.scores)
        one, same = plus_model.predict([text], 5, block=block), alone.predict([text], 5, block=block)
        np.testing.assert_array_equal(one.labels, same.labels)
        np.testing.assert_array_equal(one.scores, same.scores)


def test_many_threads_ask_for_one_text_each(plus_model: Model, tiny_dataset: Path) -> None:
    texts = texts_of(tiny_dataset)[:40]
    expected = [plus_model.predict([text], 5) for text in texts]
    wrong: list[str] = []

    def ask() -> None:
        for text, same in zip(texts, expected, strict=True):
            found = plus_model.predict([text], 5)
            if not (np.array_equal(found.labels, same.labels) and np.array_equal(found.scores, same.scores)):
                wrong.append(text)

    threads = [Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong


def test_the_helper_never_compiles() -> None:
    """Its half is called once on a closed board by the thread that asks, before the helper is."""
    called_in: list[str] = []

    def lend_a_hand(board: np.ndarray) -> None:
        called_in.append(f"{current_thread().name}, closed {board[CLOSED]}")

    divided = Divided(lambda board: time.sleep(0.01), lend_a_hand)

    def has_helped() -> bool:
        divided()
        return len(called_in) > 1

    divided()
    eventually(has_helped)
    assert called_in[0] == f"{current_thread().name}, closed 1"
    assert set(called_in[1:]) == {"elias-helper, closed 0"}


@pytest.mark.slow
def test_the_same_bits_with_columns_of_eight(
    plus_model: Model, tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "NARROW_FROM", 1)
    monkeypatch.setattr(closer, "NARROW_FROM", 1)
    plus_model.save(tmp_path / "model")
    model, texts = load(tmp_path / "model", threads=2), texts_of(tiny_dataset)[:40]
    assert isinstance(model, Model)
    assert model.plus is not None
    assert model.plus.lexical.table.codes.dtype == np.int8
    assert len(model.plus.lexical.table.codes)
    assert model.plus.tables.closer.table.codes.dtype == np.int16
    assert model.plus.tables.closer.table.codes.size
    together = model.predict(texts, 7)
    usual = plus_model.predict(texts, 7)
    for row, text in enumerate(texts):
        one = model.predict([text], 7)
        np.testing.assert_array_equal(one.labels[0], together.labels[row])
        np.testing.assert_array_equal(one.scores[0], together.scores[row])
    assert (together.labels[:, 0] == usual.labels[:, 0]).mean() > 0.9


@pytest.mark.slow
def test_a_process_that_asks_once_leaves_compiled_kernels(plus_model: Model, tmp_path: Path) -> None:
    """In a cache of its own: one query, then the end; nothing is left to be compiled, and it ends in peace."""
    plus_model.save(tmp_path / "model")
    code = "import sys, elias; elias.load(sys.argv[1], threads=2).predict(['one text'], 3)"
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    cache = tmp_path / "cache"
    done = subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("lead", "stay"):
        assert list(cache.rglob(f"gather_one.{name}-*.nbi")), name
