"""Routes that show the inside of a model: labels by name, a label, a cluster, the index, the paths of a text.

`IndexView` computes the answers from the index of one model: its edges e_{c,l} of equation (5), seen from clusters and
from labels. `LabelSearch` finds labels by name. Both are made when a model is first inspected and dropped with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Annotated, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from fastapi import APIRouter, Path, Query, Request

from ..dataset.labels import LabelSet
from ..evaluation.edge_analysis import ASSIGNED
from ..evaluation.inspect import overview
from .errors import ServiceError, invalid, shorten
from .label_search import LabelSearch
from .models import Served
from .responses import round_score
from .routes import ModelName, Service, error_responses, request_body
from .schemas import ClusterAnswer, IndexAnswer, LabelAnswer, LabelsAnswer, PathsAnswer, PathsRequest
from .validation import StrictRoute, check_text, read_request, unknown_label

MAX_NEAREST = 10  # similar labels shown with a label
MAX_CLUSTERS = 50  # clusters shown with a label
MAX_LARGEST = 12  # clusters shown with the index
NEAREST_CLUSTERS = 20  # strongest clusters of a label in which similar labels are searched
MAX_COMPARED = 20_000  # labels that a label is compared with
HISTOGRAM_BINS = 20
Made = TypeVar("Made")


def inspect_router(service: Service) -> APIRouter:
    routes, registry = APIRouter(tags=["inspect"], route_class=StrictRoute), service.registry
    views, searches = PerModel(IndexView), PerModel(lambda served: LabelSearch(*_names_and_counts(served)))

    @routes.get(
        "/v1/labels",
        summary="Labels by name",
        response_model_exclude_none=True,  # uri
        responses=error_responses(404, 422, 503),
    )
    def labels(
        search: Annotated[
            str,
            Query(max_length=200, description="words of an id or a text, in any order; empty: the most used labels"),
        ] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
        model: ModelName = None,
    ) -> LabelsAnswer:
        served = registry.get(model)
        hits = searches.get(served).find(search, limit)
        names, counts = _names_and_counts(served)
        found = [
            {
                "label": names.ids[label],
                "text": names.texts[label],
                "uri": names.uri(label),
                "training_count": int(counts[label]),
            }
            for label in hits.labels
        ]
        return LabelsAnswer.model_validate(
            {"model": served.name, "search": search, "total": hits.total, "labels": found}
        )

    @routes.get(
        "/v1/labels/{label:path}",
        summary="One label: clusters, nearest labels",
        responses=error_responses(404, 422, 503),
    )
    def label(
        label: Annotated[str, Path(description="the label's id", examples=["evince"])], model: ModelName = None
    ) -> LabelAnswer:
        served = registry.get(model)
        number = served.model.labels.number_of.get(label)
        if number is None:
            raise unknown_label(label, "label", status=404)
        return LabelAnswer.model_validate({"model": served.name, **views.get(served).label(number)})

    @routes.get(
        "/v1/clusters/{cluster}",
        summary="One cluster: labels, typical words",
        responses=error_responses(404, 422, 503),
    )
    def cluster(
        cluster: Annotated[int, Path(description="its number", examples=[0])],
        limit: Annotated[int, Query(ge=1, le=2000)] = 100,
        model: ModelName = None,
    ) -> ClusterAnswer:
        served = registry.get(model)
        view = views.get(served)
        n_clusters = view.index.n_clusters
        if not 0 <= cluster < n_clusters:
            message = f"there is no cluster {shorten(cluster)}; this model has clusters 0 to {n_clusters - 1}"
            raise ServiceError(404, message, field="cluster")
        return ClusterAnswer.model_validate({"model": served.name, **view.cluster(cluster, limit)})

    @routes.get("/v1/index", summary="What the index as a whole has learned", responses=error_responses(404, 422, 503))
    def index(model: ModelName = None) -> IndexAnswer:
        served = registry.get(model)
        return IndexAnswer.model_validate({"model": served.name, **views.get(served).overview})

    @routes.post(
        "/v1/paths",
        summary="The beam of a text and every path from it to the best labels",
        response_model=PathsAnswer,
        responses=error_responses(400, 404, 408, 413, 415, 422, 503),
        openapi_extra=request_body("PathsRequest"),
    )
    async def paths(request: Request) -> Any:
        body, n_bytes = await read_request(PathsRequest, request, service.admission)
        served = registry.get(body.model)
        if not served.can_inspect:
            raise invalid(f'model "{served.name}" has no index to inspect', "model")
        check_text(body.text, service.limits, "text")
        if body.label is not None and body.label not in served.model.labels.number_of:
            raise unknown_label(body.label, "label", status=422)
        with service.admission.admit(1, n_bytes):
            found = await asyncio.to_thread(lambda: views.get(served).paths(body.text, body.k, body.label))
        return {"model": served.name, **found}

    return routes


class PerModel(Generic[Made]):
    """Makes something once per served model, and forgets it when the model has been replaced."""

    def __init__(self, make: Callable[[Served], Made]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[Served, Made] = WeakKeyDictionary()
        self._making = Lock()

    def get(self, served: Served) -> Made:
        found = self._made.get(served)
        if found is None:
            with self._making:  # of many labels it takes seconds and gigabytes: who comes meanwhile waits for it
                found = self._made.get(served)
                if found is None:
                    found = self._made[served] = self._make(served)
        return found


def _names_and_counts(served: Served) -> tuple[LabelSet, np.ndarray]:
    return served.model.labels, served.model.label_counts


class IndexView:
    """The index of one model, by cluster and by label.

    Suffixes: F edges, sorted by cluster; L labels, where edges_L[indptr_L[l] : indptr_L[l + 1]] are those of label l.
    """

    def __init__(self, served: Served) -> None:
        if not served.can_inspect:
            message = f'model "{served.name}" has no index to inspect'
            raise ServiceError(404, message, code="not_offered")
        self.model = model = served.model
        self.index = model.network.index
        self.edge_scores_F = self.index.edge_scores()
        self.indptr_L, self.edges_L = self.index.by_label()
        self.clusters_F = self.index.clusters

    def label(self, label: int) -> dict[str, Any]:
        """One label: its clusters, strongest edge first, and the labels with the most similar classifiers."""
        stage1 = int(self.model.stage1_clusters[label])
        edges = self._edges_of(label)
        order = np.lexsort((self.clusters_F[edges], -self.edge_scores_F[edges]))
        return {
            **self._named(label),
            "training_count": int(self.model.label_counts[label]),
            "stage1_cluster": stage1 if stage1 >= 0 else None,
            "clusters_total": len(edges),
            "clusters": [
                {
                    "cluster": int(self.clusters_F[edge]),
                    "edge_score": round_score(float(self.edge_scores_F[edge])),
                    "stage1": bool(self.clusters_F[edge] == stage1),
                    "words": self.model.cluster_words[self.clusters_F[edge]],
                }
                for edge in edges[order[:MAX_CLUSTERS]]
            ],
            "nearest": self._nearest(label, self.clusters_F[edges[order]]),
        }

    def _nearest(self, label: int, clusters: np.ndarray) -> list[dict[str, Any]]:
        """Labels by the cosine of their classifiers w_l, among those that share a cluster: the others are too many."""
        index = self.index
        spans = [index.labels[index.indptr[c] : index.indptr[c + 1]] for c in clusters[:NEAREST_CLUSTERS]]
        others = np.unique(np.concatenate([*spans, np.empty(0, np.int32)]))[:MAX_COMPARED]
        others = others[others != label]
        if len(others) == 0:
            return []
        with torch.no_grad():
            numbers = torch.from_numpy(np.append(others, label).astype(np.int64))
            weights = self.model.network.classifier_weights.gather(numbers).cpu().numpy()
        norms = np.maximum(np.linalg.norm(weights, axis=1), 1e-12)
        cosines = (weights[:-1] @ weights[-1]) / (norms[:-1] * norms[-1])
        order = np.lexsort((others, -cosines))[:MAX_NEAREST]
        return [{**self._named(int(others[i])), "similarity": round_score(float(cosines[i]))} for i in order]

    def cluster(self, cluster: int, limit: int) -> dict[str, Any]:
        """One cluster: its labels, strongest edge first."""
        model, index = self.model, self.index
        span = slice(int(index.indptr[cluster]), int(index.indptr[cluster + 1]))
        labels, scores = index.labels[span], self.edge_scores_F[span]
        return {
            "cluster": cluster,
            "words": model.cluster_words[cluster],
            "total": len(labels),
            "stage1_total": int((model.stage1_clusters == cluster).sum()),
            "labels": [
                {
                    **self._named(int(labels[place])),
                    "edge_score": round_score(float(scores[place])),
                    "stage1": bool(model.stage1_clusters[labels[place]] == cluster),
                    "training_count": int(model.label_counts[labels[place]]),
                }
                for place in np.lexsort((labels, -scores))[:limit]
            ],
        }

    @cached_property
    def overview(self) -> dict[str, Any]:
        """Statistics of the whole index."""
        found = overview(self.model).as_dict()  # type: ignore[arg-type]
        histogram, _ = np.histogram(self.edge_scores_F, bins=HISTOGRAM_BINS, range=(0.0, 1.0))
        number_of = self.model.labels.number_of
        shared = [{**self._named(number_of[label]), "clusters": n} for label, n in found.pop("most_shared")]
        sizes = np.bincount(self.clusters_F[self.edge_scores_F > ASSIGNED], minlength=self.index.n_clusters)
        largest = np.lexsort((np.arange(len(sizes)), -sizes))[:MAX_LARGEST].tolist()
        return {
            **found,
            "assigned": ASSIGNED,
            "edge_score_histogram": histogram.tolist(),
            "most_shared": shared,
            "largest_clusters": [
                {"cluster": c, "labels": int(sizes[c]), "words": self.model.cluster_words[c]} for c in largest
            ],
        }

    def paths(self, text: str, k: int, label: str | None) -> dict[str, Any]:
        """How a text reaches its k best labels (and `label`): the beam with s_c, and the edges to these labels.

        A path weighs s_c * e_{c,l}, and the heaviest one wins: equations (1), (2), (5), (6).
        """
        model = self.model
        found = model.predict([text], k, explain=True).records(model.labels.texts_to_show)[0]
        if label is not None and label not in {record["label"] for record in found}:
            found += model.predict([text], 1, explain=True, allow=[label]).records(model.labels.texts_to_show)[0]
        score_of = self._beam(text)
        for record in found:  # a label that was asked for may be reached through a cluster outside the beam
            score_of.setdefault(record.get("cluster", -1), record.get("cluster_score", 0.0))
        score_of.pop(-1, None)  # labels that the ranker found without the index have no path
        return {
            "clusters": [
                {"cluster": cluster, "score": round_score(score), "words": model.cluster_words[cluster]}
                for cluster, score in score_of.items()
            ],
            "labels": [
                {name: round_score(value) if isinstance(value, float) else value for name, value in record.items()}
                | {"uri": model.labels.uri(model.labels.number_of[record["label"]])}
                for record in found
            ],
            "edges": [edge for record in found for edge in self._path_edges(record, score_of)],
        }

    def _beam(self, text: str) -> dict[int, float]:
        """The clusters of the beam with their s_c, best first."""
        searcher, encoder = self.model.searcher, self.model.network.encoder
        prepared = encoder.prepare(self.model.read([text]))
        beam_BT, s_BT = searcher.beam(searcher.encode(prepared, np.arange(1)))
        return dict(zip(beam_BT[0].tolist(), s_BT[0].tolist(), strict=True))

    def _path_edges(self, record: dict[str, Any], score_of: dict[int, float]) -> list[dict[str, Any]]:
        """The edges of a suggested label to the clusters that are shown."""
        edges = self._edges_of(self.model.labels.number_of[record["label"]])
        return [
            {
                "cluster": cluster,
                "label": record["label"],
                "edge_score": round_score(score),
                "weight": round_score(score_of[cluster] * score),
                "wins": cluster == record.get("cluster"),
            }
            for cluster, score in zip(self.clusters_F[edges].tolist(), self.edge_scores_F[edges].tolist(), strict=True)
            if cluster in score_of
        ]

    def _edges_of(self, label: int) -> np.ndarray:
        return self.edges_L[self.indptr_L[label] : self.indptr_L[label + 1]]

    def _named(self, label: int) -> dict[str, Any]:
        return {"label": self.model.labels.ids[label], "text": self.model.labels.texts_to_show[label]}
