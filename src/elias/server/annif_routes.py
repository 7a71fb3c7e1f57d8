"""The REST interface of Annif, so that its `http` backend and the scripts of its users work unchanged.

    GET  /v1/projects                       the models, as Annif lists projects
    GET  /v1/projects/{id}                  one of them
    POST /v1/projects/{id}/suggest          a form: text, limit, threshold, language
    POST /v1/projects/{id}/suggest-batch    JSON: {"documents": [{"text", "document_id"}]}; limit, threshold as query

A project is a served model. Texts pass the limits, the admission control and the batching of every other request; only
the lines of the answer differ (`annif_lines`). Errors are problem+json (errors.py). A foreign web page may post such a
form, but cannot read the answer, and nothing is stored.

    uri       of the vocabulary; the label's id if that is a URI; otherwise urn:elias:label:ID, percent-encoded
    notation  the label's id, where it is neither the URI nor the text of a label from a vocabulary; otherwise null
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Path, Query, Request, Response

from .errors import ServiceError, invalid, shorten
from .models import Served
from .queue import Job, PredictOptions, Slice
from .responses import round_score
from .routes import ERRORS, Service, client_gone_function, request_body
from .schemas import (
    REF,
    AnnifBackend,
    AnnifProject,
    AnnifProjects,
    AnnifResults,
    AnnifVocabulary,
    DocumentResults,
    DocumentsRequest,
)
from .validation import StrictRoute, check_text, read_parsed, read_request

if TYPE_CHECKING:
    from ..core.predictions import Predictions
    from ..dataset.labels import LabelSet

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 1000  # of a form
LIMIT = 10  # suggestions per text, as in Annif
LANGUAGE_UNKNOWN = "und"  # ISO 639-2: undetermined
_URI = re.compile(r"(https?://|urn:)\S+", re.IGNORECASE)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ProjectId = Annotated[str, Path(description="the name of a model")]
FORM_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "required": ["text"],
                    "properties": {
                        "text": {"type": "string", "description": "the text to label"},
                        "limit": {"type": "integer", "minimum": 0, "default": LIMIT, "description": "labels per text"},
                        "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
                        "language": {"type": "string", "description": "of the labels; a model has one language"},
                    },
                }
            }
        },
    }
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for OpenAPI, in Annif's format. "default" keeps FastAPI from adding a 422 of its own."""
    content = {"application/problem+json": {"schema": {"$ref": REF.format(model="Problem")}}}
    found: dict[int | str, dict[str, Any]] = {"default": {"description": "any other error", "content": content}}
    for status in (*statuses, 401, 405, 500):
        found[status] = {"description": ERRORS[status], "content": content}
    return found


def annif_router(service: Service) -> APIRouter:
    routes, registry = APIRouter(tags=["Annif"], route_class=StrictRoute), service.registry

    def project(name: str) -> Served:
        if name not in registry.folders:
            raise ServiceError(404, f"Project '{shorten(name)}' not found")
        return registry.get(name)

    @routes.get("/v1/projects", summary="The models, as Annif lists projects", responses=problem_responses(503))
    async def projects() -> AnnifProjects:
        registry.get(None)  # 503 while the models are being opened
        return AnnifProjects(projects=[describe(served) for served in registry.served.values()])

    @routes.get(
        "/v1/projects/{project_id}",
        summary="One model, as Annif describes a project",
        responses=problem_responses(404, 503),
    )
    async def one_project(project_id: ProjectId) -> AnnifProject:
        return describe(project(project_id))

    @routes.post(
        "/v1/projects/{project_id}/suggest",
        summary="Suggest labels for a text, as Annif does",
        response_class=Response,
        response_model=AnnifResults,
        responses=problem_responses(400, 404, 408, 413, 415, 503),
        openapi_extra=FORM_BODY,
    )
    async def suggest(request: Request, project_id: ProjectId) -> Response:
        served = project(project_id)
        form, n_bytes = await read_parsed(request, service.admission, read_form, FORM)
        if "text" not in form:
            raise invalid('field "text" is missing', "text")
        check_language(form.get("language"), served)
        wanted = Wanted(served, read_limit(form), read_threshold(form))
        lines = await answer(service, request, wanted, [form["text"]], n_bytes)
        return Response(lines[0].encode("utf-8", "backslashreplace"), media_type="application/json")

    @routes.post(
        "/v1/projects/{project_id}/suggest-batch",
        summary="Suggest labels for several texts, as Annif does",
        response_class=Response,
        response_model=list[DocumentResults],
        responses=problem_responses(400, 404, 408, 413, 415, 503),
        openapi_extra=request_body("DocumentsRequest"),
    )
    async def suggest_batch(
        request: Request,
        project_id: ProjectId,
        limit: Annotated[int, Query(ge=0, description="labels per text")] = LIMIT,
        threshold: Annotated[float, Query(ge=0, le=1, description="lowest score")] = 0.0,
        language: Annotated[str | None, Query(description="of the labels; a model has one language")] = None,
    ) -> Response:
        served = project(project_id)
        body, n_bytes = await read_request(DocumentsRequest, request, service.admission)
        check_language(language, served)
        texts = [document.text for document in body.documents]
        lines = await answer(service, request, Wanted(served, limit, threshold), texts, n_bytes)
        named = [
            f'{line[:-1]},"document_id":{_encode(document.document_id)}}}'
            for line, document in zip(lines, body.documents, strict=True)
        ]
        return Response(f"[{','.join(named)}]".encode("utf-8", "backslashreplace"), media_type="application/json")

    return routes


