"""Looking inside over HTTP: the same facts that the library and its files hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import pytest

from elias.dataset.labels import LabelSet
from elias.evaluation.inspect import clusters_of_label, labels_of_cluster, overview
from elias.model.model import Model
from elias.server.inspect_routes import PerModel
from elias.server.models import Served, ServedModel
from helpers.serving import Running, running


def test_a_label(service: Running, tiny_model: Model) -> None:
    answer = service.get("/v1/labels/label-07").json
    number = tiny_model.labels.number_of["label-07"]
    assert answer["text"] == tiny_model.labels.texts[number]
    assert answer["training_count"] == tiny_model.label_counts[number]
    assert answer["stage1_cluster"] == tiny_model.stage1_clusters[number]
    expected = clusters_of_label(tiny_model, number)
    assert [item["cluster"] for item in answer["clusters"]] == [item["cluster"] for item in expected]
    assert [item["stage1"] for item in answer["clusters"]] == [item["stage1"] for item in expected]
    scores = [item["edge_score"] for item in expected]
    np.testing.assert_allclose([item["edge_score"] for item in answer["clusters"]], scores, atol=1e-4)


def test_nearest_labels_by_their_classifiers(service: Running, tiny_model: Model) -> None:
    answer = service.get("/v1/labels/label-07").json
    number = tiny_model.labels.number_of["label-07"]
    rows = tiny_model.network.trained_weights.values.numpy()
    cosines = rows @ rows[number] / (np.linalg.norm(rows, axis=1) * np.linalg.norm(rows[number]))
    for item in answer["nearest"]:
        assert item["label"] != "label-07"
        assert item["similarity"] == pytest.approx(cosines[tiny_model.labels.number_of[item["label"]]], abs=1e-4)
    similarities = [item["similarity"] for item in answer["nearest"]]
    assert similarities == sorted(similarities, reverse=True)


def test_a_cluster(service: Running, tiny_model: Model) -> None:
    answer = service.get("/v1/clusters/2?limit=7").json
    expected = labels_of_cluster(tiny_model, 2, 7)
    assert [item["label"] for item in answer["labels"]] == [item["label"] for item in expected]
    assert answer["words"] == tiny_model.cluster_words[2]
    assert answer["total"] == int(np.diff(tiny_model.searcher.index.indptr)[2])
    assert answer["stage1_total"] == int((tiny_model.stage1_clusters == 2).sum())


def test_the_index(service: Running, tiny_model: Model) -> None:
    answer = service.get("/v1/index").json
    expected = overview(tiny_model).as_dict()
    for name in ("labels", "clusters", "edges", "stage1_edges_kept", "clusters_per_label_by_decile", "learned"):
        assert answer[name] == expected[name]
    assert sum(answer["edge_score_histogram"]) == answer["edges"]
    assert [(item["label"], item["clusters"]) for item in answer["most_shared"]] == expected["most_shared"]


def test_paths_lead_from_the_beam_to_the_labels(service: Running, tiny_model: Model) -> None:
    answer = service.post("/v1/paths", {"text": "bada kuku", "k": 4}).json
    found = tiny_model.predict(["bada kuku"], 4, explain=True).records()[0]
    assert [item["label"] for item in answer["labels"]] == [item["label"] for item in found]
    scores = {item["cluster"]: item["score"] for item in answer["clusters"]}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    for record in answer["labels"]:
        edges = [edge for edge in answer["edges"] if edge["label"] == record["label"]]
        winner = max(edges, key=lambda edge: edge["weight"])
        assert [edge["cluster"] for edge in edges if edge["wins"]] == [winner["cluster"]] == [record["cluster"]]
        assert winner["weight"] == pytest.approx(record["cluster_score"] * record["edge_score"], rel=1e-4)
        for edge in edges:
            assert edge["weight"] == pytest.approx(scores[edge["cluster"]] * edge["edge_score"], rel=1e-3, abs=1e-9)
    more = service.post("/v1/paths", {"text": "bada kuku", "k": 1, "label": "label-33"}).json
    assert [item["label"] for item in more["labels"]][1:] == ["label-33"]


def test_models(service: Running, tiny_model: Model) -> None:
    first, second = service.get("/v1/models").json["models"]
    assert (first["name"], first["default"], second["name"], second["default"]) == ("tiny", True, "again", False)
    assert first["labels"] == 60
    assert first["parts"][:4] == ["cluster", "cluster_score", "edge_score", "classifier"]
    about = service.get("/v1/model").json
    assert about["settings"]["encoder"]["dim"] == 16
    assert about["versions"]["elias"]
    assert about["limits"]["texts"] == 10_000
    assert about["quality"] == tiny_model.about["quality"]
    assert about["quality"]["metrics"]["P@1"] > 40
    assert "/" not in str(about["dataset"])


def test_search_over_http(service: Running) -> None:
    answer = service.get("/v1/labels?search=label-1&limit=4").json
    assert [item["label"][:7] for item in answer["labels"]] == ["label-1"] * 4
    assert answer["total"] == 10
    assert len(service.get("/v1/labels").json["labels"]) == 20


def test_label_ids_of_any_kind(tiny_model: Model, tiny_model_folder: Path) -> None:
    """Ids come from users: slashes, question marks, umlauts and spaces survive."""
    from dataclasses import replace

    odd = ["a/b", "what?", "Ähre & Co", "per%cent", "<b>"]
    ids = [*odd, *(f"label-{number:02d}" for number in range(len(odd), 60))]
    model = replace(tiny_model, labels=LabelSet(ids))
    with running({"odd": tiny_model_folder}, lambda folder: model) as found:
        for name in odd:
            assert found.get(f"/v1/labels/{quote(name, safe='')}").json["label"] == name
        answer = found.predict(["bada"], labels=odd)
        assert {item["label"] for item in answer["results"][0]["labels"]} == set(odd)


class PredictOnly:
    """A model that can predict and has no index."""

    n_train, gives_probabilities = 400, False

    def __init__(self, model: Model) -> None:
        self.predict, self.labels, self.label_counts = model.predict, model.labels, model.label_counts
        self.about: dict[str, Any] = {}


def test_a_model_without_an_index_is_served_but_not_inspected(tiny_model: Model, tiny_model_folder: Path) -> None:
    with running({"both": tiny_model_folder}, lambda folder: PredictOnly(tiny_model)) as found:
        assert found.predict(["bada"])["results"]
        assert found.get("/v1/models").json["models"][0]["explore"] is False
        assert found.get("/v1/model").status == 200
        for answer in (
            found.get("/v1/labels/label-07"),
            found.get("/v1/clusters/0"),
            found.get("/v1/index"),
        ):
            assert (answer.status, answer.error["code"]) == (404, "not_offered")
        assert found.post("/v1/paths", {"text": "bada"}).status == 422
        assert found.get("/v1/labels?search=label").status == 200


def test_what_is_made_per_model_is_made_once() -> None:
    """However many requests need it at the same time."""
    made, all_here = [], Barrier(4)

    def make(served: Any) -> int:
        made.append(served)
        sleep(0.05)  # so that the others come meanwhile
        return len(made)

    views, served = PerModel(make), Served("tiny", cast("ServedModel", None), (), {}, datetime.now(UTC))

    def get(_: int) -> int:
        all_here.wait(20)
        return views.get(served)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(get, range(4))) == [1] * 4
    assert made == [served]
