"""`elias serve` as a real process."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.processes import PATIENCE, start
from helpers.serving import Running


@contextmanager
def process(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], Running, list[dict[str, Any]]]]:
    """(the process, a way to talk to it, its log so far) once it is ready."""
    server = start("serve", *arguments, "--port", "0")
    lines: list[dict[str, Any]] = []
    assert server.stderr is not None
    thread = threading.Thread(target=lambda: [lines.append(json.loads(line)) for line in server.stderr], daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(line["event"] == "ready" for line in lines):
            assert server.poll() is None, lines
            assert time.monotonic() < deadline
            time.sleep(0.02)
        port = int(next(line["url"] for line in lines if line["event"] == "listening").rpartition(":")[2])
        yield server, Running(port, None), lines  # type: ignore[arg-type]
    finally:
        if server.poll() is None:
            server.kill()
        server.wait(PATIENCE)
        thread.join(PATIENCE)
        for pipe in (server.stdout, server.stderr):
            assert pipe is not None
            pipe.close()
