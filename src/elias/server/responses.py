"""Predictions as response bodies: one JSON object per text, in one JSON document or as a stream of lines (jsonl).

`result_lines` runs in a compute thread, so the event loop never waits for JSON to be written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .admission import Admission
from .errors import ClientGone, as_service_error
from .middleware import log_defect
from .queue import Job, Slice

if TYPE_CHECKING:
    from ..core.predictions import Predictions
    from .batching import Batcher

STREAM_ROWS = 256  # texts per piece of a stream
STREAM_TYPE = "application/jsonl"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def result_lines(predictions: Predictions, first_row: int, piece: Slice) -> list[str]:
    """The JSON objects of one slice of a batch, whose rows begin at `first_row` of the batch's predictions."""
    options, ids, names = piece.job.options, piece.ids, piece.job.served.model.labels
    label_texts, uris = names.texts_to_show, names.uris
    label_ids = predictions.label_ids
    assert label_ids is not None
    window = slice(first_row, first_row + len(piece)), slice(0, options.k)
    # Lists, not arrays: reading single numbers out of an array would take most of the time here.
    labels, scores = predictions.labels[window].tolist(), predictions.scores[window].tolist()
    parts: dict[str, list[list[Any]]] = {}
    explanations = predictions.explanations if options.explain else None
    if options.explain:
        parts = {name: values[window].tolist() for name, values in (predictions.parts or {}).items()}
    known = predictions.known_words
    words = None if known is None else known[window[0]].tolist()
    lines = []
    for row, numbers in enumerate(labels):
        suggestions = []
        for column, number in enumerate(numbers):
            if number < 0:  # PAD
                continue
            record: dict[str, Any] = {"label": label_ids[number], "score": round_score(scores[row][column])}
            if label_texts[number]:
                record["text"] = label_texts[number]
            if uris is not None and uris[number]:
                record["uri"] = uris[number]
            for name, values in parts.items():
                value = values[row][column]
                record[name] = round_score(value) if isinstance(value, float) else value
            if explanations is not None:
                record["explanation"] = explanations[first_row + row][column]
            suggestions.append(record)
        head: dict[str, Any] = {} if ids is None else {"id": ids[row]}
        if words is not None:
            head["known_words"] = words[row]
        lines.append(_encode({**head, "labels": suggestions}))
    return lines


def round_score(value: float) -> float:
    """Six significant digits: a float32 has no more."""
    return float(f"{value:.6g}")


def json_body(model: str, lines: Sequence[str]) -> bytes:
    body = f'{{"model":{json.dumps(model)},"results":[{",".join(lines)}]}}'
    return body.encode("utf-8", "backslashreplace")


def jsonl_body(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


class StreamResponse(Response):
    """An answer of any length as jsonl: a piece is computed while the one before it is being sent.

    It holds its place in the queue until the last line is sent. A failure before the first piece is an ordinary error
    response; after that the status has been sent already, so the error becomes the last line.
    """

    def __init__(self, admission: Admission, batcher: Batcher, job: Job, n_bytes: int) -> None:
        super().__init__(media_type=STREAM_TYPE)
        del self.headers["content-length"]  # not known yet
        self.admission, self.batcher, self.job, self.n_bytes = admission, batcher, job, n_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        n_texts = len(self.job.texts)
        # At most two pieces wait at a time: the one being computed and the one being sent.
        with self.admission.admit(min(n_texts, 2 * STREAM_ROWS), self.n_bytes):
            upcoming = asyncio.ensure_future(self._piece(0))
            try:
                body = await upcoming
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                for start in range(STREAM_ROWS, n_texts, STREAM_ROWS):
                    upcoming = asyncio.ensure_future(self._piece(start))
                    await self._send_piece(send, body)
                    try:
                        body = await upcoming
                    except ClientGone:
                        raise
                    except Exception as problem:
                        error = as_service_error(problem)
                        if error.status == 500:  # the middleware never sees it
                            log_defect(problem, scope["elias"].id)
                        body = error.body() + b"\n"
                        break
                await self._send_piece(send, body)
                await send({"type": "http.response.body", "body": b""})
            finally:
                upcoming.cancel()

    async def _piece(self, start: int) -> bytes:
        return jsonl_body(await self.batcher.run(self.job.rows(start, start + STREAM_ROWS)))

    async def _send_piece(self, send: Send, body: bytes) -> None:
        """A client that stops reading is treated like one that disconnects."""
        if self.job.client_gone():
            raise ClientGone
        try:
            async with asyncio.timeout(self.admission.limits.answer_seconds):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            raise ClientGone from None
