"""Connections: slow ones end, and input that is not HTTP is answered in the error format of the service."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from helpers.serving import Running, read_all


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
