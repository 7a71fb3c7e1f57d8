"""The page and the vendored assets of /docs, read once, served with an ETag."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from .errors import ServiceError

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True)
class File:
    content: bytes
    kind: str
    tag: str

    def answer(self, request: Request, headers: dict[str, str] | None = None) -> Response:
        known = {"ETag": self.tag, "Cache-Control": "no-cache", **(headers or {})}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=known)
        return Response(self.content, media_type=self.kind, headers=known)


def read_files() -> dict[str, File]:
    """{"index.html": ..., "swagger/swagger-ui.css": ...}: nothing else can be asked for."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            found[path.relative_to(FOLDER).as_posix()] = File(content, KINDS[path.suffix], tag)
    return found


def file_named(files: dict[str, File], name: str) -> File:
    if name not in files:
        raise ServiceError(404, "there is no such file of the page")
    return files[name]
