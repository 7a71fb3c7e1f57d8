"""Feedback: what is stored is what `fit` reads, lines never mix, and a disk that fails does not stop the service."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elias
from elias.core.errors import InputError
from elias.dataset.defects import UNREAD_FIELD
from elias.dataset.layouts import collect_defects
from elias.model.model import Model
from elias.server.feedback import FeedbackFile, feedback_row
from helpers.processes import elias as command
from helpers.processes import one_line
from helpers.serving import SMALL_LIMITS, Running, running


@pytest.fixture
def stored(tiny_model: Model, tiny_model_folder: Path, tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    file = tmp_path / "feedback.jsonl"
    folders = {"tiny": tiny_model_folder, "again": tiny_model_folder}
    with running(folders, lambda folder: tiny_model, feedback=file, limits=SMALL_LIMITS) as found:
        yield found, file


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_what_is_stored_can_be_fitted(stored: tuple[Running, Path]) -> None:
    found, file = stored
    assert found.get("/v1/models").json["feedback"] is True
    bodies = [
        {"text": "bada kuku", "id": "a", "accepted": ["label-01", "label-02"], "rejected": ["label-03"]},
        {"text": "Ähre\n«x»\u0000", "accepted": ["label-04"], "model": "again"},
        {"text": "nothing of it", "rejected": ["label-05"]},
    ]
    for body in bodies:
        answer = found.post("/v1/feedback", body)
        assert (answer.status, answer.json) == (200, {"stored": True})
    first, second, third = rows(file)
    assert {name: first[name] for name in ("id", "text", "labels", "rejected", "model")} == {
        "id": "a", "text": "bada kuku", "labels": ["label-01", "label-02"], "rejected": ["label-03"], "model": "tiny",
    }  # fmt: skip
    assert first["time"].endswith("+00:00")
    assert (second["text"], second["model"], second["rejected"]) == ("Ähre\n«x»\u0000", "again", [])
    assert third["labels"] == []
    assert collect_defects(file) == []
    data = elias.load_dataset(file)
    assert data.train.texts is not None
    assert data.train.texts[0] == "bada kuku"
    assert [note.kind for note in data.notes].count(UNREAD_FIELD) == 1
    assert file.stat().st_mode & 0o077 == 0, "it holds texts of users: for the owner alone"


@pytest.mark.parametrize(
    ("body", "status", "field", "words"),
    [
        ({"text": "a", "accepted": ["label-1"]}, 422, "accepted.0", 'unknown label "label-1"'),
        ({"text": "a", "rejected": ["label-01", "nothing"]}, 422, "rejected.1", 'unknown label "nothing"'),
        ({"text": "a", "accepted": ["label-01"], "rejected": ["label-01"]}, 422, "rejected", "both"),
        ({"text": "a"}, 422, "accepted", "nothing to store"),
        ({"text": " ", "accepted": ["label-01"]}, 422, "text", "empty"),
        ({"accepted": ["label-01"]}, 422, "text", "missing"),
        ({"text": "a", "accepted": "label-01"}, 422, "accepted", "array"),
        ({"text": "a", "acepted": ["label-01"]}, 422, "acepted", 'did you mean "accepted"?'),
        ({"text": "a", "accepted": ["label-01"], "model": "other"}, 404, "model", "no model"),
        ({"text": "a" * 1001, "accepted": ["label-01"]}, 413, "text", "at most 1,000"),
        ({"text": "a", "accepted": ["label-01"] * 11}, 413, "accepted", "at most 10"),
        ({"text": "a", "id": "x" * 1001, "accepted": ["label-01"]}, 422, "id", "at most 1000"),
        (b" " * 60_001, 413, None, "larger"),
    ],
)
def test_what_is_refused(stored: tuple[Running, Path], body: Any, status: int, field: str | None, words: str) -> None:
    found, file = stored
    answer = found.post("/v1/feedback", body)
    assert (answer.status, answer.error["field"]) == (status, field), answer.body
    assert words in answer.error["message"]
    assert not file.exists()


def test_off_by_default(service: Running) -> None:
    assert service.get("/v1/models").json["feedback"] is False
    answer = service.post("/v1/feedback", {"text": "a", "accepted": ["label-01"]})
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert "--feedback" in answer.error["message"]


def test_it_needs_the_token(tiny_model: Model, tiny_model_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "feedback.jsonl"
    with running(
        {"tiny": tiny_model_folder}, lambda folder: tiny_model, token="a-token-of-some-length", feedback=file
    ) as found:
        body = {"text": "a", "accepted": ["label-01"]}
        assert found.post("/v1/feedback", body, Authorization="Bearer wrong").status == 401
        assert not file.exists()
        assert found.post("/v1/feedback", body).status == 200


def test_a_form_of_a_foreign_page_is_refused(stored: tuple[Running, Path]) -> None:
    found, file = stored
    body = json.dumps({"text": "a", "accepted": ["label-01"]}).encode()
    assert found.post("/v1/feedback", body, Content_Type="text/plain").status == 415
    assert not file.exists()


def test_lines_never_mix(tmp_path: Path) -> None:
    file = FeedbackFile(tmp_path / "feedback.jsonl")

    def write(name: str) -> None:
        for number in range(40):
            file.append(feedback_row("x" * 20_000, f"{name}-{number}", ["a"], [], "m"))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["id"] for row in rows(file.path)) == sorted(f"{n}-{i}" for n in "abcd" for i in range(40))


def test_a_line_that_someone_left_open_is_closed_first(tmp_path: Path) -> None:
    file = FeedbackFile(tmp_path / "feedback.jsonl")
    file.path.write_text('{"text": "by hand", "labels": []}', encoding="utf-8")
    file.append(feedback_row("b", "2", ["a"], [], "m"))
    assert [row["text"] for row in rows(file.path)] == ["by hand", "b"]


@pytest.mark.parametrize("written", [0, 7])
def test_a_full_disk_leaves_no_half_line(
    stored: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, written: int
) -> None:
    found, file = stored
    body = {"text": "bada", "accepted": ["label-01"]}
    assert found.post("/v1/feedback", body).status == 200
    before, write = file.read_bytes(), os.write

    def full(handle: int, content: bytes) -> int:
        if not content.startswith(b'{"id"'):
            return write(handle, content)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, content[:written])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        answer = found.post("/v1/feedback", body)
    assert (answer.status, answer.error["code"]) == (503, "not_stored")
    assert str(file) not in answer.error["message"]
    assert file.read_bytes() == before
    logged = [record for record in caplog.records if record.getMessage() == "feedback not stored"]
    assert [record.facts["error"] for record in logged] == ["No space left on device"]  # type: ignore[attr-defined]
    assert found.post("/v1/feedback", body).status == 200
    assert len(rows(file)) == 2


def test_a_folder_that_is_gone(stored: tuple[Running, Path]) -> None:
    found, file = stored
    file.parent.rename(file.parent.with_name("moved"))
    body = {"text": "bada", "accepted": ["label-01"]}
    assert found.post("/v1/feedback", body).status == 503
    assert found.get("/health").status == 200
    file.parent.with_name("moved").rename(file.parent)
    assert found.post("/v1/feedback", body).status == 200


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing/feedback.jsonl", "does not exist"),
        ("folder.jsonl", "not a file"),
        ("feedback.csv", "feedback.jsonl"),
        ("locked/feedback.jsonl", "chmod"),
    ],
)
def test_a_place_where_nothing_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "locked").mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked" and allowed(path, mode))
    with pytest.raises(InputError, match=words):
        FeedbackFile(tmp_path / name).check()
    FeedbackFile(tmp_path / "feedback.jsonl").check()
    assert not (tmp_path / "feedback.jsonl").exists(), "it is made with the first line"


def test_the_start_refuses_it(tiny_model_folder: Path, tmp_path: Path) -> None:
    done = command("serve", tiny_model_folder, "--port", "0", "--feedback", tmp_path / "missing" / "f.jsonl")
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert "does not exist" in done.stderr
