"""What a client is told when something is wrong: {"error": {"code", "message", "field"}}, in the tone of the CLI.

    ServiceError               a status, a code that programs can test, a message for people, the field it is about
    of(EliasError)             what the library refuses becomes a 422
Tracebacks and paths go to the log, never to a client.
"""

from __future__ import annotations

import json
from typing import Any

from ..core.errors import EliasError

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


def error_body(code: str, message: str, field: str | None = None) -> bytes:
    content: dict[str, Any] = {"error": {"code": code, "message": message, "field": field}}
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")


def busy(message: str, *, after: int = 1) -> ServiceError:
    """Not now: 503, with when to come back."""
    return ServiceError(503, message, headers={"Retry-After": str(after)})


def invalid(message: str, field: str | None = None) -> ServiceError:
    return ServiceError(422, message, field=field)


def of(problem: EliasError, field: str | None = None) -> ServiceError:
    """What the library says about an argument is meant for the user."""
    return invalid(str(problem), field)


def shown(value: object, most: int = 60) -> str:
    """A value in a message, cut short."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
