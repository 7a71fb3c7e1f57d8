"""Connections: uvicorn's HTTP/1.1 protocol with the limits that it lacks, and a graceful end.

- Headers must arrive within header_seconds, on new connections too. The kernel drops a peer that stops reading.
- One connection more than allowed is answered 503 and closed (see admission.py).
- Input that is not HTTP is answered in the error format of the service.
- While the service drains, an idle connection may still bring one request, which is answered before the connection is
  closed. Closing at once would lose a request that is already on its way.

Built on h11 rather than httptools, because h11 bounds the size of headers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from .admission import TOO_MANY_CONNECTIONS, Limits
from .errors import CODES, error_body
from .middleware import SECURITY_HEADERS

DRAIN_SECONDS_IDLE = 0.5  # how long an idle connection stays open while the service drains
log = logging.getLogger("elias.server")


def protocol_with(limits: Limits) -> type[asyncio.Protocol]:
    """The class that uvicorn instantiates for every connection."""
    return type("LimitedProtocol", (Connection,), {"limits": limits})


class Connection(H11Protocol):
    limits = Limits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app_state = {**self.app_state, "connection": self}  # part of the scope of every request
        self.draining = False  # the middleware then sends "Connection: close"
        self._header_timer: asyncio.TimerHandle | None = None
        self._data_received = False  # whether the request being waited for has begun to arrive

    @property
    def _current(self) -> RequestResponseCycle | None:
        """The request being answered, or the last one. uvicorn's type leaves out that it is None at first."""
        return self.cycle

    def client_is_gone(self) -> bool:
        current = self._current
        return self.transport.is_closing() or (current is not None and bool(current.disconnected))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, TOO_MANY_CONNECTIONS)
            return
        self._start_header_timer()
        sock = cast("socket.socket | None", transport.get_extra_info("socket"))
        # The kernel ends a connection whose sent data stays unacknowledged for this long.
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT") and sock.family != socket.AF_UNIX:
            milliseconds = int(self.limits.answer_seconds * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._data_received = True
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers of a request are complete
            self._stop_header_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle():
            self._start_header_timer()
            if self.draining:
                self.loop.call_later(DRAIN_SECONDS_IDLE, self._close_if_idle)

    def timeout_keep_alive_handler(self) -> None:
        self._close_if_idle()

    def shutdown(self) -> None:
        """Called once per connection when the service drains."""
        self.draining = True
        if self._is_idle():
            self.loop.call_later(DRAIN_SECONDS_IDLE, self._close_if_idle)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP/1.1 request")

    def _start_header_timer(self) -> None:
        self._stop_header_timer()
        self._data_received = False
        # After the first request the connection may rest for the keep-alive time before the next one begins.
        wait = self.limits.header_seconds + (0 if self._current is None else self.timeout_keep_alive)
        self._header_timer = self.loop.call_later(wait, self._headers_are_late)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        if not self._data_received:
            self._close_if_idle()  # browsers open connections in advance; that is no error
        elif self._is_idle():
            self._refuse(408, f"the headers did not arrive within {self.limits.header_seconds:g} seconds")

    def _is_idle(self) -> bool:
        current = self._current
        return not self.transport.is_closing() and (current is None or bool(current.response_complete))

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer below the application, unless another answer has begun, and close."""
        if self._is_idle():
            body = error_body(CODES[status], message)
            headers = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
            headers |= {b"connection": b"close", **dict(SECURITY_HEADERS)}
            if status == 503:
                headers[b"retry-after"] = b"1"
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
            phrase = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}[status]
            self.transport.write(b"HTTP/1.1 %d %s\r\n" % (status, phrase) + lines + b"\r\n" + body)
        self.transport.close()
        log.info("connection refused", extra={"facts": {"status": status}})
