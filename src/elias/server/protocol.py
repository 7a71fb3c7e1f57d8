"""Connections: uvicorn's HTTP/1.1 protocol on httptools, with the limits that it lacks, and a graceful end.

- Headers must arrive within header_seconds, on new connections too, and fit MAX_HEAD bytes. The kernel drops a peer
  that stops reading.
- The body of a request that is answered before it has arrived (413, 404, 401, ...) is read to its end and thrown away:
  closing at once would reset the connection, and a client that writes first and reads then would never see the answer.
  The bounds are body_seconds and MAX_UNREAD bytes.
- One connection more than allowed is answered 503 and closed (see admission.py). A few more are let in for probes:
  they may ask for /health and /ready, once and within LANE_SECONDS.
- Input that is not HTTP is answered in the error format of the service, after the requests that came before it.
- While the service drains, an idle connection may still bring one request, which is answered before the connection is
  closed. Closing at once would lose a request that is already on its way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Literal, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .admission import TOO_MANY_CONNECTIONS, Limits
from .errors import CODES, error_body
from .middleware import SECURITY_HEADERS

DRAIN_SECONDS_IDLE = 0.5  # how long an idle connection stays open while the service drains
MAX_HEAD = 1 << 16  # bytes of request line, headers and trailers
MAX_UNREAD = 1 << 30  # bytes of one request on the wire; what is above body_bytes is thrown away as it comes
MAX_PIPELINE = 256  # requests sent before the answer to the first; each takes memory
LINGER_SECONDS = 1.0  # for the rest of what is not HTTP
Place = Literal["between", "head", "body"]  # where the parser is: between two requests, in a head, in a body
LANE = 16  # connections beyond the limit, for probes
LANE_PATHS = (b"/health", b"/ready")
LANE_SECONDS = 1.0
NOT_HTTP = "this is not a valid HTTP/1.1 request"
log = logging.getLogger("elias.server")


def protocol_with(limits: Limits) -> type[asyncio.Protocol]:
    """The class that uvicorn instantiates for every connection."""
    return type("LimitedProtocol", (Connection,), {"limits": limits})


class NotSupported(Exception):
    """Raised in a callback of the parser, which then reports an error of its own."""


class Connection(HttpToolsProtocol):
    limits = Limits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app_state = {**self.app_state, "connection": self}  # part of the scope of every request
        self.draining = False  # the middleware then sends "Connection: close"
        self._active: Any = None  # the request being answered; `cycle` is the one parsed last
        self._in_lane = False
        self._is_broken = False  # what arrived is not HTTP: no more is parsed
        self._is_last = False  # the last answer has been written; what arrives now is thrown away
        # The request that is being parsed: where the parser is in it, its bytes, and those since the last of its body.
        self._place: Place = "between"
        self._bytes = self._head_bytes = 0
        self._is_counted = False
        # One timer per connection that looks at a deadline, rather than a timer per request.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    @property
    def _current(self) -> RequestResponseCycle | None:
        """The request parsed last. uvicorn's type leaves out that it is None at first."""
        return self.cycle

    def client_is_gone(self) -> bool:
        active = self._active
        if active is not None and self.is_closing():
            active.disconnected = True  # uvicorn then expects no answer
        return active is None or bool(active.disconnected)

    def must_close(self) -> bool:
        """Whether the answer that begins now is the last one on this connection."""
        active = self._active
        # A client that waits for "100 Continue" and gets an answer instead may send its body or leave it out.
        never_continued = active is self.cycle and active.waiting_for_100_continue and self._place == "body"
        return self.draining or self._in_lane or never_continued

    # -- the life of a connection -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        allowed = self.limits.connections
        if len(self.connections) > allowed + LANE:
            self._refuse(503, TOO_MANY_CONNECTIONS)
            return
        self._in_lane = len(self.connections) > allowed
        self._deadline = self.loop.time() + (LANE_SECONDS if self._in_lane else self.limits.header_seconds)
        self._timer = self.loop.call_at(self._deadline, self._look_at_deadline)
        sock = cast("socket.socket | None", transport.get_extra_info("socket"))
        # The kernel ends a connection whose sent data stays unacknowledged for this long.
        if sock is not None and hasattr(socket, "TCP_USER_TIMEOUT") and sock.family != socket.AF_UNIX:
            milliseconds = int(self.limits.answer_seconds * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cycle in (self._active, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called once per connection when the service drains."""
        self.draining = True
        if self._is_idle():
            self.loop.call_later(DRAIN_SECONDS_IDLE, self._close_if_idle)

    # -- what arrives -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        if self._bytes > MAX_UNREAD:
            self.transport.close()
        elif not self._is_broken:
            try:
                self._feed(data)
            except (httptools.HttpParserError, NotSupported):
                self._is_broken = True
                self._end_broken()

    def _feed(self, data: bytes) -> None:
        size, self._is_counted = len(data), False
        while data:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as wish:
                # Upgrades are optional, and this server makes none. The parser takes what follows the head for
                # another protocol, so the request is parsed again without the wish.
                data = self._head_without_upgrade() + data[wish.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
        # What neither begins a request nor belongs to a body is part of a head, which the parser keeps in memory.
        self._head_bytes += 0 if self._is_counted else size
        if self._head_bytes > MAX_HEAD or len(self.pipeline) > MAX_PIPELINE:
            raise NotSupported

    def _head_without_upgrade(self) -> bytes:
        start = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [start, *(name + b": " + value for name, value in self.headers if name != b"upgrade")]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _end_broken(self) -> None:
        """Say what was wrong, once everything that came before is answered."""
        if self._is_idle():
            if self._place == "body":
                self.transport.close()  # in the rest of a body whose request has been answered
            else:
                self._refuse(400, NOT_HTTP)
        elif self._place == "body" and not self.pipeline:
            # A route waits for the rest of a body that cannot come.
            self._refuse(400, NOT_HTTP)
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def on_message_begin(self) -> None:
        self._place, self._is_counted = "head", True
        self._bytes = self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        if self._place == "head":
            super().on_header(name, value)  # trailers, which come after the body, are left out

    def _count_head(self, n_bytes: int) -> None:
        self._head_bytes += n_bytes
        if self._head_bytes > MAX_HEAD:
            raise NotSupported

    def on_headers_complete(self) -> None:
        self._place = "body"
        if self.parser.get_method() == b"CONNECT":
            raise NotSupported
        if self.transport.is_closing() or self._is_last or self.parser.should_upgrade():
            return
        if self._in_lane and self.url.partition(b"?")[0] not in LANE_PATHS:
            self._refuse(503, TOO_MANY_CONNECTIONS)
            return
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, self)  # its `close` waits for the rest of the body

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._head_bytes, self._is_counted = 0, True
        if not self.transport.is_closing() and not self._is_last:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._place = "between"
        if self.parser.should_upgrade():
            return
        if self._is_last:
            self.transport.close()
        elif not self.transport.is_closing():
            super().on_message_complete()
            if self._is_idle():  # answered before its end, which has come now
                self._wait_for_request()

    # -- what is answered: `write`, `close` and `is_closing` are all that an answer needs of its transport ------------

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self.transport.write(data)

    def is_closing(self) -> bool:
        return self.transport.is_closing() or self._is_last

    def close(self) -> None:
        """Close after the last answer; while a body is still arriving, only the sending side."""
        if self._place == "body" and not self.transport.is_closing():
            self._is_last = True
            self.transport.write_eof()
            self._read_on()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.is_closing():
            return
        if self.pipeline:
            if len(self.pipeline) == 1 and self._is_broken and self._place == "body":
                self.pipeline.clear()
                self._refuse(400, NOT_HTTP)
                return
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._is_broken:
            self._end_broken()
        elif self._place == "body":
            self._read_on()
        else:
            self.flow.resume_reading()
            self._wait_for_request()

    def _read_on(self) -> None:
        """Throw away the rest of a body whose request has been answered, within bounds."""
        self.flow.resume_reading()
        self._deadline = self.loop.time() + self.limits.body_seconds

    def _wait_for_request(self) -> None:
        # The connection may rest for the keep-alive time before the next request begins.
        self._deadline = self.loop.time() + self.limits.header_seconds + self.timeout_keep_alive
        if self.draining:
            self.loop.call_later(DRAIN_SECONDS_IDLE, self._close_if_idle)

    def _look_at_deadline(self) -> None:
        """Close a connection that has waited for too long; look again later at one that has not."""
        if self.transport.is_closing() or self._is_broken:
            return
        now = self.loop.time()
        if not self._is_idle() and not self._is_last:
            again = now + self.limits.header_seconds  # no wait is shorter than that, and none has begun yet
        elif now < self._deadline:
            again = self._deadline
        elif self._place == "head" and not self._is_last:
            self._refuse(408, f"the headers did not arrive within {self.limits.header_seconds:g} seconds")
            return
        else:  # browsers open connections in advance, and that is no error; or the rest of a refused body is late
            self.transport.close()
            return
        self._timer = self.loop.call_at(again, self._look_at_deadline)

    def _is_idle(self) -> bool:
        """Nothing is being answered: between two requests, or while the rest of an answered one is read."""
        current = self._current
        return not self.is_closing() and (current is None or bool(current.response_complete))

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer below the application, unless another answer has begun, and close."""
        current = self._current
        if not self.is_closing() and (current is None or current.response_complete or not current.response_started):
            body = error_body(CODES[status], message)
            headers = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
            headers |= {b"connection": b"close", **dict(SECURITY_HEADERS)}
            if status == 503:
                headers[b"retry-after"] = b"1"
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
            phrase = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}[status]
            self.transport.write(b"HTTP/1.1 %d %s\r\n" % (status, phrase) + lines + b"\r\n" + body)
        log.info("connection refused", extra={"facts": {"status": status}})
        if self._timer is None:  # one connection too many: it may not stay for a moment longer
            self.transport.close()
        elif not self.is_closing():
            # The client may still be writing, and would see a reset instead of the answer.
            self._is_broken = self._is_last = True
            self.transport.write_eof()
            self.flow.resume_reading()
            self._timer.cancel()
            self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
