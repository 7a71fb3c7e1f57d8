"""What the service refuses: every status with its code, field and a message that helps; nobody else is disturbed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from elias.core.errors import SettingsError
from elias.model.model import Model
from elias.server.admission import Limits
from helpers.serving import Running, read_all, running

SMALL_LIMITS = Limits(
    texts=50,
    text_length=1000,
    body_bytes=60_000,
    k=20,
    labels=10,
    answers=500,
    pairs=200,
    waiting_requests=4,
    waiting_texts=120,
    connections=40,
    header_seconds=0.6,
    body_seconds=0.6,
    answer_seconds=20,
)


@pytest.fixture(scope="module")
def narrow(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    """A service that allows very little."""
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=SMALL_LIMITS) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "status", "code", "field", "words"),
    [
        ({}, 422, "invalid", "texts", "missing"),
        ([], 422, "invalid", None, "object"),
        ({"texts": "one"}, 422, "invalid", "texts", "array"),
        ({"texts": [1]}, 422, "invalid", "texts.0", "string"),
        ({"texts": ["a"], "k": 0}, 422, "invalid", "k", "it is 0"),
        ({"texts": ["a"], "k": "5"}, 422, "invalid", "k", "integer"),
        ({"texts": ["a"], "k": 21}, 422, "invalid", "k", "at most 20"),
        ({"texts": ["a"], "K": 3}, 422, "invalid", "K", "unknown field"),
        ({"texts": ["a"], "explane": True}, 422, "invalid", "explane", 'did you mean "explain"?'),
        ({"texts": ["a"], "ids": []}, 422, "invalid", "ids", "one for each"),
        ({"texts": ["a"], "threshold": 1.5}, 422, "invalid", "threshold", "less than"),
        ({"texts": ["a"], "labels": ["label-1"]}, 422, "invalid", "labels.0", "/v1/labels?search="),
        ({"texts": ["a"], "labels": ["label-01"] * 11}, 413, "too_large", "labels", "at most 10"),
        ({"texts": ["a"] * 30, "labels": ["label-01"] * 9}, 413, "too_large", "labels", "at most 200 pairs"),
        ({"texts": ["a"] * 51}, 413, "too_large", "texts", "at most 50"),
        ({"texts": ["a"] * 30, "k": 20}, 422, "invalid", "stream", '"stream": true'),
        ({"texts": ["a", "b" * 1001]}, 413, "too_large", "texts.1", "at most 1,000"),
        (b"", 400, "bad_json", None, "not JSON"),
        (b'{"texts": ["a"', 400, "bad_json", None, "not JSON"),
        (b'{"texts": ["\xff\xfe"]}', 400, "bad_json", None, "not JSON"),
        (b'{"texts": ["\\ud800"]}', 400, "bad_json", None, "not JSON"),
        (b"[" * 20_000, 400, "bad_json", None, "not JSON"),
        (b'{"texts": ["a"], "k": 1e400}', 422, "invalid", "k", ""),
        (b'{"texts": ["a"], "k": 99999999999999999999999}', 422, "invalid", "k", ""),
        (b'{"texts": ["a"], "threshold": NaN}', 422, "invalid", "threshold", ""),
        (b" " * 60_001, 413, "too_large", None, "several requests"),
    ],
)
def test_bodies(narrow: Running, body: Any, status: int, code: str, field: str | None, words: str) -> None:
    answer = narrow.post("/v1/predict", body)
    assert (answer.status, answer.error["code"], answer.error["field"]) == (status, code, field), answer.body
    assert words in answer.error["message"]


def test_the_same_for_paths_and_the_rest(narrow: Running) -> None:
    assert narrow.post("/v1/paths", {"text": "b" * 1001}).status == 413
    answer = narrow.post("/v1/paths", {"text": "a", "label": "nothing"})
    assert (answer.status, answer.error["field"]) == (422, "label")
    for path, status, field in (
        ("/v1/labels/nothing", 404, "label"),
        ("/v1/clusters/4", 404, "cluster"),
        ("/v1/clusters/-1", 404, "cluster"),
        ("/v1/clusters/x", 422, "cluster"),
        ("/v1/labels?limit=0", 422, "limit"),
        ("/v1/labels?search=" + "x" * 201, 422, "search"),
        ("/v1/model?model=other", 404, "model"),
        ("/v1/nothing", 404, None),
        ("/page/../app.py", 404, None),
        ("/page/%2e%2e/app.py", 404, None),
    ):
        answer = narrow.get(path)
        assert (answer.status, answer.error["field"]) == (status, field), path
    answer = narrow.get("/v1/predict")
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_only_declared_json_is_read(narrow: Running) -> None:
    """A form of a foreign web page cannot declare JSON without asking first, and asking is refused."""
    answer = narrow.post("/v1/predict", {"texts": ["a"]}, Content_Type="text/plain")
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    assert narrow.post("/v1/predict", {"texts": ["a"]}, Content_Type="application/json; charset=utf-8").status == 200


def test_a_body_without_a_length_is_cut_off_too(narrow: Running) -> None:
    with narrow.raw() as sock:
        sock.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        piece = b"%x\r\n" % 10_000 + b" " * 10_000 + b"\r\n"
        with suppress(OSError):  # it hangs up, as it should
            for _ in range(100):
                sock.sendall(piece)
        assert read_all(sock).startswith(b"HTTP/1.1 413 ")
    assert narrow.service.admission.bytes == 0


def test_slow_bodies_and_slow_headers_end(narrow: Running) -> None:
    with narrow.raw() as slow, narrow.raw() as silent:
        slow.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        )
        silent.sendall(b"POST /v1/pre")
        assert narrow.predict(["a"])["results"], "others are served meanwhile"
        head, body = read_all(slow).split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"]["code"] == "timeout"
        head, body = read_all(silent).split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"]["code"] == "timeout"
    assert narrow.service.admission.requests == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http(narrow: Running, garbage: bytes) -> None:
    with narrow.raw() as sock:
        with suppress(OSError):  # it may hang up before it has read everything
            sock.sendall(garbage + b"\r\n")
        head, _, body = read_all(sock).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 "), head[:80]
        assert json.loads(body)["error"]["code"] == "bad_request"
    assert narrow.get("/health").status == 200


def test_garbage_after_a_good_request(narrow: Running) -> None:
    body = json.dumps({"texts": ["a"]}).encode()
    good = (
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    with narrow.raw() as sock:
        sock.sendall(good + body + b"\x00garbage\r\n\r\n" + good + body)
        answer = read_all(sock)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b'"results"') == 1
        assert b"HTTP/1.1 400 " in answer


def test_too_many_connections(narrow: Running) -> None:
    socks = [narrow.raw() for _ in range(SMALL_LIMITS.connections)]
    try:
        with narrow.raw() as sock:
            head, body = read_all(sock).split(b"\r\n\r\n", 1)
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head
            assert json.loads(body)["error"]["code"] == "busy"
    finally:
        for sock in socks:
            sock.close()
    wait_until(lambda: narrow.get("/health").status == 200)


class Gated:
    """A model whose answers wait until they are let through."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.calls = threading.Event(), list[int]()
        predict = model.predict

        def gated(texts: list[str], *args: Any, **options: Any) -> Any:
            self.calls.append(len(texts))
            assert self.open.wait(20)
            return predict(texts, *args, **options)

        monkeypatch.setattr(model, "predict", gated)


