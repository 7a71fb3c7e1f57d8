"""The error format of the service: `{"error": {"code", "message", "field"}}` with an HTTP status.

Annif's routes (annif_routes.py) have the format of Annif, application/problem+json of RFC 9457.

Every error that reaches a client is a `ServiceError`. Handlers raise it; `as_service_error` translates any other
exception, and `middleware.py` sends it. Tracebacks, file paths and request texts go to the log or nowhere, never to a
client.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from ..core.errors import InputError

# The code is for programs: it stays the same when the wording of a message changes.
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    500: "internal",
    503: "busy",
}


class ServiceError(Exception):
    """An answer other than 2xx: status, machine-readable code, message, and the field of the request it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field
        self.code = code or CODES.get(status, "error")
        self.headers = headers or {}

    def body(self) -> bytes:
        return error_body(self.code, self.message, self.field)

    def problem(self) -> bytes:
        """The body in the format of RFC 9457."""
        title = HTTPStatus(self.status).phrase
        content = {"type": "about:blank", "title": title, "status": self.status, "detail": self.message}
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


class ClientGone(Exception):
    """The client closed its connection, so there is no one to answer. Never sent; logged as status 499."""


def error_body(code: str, message: str, field: str | None = None) -> bytes:
    content: dict[str, Any] = {"error": {"code": code, "message": message, "field": field}}
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


def invalid(message: str, field: str | None = None) -> ServiceError:
    """422: the request parsed, but one of its values is wrong."""
    return ServiceError(422, message, field=field)


def as_service_error(problem: Exception) -> ServiceError:
    """The answer to any exception that a handler raised. Only InputError is the client's: a damaged model is not."""
    if isinstance(problem, ServiceError):
        return problem
    if isinstance(problem, InputError):
        return invalid(str(problem))  # messages of the library are written for users
    if isinstance(problem, HTTPException):
        return ServiceError(problem.status_code, str(problem.detail), headers=dict(problem.headers or {}))
    return ServiceError(500, "internal error; the log of the service has details under this X-Request-Id")


def shorten(value: object, max_length: int = 60) -> str:
    """A value from the request for use in a message: an attack must not make the message long."""
    text = str(value)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