class Wanted(NamedTuple):
    """What a request asks of a model."""

    served: Served
    limit: int
    threshold: float


async def answer(service: Service, request: Request, wanted: Wanted, texts: Sequence[str], n_bytes: int) -> list[str]:
    """One JSON object per text, `{"results": [...]}`, within the limits of the service."""
    limits = service.limits
    if len(texts) > limits.texts:
        raise ServiceError(413, f"{len(texts):,} documents; send at most {limits.texts:,} per request")
    for number, text in enumerate(texts):
        check_text(text, limits, f"documents.{number}.text")
    # Annif has no upper limit: a client that asks for more gets as many as there may be.
    k = min(wanted.limit, limits.k, len(wanted.served.model.labels), max(1, limits.answers // max(1, len(texts))))
    request.scope["elias"].facts["texts"] = len(texts)
    if k == 0:
        return ['{"results":[]}'] * len(texts)
    write = partial(annif_lines, threshold=wanted.threshold)
    job = Job(wanted.served, PredictOptions(k), texts, None, client_gone_function(request), write)
    with service.admission.admit(len(texts), n_bytes):
        return await service.batcher.run(job)


def annif_lines(predictions: Predictions, first_row: int, piece: Slice, *, threshold: float) -> list[str]:
    """The answers to one slice of a batch, whose rows begin at `first_row` of the batch's predictions."""
    names = piece.job.served.model.labels
    window = slice(first_row, first_row + len(piece)), slice(0, piece.job.options.k)
    rows = zip(predictions.labels[window].tolist(), predictions.scores[window].tolist(), strict=True)
    lines = []
    for numbers, scores in rows:
        # Rounded before it is compared: a client may send back a score that it has seen.
        hits = zip(numbers, map(round_score, scores), strict=True)
        results = [
            {**subject(names, number), "score": score} for number, score in hits if number >= 0 and score >= threshold
        ]
        lines.append(_encode({"results": results}))
    return lines


def subject(names: LabelSet, number: int) -> dict[str, Any]:
    """A label as Annif names it."""
    name, text, uri = names.ids[number], names.texts[number], names.uri(number)
    notation = name if uri is not None and name not in (uri, text) else None
    if uri is None:
        uri = name if _URI.fullmatch(name) else f"urn:elias:label:{quote(name, safe='', errors='replace')}"
    return {"uri": uri, "label": text or name, "notation": notation}


def describe(served: Served) -> AnnifProject:
    """A model as Annif describes a project."""
    language = language_of(served) or LANGUAGE_UNKNOWN
    vocabulary = AnnifVocabulary(vocab_id=served.name, languages=[language], size=len(served.model.labels), loaded=True)
    return AnnifProject(
        project_id=served.name,
        name=served.name,
        language=language,
        backend=AnnifBackend(backend_id="elias"),
        vocab=vocabulary,
        vocab_language=language,
        is_trained=True,
        modification_time=served.loaded.isoformat(timespec="seconds"),
    )


def language_of(served: Served) -> str:
    return str(served.about.get("dataset", {}).get("language") or "")


def check_language(language: str | None, served: Served) -> None:
    """Labels have one language. Where it is known, another one is refused, as Annif does."""
    known = language_of(served)
    if language and known and language.lower() != known:
        raise invalid(f'language "{shorten(language)}" not supported by vocabulary', "language")


def read_form(body: bytes) -> dict[str, str]:
    """The fields of a form; Annif's own clients send some that are not read (project, metadata_*)."""
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except UnicodeDecodeError:
        raise invalid("the form is not UTF-8") from None
    except ValueError:
        raise invalid(f"the form has more than {MAX_FIELDS:,} fields") from None
    form: dict[str, str] = {}
    for name, value in pairs:
        if name in form and name in ("text", "limit", "threshold", "language"):
            raise invalid(f'field "{name}" is given twice; once is enough', name)
        form[name] = value
    return form


def read_limit(form: dict[str, str]) -> int:
    given = form.get("limit", str(LIMIT))
    if not re.fullmatch("[0-9]{1,18}", given):
        raise invalid(f'field "limit" (it is "{shorten(given)}"): give a whole number of 0 or more', "limit")
    return int(given)


def read_threshold(form: dict[str, str]) -> float:
    given = form.get("threshold", "0")
    try:
        threshold = float(given)
    except ValueError:
        threshold = math.nan
    if not 0 <= threshold <= 1:
        raise invalid(f'field "threshold" (it is "{shorten(given)}"): give a number from 0 to 1', "threshold")
    return threshold
