"""Every check that a request must pass before it may enter the queue, in this order:

    query parameters   `StrictRoute`: unknown and repeated ones are refused
    body               `read_body`: declared as JSON, within body_bytes, within body_seconds
    fields             `parse`: types and ranges as in schemas.py, unknown fields refused
    limits and model   `predict_options`: sizes within `Limits`, labels and threshold that the model has

Each refusal is a 4xx that names the field and the remedy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from ..core.errors import did_you_mean
from .admission import Admission, Limits
from .errors import ClientGone, ServiceError, invalid, shorten
from .models import Served
from .queue import PredictOptions
from .schemas import PredictRequest, RequestBody

LARGE_BODY = 1 << 16  # bytes; parsing a larger one would hold up the event loop
EXPLAINED = 10  # an explained label is as long as so many others
Body = TypeVar("Body", bound=RequestBody)
Parsed = TypeVar("Parsed")


class StrictRoute(APIRoute):
    """A route that refuses query parameters it does not know: with `?serach=x` ignored, every label would match."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, known = super().get_route_handler(), {field.alias for field in self.dependant.query_params}

        async def checked_handle(request: Request) -> Response:
            if request.scope["query_string"]:
                _check_query(request, known)
            return await handle(request)

        return checked_handle


def _check_query(request: Request, known: set[str]) -> None:
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            hint = did_you_mean(name[:60], known) or (f"; it takes {', '.join(sorted(known))}" if known else "")
            raise invalid(f'unknown parameter "{shorten(name)}"{hint}', shorten(name))
        if given.count(name) > 1:
            raise invalid(f'parameter "{name}" is given {given.count(name)} times; once is enough', name)


