"""Every request passes here: request id, token, security headers, errors as JSON, one log line, metrics.

A plain ASGI wrapper. It never logs a text, a query or a body: method, route, status, time and counts are enough.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import traceback
from time import perf_counter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.errors import EliasError
from .batching import ClientGone
from .errors import CODES, ServiceError, error_body, of
from .metrics import Metrics

log = logging.getLogger("elias.server")
GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
OPEN = ("/health", "/ready", "/docs", "/openapi.json", "/page/")  # readable without a token, besides the page itself
CLIENT_GONE = 499
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Gate:
    def __init__(self, app: ASGIApp, metrics: Metrics, token: bytes | None = None) -> None:
        self.app, self.metrics, self.token = app, metrics, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = Visit(scope, send)
        try:
            self._check_token(scope)
            await self.app(scope, receive, visit.send)
        except ClientGone:
            visit.status = CLIENT_GONE
        except Exception as problem:
            await self._answer(visit, problem)
        finally:
            self._record(visit)

    def _check_token(self, scope: Scope) -> None:
        path = scope["path"]
        if self.token is None or path == "/" or path.startswith(OPEN) or scope["method"] == "OPTIONS":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, secret = given.partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(secret.strip(), self.token):
            message = 'this service asks for a token: send the header "Authorization: Bearer ..."'
            raise ServiceError(401, message, headers={"WWW-Authenticate": "Bearer"})

    async def _answer(self, visit: Visit, problem: Exception) -> None:
        error = as_service_error(problem)
        if error.status == 500:
            log.error("unexpected error", extra={"facts": {"request_id": visit.id, **where(problem)}})
        visit.code = error.code
        if visit.started:  # too late for another status: the client sees a cut answer
            visit.status = error.status
            raise problem
        body = error.body()
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await visit.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await visit.send({"type": "http.response.body", "body": body if visit.method != "HEAD" else b""})

    def _record(self, visit: Visit) -> None:
        seconds = perf_counter() - visit.began
        route = visit.route
        self.metrics.requests.add(route=route, method=visit.known_method, status=str(visit.status))
        self.metrics.seconds.see(seconds, route=route)
        if visit.status >= 400:
            self.metrics.errors.add(code=visit.code or CODES.get(visit.status, "client_gone"))
        if log.isEnabledFor(logging.INFO):
            facts = {
                "request_id": visit.id,
                "method": visit.known_method,
                "route": route,
                "status": visit.status,
                "ms": round(seconds * 1000, 2),
                **visit.facts,
            }
            if visit.code:
                facts["code"] = visit.code
            log.info("request", extra={"facts": facts})


class Visit:
    """One request on its way."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope, self._send = scope, send
        self.began = perf_counter()
        self.id = request_id(scope)
        self.facts: dict[str, Any] = {}
        scope["elias"] = self
        self.status, self.code, self.started = 0, "", False

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def known_method(self) -> str:
        """What a client made up does not become a name in the metrics."""
        return self.method if self.method in {"GET", "HEAD", "POST", "OPTIONS"} else "other"

    @property
    def route(self) -> str:
        """The pattern of the route, not the path: few of them, and no ids in the log."""
        return str(getattr(self.scope.get("route"), "path", "other"))

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            given = {name for name, _ in message["headers"]}
            extra = [pair for pair in HEADERS if pair[0] not in given]
            connection = self.scope.get("state", {}).get("connection")
            if connection is not None and connection.draining and b"connection" not in given:
                extra.append((b"connection", b"close"))  # the client must not send another request here
            message["headers"] = [*message["headers"], *extra, (b"x-request-id", self.id.encode())]
        await self._send(message)


def request_id(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if GOOD_ID.fullmatch(given) else secrets.token_hex(8)


def as_service_error(problem: Exception) -> ServiceError:
    if isinstance(problem, ServiceError):
        return problem
    if isinstance(problem, EliasError):
        return of(problem)
    if isinstance(problem, HTTPException):
        return ServiceError(problem.status_code, str(problem.detail), headers=dict(problem.headers or {}))
    return ServiceError(500, "something went wrong inside the service; its log knows more under this X-Request-Id")


def where(problem: Exception) -> dict[str, Any]:
    """An unexpected error for the log: its kind and place. Its message may hold a text, so it stays out."""
    frames = traceback.extract_tb(problem.__traceback__)
    return {"error": type(problem).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames[-6:]]}


def plain_error(status: int, message: str) -> bytes:
    """For the protocol, which answers below the application."""
    return error_body(CODES[status], message)
