"""Routes that look inside: labels, clusters, the index, the paths of a text."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from .asking import check_text
from .bodies import read_body
from .errors import ServiceError, invalid, shown
from .models import Served
from .paths import paths_of
from .queries import StrictRoute
from .routes import ModelName, body_of, errors, parsed_body
from .schemas import ClusterAnswer, IndexAnswer, LabelAnswer, LabelsAnswer, PathsAnswer, PathsRequest
from .service import Service


def router(service: Service) -> APIRouter:
    routes, registry = APIRouter(tags=["look inside"], route_class=StrictRoute), service.registry

    @routes.get("/v1/labels", summary="Labels by name", responses=errors(404, 422, 503))
    def labels(
        search: Annotated[str, Query(max_length=200, description="part of an id or a text; empty: the most used")] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
        model: ModelName = None,
    ) -> LabelsAnswer:
        served = registry.get(model)
        hits = served.search.find(search, limit)
        found = [_hit(served, label) for label in hits.labels]
        return LabelsAnswer.model_validate(
            {"model": served.name, "search": search, "total": hits.total, "labels": found}
        )

    @routes.get(
        "/v1/labels/{label:path}", summary="One label: clusters, nearest labels", responses=errors(404, 422, 503)
    )
    def label(
        label: Annotated[str, Path(description="the label's id", examples=["evince"])], model: ModelName = None
    ) -> LabelAnswer:
        served = registry.get(model)
        number = served.model.labels.number_of.get(label)
        if number is None:
            raise ServiceError(
                404, f'there is no label "{shown(label)}"; find it with GET /v1/labels?search=', field="label"
            )
        return LabelAnswer.model_validate({"model": served.name, **served.explorer.label(number)})

    @routes.get("/v1/clusters/{cluster}", summary="One cluster: labels, typical words", responses=errors(404, 422, 503))
    def cluster(
        cluster: Annotated[int, Path(description="its number", examples=[0])],
        limit: Annotated[int, Query(ge=1, le=2000)] = 100,
        model: ModelName = None,
    ) -> ClusterAnswer:
        served = registry.get(model)
        explorer = served.explorer
        if not 0 <= cluster < explorer.index.n_clusters:
            message = (
                f"there is no cluster {shown(cluster)}; this model has clusters 0 to {explorer.index.n_clusters - 1}"
            )
            raise ServiceError(404, message, field="cluster")
        return ClusterAnswer.model_validate({"model": served.name, **explorer.cluster(cluster, limit)})

    @routes.get("/v1/index", summary="What the index as a whole has learned", responses=errors(404, 422, 503))
    def index(model: ModelName = None) -> IndexAnswer:
        served = registry.get(model)
        return IndexAnswer.model_validate({"model": served.name, **served.explorer.overview})

    @routes.post(
        "/v1/paths",
        summary="Why: the beam and every path from it to the best labels of a text",
        response_model=PathsAnswer,
        responses=errors(400, 404, 408, 413, 415, 422, 503),
        openapi_extra=body_of("PathsRequest"),
    )
    async def paths(request: Request) -> Any:
        body = await read_body(request, service.limits, service.batcher)
        asked = await parsed_body(PathsRequest, body)
        served = registry.get(asked.model)
        if not served.can_explore:
            raise invalid(f'model "{served.name}" has no paths to show; serve one of its members', "model")
        check_text(asked.text, service.limits, "text")
        with service.batcher.admit(1, len(body)):
            return await asyncio.to_thread(paths_of, served, asked.text, asked.k, asked.label)

    return routes


def _hit(served: Served, label: int) -> dict[str, Any]:
    labels = served.model.labels
    return {
        "label": labels.ids[label],
        "text": labels.texts[label],
        "training_count": int(served.label_counts[label]),
    }
