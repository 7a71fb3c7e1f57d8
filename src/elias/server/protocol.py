"""Connections: uvicorn's HTTP/1.1 with limits it lacks, and a gentler end.

- headers must arrive in time, also the first ones; a peer that stops reading is dropped by the kernel
- at most so many connections; one more is told 503 and closed
- what is not HTTP is answered in our form
- while the service drains, an idle connection may still bring one request: it is answered, then closed. Closing at
  once would lose a request that is already on its way.

h11 and not httptools: it bounds the size of headers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from .gate import HEADERS, plain_error
from .limits import Limits

GRACE = 0.5  # seconds that an idle connection stays open while the service drains
log = logging.getLogger("elias.server")


def protocol_with(limits: Limits) -> type[asyncio.Protocol]:
    """The class uvicorn makes an object of for every connection."""
    return type("LimitedProtocol", (Connection,), {"limits": limits})


class Connection(H11Protocol):
    limits = Limits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app_state = {**self.app_state, "connection": self}  # every request can ask whether its client is there
        self._patience: asyncio.TimerHandle | None = None
        self._heard = False  # whether the request now being awaited has begun to arrive
        self.draining = False  # the gate then says "Connection: close"

    @property
    def _now(self) -> RequestResponseCycle | None:
        """The request being answered, or the last one; uvicorn declares it as never None."""
        return self.cycle

    def client_is_gone(self) -> bool:
        now = self._now
        return self.transport.is_closing() or (now is not None and bool(now.disconnected))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many open connections; try again later")
            return
        self._await_headers()
        sock = cast("socket.socket | None", transport.get_extra_info("socket"))
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT") and sock.family != socket.AF_UNIX:
            milliseconds = int(self.limits.answer_seconds * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._heard = True
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle():
            self._await_headers()
            if self.draining:
                self.loop.call_later(GRACE, self._close_idle)

    def timeout_keep_alive_handler(self) -> None:
        self._close_idle()

    def shutdown(self) -> None:
        """Called once for every connection when the service drains."""
        self.draining = True
        if self._is_idle():
            self.loop.call_later(GRACE, self._close_idle)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a request that HTTP/1.1 knows")

    def _await_headers(self) -> None:
        self._stop_waiting()
        self._heard = False
        wait = self.limits.header_seconds + (0 if self._now is None else self.timeout_keep_alive)
        self._patience = self.loop.call_later(wait, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if not self._heard:
            self._close_idle()  # a browser opens connections it may need
        elif self._is_idle():
            self._refuse(408, f"the headers did not arrive within {self.limits.header_seconds:g} seconds")

    def _is_idle(self) -> bool:
        now = self._now
        return not self.transport.is_closing() and (now is None or bool(now.response_complete))

    def _close_idle(self) -> None:
        if self._is_idle():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer below the application, if no other answer has begun, and close."""
        if self._is_idle():
            body = plain_error(status, message)
            headers = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
            headers |= {b"connection": b"close", **dict(HEADERS)}
            if status == 503:
                headers[b"retry-after"] = b"1"
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
            phrase = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}[status]
            self.transport.write(b"HTTP/1.1 %d %s\r\n" % (status, phrase) + lines + b"\r\n" + body)
        self.transport.close()
        log.info("connection refused", extra={"facts": {"status": status}})
