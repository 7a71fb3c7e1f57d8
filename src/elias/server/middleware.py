"""What happens to every request around its route: id, host, token, security headers, errors, log line, metrics.

A plain ASGI middleware around the whole application. It calls the routes that are asked thousands of times per second
itself: FastAPI's way to them takes longer than they do. Log and metrics contain the pattern of the route, the status,
times and counts; never a text, a query or a body.

A web page can have its own host name resolve to this machine (DNS rebinding), and then reads the answers like its own:
only requests whose Host is an address, this machine or an allowed name are answered.
"""

from __future__ import annotations

import hmac
import ipaddress
import itertools
import logging
import re
import secrets
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import CODES, ClientGone, ServiceError, as_service_error, shorten
from .metrics import Metrics

log = logging.getLogger("elias.server")
VALID_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
NO_TOKEN_PATHS = ("/health", "/ready", "/docs", "/openapi.json", "/page/")  # and "/"
ANY_HOST_PATHS = ("/health", "/ready")  # probes call the service by all kinds of names
ANNIF_PATHS = ("/v1/projects",)  # errors in the format of Annif's clients
CLIENT_GONE = 499  # as in nginx; never sent
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


Route = Callable[[Request], Awaitable[Response]]
# Ids of requests: unique over processes and restarts. A random number per request costs a call of the system.
_PROCESS, _numbers = secrets.token_hex(5), itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may use the service.

    Parameters
    ----------
    token : the bearer token that requests must send; None: no token is needed
    origins : origins of web pages that may call the service from a browser, besides its own page
    hosts : names that requests may have in their Host header, besides addresses and localhost; "*": any
    """

    token: bytes | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class RequestMiddleware:
    """The ASGI application.

    Parameters
    ----------
    app : FastAPI's application
    direct : routes by method and path that are called without it; they are the same functions
    metrics : where requests are counted
    access : token and names
    """

    def __init__(
        self,
        app: ASGIApp,
        direct: Mapping[tuple[str, str], Route],
        metrics: Metrics,
        access: Access,
    ) -> None:
        self.app, self.direct, self.metrics, self.token = app, direct, metrics, access.token
        names = frozenset(name.lower() for name in access.hosts)
        self._is_allowed_host = lru_cache(1024)(lambda given: "*" in names or is_allowed_host(given, names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        try:
            self._check_host(scope)
            self._check_token(scope)
            path = scope["path"]
            route = self.direct.get((scope["method"], path))
            if route is None or scope["query_string"]:
                await self.app(scope, receive, exchange.send)
                if exchange.problem is not None:
                    raise exchange.problem
            else:
                exchange.direct_route = path
                response = await route(Request(scope, receive))
                await response(scope, receive, exchange.send)
        except ClientGone:
            exchange.status = CLIENT_GONE
        except Exception as problem:
            await self._send_error(exchange, problem)
        finally:
            self._record(exchange)

    def _check_host(self, scope: Scope) -> None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 and (given or scope["http_version"] != "1.0"):
            raise ServiceError(400, "a request must have one Host header")
        if given and not self._is_allowed_host(given[0]) and scope["path"] not in ANY_HOST_PATHS:
            name = shorten(given[0].decode("ascii", "replace"))
            message = f'this service does not answer to the name "{name}"; allow it: elias serve --allow-host NAME'
            raise ServiceError(403, message, code="wrong_host")

    def _check_token(self, scope: Scope) -> None:
        path = scope["path"]
        if self.token is None or path == "/" or path.startswith(NO_TOKEN_PATHS) or scope["method"] == "OPTIONS":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, secret = given.partition(b" ")
        # compare_digest: the time of a plain comparison would tell how much of a guess is right.
        if kind.lower() != b"bearer" or not hmac.compare_digest(secret.strip(), self.token):
            message = 'this service needs a token: send the header "Authorization: Bearer ..."'
            raise ServiceError(401, message, headers={"WWW-Authenticate": "Bearer"})

    async def _send_error(self, exchange: Exchange, problem: Exception) -> None:
        error = as_service_error(problem)
        if error.status == 500:
            log_defect(problem, exchange.id)
        exchange.code = error.code
        if exchange.started:  # the status has been sent; closing the connection is the only signal left
            exchange.status = error.status
            raise problem
        body, content_type = error.body(), b"application/json"
        if exchange.scope["path"].startswith(ANNIF_PATHS):
            error.status = 400 if error.status == 422 else error.status  # as Annif has it
            body, content_type = error.problem(), b"application/problem+json"
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        await exchange.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await exchange.send({"type": "http.response.body", "body": body if exchange.method != "HEAD" else b""})

    def _record(self, exchange: Exchange) -> None:
        seconds = perf_counter() - exchange.began
        route = exchange.route
        self.metrics.requests.inc(route=route, method=exchange.known_method, status=str(exchange.status))
        self.metrics.seconds.observe(seconds, route=route)
        if exchange.status >= 400:
            self.metrics.errors.inc(code=exchange.code or CODES.get(exchange.status, "client_gone"))
        if log.isEnabledFor(logging.INFO):
            facts = {
                "request_id": exchange.id,
                "method": exchange.known_method,
                "route": route,
                "status": exchange.status,
                "ms": round(seconds * 1000, 2),
                **exchange.facts,
            }
            if exchange.code:
                facts["code"] = exchange.code
            log.info("request", extra={"facts": facts})


class PassOnErrors:
    """Inside FastAPI: hand an error over to `RequestMiddleware`; FastAPI would answer it in a format of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except Exception as problem:
            if scope["type"] != "http":
                raise
            scope["elias"].problem = problem


class Exchange:
    """One request and its response, as far as log and metrics need it. Routes find it as scope["elias"]."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope, self._send = scope, send
        self.began = perf_counter()
        self.id = request_id(scope)
        self.facts: dict[str, Any] = {}  # more fields for the log line
        self.status, self.code, self.started = 0, "", False
        self.direct_route: str | None = None
        self.problem: Exception | None = None
        scope["elias"] = self

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def known_method(self) -> str:
        """Names invented by clients must not become tags of metrics: each would take memory for ever."""
        return self.method if self.method in {"GET", "HEAD", "POST", "OPTIONS"} else "other"

    @property
    def route(self) -> str:
        """The pattern of the route, not the path: few of them, and no label ids in the log."""
        return self.direct_route or str(getattr(self.scope.get("route"), "path", "other"))

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            given = {name for name, _ in message["headers"]}
            extra = [pair for pair in SECURITY_HEADERS if pair[0] not in given]
            connection = self.scope.get("state", {}).get("connection")
            if connection is not None and b"connection" not in given and connection.must_close():
                extra.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *extra, (b"x-request-id", self.id.encode())]
        await self._send(message)


def request_id(scope: Scope) -> str:
    """The client's X-Request-Id if it is a plain word, otherwise one of our own."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if VALID_ID.fullmatch(given) else f"{_PROCESS}{next(_numbers):06x}"


def is_allowed_host(given: bytes, names: Collection[str]) -> bool:
    """Whether a Host header is an address (no name that could be made to resolve elsewhere), localhost or a name."""
    text = given.decode("ascii", "replace").strip().lower()
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        host = text
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    with suppress(ValueError):
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        return True
    return False


def log_defect(problem: Exception, request_id: str) -> None:
    log.error("unexpected error", extra={"facts": {"request_id": request_id, **location(problem)}})


def location(problem: Exception) -> dict[str, Any]:
    """Type and place of an unexpected error for the log. Its message may contain a text, so it is left out."""
    frames = traceback.extract_tb(problem.__traceback__)
    return {"error": type(problem).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames[-6:]]}
