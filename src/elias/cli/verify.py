"""`elias verify MODEL`: every file of a model read whole and compared with the checksum of when it was written."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="check every byte of a model",
        description="Read every file of a model or ensemble, compare it with its checksum, and check that its numbers "
        "are finite and fit together. Opening a model does so for files of up to a megabyte only.",
    )
    parser.add_argument("model", nargs="+", help="model folder")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from ..core.checksums import Verified
    from ..core.errors import ModelError
    from ..model.ensemble import open_folder

    code = 0
    for folder in args.model:
        started, verified = time.perf_counter(), Verified()
        try:
            open_folder(Path(folder), "cpu", None, True, verified)
        except ModelError as problem:
            if len(args.model) == 1:
                raise
            print(f"elias: {problem}", file=sys.stderr)  # and on to the others
            code = problem.exit_code
            continue
        seconds = time.perf_counter() - started
        size = f"{verified.files} files, {verified.bytes / 1e6:,.1f} MB"
        print(f"{folder}: {size}, as they were written ({seconds:.1f} s)")
    return code
