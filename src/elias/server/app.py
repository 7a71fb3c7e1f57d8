"""The ASGI application: the service's parts put together, its routes and middleware, how it starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ..core.errors import EliasError
from ..core.version import __version__
from .admission import Admission, Limits
from .annif_routes import annif_router
from .batching import Batcher
from .errors import ServiceError, invalid
from .feedback import FeedbackFile
from .inspect_routes import inspect_router
from .metrics import Metrics
from .middleware import Access, PassOnErrors, RequestMiddleware
from .models import Registry
from .routes import Service, Workers, api_router, direct_routes, page_router
from .schemas import (
    REF,
    DocumentsRequest,
    FeedbackRequest,
    PathsRequest,
    PredictAnswer,
    PredictRequest,
    Problem,
    ReloadRequest,
)

# Types that FastAPI does not see, because validation.py reads bodies itself and responses.py writes them.
UNSEEN: tuple[type[BaseModel], ...] = (
    PredictRequest,
    PathsRequest,
    FeedbackRequest,
    ReloadRequest,
    DocumentsRequest,
    PredictAnswer,
    Problem,
)
DESCRIPTION = """Assigns to a text the right few of very many labels, and shows how a learned index finds them.

Errors are `{"error": {"code", "message", "field"}}`. Every answer carries `X-Request-Id`, which is also in the log.
"""


def create_app(
    registry: Registry,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    feedback: Path | None = None,
    workers: Workers | None = None,
    on_ready: Callable[[], None] | None = None,
    on_failure: Callable[[EliasError], None] | None = None,
) -> Application:
    """The service for the models of a registry.

    Parameters
    ----------
    registry : the models, which are opened after the application has started
    limits : what a request may contain and how much may wait
    access : who may use it; by default everyone who calls it by an address or as localhost
    feedback : the file to which accepted and rejected labels are appended; None: they are not stored
    workers : the other processes of the service, where it has several
    on_ready : called when all models are open
    on_failure : called when a model cannot be opened; by default the error is raised
    """
    limits, metrics, access = limits or Limits(), Metrics(), access or Access()
    service = Service(
        registry,
        Admission(limits, metrics),
        Batcher(limits, metrics),
        metrics,
        has_token=access.token is not None,
        feedback=None if feedback is None else FeedbackFile(feedback),
        workers=workers,
    )
    app = Application(
        title="ELIAS",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=partial(_lifespan, service, on_ready, on_failure or _raise),
        exception_handlers={HTTPException: _http_error, RequestValidationError: _parameter_error},
    )
    metrics.gauge("elias_ready", "1 when every model is open.", lambda: registry.ready)
    app.state.service = service
    api = api_router(service)
    app.include_router(api)
    app.include_router(inspect_router(service))
    app.include_router(annif_router(service))
    app.include_router(page_router())
    app.openapi = partial(_openapi, app, app.openapi)  # type: ignore[method-assign]
    app.add_middleware(PassOnErrors)
    app.entry = RequestMiddleware(app.routed, direct_routes(api), metrics, access)
    if access.origins:
        # Outermost: a browser's preflight request carries no token.
        app.entry = CORSMiddleware(
            app.entry,
            allow_origins=list(access.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    return app


class Application(FastAPI):
    """FastAPI behind our middleware; its own would be entered after a good part of its work."""

    entry: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.entry(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI itself."""
        await super().__call__(scope, receive, send)


def _openapi(app: FastAPI, generate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """FastAPI's schema, with the bodies that validation.py reads itself."""
    if app.openapi_schema is None:
        content = generate()
        for kind in UNSEEN:
            schema = kind.model_json_schema(ref_template=REF)
            content["components"]["schemas"].update({**schema.pop("$defs", {}), kind.__name__: schema})
        if app.state.service.has_token:
            content["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            content["security"] = [{"token": []}]
    assert app.openapi_schema is not None
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(
    service: Service, on_ready: Callable[[], None] | None, on_failure: Callable[[EliasError], None], app: FastAPI
) -> AsyncIterator[None]:
    """Open the models in a thread, so that /health and /ready answer in the meantime."""
    service.batcher.start()
    opening = asyncio.create_task(_open_models(service, on_ready, on_failure))
    yield
    opening.cancel()
    service.batcher.close()


async def _open_models(
    service: Service, on_ready: Callable[[], None] | None, on_failure: Callable[[EliasError], None]
) -> None:
    try:
        await asyncio.to_thread(service.registry.open_all)
    except EliasError as problem:
        on_failure(problem)
        return
    if on_ready is not None:
        on_ready()


def _raise(problem: EliasError) -> NoReturn:
    raise problem


async def _http_error(request: Request, problem: Exception) -> NoReturn:
    """Errors that FastAPI would answer in a format of its own, passed on to the middleware."""
    assert isinstance(problem, HTTPException)
    path = request.url.path[:60]
    if problem.status_code == 404:
        raise ServiceError(404, f"there is nothing at {path}; /docs lists the routes")
    if problem.status_code == 405:
        raise ServiceError(405, f"{path} does not take this method", headers=dict(problem.headers or {}))
    raise problem


async def _parameter_error(request: Request, problem: Exception) -> NoReturn:
    assert isinstance(problem, RequestValidationError)
    first: dict[str, Any] = problem.errors()[0]
    place = [str(part) for part in first["loc"] if part not in {"query", "path", "body"}]
    field = ".".join(place)
    raise invalid(f'"{field}": {first["msg"][:1].lower()}{first["msg"][1:]}', field)