def wait_until(happened: Any) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_full_queue_says_so_at_once(narrow: Running, tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gated(tiny_model, monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        accepted = [pool.submit(narrow.predict, [f"text {n}"]) for n in range(4)]
        wait_until(lambda: narrow.service.admission.requests == 4)
        started = time.monotonic()
        answer = narrow.post("/v1/predict", {"texts": ["one more"]})
        assert time.monotonic() - started < 5, "it does not wait for the others"
        assert (answer.status, answer.error["code"]) == (503, "busy")
        assert int(answer.headers["retry-after"]) >= 1
        assert narrow.get("/health").status == 200
        gate.open.set()
        assert all(future.result()["results"] for future in accepted), "every accepted request is answered"
    wait_until(lambda: narrow.service.admission.requests == 0)
    assert narrow.service.admission.texts == narrow.service.admission.bytes == 0
    assert b"elias_refused_total 1\n" in narrow.get("/metrics").body


def test_texts_that_do_not_fit_the_queue(tiny_model: Model, tiny_model_folder: Path, monkeypatch: Any) -> None:
    """Of 400 texts in the queue a request counts for 100 at most, and 50 are kept for small requests."""
    limits = Limits(waiting_texts=400)
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=limits) as found:
        gate = Gated(tiny_model, monkeypatch)
        with ThreadPoolExecutor(6) as pool:
            accepted = [pool.submit(found.predict, [name] * 150) for name in "abc"]
            wait_until(lambda: found.service.admission.texts == 300)
            assert found.post("/v1/predict", {"texts": ["d"] * 70}).status == 503
            assert found.post("/v1/predict", {"texts": ["d"] * 70, "stream": True}).status == 503
            accepted += [pool.submit(found.predict, ["e"] * 60), pool.submit(found.predict, ["f"] * 40)]
            wait_until(lambda: found.service.admission.texts == 400)
            assert found.post("/v1/predict", {"texts": ["g"]}).status == 503
            gate.open.set()
            assert [len(future.result()["results"]) for future in accepted] == [150, 150, 150, 60, 40]


def test_one_text_does_not_wait_behind_thousands(service: Running, tiny_model: Model, monkeypatch: Any) -> None:
    gate = Gated(tiny_model, monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        large = [pool.submit(service.predict, [f"large {n}"] * 3000) for n in range(2)]
        wait_until(lambda: len(gate.calls) == 2)  # both places of the pool are taken
        small = pool.submit(service.predict, ["small"])
        wait_until(lambda: service.service.admission.requests == 3)
        gate.open.set()
        small.result()
        assert not any(future.done() for future in large)
        assert all(len(future.result()["results"]) == 3000 for future in large)
    assert max(gate.calls) <= service.service.limits.batch


def test_a_client_that_went_away_costs_nothing(
    narrow: Running, tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gated(tiny_model, monkeypatch)
    body = json.dumps({"texts": ["gone"] * 7}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with ThreadPoolExecutor(4) as pool:
        first = []
        for number in (1, 2):  # both places of the pool are taken, one after the other
            first.append(pool.submit(narrow.predict, [f"stays {number}"]))
            wait_until(lambda taken=number: len(gate.calls) == taken)
        sock = narrow.raw()
        sock.sendall(head % len(body) + body)
        wait_until(lambda: narrow.service.admission.requests == 3)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sock.close()
        time.sleep(0.1)
        gate.open.set()
        assert all(future.result()["results"] for future in first)
    wait_until(lambda: narrow.service.admission.requests == 0)
    assert 7 not in gate.calls, "its texts were never computed"


def test_limits_from_the_command_line() -> None:
    limits = Limits().updated({"texts": "7", "body_seconds": "1.5"})
    assert (limits.texts, limits.body_seconds) == (7, 1.5)
    for wrong, words in (({"text": "7"}, "did you mean"), ({"k": "many"}, "not a number"), ({"k": "0"}, "above 0")):
        with pytest.raises(SettingsError, match=words):
            Limits().updated(wrong)
