"""The service around the predictions: readiness, metrics, token, headers, log, reload."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elias.cli import main
from elias.cli import serve as command
from elias.core.errors import EliasError, InputError, ModelError, RunError
from elias.model.model import Model
from elias.server.errors import as_service_error
from elias.server.logs import configure_logging
from elias.server.models import Registry
from elias.server.routes import PAGE_FOLDER
from elias.server.run import is_loopback, listen, read_token
from helpers.serving import Running, read_all, running, wait_until

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def guarded(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    opener = lambda folder: tiny_model  # noqa: E731
    with running({"tiny": tiny_model_folder}, opener, token=TOKEN, origins=("https://library.example",)) as found:
        yield found


def test_alive_before_ready(tiny_model: Model, tiny_model_folder: Path) -> None:
    may_open = threading.Event()

    def opener(folder: Path) -> Model:
        assert may_open.wait(20)
        return tiny_model

    with running({"tiny": tiny_model_folder}, opener, wait=False) as found:
        assert found.get("/health").json == {"status": "alive"}
        for answer in (found.get("/ready"), found.get("/v1/models"), found.post("/v1/predict", {"texts": ["a"]})):
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) >= 1
        may_open.set()
        wait_until(lambda: found.get("/ready").status == 200)
        assert found.predict(["a"])["results"]


def test_metrics_are_what_prometheus_reads(service: Running) -> None:
    service.predict(["one", "two"])
    service.post("/v1/predict", {})
    answer = service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values: dict[str, float] = {}
    kinds = set()
    for line in answer.body.decode().splitlines():
        if line.startswith("#"):
            kinds.add(line.split()[3] if line.startswith("# TYPE") else "")
        else:
            name, _, value = line.rpartition(" ")
            assert name not in values, "every name once"
            values[name] = float(value)
    assert {"counter", "gauge", "histogram"} <= kinds
    assert values['elias_requests_total{route="/v1/predict",method="POST",status="200"}'] >= 1
    assert values['elias_errors_total{code="invalid"}'] >= 1
    assert values["elias_ready"] == 1
    assert values["elias_waiting_requests"] == 0
    buckets = [value for name, value in values.items() if name.startswith("elias_batch_texts_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == values["elias_batch_texts_count"] > 0
    assert values["elias_batch_texts_sum"] == values["elias_texts_total"]


def test_made_up_paths_and_methods_make_no_names_in_the_metrics(service: Running) -> None:
    for number in range(5):
        service.get(f"/made-up-{number}")
        service.ask(f"METHOD{number}", "/health")
    text = service.get("/metrics").body.decode()
    assert "made-up" not in text
    assert "METHOD" not in text


def test_a_token_guards_everything_but_the_page(guarded: Running) -> None:
    for path in ("/v1/models", "/metrics", "/v1/labels", "/nothing"):
        for wrong in ("Bearer wrong", "Bearer", "", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
            answer = guarded.get(path, Authorization=wrong)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/", "/health", "/ready", "/docs", "/openapi.json"):
        assert guarded.get(path, Authorization="").status == 200
    assert guarded.predict(["a"])["results"]


def test_headers_and_request_ids(service: Running) -> None:
    answer = service.get("/", X_Request_Id="my-id.7")
    assert answer.headers["x-request-id"] == "my-id.7"
    assert service.get("/", X_Request_Id="no good\t").headers["x-request-id"] != "no good"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers
    assert "x-request-id" in service.get("/nothing").headers
    again = service.get("/", If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_foreign_pages_are_kept_out_unless_allowed(service: Running, guarded: Running) -> None:
    ask = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    for found, origin, allowed in (
        (service, "https://library.example", None),
        (guarded, "https://elsewhere.example", None),
        (guarded, "https://library.example", "https://library.example"),
    ):
        answer = found.ask("OPTIONS", "/v1/predict", Origin=origin, **ask)
        assert answer.headers.get("access-control-allow-origin") == allowed


def test_the_log_is_json_and_holds_no_text(service: Running, tiny_model: Model, monkeypatch: Any) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("elias.server")
    before = logger.handlers, logger.propagate, logger.level
    configure_logging(stream=stream)
    try:
        secret = "geheimnis-4711"
        service.predict([secret], ids=[secret])
        service.post("/v1/predict", {"texts": [secret], secret: 1})
        service.get(f"/v1/labels?search={secret}")
        service.get(f"/v1/labels/{secret}")

        def broken(*args: Any, **options: Any) -> None:
            raise ValueError(f"cannot digest {secret}")

        monkeypatch.setattr(tiny_model, "predict", broken)
        answer = service.post("/v1/predict", {"texts": [secret]}, X_Request_Id="find-me")
        assert (answer.status, answer.error["code"]) == (500, "internal")
        assert secret not in answer.error["message"]
        assert str(Path(__file__).parent.parent.parent) not in answer.body.decode()
        wait_until(lambda: stream.getvalue().count('"status"') == 5)  # a line is written after its answer is sent
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert secret not in stream.getvalue()
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 422, 200, 404, 500]
    assert requests[0]["texts"] == 1
    error = next(line for line in lines if line["level"] == "error")
    assert (error["request_id"], error["error"]) == ("find-me", "ValueError")
    assert error["at"], "where it happened"


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (InputError("k=0: ask for at least one label"), 422, "invalid"),
        (ModelError("classifiers.safetensors: a score that is not a finite number"), 500, "internal"),
        (RunError("the disk is full"), 500, "internal"),
        (ValueError("a defect"), 500, "internal"),
    ],
)
def test_only_mistakes_of_the_client_are_the_clients(problem: Exception, status: int, code: str) -> None:
    """A damaged model is not one of them."""
    found = as_service_error(problem)
    assert (found.status, found.code) == (status, code)
    assert (found.message == str(problem)) == (status == 422), "what is wrong here is for the log"


def test_reload_needs_a_token(service: Running) -> None:
    answer = service.post("/v1/reload", {})
    assert (answer.status, answer.error["code"]) == (403, "forbidden")


def test_reload_swaps_and_a_broken_model_does_not(tiny_model: Model, tiny_model_folder: Path) -> None:
    opened: list[Any] = []

    def opener(folder: Path) -> Model:
        opened.append(folder)
        if len(opened) == 2:
            raise ModelError(f"{folder}: index.safetensors is damaged")
        if len(opened) == 3:
            raise ValueError("a defect that no check finds")
        from dataclasses import replace

        return replace(tiny_model)

    with running({"tiny": tiny_model_folder}, opener, token=TOKEN) as found:
        first = found.service.registry.get(None)
        for _ in range(2):
            answer = found.post("/v1/reload", {})
            assert (answer.status, answer.error["code"]) == (503, "reload_failed")
            assert str(tiny_model_folder) not in answer.body.decode(), "paths are for the log"
            assert found.service.registry.get(None) is first
            assert found.predict(["a"])["results"]
        assert found.post("/v1/reload", {"model": "tiny"}).json == {"reloaded": ["tiny"]}
        assert found.service.registry.get(None) is not first
        assert found.predict(["a"])["results"]
        assert found.post("/v1/reload", {"model": "other"}).status == 404
        metrics = found.get("/metrics").body.decode()
        assert 'elias_reloads_total{outcome="failed"} 2' in metrics
        assert 'elias_reloads_total{outcome="done"} 1' in metrics


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:80", True),
        ("[::1]:80", True),
        ("192.0.2.7", True),  # an address cannot be made to resolve elsewhere
        ("page.localhost", True),
        ("tags.example:8000", True),
        ("Tags.Example.", True),
        ("evil.example", False),
        ("tags.example.evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("localhost@evil.example", False),
    ],
)
def test_names_of_others_are_refused(named: Running, host: str, allowed: bool) -> None:
    """A foreign page whose name resolves to this machine must not read answers (DNS rebinding)."""
    for path in ("/v1/models", "/", "/openapi.json", "/nothing"):
        answer = named.get(path, Host=host)
        if allowed:
            assert answer.status == (404 if path == "/nothing" else 200)
        else:
            assert (answer.status, answer.error["code"]) == (403, "wrong_host")
    assert named.post("/v1/predict", {"texts": ["a"]}, Host=host).status == (200 if allowed else 403)
    assert named.get("/health", Host=host).status == 200


@pytest.fixture(scope="module")
def named(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, hosts=("tags.example",)) as found:
        yield found


@pytest.mark.parametrize(("lines", "status"), [(b"", 400), (b"Host: localhost\r\nHost: localhost\r\n", 400)])
def test_one_host_per_request(named: Running, lines: bytes, status: int) -> None:
    with named.raw() as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 %d " % status)
    with named.raw() as sock:  # HTTP/1.0 has no Host
        sock.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_any_host(tiny_model: Model, tiny_model_folder: Path) -> None:
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, hosts=("*",)) as found:
        assert found.get("/v1/models", Host="any.example").status == 200


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, AttributeError, AssertionError, ZeroDivisionError])
def test_a_model_that_cannot_be_opened_is_an_error_of_the_command(tmp_path: Path, kind: type[Exception]) -> None:
    """Whatever is raised: another class would pass the code that waits for the model, and the service would hang."""

    def opener(folder: Path) -> Model:
        raise kind("half a file")

    registry = Registry({"bad": tmp_path}, opener)
    with pytest.raises(EliasError, match=rf"cannot be used \({kind.__name__}: half a file\)"):
        registry.open_all()
    assert not registry.ready


def test_the_docs_and_the_page_are_our_own(service: Running) -> None:
    """No other host is ever asked for anything."""
    for path in PAGE_FOLDER.rglob("*"):
        if path.suffix in {".html", ".css", ".js"} and "swagger" not in path.parts:
            content = path.read_text(encoding="utf-8")
            for scheme in ("http://", "https://", "//cdn"):
                places = content.replace("http://www.w3.org/2000/svg", "").count(scheme)
                assert places == 0, f"{path.name} names {scheme}"
    schema = service.get("/openapi.json").json
    assert set(schema["paths"]) >= {"/v1/predict", "/v1/labels/{label}", "/v1/clusters/{cluster}", "/metrics"}
    predict = schema["components"]["schemas"]["PredictRequest"]
    assert predict["examples"]
    assert predict["additionalProperties"] is False


def test_tokens_come_from_files(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n", encoding="utf-8")
    assert read_token(path) == TOKEN.encode()
    for content in ("", "\n", "short", "with spaces in the middle of it", "ü" * 20):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match="at least 16"):
            read_token(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_token_that_others_can_read(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any, mode: int, warned: bool
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN, encoding="utf-8")
    path.chmod(mode)
    monkeypatch.setattr("elias.server.run.serve", lambda *given: None)
    assert main(["serve", str(tiny_model_folder), "--token-file", str(path)]) == 0
    assert ("every user of this machine can read it" in capsys.readouterr().err) == warned


def test_addresses() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")
    sock = listen("127.0.0.1", 0)
    with sock, pytest.raises(InputError, match="cannot listen there"):
        listen("127.0.0.1", sock.getsockname()[1])


def test_without_the_extra(tiny_model_folder: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["serve", str(tiny_model_folder)]) == 7
    assert "pip install 'elias-xmc[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_warning_when_others_can_reach_it(
    tiny_model_folder: Path, monkeypatch: Any, capsys: Any, host: str, warned: bool
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("elias.server.run.serve", lambda *given: asked.append(given))
    assert main(["serve", f"a={tiny_model_folder}", "--host", host, "--limit", "k=7"]) == 0
    folders, _, options = asked[0]
    assert folders == {"a": tiny_model_folder}
    assert (options.host, options.limits.k) == (host, 7)
    assert ("EVERY client" in capsys.readouterr().err) == warned


def test_a_model_of_vectors_is_refused(tiny_model: Model, tmp_path: Path) -> None:
    class OfVectors:
        labels = tiny_model.labels

        def predict(self, *given: Any, **options: Any) -> None:
            raise InputError("this model was trained on vectors, not on texts")

    with pytest.raises(ModelError, match="cannot be served: this model was trained on vectors"):
        Registry({"v": tmp_path}, lambda folder: OfVectors()).open_all()  # type: ignore[arg-type, return-value]
