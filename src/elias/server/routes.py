"""The routes of the API: predict, feedback, models, reload, health, ready, metrics; the files of the page and of /docs.

`inspect_routes.py` has the routes that show the inside of a model, `annif_routes.py` those of Annif. `Service` is what
all of them share.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute

from .admission import Admission, Limits, not_ready
from .batching import Batcher
from .errors import ServiceError, invalid, shorten
from .feedback import FeedbackFile, feedback_row
from .metrics import Metrics
from .middleware import Route
from .models import Registry, reload
from .queue import Job
from .responses import STREAM_TYPE, StreamResponse, json_body
from .schemas import (
    REF,
    ErrorAnswer,
    FeedbackAnswer,
    FeedbackRequest,
    ModelAnswer,
    ModelsAnswer,
    PredictRequest,
    ReloadAnswer,
    ReloadRequest,
    Status,
)
from .validation import StrictRoute, check_labels, check_text, predict_options, read_request

log = logging.getLogger("elias.server")
ERRORS = {
    400: "the body is not JSON, or the request is not HTTP",
    401: "the token is missing or wrong",
    403: "not allowed here",
    404: "not found",
    405: "the route does not take this method",
    408: "the body took too long to arrive",
    413: "more than the limits allow",
    415: "the body is not declared as JSON",
    422: "a field has an invalid value",
    500: "a defect of the service",
    503: "busy, or not ready yet: try again after Retry-After seconds; or nothing could be stored or opened",
}
DIRECT_PATHS = ("/v1/predict", "/health")
NO_TOKEN: dict[str, Any] = {"security": []}  # for probes, which have no token
ModelName = Annotated[str | None, Query(description="which model, where several are served")]
PAGE_FOLDER = Path(__file__).parent / "page"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
# Swagger UI writes style attributes; apart from that /docs has the policy of every other page (middleware.py).
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Workers(Protocol):
    """The other processes of the service, as workers.py reaches them."""

    async def metrics(self) -> str: ...
    async def reload(self, name: str | None) -> list[str]: ...


@dataclass(frozen=True)
class Service:
    """What the routes share: the models, the admission control, the compute threads, the metrics."""

    registry: Registry
    admission: Admission
    batcher: Batcher
    metrics: Metrics
    has_token: bool
    feedback: FeedbackFile | None = None
    workers: Workers | None = None  # where several processes serve

    @property
    def limits(self) -> Limits:
        return self.admission.limits


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for OpenAPI; 401, 405, 422 and 500 are possible everywhere."""
    return {status: {"model": ErrorAnswer, "description": ERRORS[status]} for status in (*statuses, 401, 405, 422, 500)}


