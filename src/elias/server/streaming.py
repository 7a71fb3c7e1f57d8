"""An answer of any length as jsonl: computed piece by piece while the piece before is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .answers import Ask, jsonl
from .batching import Batcher, ClientGone
from .gate import as_service_error
from .models import Served
from .waiting import Gone

PIECE = 256  # texts
CONTENT_TYPE = "application/jsonl"


class Stream(Response):
    """Holds a place in the queue until its last line is sent; a full queue is a 503 before the first."""

    def __init__(
        self,
        batcher: Batcher,
        served: Served,
        ask: Ask,
        texts: Sequence[str],
        ids: Sequence[str] | None,
        gone: Gone,
        n_bytes: int,
    ) -> None:
        super().__init__(media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self.batcher, self.served, self.ask = batcher, served, ask
        self.texts, self.ids, self.gone, self.n_bytes = texts, ids, gone, n_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.batcher.admit(min(len(self.texts), 2 * PIECE), self.n_bytes):  # no more is ever waiting
            coming = asyncio.ensure_future(self._piece(0))
            try:
                body = await coming  # before the status: what fails now fails properly
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                for start in range(PIECE, len(self.texts), PIECE):
                    coming = asyncio.ensure_future(self._piece(start))
                    await self._sent(send, body)
                    try:
                        body = await coming
                    except ClientGone:
                        raise
                    except Exception as problem:
                        body = as_service_error(problem).body() + b"\n"
                        break
                await self._sent(send, body)
                await send({"type": "http.response.body", "body": b""})
            finally:
                coming.cancel()

    async def _piece(self, start: int) -> bytes:
        rows = slice(start, start + PIECE)
        ids = None if self.ids is None else self.ids[rows]
        return jsonl(await self.batcher.run(self.served, self.ask, self.texts[rows], ids, self.gone))

    async def _sent(self, send: Send, body: bytes) -> None:
        """A reader that stops reading is given up like one that hangs up."""
        if self.gone():
            raise ClientGone
        try:
            async with asyncio.timeout(self.batcher.limits.answer_seconds):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            raise ClientGone from None
