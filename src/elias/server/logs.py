"""The log of the service: one JSON object per line on standard error. It never contains a user's text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder per line


class JsonLines(logging.Formatter):
    """A log record as JSON; `extra={"facts": {...}}` adds fields. `worker`: which of several wrote it."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self.worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if self.worker is not None:
            line["worker"] = self.worker
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__  # its message may contain a text
        return _encode(line)


def configure_logging(level: int = logging.INFO, stream: IO[str] | None = None, *, worker: int | None = None) -> None:
    """Write the service's events, and warnings of uvicorn and asyncio, in this format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(worker))
    for name, lowest in (("elias.server", level), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(max(level, lowest))
