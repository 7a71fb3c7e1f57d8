"""Connections: slow ones end, and input that is not HTTP is answered in the error format of the service."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress

import pytest

from helpers.serving import Running, read_all


def test_slow_bodies_and_slow_headers_end(narrow: Running) -> None:
    with narrow.raw() as slow, narrow.raw() as silent:
        slow.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
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
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: five\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n",
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
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    with narrow.raw() as sock:
        sock.sendall(good + body + b"\x00garbage\r\n\r\n" + good + body)
        answer = read_all(sock)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b'"results"') == 1
        assert b"HTTP/1.1 400 " in answer


@pytest.mark.parametrize("extra", [b"", b"Connection: close\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_client_that_writes_first_sees_the_413(narrow: Running, extra: bytes) -> None:
    """30 MB where 60 kB are allowed: closing at once would reset the connection under the client's writing."""
    size = 30 << 20
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + extra
    body = b" " * size
    if b"chunked" in extra:
        body = b"%x\r\n" % size + body + b"\r\n0\r\n\r\n"
    else:
        head += b"Content-Length: %d\r\n" % size
    with narrow.raw() as sock:
        sock.sendall(head + b"\r\n" + body)
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["code"] == "too_large"
        if not answer.will_close:  # the rest was thrown away, and the connection can be used
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_refused_body_that_never_ends(narrow: Running) -> None:
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with narrow.raw() as sock:
        sock.sendall(head + b"Content-Length: 10000000\r\n\r\n{")
        answer = read_all(sock)  # the service closes the connection
        assert answer.startswith(b"HTTP/1.1 413 ")
    with narrow.raw() as sock:  # this client waits before it sends the body, and need not
        sock.sendall(head + b"Expect: 100-continue\r\nContent-Length: 10000000\r\n\r\n")
        answer = read_all(sock)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"\r\nconnection: close\r\n" in answer
        assert b"100 Continue" not in answer


def test_an_upgrade_is_not_made(narrow: Running) -> None:
    """What Java's client sends at first: a request that would also do with HTTP/2."""
    body = json.dumps({"texts": ["a"]}).encode()
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    head += b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    with narrow.raw() as sock:
        for _ in range(2):
            sock.sendall(head % len(body) + body)
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            assert answer.status == 200
            assert json.loads(answer.read())["results"]
