"""The application: what the routes share, how it starts and ends. The routes are in routes.py and look.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ..core.errors import EliasError
from ..core.version import __version__
from . import look, routes
from .batching import Batcher
from .errors import ServiceError, invalid
from .files import read_files
from .gate import Gate
from .limits import Limits
from .metrics import Metrics
from .models import Registry
from .schemas import REF, PathsRequest, PredictAnswer, PredictRequest, ReloadRequest
from .service import Service

log = logging.getLogger("elias.server")
ABOUT = """Texts in, the right few of very many labels out; and a look at how a learned index finds them.

Errors are `{"error": {"code", "message", "field"}}`. Every answer carries `X-Request-Id`, which the log knows.
"""


def create_app(
    registry: Registry,
    *,
    limits: Limits | None = None,
    token: bytes | None = None,
    origins: tuple[str, ...] = (),
    on_failure: Callable[[EliasError], None] | None = None,
) -> FastAPI:
    """The service for some models; `on_failure` is told when they cannot be opened."""
    limits, metrics = limits or Limits(), Metrics()
    service = Service(registry, limits, metrics, Batcher(limits, metrics), token is not None, on_failure or _give_up)
    app = FastAPI(
        title="ELIAS",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=partial(_lifespan, service),
        exception_handlers={HTTPException: _hand_on, RequestValidationError: _refuse},
    )
    metrics.gauge("elias_ready", "1 when every model is open.", lambda: registry.ready)
    app.state.service = service
    app.include_router(routes.router(service))
    app.include_router(look.router(service))
    app.include_router(routes.page_router(read_files()))
    app.openapi = partial(_openapi, app, app.openapi)  # type: ignore[method-assign]
    app.add_middleware(Gate, metrics=metrics, token=token)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    return app


def _openapi(app: FastAPI, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """FastAPI's schema with the bodies that are read by hand."""
    if app.openapi_schema is None:
        content = make()
        for kind in (PredictRequest, PathsRequest, ReloadRequest, PredictAnswer):
            schema = kind.model_json_schema(ref_template=REF)
            content["components"]["schemas"].update({**schema.pop("$defs", {}), kind.__name__: schema})
        if app.state.service.has_token:
            content["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            content["security"] = [{"token": []}]
    assert app.openapi_schema is not None
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(service: Service, app: FastAPI) -> AsyncIterator[None]:
    """Open the models beside the event loop, so that /health and /ready answer meanwhile."""
    service.batcher.start()
    opening = asyncio.create_task(_open(service))
    yield
    opening.cancel()
    service.batcher.close()


async def _open(service: Service) -> None:
    try:
        await asyncio.to_thread(service.registry.open_all)
        log.info("ready", extra={"facts": {"models": list(service.registry.folders)}})
    except EliasError as problem:
        service.on_failure(problem)


def _give_up(problem: EliasError) -> NoReturn:
    raise problem


async def _hand_on(request: Request, problem: Exception) -> NoReturn:
    """What FastAPI would answer in its own form goes on to the gate."""
    assert isinstance(problem, HTTPException)
    path = request.url.path[:60]
    if problem.status_code == 404:
        raise ServiceError(404, f"there is nothing at {path}; /docs lists what there is")
    if problem.status_code == 405:
        raise ServiceError(405, f"{path} does not take this method", headers=dict(problem.headers or {}))
    raise problem


async def _refuse(request: Request, problem: Exception) -> NoReturn:
    assert isinstance(problem, RequestValidationError)
    first: dict[str, Any] = problem.errors()[0]
    place = [str(part) for part in first["loc"] if part not in {"query", "path", "body"}]
    field = ".".join(place)
    raise invalid(f'"{field}": {first["msg"][:1].lower()}{first["msg"][1:]}', field)
