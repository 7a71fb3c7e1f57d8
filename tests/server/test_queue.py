"""The queue: which texts form the next batch, alone and behind the service."""

from __future__ import annotations

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from elias.model.model import Model
from elias.server.admission import Limits
from elias.server.queue import MAX_PAIRS, SHARE, Entry, Job, PredictOptions, RequestQueue
from helpers.serving import HeldModel, Running, wait_until

MODEL: Any = SimpleNamespace(name="model")


def entry(texts: list[str], *, gone: bool = False, **options: Any) -> Entry:
    done: Any = Future()
    return Entry(Job(MODEL, PredictOptions(**options), texts, None, lambda: gone), done, remaining=len(texts))


def queue_of(*entries: Entry, **limits: int) -> tuple[RequestQueue, list[Entry]]:
    abandoned: list[Entry] = []
    queue = RequestQueue(Limits(**limits), abandoned.append)
    for each in entries:
        queue.put(each)
    return queue, abandoned


def batches(queue: RequestQueue) -> list[list[tuple[Entry, int, int]]]:
    """Every batch until the queue is empty."""
    found = []
    while batch := queue.take_batch():
        found.append([(piece.entry, piece.start, piece.stop) for piece in batch])
    return found


def test_a_batch_takes_a_share_of_every_request_and_then_fills_up() -> None:
    large, small = entry(["a"] * 300), entry(["b"])
    queue, _ = queue_of(large, small, batch=256)
    assert batches(queue) == [[(large, 0, 255), (small, 0, 1)], [(large, 255, 300)]]
    assert queue.texts == 0


def test_two_large_requests_alternate() -> None:
    first, second = entry(["a"] * 200), entry(["b"] * 200)
    queue, _ = queue_of(first, second, batch=2 * SHARE)
    assert batches(queue)[0] == [(first, 0, SHARE), (second, 0, SHARE)]


def test_every_text_is_in_exactly_one_batch() -> None:
    entries = [entry([str(n)] * size) for n, size in enumerate((1, 700, 64, 65, 3, 256, 257))]
    queue, _ = queue_of(*entries)
    taken: dict[Entry, list[int]] = {each: [] for each in entries}
    for batch in batches(queue):
        assert sum(stop - start for _, start, stop in batch) <= 256
        for each, start, stop in batch:
            taken[each] += range(start, stop)
    assert all(sorted(rows) == list(range(len(each.job.texts))) for each, rows in taken.items())


def test_only_compatible_options_share_a_batch() -> None:
    entries = [entry(["a"], k=5), entry(["b"], k=9), entry(["c"], k=40), entry(["d"], threshold=0.5)]
    entries += [entry(["e"], block=("x",)), entry(["f"], rare=0.5), entry(["g"], labels=("x",))]
    entries += [entry(["h"], explain=True)]  # takes longer: the others need not wait for it
    queue, _ = queue_of(*entries)
    alone = [[each] for each in entries[2:]]
    assert [[each for each, _, _ in batch] for batch in batches(queue)] == [entries[:2], *alone]


def test_long_texts_and_named_labels_make_batches_smaller() -> None:
    long = entry(["x" * 60] * 4)
    queue, _ = queue_of(long, batch_characters=100)
    assert batches(queue) == [[(long, 0, 2)], [(long, 2, 4)]]
    named = entry(["a"] * 3, labels=tuple(map(str, range(MAX_PAIRS // 2))))
    queue, _ = queue_of(named)
    assert batches(queue) == [[(named, 0, 2)], [(named, 2, 3)]]


def test_requests_of_disconnected_clients_are_dropped() -> None:
    gone, stays = entry(["a"] * 9, gone=True), entry(["b"])
    queue, abandoned = queue_of(gone, stays)
    assert batches(queue) == [[(stays, 0, 1)]]
    assert (abandoned, queue.texts) == ([gone], 0)


def waiting_entries(found: Running) -> list[Entry]:
    """The requests that are in the queue of a running service."""
    return [each for group in list(found.service.batcher._queue._entries.values()) for each in group]


def test_one_text_does_not_wait_behind_thousands(
    service: Running, tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldModel(tiny_model, monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        large = [pool.submit(service.predict, [f"large {n}"] * 3000) for n in range(2)]
        wait_until(lambda: len(held.calls) == 2)  # both compute threads are busy
        small = pool.submit(service.predict, ["small"])
        wait_until(lambda: service.service.admission.requests == 3)
        held.release()
        assert small.result()["results"]
        assert all(len(future.result()["results"]) == 3000 for future in large)
    assert any("small" in texts for texts in held.calls[2:4]), "it is part of the next batches"
    assert max(map(len, held.calls)) <= service.service.limits.batch


def test_texts_of_a_disconnected_client_are_not_computed(
    narrow: Running, tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldModel(tiny_model, monkeypatch)
    body = json.dumps({"texts": ["gone"] * 7}).encode()
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    with ThreadPoolExecutor(4) as pool:
        first = []
        for number in (1, 2):  # both compute threads are busy, one after the other
            first.append(pool.submit(narrow.predict, [f"stays {number}"]))
            wait_until(lambda taken=number: len(held.calls) == taken)
        sock = narrow.raw()
        sock.sendall(head % len(body) + body)
        wait_until(lambda: narrow.service.admission.requests == 3)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sock.close()
        wait_until(lambda: all(entry.job.client_gone() for entry in waiting_entries(narrow)))
        held.release()
        assert all(future.result()["results"] for future in first)
    wait_until(lambda: narrow.service.admission.requests == 0)
    assert not any("gone" in texts for texts in held.calls), "its texts were never computed"