def request_body(schema: str) -> dict[str, Any]:
    """The body of a route for OpenAPI. FastAPI does not know it, because validation.py reads it within limits."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": REF.format(model=schema)}}},
        }
    }


def api_router(service: Service) -> APIRouter:
    routes = APIRouter(route_class=StrictRoute)

    @routes.post(
        "/v1/predict",
        tags=["predict"],
        summary="Suggest labels for texts",
        response_class=Response,
        responses={
            200: {
                "description": "one result per text; with `stream` one JSON object per line",
                "content": {
                    "application/json": {"schema": {"$ref": REF.format(model="PredictAnswer")}},
                    STREAM_TYPE: {"schema": {"type": "string"}},
                },
            },
            **error_responses(400, 404, 408, 413, 415, 422, 503),
        },
        openapi_extra=request_body("PredictRequest"),
    )
    async def predict(request: Request) -> Response:
        body, n_bytes = await read_request(PredictRequest, request, service.admission)
        served = service.registry.get(body.model)
        options = predict_options(body, served, service.limits)
        request.scope["elias"].facts["texts"] = len(body.texts)  # for the log line of this request
        job = Job(served, options, body.texts, body.ids, client_gone_function(request))
        if body.stream:
            return StreamResponse(service.admission, service.batcher, job, n_bytes)
        with service.admission.admit(len(body.texts), n_bytes):
            lines = await service.batcher.run(job)
            return Response(json_body(served.name, lines), media_type="application/json")

    @routes.post(
        "/v1/feedback",
        tags=["predict"],
        summary="Store accepted and rejected labels of a text (only with --feedback)",
        responses=error_responses(400, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra=request_body("FeedbackRequest"),
    )
    async def feedback(request: Request) -> FeedbackAnswer:
        if service.feedback is None:
            raise ServiceError(403, "this service stores no feedback: it was started without --feedback FILE")
        body, n_bytes = await read_request(FeedbackRequest, request, service.admission)
        served = service.registry.get(body.model)
        check_text(body.text, service.limits, "text")
        if not body.text.strip():
            raise invalid("an empty text cannot be learned from", "text")
        if not body.accepted and not body.rejected:
            raise invalid("no label is accepted or rejected, so there is nothing to store", "accepted")
        check_labels(body.accepted, "accepted", served, service.limits)
        check_labels(body.rejected, "rejected", served, service.limits)
        both = next(iter(set(body.accepted) & set(body.rejected)), None)
        if both is not None:
            raise invalid(f'label "{shorten(both)}" is both accepted and rejected', "rejected")
        row = feedback_row(body.text, body.id, body.accepted, body.rejected, served.name)
        with service.admission.admit(1, n_bytes):
            try:
                await asyncio.to_thread(service.feedback.append, row)
            except OSError as problem:
                facts = {"file": str(service.feedback.path), "error": problem.strerror or type(problem).__name__}
                log.error("feedback not stored", extra={"facts": facts})
                message = "the feedback could not be stored; the log of the service has the reason"
                raise ServiceError(503, message, code="not_stored") from None
        return FeedbackAnswer(stored=True)

    @routes.get("/v1/models", tags=["models"], summary="The models served here", responses=error_responses(503))
    async def models() -> ModelsAnswer:
        default = service.registry.get(None).name
        facts = [each.facts(default=each.name == default) for each in service.registry.served.values()]
        return ModelsAnswer.model_validate({"models": facts, "feedback": service.feedback is not None})

    @routes.get(
        "/v1/model",
        tags=["models"],
        summary="One model: settings, data, metrics, versions",
        responses=error_responses(404, 422, 503),
    )
    async def model(model: ModelName = None) -> ModelAnswer:
        served = service.registry.get(model)
        about = {name: served.about.get(name) or {} for name in ("settings", "dataset", "validation", "versions")}
        facts = served.facts(default=served.name == service.registry.default)
        measured = {"quality": served.about.get("quality"), "limits": asdict(service.limits)}
        return ModelAnswer.model_validate({**facts, **about, **measured})

    @routes.post(
        "/v1/reload",
        tags=["service"],
        summary="Open the model folders again and replace the models (token only)",
        responses=error_responses(400, 403, 404, 408, 413, 415, 422, 503),
        openapi_extra=request_body("ReloadRequest"),
    )
    async def reload_models(request: Request) -> ReloadAnswer:
        if not service.has_token:
            message = "reloading over HTTP needs a token: start with --token-file, or send SIGHUP to the process"
            raise ServiceError(403, message)
        body, _ = await read_request(ReloadRequest, request, service.admission)
        service.registry.get(body.model)  # 404 for an unknown name
        if service.workers is not None:
            return ReloadAnswer(reloaded=await service.workers.reload(body.model))
        return ReloadAnswer(reloaded=await reload(service.registry, service.metrics, body.model))

    @routes.get(
        "/health",
        tags=["service"],
        summary="Whether the process is alive",
        response_model=Status,
        responses=error_responses(),
        openapi_extra=NO_TOKEN,
    )
    async def health(request: Request) -> Response:
        return Response(b'{"status":"alive"}', media_type="application/json")

    @routes.get(
        "/ready",
        tags=["service"],
        summary="Whether the models are open and warmed up",
        responses=error_responses(503),
        openapi_extra=NO_TOKEN,
    )
    async def ready() -> Status:
        if not service.registry.ready:
            raise not_ready(retry_after=1)
        return Status(status="ready")

    @routes.get(
        "/metrics",
        tags=["service"],
        summary="For Prometheus",
        response_class=PlainTextResponse,
        responses=error_responses(503),
    )
    async def metrics() -> Response:
        text = service.metrics.text() if service.workers is None else await service.workers.metrics()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


def direct_routes(routes: APIRouter) -> dict[tuple[str, str], Route]:
    """The routes that the middleware calls without FastAPI: they take a request and return a response."""
    return {
        (method, route.path): route.endpoint
        for route in routes.routes
        if isinstance(route, APIRoute) and route.path in DIRECT_PATHS
        for method in route.methods or ()
    }


def client_gone_function(request: Request) -> Any:
    """A function that tells whether the client has disconnected; protocol.py puts its connection into the scope."""
    connection = request.scope.get("state", {}).get("connection")
    if connection is None:
        return lambda: False
    return lambda: bool(connection.client_is_gone())


@dataclass(frozen=True)
class PageFile:
    """A file of the page, in memory, with its ETag."""

    content: bytes
    content_type: str
    etag: str

    def response(self, request: Request, headers: dict[str, str] | None = None) -> Response:
        # no-cache: browsers ask again, so a new version is seen at once, and get a 304 otherwise.
        known = {"ETag": self.etag, "Cache-Control": "no-cache", **(headers or {})}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=known)
        return Response(self.content, media_type=self.content_type, headers=known)


def read_page_files() -> dict[str, PageFile]:
    """{"index.html": ..., "swagger/swagger-ui.css": ...}. Paths are keys of this dict, so none can leave the folder."""
    found = {}
    for path in sorted(PAGE_FOLDER.rglob("*")):
        if path.suffix in CONTENT_TYPES:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            found[path.relative_to(PAGE_FOLDER).as_posix()] = PageFile(content, CONTENT_TYPES[path.suffix], etag)
    return found


def page_router() -> APIRouter:
    routes, files = APIRouter(include_in_schema=False), read_page_files()

    @routes.get("/", response_class=HTMLResponse)
    async def page(request: Request) -> Response:
        return files["index.html"].response(request)

    @routes.get("/docs", response_class=HTMLResponse)
    async def docs(request: Request) -> Response:
        return files["docs.html"].response(request, {"Content-Security-Policy": _DOCS_POLICY})

    @routes.get("/page/{name:path}")
    async def asset(request: Request, name: str) -> Response:
        if name not in files:
            raise ServiceError(404, "the page has no such file")
        return files[name].response(request)

    return routes