async def read_body(request: Request, admission: Admission, content_type: str = "application/json") -> bytes:
    """The whole body, counted by the admission control while it arrives."""
    limits = admission.limits
    # A form on a foreign web page can post text/plain without permission, but not application/json.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != content_type:
        what = "JSON" if content_type == "application/json" else "a form"
        raise ServiceError(415, f'send {what} with the header "Content-Type: {content_type}" (it is "{kind[:60]}")')
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limits.body_bytes:  # the parser has checked that it is a number
        raise _too_large(limits)
    admission.check_room()
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_pieces(request, admission)
    except TimeoutError:
        message = f"the body did not arrive within {limits.body_seconds:g} seconds"
        raise ServiceError(408, message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGone from None


async def _read_pieces(request: Request, admission: Admission) -> bytes:
    limits, pieces, size = admission.limits, [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            admission.bytes += len(piece)
            if size > limits.body_bytes:  # chunked bodies declare no length
                raise _too_large(limits)
            if admission.bytes > limits.waiting_bytes:
                admission.check_room()
            pieces.append(piece)
    finally:
        admission.bytes -= size  # `read_parsed` counts it again, before anything else runs
    return b"".join(pieces)


def _too_large(limits: Limits) -> ServiceError:
    message = f"the body is larger than {limits.body_bytes:,} bytes; send the texts in several requests"
    return ServiceError(413, message)  # protocol.py throws the rest of the body away


async def read_request(kind: type[Body], request: Request, admission: Admission) -> tuple[Body, int]:
    """The body of a request as `kind`, and its size in bytes."""
    return await read_parsed(request, admission, partial(parse, kind))


async def read_parsed(
    request: Request, admission: Admission, read: Callable[[bytes], Parsed], content_type: str = "application/json"
) -> tuple[Parsed, int]:
    """What `read` makes of the body, and its size in bytes. It counts as waiting until it is parsed."""
    body = await read_body(request, admission, content_type)
    with admission.holding(len(body)):
        return await asyncio.to_thread(read, body) if len(body) > LARGE_BODY else read(body), len(body)


def parse(kind: type[Body], body: bytes) -> Body:
    """A JSON body as `kind`, or the first thing that is wrong with it."""
    try:
        parsed = kind.model_validate_json(body)
    except ValidationError as problem:
        raise _field_error(kind, problem) from None
    for unknown in parsed.model_extra or ():
        hint = did_you_mean(unknown[:100], kind.model_fields)
        raise invalid(f'unknown field "{shorten(unknown)}"{hint}', shorten(unknown))
    return parsed


def _field_error(kind: type[RequestBody], problem: ValidationError) -> ServiceError:
    """pydantic's first error in the form and the tone of this service."""
    first = problem.errors(include_url=False, include_context=True)[0]
    field = ".".join(map(str, first["loc"])) or None
    if first["type"] == "json_invalid":
        reason = str(first.get("ctx", {}).get("error", "it cannot be parsed"))
        return ServiceError(400, f"the body is not JSON: {reason}", code="bad_json")
    if first["type"] == "missing":
        return invalid(f'field "{field}" is missing', field)
    if field is None:
        required = next((f'"{name}"' for name, info in kind.model_fields.items() if info.is_required()), "model")
        return invalid(f"the body must be an object with the field {required}")
    given = first.get("input")
    value = f" (it is {shorten(json.dumps(given))})" if isinstance(given, bool | int | float | None) else ""
    return invalid(f'field "{shorten(field)}"{value}: {first["msg"][:1].lower()}{first["msg"][1:]}', field)


def predict_options(request: PredictRequest, served: Served, limits: Limits) -> PredictOptions:
    """What to compute for a request, after checking it against the limits and the model."""
    n_texts = len(request.texts)
    if n_texts > limits.texts:
        message = f"{n_texts:,} texts; send at most {limits.texts:,} per request"
        raise ServiceError(413, message, field="texts")
    for number, text in enumerate(request.texts):
        check_text(text, limits, f"texts.{number}")
    if request.ids is not None and len(request.ids) != n_texts:
        raise invalid(f"{len(request.ids):,} ids for {n_texts:,} texts; give one for each, or none at all", "ids")
    if request.k > limits.k:
        raise invalid(f"k={request.k}: ask for at most {limits.k:,} labels", "k")
    k = min(request.k, len(served.model.labels))
    most = limits.answers // EXPLAINED if request.explain else limits.answers
    if not request.stream and n_texts * k > most:
        message = f'{n_texts:,} texts with {k:,} labels each are too many for one answer; set "stream": true'
        raise invalid(message, "stream")
    if request.threshold is not None and not served.model.gives_probabilities:
        message = (
            "the scores of this model are not probabilities, because it has no calibrated score model; leave "
            "out the threshold and use k"
        )
        raise invalid(message, "threshold")
    return PredictOptions(
        k=k,
        explain=request.explain,
        threshold=request.threshold,
        labels=_named_labels(request.labels, "labels", n_texts, served, limits),
        block=_named_labels(request.block, "block", n_texts, served, limits) or (),
        rare=request.rare,
    )


def check_text(text: str, limits: Limits, field: str) -> None:
    if len(text) > limits.text_length:
        message = f"a text of {len(text):,} characters; at most {limits.text_length:,}, so cut it or send it in parts"
        raise ServiceError(413, message, field=field)


def _named_labels(
    names: list[str] | None, field: str, n_texts: int, served: Served, limits: Limits
) -> tuple[str, ...] | None:
    if names is None:
        return None
    check_labels(names, field, served, limits)
    if len(names) * n_texts > limits.pairs:
        message = f"{n_texts:,} texts with {len(names):,} labels each; at most {limits.pairs:,} pairs"
        raise ServiceError(413, message, field=field)
    return tuple(names)


def check_labels(names: list[str], field: str, served: Served, limits: Limits) -> None:
    """Labels that a request names: not too many, and each of them one of the model."""
    if len(names) > limits.labels:
        raise ServiceError(413, f"{len(names):,} labels named; at most {limits.labels:,}", field=field)
    known = served.model.labels.number_of
    for number, label in enumerate(names):
        if label not in known:
            raise unknown_label(label, f"{field}.{number}", status=422)


def unknown_label(label: str, field: str, *, status: int) -> ServiceError:
    message = f'unknown label "{shorten(label)}"; find it with GET /v1/labels?search='
    return ServiceError(status, message, field=field)
