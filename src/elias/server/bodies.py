"""Request bodies: JSON by declaration, read within bounds and in time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from .batching import Batcher, ClientGone
from .errors import ServiceError
from .limits import Limits


async def read_body(request: Request, limits: Limits, batcher: Batcher) -> bytes:
    """The whole body, or why not. Asking for JSON keeps foreign web pages from posting here without permission."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ServiceError(415, f'send JSON with the header "Content-Type: application/json" (it is "{kind[:60]}")')
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limits.body_bytes:  # the protocol has checked that it is a number
        raise _too_large(limits)
    batcher.refuse_if_full()
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read(request, limits, batcher)
    except TimeoutError:
        raise ServiceError(
            408, f"the body did not arrive within {limits.body_seconds:g} seconds", headers={"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise ClientGone from None


async def _read(request: Request, limits: Limits, batcher: Batcher) -> bytes:
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            batcher.bytes += len(piece)
            if size > limits.body_bytes:
                raise _too_large(limits)
            if batcher.bytes > limits.waiting_bytes:
                batcher.refuse_if_full()
            pieces.append(piece)
    finally:
        batcher.bytes -= size
    return b"".join(pieces)


def _too_large(limits: Limits) -> ServiceError:
    message = f"the body is larger than {limits.body_bytes:,} bytes; send the texts in several requests"
    return ServiceError(413, message, headers={"Connection": "close"})
