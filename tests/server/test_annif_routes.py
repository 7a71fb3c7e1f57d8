"""Annif's REST interface: the shapes of its answers and errors, and Annif itself as a client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from elias.dataset.labels import LabelSet
from elias.model.model import Model
from helpers.serving import SMALL_LIMITS, Answer, Running, running

FORM = "application/x-www-form-urlencoded"


def suggest(found: Running, project: str = "tiny", **fields: Any) -> Answer:
    body = urlencode(fields).encode()
    return found.post(f"/v1/projects/{project}/suggest", body, Content_Type=FORM)


def problem(answer: Answer, status: int, words: str) -> None:
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer.body
    assert set(answer.json) == {"type", "title", "status", "detail"}
    assert answer.json["status"] == status
    assert words in answer.json["detail"]


def test_projects(service: Running, tiny_model: Model) -> None:
    projects = service.get("/v1/projects").json["projects"]
    assert [project["project_id"] for project in projects] == ["tiny", "again"]
    one = service.get("/v1/projects/tiny").json
    assert one == projects[0]
    assert one["is_trained"] is True
    assert one["backend"] == {"backend_id": "elias"}
    assert one["vocab"] == {"vocab_id": "tiny", "languages": ["und"], "size": 60, "loaded": True}
    assert one["modification_time"].endswith("+00:00")
    problem(service.get("/v1/projects/tinny"), 404, "Project 'tinny' not found")
    problem(service.post("/v1/projects", {}), 405, "method")
    problem(service.get("/v1/projects/tiny/learn"), 404, "nothing at")
    problem(service.get("/v1/projects?x=1"), 400, 'unknown parameter "x"')


def test_suggest_is_predict(service: Running, tiny_model: Model) -> None:
    expected = service.predict(["bada kuku"], k=10)["results"][0]["labels"]
    found = suggest(service, text="bada kuku", project="ignored", metadata_title="ignored")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    results = found.json["results"]
    assert [set(result) for result in results] == [{"uri", "label", "notation", "score"}] * 10
    assert [result["score"] for result in results] == [label["score"] for label in expected]
    assert [result["uri"] for result in results] == [f"urn:elias:label:{label['label']}" for label in expected]
    assert [result["label"] for result in results] == [label["text"] for label in expected]
    scores = [result["score"] for result in results]
    assert suggest(service, text="bada kuku", limit=3).json["results"] == results[:3]
    assert suggest(service, text="bada kuku", limit=0).json == {"results": []}
    assert len(suggest(service, text="bada kuku", limit=1_000_000).json["results"]) <= 60
    above = suggest(service, text="bada kuku", threshold=scores[4]).json["results"]
    assert above == [result for result in results if result["score"] >= scores[4]]
    raw = b"text=bada kuku"  # as `curl -d` sends it
    assert service.post("/v1/projects/tiny/suggest", raw, Content_Type=FORM + "; charset=utf-8").json == found.json


def test_suggest_batch(service: Running) -> None:
    documents = [{"text": "bada kuku", "document_id": "a"}, {"text": "", "metadata": {"title": "x"}}, {"text": "lolo"}]
    found = service.post("/v1/projects/tiny/suggest-batch?limit=2&threshold=0", {"documents": documents})
    assert found.status == 200, found.body
    assert [item["document_id"] for item in found.json] == ["a", None, None]
    assert found.json[0]["results"] == suggest(service, text="bada kuku", limit=2).json["results"]
    assert all(len(item["results"]) <= 2 for item in found.json)
    assert service.post("/v1/projects/tiny/suggest-batch", {"documents": []}).json == []
    none = service.post("/v1/projects/tiny/suggest-batch?limit=0", {"documents": documents}).json
    assert [item["results"] for item in none] == [[], [], []]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 400, '"text" is missing'),
        ({"text": "a", "limit": "-1"}, 400, '"limit"'),
        ({"text": "a", "limit": "x"}, 400, '"limit"'),
        ({"text": "a", "limit": "1.5"}, 400, '"limit"'),
        ({"text": "a", "threshold": "1.1"}, 400, '"threshold"'),
        ({"text": "a", "threshold": "nan"}, 400, '"threshold"'),
        ({"text": "a" * 1001}, 413, "at most 1,000"),
        ({"text": "a" * 60_001}, 413, "larger"),
    ],
)
def test_wrong_forms(narrow: Running, fields: dict[str, str], status: int, words: str) -> None:
    problem(suggest(narrow, **fields), status, words)


def test_other_refusals(narrow: Running) -> None:
    path = "/v1/projects/tiny/suggest"
    problem(suggest(narrow, "other", text="a"), 404, "Project 'other' not found")
    problem(narrow.post(path, {"text": "a"}), 415, FORM)
    problem(narrow.post(path, b"text=%ff", Content_Type=FORM), 400, "UTF-8")
    problem(narrow.post(path, b"text=\xff", Content_Type=FORM), 400, "UTF-8")
    problem(narrow.post(path, b"text=a&text=b", Content_Type=FORM), 400, "twice")
    problem(narrow.post(path, b"text=a" + b"&x=1" * 1001, Content_Type=FORM), 400, "1,000 fields")
    problem(narrow.get(path), 405, "method")
    batch = "/v1/projects/tiny/suggest-batch"
    problem(narrow.post(batch, {"documents": [{"text": "a"}] * 51}), 413, "at most 50")
    problem(narrow.post(batch, {"documents": [{"text": 1}]}), 400, "documents.0.text")
    problem(narrow.post(batch, {"documents": [{}]}), 400, "documents.0.text")
    problem(narrow.post(batch, {}), 400, "documents")
    problem(narrow.post(batch, b"{"), 400, "JSON")
    problem(narrow.post(batch + "?limit=-1", {"documents": []}), 400, "limit")
    problem(narrow.post(batch + "?threshold=2", {"documents": []}), 400, "threshold")


def test_it_needs_the_token(tiny_model: Model, tiny_model_folder: Path) -> None:
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, token="a-token-of-some-length") as found:
        for path in ("/v1/projects", "/v1/projects/tiny"):
            problem(found.get(path, Authorization="Bearer wrong"), 401, "token")
            assert found.get(path).status == 200
        body = b"text=bada"
        wrong = found.post("/v1/projects/tiny/suggest", body, Content_Type=FORM, Authorization="")
        problem(wrong, 401, "token")
        assert found.post("/v1/projects/tiny/suggest", body, Content_Type=FORM).status == 200


def test_a_full_queue_is_503(tiny_model: Model, tiny_model_folder: Path) -> None:
    limits = replace(SMALL_LIMITS, waiting_requests=1)
    with running({"tiny": tiny_model_folder}, lambda folder: tiny_model, limits=limits) as found:
        found.service.admission.requests += 1
        answer = suggest(found, text="bada")
        problem(answer, 503, "busy")
        assert answer.headers["retry-after"] == "1"
        found.service.admission.requests -= 1
        assert suggest(found, text="bada").status == 200


@pytest.fixture(scope="module")
def vocabulary(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    """The small model with labels of a vocabulary: URIs, notations, a URI as id, a plain id."""
    ids = ["http://example.org/0", "N 1", "text 2", "http://example.org/3", "ä/4"]
    texts = ["text 0", "text 1", "text 2", "", ""]
    uris = ["http://example.org/0", "http://example.org/1", "http://example.org/2", "", ""]
    rest = [f"label-{number:02d}" for number in range(len(ids), 60)]
    names = LabelSet([*ids, *rest], [*texts, *rest], uris=[*uris, *([""] * len(rest))])
    model = replace(tiny_model, labels=names, about={**tiny_model.about, "dataset": {"language": "fi"}})
    with running({"yso": tiny_model_folder}, lambda folder: model) as found:
        yield found


def test_uris_labels_and_notations(vocabulary: Running) -> None:
    found = {item["label"]: item for item in suggest(vocabulary, "yso", text="bada", limit=60).json["results"]}
    facts = {name: (item["uri"], item["notation"]) for name, item in found.items()}
    expected = {
        "text 0": ("http://example.org/0", None),
        "text 1": ("http://example.org/1", "N 1"),
        "text 2": ("http://example.org/2", None),
        "http://example.org/3": ("http://example.org/3", None),
        "ä/4": (f"urn:elias:label:{quote('ä/4', safe='')}", None),
        "label-07": ("urn:elias:label:label-07", None),
    }
    shared = facts.keys() & expected.keys()
    assert len(shared) >= 3
    assert {name: facts[name] for name in shared} == {name: expected[name] for name in shared}


def test_suggestions_carry_the_uri(vocabulary: Running) -> None:
    answer = vocabulary.predict(["bada"], labels=["N 1", "ä/4"])["results"][0]["labels"]
    assert {item["label"]: item.get("uri") for item in answer} == {"N 1": "http://example.org/1", "ä/4": None}
    hits = vocabulary.get("/v1/labels?search=text").json["labels"]
    assert {hit["label"]: hit.get("uri") for hit in hits}["N 1"] == "http://example.org/1"
    paths = vocabulary.post("/v1/paths", {"text": "bada", "k": 1, "label": "N 1"}).json
    assert {item["label"]: item["uri"] for item in paths["labels"]}["N 1"] == "http://example.org/1"


def test_the_language(vocabulary: Running) -> None:
    assert vocabulary.get("/v1/projects/yso").json["language"] == "fi"
    assert suggest(vocabulary, "yso", text="bada", language="fi").status == 200
    problem(suggest(vocabulary, "yso", text="bada", language="sv"), 400, 'language "sv" not supported by vocabulary')


# -- Annif itself -----------------------------------------------------------------------------------------------------

PROJECTS = """[elias]
name=ELIAS over HTTP
language=en
backend=http
endpoint={endpoint}
vocab=tiny
analyzer=simple
"""


@pytest.fixture(scope="module")
def annif(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `annif`, in an environment of its own. ELIAS_ANNIF names one that exists."""
    given = os.environ.get("ELIAS_ANNIF")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("annif-environment")
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        install = [folder / "bin" / "pip", "install", "--quiet", "annif"]
        made = subprocess.run(install, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no environment with Annif can be made here: {(made.stderr or made.stdout)[-300:]}")
    return folder / "bin" / "annif"


@pytest.mark.slow
def test_the_http_backend_of_annif(service: Running, tiny_model: Model, annif: Path, tmp_path: Path) -> None:
    """`annif suggest` with backend=http prints our suggestions."""
    endpoint = f"{service.url}/v1/projects/tiny/suggest"
    (tmp_path / "projects.cfg").write_text(PROJECTS.format(endpoint=endpoint), encoding="utf-8")
    labels = zip(tiny_model.labels.ids, tiny_model.labels.texts, strict=True)
    lines = [f"<urn:elias:label:{name}>\t{text}\n" for name, text in labels]
    (tmp_path / "tiny.tsv").write_text("".join(lines), encoding="utf-8")

    def run(*arguments: str, text: str = "") -> str:
        command = [str(annif), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("load-vocab", "--language", "en", "tiny", "tiny.tsv")
    assert "True" in run("list-projects")
    printed = run("suggest", "elias", "--limit", "5", text="bada kuku")
    expected = service.predict(["bada kuku"], k=5)["results"][0]["labels"]
    found = [line.split("\t") for line in printed.splitlines()]
    assert [uri for uri, _, _ in found] == [f"<urn:elias:label:{item['label']}>" for item in expected]
    assert [name for _, name, _ in found] == [item["text"] for item in expected]
    for (_, _, score), item in zip(found, expected, strict=True):
        assert float(score) == pytest.approx(item["score"], abs=1e-3)
