"""`elias serve MODEL`, `elias serve a=MODEL b=MODEL`: models over HTTP (`server/`)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.errors import InputError, MissingExtraError, ModelError, SettingsError
from .options import add_threads

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve models over HTTP, with a page to inspect them",
        description="Serve one model, or several as NAME=FOLDER. The page is at /, the interface at /docs "
        "(docs/how-to/serve.md). SIGHUP opens the folders again; SIGTERM answers accepted requests, then ends.",
    )
    parser.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help="model folders")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine)")
    parser.add_argument("--port", type=int, default=8000, help="port (default 8000; 0: any free one)")
    parser.add_argument("--token-file", metavar="FILE", help="require the token in this file as a bearer token")
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL",
        help="web pages of this origin may call the service (default: only its own page)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="requests may call the service by this name (default: addresses, localhost, --host); * for any",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N",
        help="processes that share the port and the memory-mapped models (default 1); --threads is for each",
    )  # fmt: skip
    parser.add_argument(
        "--limit", action="append", default=[], metavar="NAME=N",
        help="change a limit, e.g. --limit texts=500 (docs/reference/http.md lists them)",
    )  # fmt: skip
    parser.add_argument(
        "--feedback", type=Path, metavar="FILE",
        help="append accepted and rejected labels to this .jsonl file, which `fit` reads (default: not stored)",
    )  # fmt: skip
    add_threads(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "httptools", "uvloop")):
        raise MissingExtraError("elias serve", "serve")
    folders = _folders(args.models)
    for folder in folders.values():
        if not folder.is_dir():
            raise ModelError(f"{folder}: there is no model folder here; `elias fit DATA -o {folder}` would make one")
    if not 0 <= args.port < 65536:
        raise InputError(f"--port {args.port}: choose one between 1 and 65535, or 0 for any free one")
    if args.threads is not None and args.threads < 1:
        raise InputError(f"--threads {args.threads}: give at least 1")

    if args.workers < 1:
        raise InputError(f"--workers {args.workers}: give at least 1")

    from ..server.admission import Limits
    from ..server.run import Options, is_loopback, others_can_read, read_token, serve
    from ..server.workers import serve_with_workers

    token = read_token(Path(args.token_file)) if args.token_file else None
    if token and others_can_read(Path(args.token_file)):
        print(
            f"elias: --token-file {args.token_file}: every user of this machine can read it; "
            f"chmod o= {args.token_file}",
            file=sys.stderr,
        )
    if not is_loopback(args.host):
        clients = "every client with the token" if token else "EVERY client (there is no --token-file)"
        print(
            f"elias: --host {args.host}: {clients} that reaches this address can use the service, and the traffic is "
            "not encrypted; put a proxy with TLS in front",
            file=sys.stderr,
        )
    options = Options(
        host=args.host,
        port=args.port,
        token=token,
        origins=tuple(args.allow_origin),
        hosts=tuple(args.allow_host),
        feedback=args.feedback,
        workers=args.workers,
        limits=Limits().updated(_limits(args.limit)),
    )
    threads = args.threads
    if threads is None and args.workers > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // args.workers)
    run_all = serve if args.workers == 1 else serve_with_workers
    run_all(folders, partial(_open, threads=threads), options)
    return 0


def _open(folder: Path, *, threads: int | None) -> Any:
    from ..model.ensemble import load

    return load(folder, threads=threads, verify=True)


def _folders(given: Sequence[str]) -> dict[str, Path]:
    """Folders by name; a model without a name is called like its folder."""
    found: dict[str, Path] = {}
    for item in given:
        name, equals, folder = item.partition("=")
        if not equals or "/" in name:
            name, folder = Path(item).resolve().name, item
        if not NAME.fullmatch(name):
            raise InputError(f'"{item}": a name may have letters, digits and ._-; write NAME={folder}')
        if name in found:
            raise InputError(f'"{name}" is given twice; name the models: a={found[name]} b={folder}')
        found[name] = Path(folder)
    return found


def _limits(given: Sequence[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in given]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(f"--limit {name}: write it as name=number")
    return {name.strip(): value.strip() for name, _, value in pairs}
