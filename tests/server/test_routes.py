"""POST /v1/predict gives the predictions of the model: alone, in batches, streamed, among named labels."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elias
from elias.model.model import Model
from elias.server.schemas import Explanation
from helpers.serving import Running, running


@pytest.fixture(scope="module")
def texts(tiny_dataset: Any) -> list[str]:
    data = elias.load_dataset(tiny_dataset)
    assert data.test is not None
    assert data.test.texts is not None
    return list(data.test.texts)


def named(results: list[dict[str, Any]]) -> list[list[str]]:
    return [[item["label"] for item in result["labels"]] for result in results]


def test_the_answer_is_the_models(service: Running, tiny_model: Model, texts: list[str]) -> None:
    answer = service.predict(texts, k=4)
    assert answer["model"] == "tiny"
    expected = tiny_model.predict(texts, 4)
    assert named(answer["results"]) == [[label for label, _ in row] for row in expected.named()]
    scores = [[item["score"] for item in result["labels"]] for result in answer["results"]]
    np.testing.assert_allclose(scores, expected.scores, rtol=1e-5)
    assert answer["results"][0]["labels"][0]["text"], "labels have texts here"
    assert "id" not in answer["results"][0]


def test_ids_are_echoed_and_five_is_the_default(service: Running) -> None:
    answer = service.predict(["bada", "kuku"], ids=["x/1", "Ähre"])
    assert [result["id"] for result in answer["results"]] == ["x/1", "Ähre"]
    assert all(len(result["labels"]) == 5 for result in answer["results"])


def test_nothing_and_empty_texts(service: Running) -> None:
    assert service.predict([])["results"] == []
    answer = service.predict(["", " \x00 ", "bada"])["results"]
    assert [result["known_words"] for result in answer[:2]] == [0, 0]


def test_known_words_are_counted(service: Running, tiny_model: Model, texts: list[str]) -> None:
    known = tiny_model.predict(texts).known_words
    assert known is not None
    assert [result["known_words"] for result in service.predict(texts)["results"]] == known.tolist()
    assert known.min() > 0


def test_explained_parts_multiply_to_the_score(service: Running, tiny_model: Model, texts: list[str]) -> None:
    for result in service.predict(texts[:5], k=3, explain=True)["results"]:
        for item in result["labels"]:
            product = item["cluster_score"] * item["edge_score"] * item["classifier"]
            assert item["score"] == pytest.approx(product, rel=1e-4)
            assert 0 <= item["cluster"] < tiny_model.searcher.index.n_clusters


def test_a_stacked_ranker_explains_its_labels(stacked_model: Model, stacked_folder: Path, texts: list[str]) -> None:
    asked = [*texts[:3], ""]
    expected = stacked_model.predict(asked, 3, explain=True).explanations
    with running({"stacked": stacked_folder}, lambda folder: stacked_model) as found:
        answer = found.predict(asked, k=3, explain=True)
        for result, explanations in zip(answer["results"], expected or [], strict=True):
            assert [item["explanation"] for item in result["labels"]] == explanations
        assert Explanation.model_validate(answer["results"][0]["labels"][0]["explanation"]).texts[0].text
        plain = found.predict(asked, k=3)
        assert all("explanation" not in item for result in plain["results"] for item in result["labels"])
        assert named(plain["results"]) == named(answer["results"])
        paths = found.post("/v1/paths", {"text": texts[0], "k": 2})
        assert paths.status == 200


def test_explained_answers_are_longer_so_fewer_fit_into_one(service: Running) -> None:
    body = {"texts": ["a"] * 1000, "k": 30}
    assert service.post("/v1/predict", body).status == 200
    answer = service.post("/v1/predict", {**body, "explain": True})
    assert answer.status == 422
    assert '"stream": true' in json.loads(answer.body)["error"]["message"]


def test_named_labels_are_scored_over_all_clusters(service: Running, tiny_model: Model, texts: list[str]) -> None:
    wanted = ["label-03", "label-41", "label-17"]
    answer = service.predict(texts[:6], k=3, labels=wanted, explain=True)
    expected = tiny_model.predict(texts[:6], 3, allow=wanted)
    assert named(answer["results"]) == [[label for label, _ in row] for row in expected.named()]
    assert {label for row in named(answer["results"]) for label in row} == set(wanted), "not filtered from the best"


def test_one_text_needs_no_list(service: Running) -> None:
    assert service.post("/v1/predict", {"texts": "bada kuku"}).json == service.predict(["bada kuku"])


def test_blocked_and_rare_labels(service: Running, tiny_model: Model, texts: list[str]) -> None:
    first = named(service.predict(texts[:3], k=2)["results"])
    blocked = [label for row in first for label in row]
    answer = service.predict(texts[:3], k=4, block=blocked)["results"]
    expected = tiny_model.predict(texts[:3], 4, block=blocked)
    assert named(answer) == [[label for label, _ in row] for row in expected.named()]
    assert not set(blocked) & {label for row in named(answer) for label in row}
    rare = tiny_model.predict(texts, 4, rare=1.0)
    answer = service.predict(texts, k=4, rare=1.0)["results"]
    assert named(answer) == [[label for label, _ in row] for row in rare.named()]
    assert named(answer) != named(service.predict(texts, k=4)["results"])


def test_a_stream_holds_the_same_lines(service: Running, texts: list[str]) -> None:
    many, ids = texts * 9, [f"id-{number}" for number in range(len(texts) * 9)]  # several pieces
    answer = service.post("/v1/predict", {"texts": many, "ids": ids, "k": 2, "stream": True})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/jsonl")
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert lines == service.predict(many, ids=ids, k=2)["results"]
    assert service.post("/v1/predict", {"texts": [], "stream": True}).body == b""


def test_requests_that_come_together_do_not_mix(service: Running, texts: list[str]) -> None:
    asks: list[dict[str, Any]] = [
        {"texts": texts[start : start + size], "k": k, **more}
        for start, size in ((0, 1), (3, 1), (7, 30), (11, 2), (20, 1), (1, 70))
        for k in (1, 5, 40)
        for more in ({}, {"explain": True}, {"labels": ["label-01", "label-02"]})
    ]
    one_by_one = [service.predict(**ask)["results"] for ask in asks]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda ask: service.predict(**ask)["results"], asks))
    for alone, mixed in zip(one_by_one, together, strict=True):
        assert named(alone) == named(mixed)
        for left, right in zip(alone, mixed, strict=True):
            for a, b in zip(left["labels"], right["labels"], strict=True):
                assert a.keys() == b.keys()
                assert a["score"] == pytest.approx(b["score"], rel=1e-4, abs=1e-6)


def test_a_second_model_by_name(service: Running) -> None:
    assert service.predict(["bada"], model="again")["model"] == "again"
    answer = service.post("/v1/predict", {"texts": ["bada"], "model": "agian"})
    assert answer.status == 404
    assert answer.error["field"] == "model"
    assert 'did you mean "again"?' in answer.error["message"]


def test_a_threshold_needs_probabilities(service: Running, stacked_model: Model, stacked_folder: Path) -> None:
    answer = service.post("/v1/predict", {"texts": ["bada"], "threshold": 0.5})
    assert (answer.status, answer.error["field"]) == (422, "threshold")
    assert service.get("/v1/models").json["models"][0]["threshold"] is False
    with running({"stacked": stacked_folder}, lambda folder: stacked_model) as found:
        assert found.get("/v1/models").json["models"][0]["threshold"] is True
        scores = [item["score"] for item in found.predict(["bada kuku"], k=60)["results"][0]["labels"]]
        half = len(scores) // 2
        limit = (scores[half - 1] + scores[half]) / 2  # between two scores, which are rounded in the answer
        above = [item["score"] for item in found.predict(["bada kuku"], k=60, threshold=limit)["results"][0]["labels"]]
        assert 0 < len(above) < len(scores)
        assert above == [score for score in scores if score >= limit]


def test_a_text_is_never_given_its_own_id(tiny_model: Model, tiny_model_folder: Path) -> None:
    from dataclasses import replace

    own = replace(tiny_model, about={**tiny_model.about, "dataset": {"features": None, "exclude_own_id": True}})
    with running({"own": tiny_model_folder}, lambda folder: own) as found:
        best = found.predict(["bada"], k=1)["results"][0]["labels"][0]["label"]
        answer = found.predict(["bada"], k=1, ids=[best])
        assert answer["results"][0]["labels"][0]["label"] != best
