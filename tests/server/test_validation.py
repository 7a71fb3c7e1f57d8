"""What a request must satisfy: every 4xx with its code, its field and a message that helps."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from helpers.serving import Running, read_all


@pytest.mark.parametrize(
    ("body", "status", "code", "field", "words"),
    [
        ({}, 422, "invalid", "texts", "missing"),
        ([], 422, "invalid", None, "object"),
        ({"texts": {}}, 422, "invalid", "texts", "array"),
        ({"texts": None}, 422, "invalid", "texts", "array"),
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
        ({"texts": ["a"], "block": ["label-1"]}, 422, "invalid", "block.0", "/v1/labels?search="),
        ({"texts": ["a"], "block": ["label-01"] * 11}, 413, "too_large", "block", "at most 10"),
        ({"texts": ["a"] * 30, "block": ["label-01"] * 9}, 413, "too_large", "block", "at most 200 pairs"),
        ({"texts": ["a"], "rare": 1.1}, 422, "invalid", "rare", "less than"),
        ({"texts": ["a"], "rare": True}, 422, "invalid", "rare", "number"),
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
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        piece = b"%x\r\n" % 10_000 + b" " * 10_000 + b"\r\n"
        with suppress(OSError):  # it hangs up, as it should
            for _ in range(100):
                sock.sendall(piece)
        assert read_all(sock).startswith(b"HTTP/1.1 413 ")
    assert narrow.service.admission.bytes == 0
