"""Routes that answer and that run the service: predict, models, reload, health, ready, metrics, page, docs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from ..core.errors import EliasError
from .answers import whole_answer
from .asking import checked
from .bodies import read_body
from .errors import ServiceError, busy
from .files import File, file_named
from .queries import StrictRoute
from .schemas import (
    REF,
    Asked,
    ErrorAnswer,
    ModelAnswer,
    ModelsAnswer,
    PredictRequest,
    ReloadAnswer,
    ReloadRequest,
    Status,
    parsed,
)
from .service import Service
from .streaming import CONTENT_TYPE, Stream
from .waiting import Gone

log = logging.getLogger("elias.server")
LARGE = 1 << 16  # bytes; larger bodies are parsed beside the event loop
_WHY = {
    400: "the body is not JSON, or the request is not HTTP",
    401: "the token is missing or wrong",
    403: "not allowed here",
    404: "there is no such thing",
    405: "the route does not take this method",
    408: "the body took too long",
    413: "more than the limits allow",
    415: "the body is not declared as JSON",
    422: "a field that makes no sense",
    500: "a defect of the service",
    503: "busy, or not ready yet; come back after Retry-After seconds",
}
OPEN: dict[str, Any] = {"security": []}  # asked by machines that know no token
ModelName = Annotated[str | None, Query(description="which model, where several are served")]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": _WHY[status]} for status in (*statuses, 401, 405, 422, 500)}


def body_of(kind: str) -> dict[str, Any]:
    """The request body in OpenAPI; it is read by hand, within bounds."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": REF.format(model=kind)}}},
        }
    }


def gone_of(request: Request) -> Gone:
    """Whether the client has hung up; our protocol leaves the connection in the state of the request."""
    connection = request.scope.get("state", {}).get("connection")
    if connection is None:
        return lambda: False
    return lambda: bool(connection.client_is_gone())


def router(service: Service) -> APIRouter:
    routes, limits = APIRouter(route_class=StrictRoute), service.limits

    @routes.post(
        "/v1/predict",
        tags=["predict"],
        summary="Suggest labels for texts",
        response_class=Response,
        responses={
            200: {
                "description": "one result for each text; with `stream` one JSON object a line",
                "content": {
                    "application/json": {"schema": {"$ref": REF.format(model="PredictAnswer")}},
                    CONTENT_TYPE: {"schema": {"type": "string"}},
                },
            },
            **errors(400, 404, 408, 413, 415, 422, 503),
        },
        openapi_extra=body_of("PredictRequest"),
    )
    async def predict(request: Request) -> Response:
        body = await read_body(request, limits, service.batcher)
        asked = await parsed_body(PredictRequest, body)
        served = service.registry.get(asked.model)
        ask = checked(asked, served, limits)
        request.scope["elias"].facts["texts"] = len(asked.texts)
        gone = gone_of(request)
        if asked.stream:
            return Stream(service.batcher, served, ask, asked.texts, asked.ids, gone, len(body))
        with service.batcher.admit(len(asked.texts), len(body)):
            lines = await service.batcher.run(served, ask, asked.texts, asked.ids, gone)
            return Response(whole_answer(served.name, lines), media_type="application/json")

    @routes.get("/v1/models", tags=["models"], summary="The models served here", responses=errors(503))
    async def models() -> ModelsAnswer:
        default = service.registry.get(None).name
        facts = [each.facts(default=each.name == default) for each in service.registry.served.values()]
        return ModelsAnswer.model_validate({"models": facts})

    @routes.get(
        "/v1/model",
        tags=["models"],
        summary="One model: settings, data, metrics, versions",
        responses=errors(404, 422, 503),
    )
    async def model(model: ModelName = None) -> ModelAnswer:
        served = service.registry.get(model)
        about = {name: served.about.get(name) or {} for name in ("settings", "dataset", "validation", "versions")}
        facts = served.facts(default=served.name == service.registry.default)
        return ModelAnswer.model_validate({**facts, **about, "limits": asdict(limits)})

    @routes.post(
        "/v1/reload",
        tags=["service"],
        summary="Open the model folders again and swap (token only)",
        responses=errors(400, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra=body_of("ReloadRequest"),
    )
    async def reload(request: Request) -> ReloadAnswer:
        if not service.has_token:
            message = "reloading over HTTP needs a token: start with --token-file, or send SIGHUP to the process"
            raise ServiceError(403, message)
        asked = await parsed_body(ReloadRequest, await read_body(request, limits, service.batcher))
        service.registry.get(asked.model)
        return ReloadAnswer(reloaded=await reloaded(service, asked.model))

    @routes.get(
        "/health", tags=["service"], summary="Whether the process is alive", responses=errors(), openapi_extra=OPEN
    )
    async def health() -> Status:
        return Status(status="alive")

    @routes.get(
        "/ready",
        tags=["service"],
        summary="Whether the models are open and warm",
        responses=errors(503),
        openapi_extra=OPEN,
    )
    async def ready() -> Status:
        if not service.registry.ready:
            raise busy("the models are still being opened", after=1)
        return Status(status="ready")

    @routes.get(
        "/metrics", tags=["service"], summary="For Prometheus", response_class=PlainTextResponse, responses=errors()
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


async def parsed_body(kind: type[Asked], body: bytes) -> Asked:
    return await asyncio.to_thread(parsed, kind, body) if len(body) > LARGE else parsed(kind, body)


async def reloaded(service: Service, name: str | None = None) -> list[str]:
    """For the route and for SIGHUP. What is wrong with a folder is for the log: it names paths."""
    try:
        names = await asyncio.to_thread(service.registry.reload, name)
    except EliasError as problem:
        service.metrics.reloads.add(outcome="failed")
        log.error("reload failed, the old model goes on", extra={"facts": {"error": str(problem)}})
        message = "the new model cannot be opened, so the old one goes on serving; the log says why"
        raise ServiceError(503, message, code="reload_failed") from None
    service.metrics.reloads.add(outcome="done")
    log.info("reloaded", extra={"facts": {"models": names}})
    return names


def page_router(files: dict[str, File]) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/", response_class=HTMLResponse)
    async def page(request: Request) -> Response:
        return file_named(files, "index.html").answer(request)

    @routes.get("/docs", response_class=HTMLResponse)
    async def docs(request: Request) -> Response:
        return file_named(files, "docs.html").answer(request, {"Content-Security-Policy": _DOCS_POLICY})

    @routes.get("/page/{name:path}")
    async def asset(request: Request, name: str) -> Response:
        return file_named(files, name).answer(request)

    return routes


# Swagger UI writes style attributes; nothing else is loosened.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
