"""Admission control: what is refused with 503 while the queue is full, and that every admitted request is answered."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from elias.core.errors import SettingsError
from elias.model.model import Model
from elias.server import annif_routes, validation
from elias.server.admission import Limits
from elias.server.protocol import LANE
from elias.server.validation import LARGE_BODY
from helpers.serving import PATIENCE, SMALL_LIMITS, HeldModel, Running, read_all, running, wait_until


def test_limits_from_the_command_line() -> None:
    limits = Limits().updated({"texts": "7", "body_seconds": "1.5"})
    assert (limits.texts, limits.body_seconds) == (7, 1.5)
    for wrong, words in (({"text": "7"}, "did you mean"), ({"k": "many"}, "not a number"), ({"k": "0"}, "above 0")):
        with pytest.raises(SettingsError, match=words):
            Limits().updated(wrong)


def test_a_full_queue_is_a_503_at_once(narrow: Running, tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldModel(tiny_model, monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        accepted = [pool.submit(narrow.predict, [f"text {n}"]) for n in range(4)]
        wait_until(lambda: narrow.service.admission.requests == 4)
        answer = narrow.post("/v1/predict", {"texts": ["one more"]})  # answered while the model is held
        assert (answer.status, answer.error["code"]) == (503, "busy")
        assert int(answer.headers["retry-after"]) >= 1
        assert narrow.get("/health").status == 200
        held.release()
        assert all(future.result()["results"] for future in accepted), "every accepted request is answered"
    wait_until(lambda: narrow.service.admission.requests == 0)
    assert narrow.service.admission.texts == narrow.service.admission.bytes == 0
    assert b"elias_refused_total 1\n" in narrow.get("/metrics").body


def test_texts_that_do_not_fit_the_queue(
    tiny_model: Model, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 texts in the queue a request counts for 100 at most, and 50 are kept for small requests."""
    limits = Limits(waiting_texts=400)
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=limits) as found:
        held = HeldModel(tiny_model, monkeypatch)
        with ThreadPoolExecutor(6) as pool:
            accepted = [pool.submit(found.predict, [name] * 150) for name in "abc"]
            wait_until(lambda: found.service.admission.texts == 300)
            assert found.post("/v1/predict", {"texts": ["d"] * 70}).status == 503
            assert found.post("/v1/predict", {"texts": ["d"] * 70, "stream": True}).status == 503
            accepted += [pool.submit(found.predict, ["e"] * 60), pool.submit(found.predict, ["f"] * 40)]
            wait_until(lambda: found.service.admission.texts == 400)
            assert found.post("/v1/predict", {"texts": ["g"]}).status == 503
            held.release()
            assert [len(future.result()["results"]) for future in accepted] == [150, 150, 150, 60, 40]


@pytest.mark.parametrize("is_form", [False, True])
def test_bodies_count_while_they_are_parsed(
    tiny_model: Model, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, is_form: bool
) -> None:
    """They wait for a thread, and cost memory meanwhile."""
    may_parse, size = Event(), 2 * LARGE_BODY
    module, name = (annif_routes, "read_form") if is_form else (validation, "parse")
    original = getattr(module, name)

    def held(*given: Any) -> Any:
        assert may_parse.wait(PATIENCE)
        return original(*given)

    monkeypatch.setattr(module, name, held)
    limits = Limits(waiting_bytes=size)
    with (
        running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=limits) as found,
        ThreadPoolExecutor(1) as pool,
    ):
        if is_form:
            kind = {"Content_Type": "application/x-www-form-urlencoded"}
            first = pool.submit(found.post, "/v1/projects/tiny/suggest", b"text=".ljust(size, b"a"), **kind)
        else:
            first = pool.submit(found.post, "/v1/predict", b'{"texts": ["a"]}'.ljust(size))
        try:
            wait_until(lambda: found.service.admission.bytes == size)
            assert found.post("/v1/predict", {"texts": ["b"]}).status == 503
        finally:
            may_parse.set()
        assert first.result().status == 200
        wait_until(lambda: found.service.admission.bytes == 0)


def test_too_many_connections(narrow: Running) -> None:
    """One more may still ask whether the service is alive; anything else it asks is refused, and so is the next."""
    with ExitStack() as stack:
        for _ in range(SMALL_LIMITS.connections):
            stack.enter_context(narrow.raw())
        for path in ("/health", "/ready", "/health?verbose=1"):
            answer = narrow.get(path)
            assert answer.status == (200 if "?" not in path else 422)
            assert answer.headers["connection"] == "close"
        for answer in (narrow.get("/v1/models"), narrow.post("/v1/predict", {"texts": ["a"]})):
            assert (answer.status, answer.error["code"]) == (503, "busy")
        for _ in range(LANE):
            stack.enter_context(narrow.raw())
        with narrow.raw() as sock:
            head, body = read_all(sock).split(b"\r\n\r\n", 1)
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in head
            assert json.loads(body)["error"]["code"] == "busy"
        wait_until(lambda: narrow.get("/health").status == 200)  # who says nothing does not block the probes for long
    wait_until(lambda: narrow.get("/v1/models").status == 200)
