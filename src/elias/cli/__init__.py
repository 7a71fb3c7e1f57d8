"""The command line: check, fit, predict, evaluate, inspect.

Exit codes: 0 done, 2 wrong usage or argument, 3 data, 4 settings, 5 model folder, 6 run folder, 7 an optional
package is missing, 130 interrupted. An error is one line on standard error. Nothing heavy is imported before
a command runs, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..errors import EliasError
from ..version import __version__
from . import check, evaluate, fit, inspect, predict

COMMANDS = (check, fit, predict, evaluate, inspect)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="elias",
        description="Match texts to the right few of very many labels.",
        epilog="Start with `elias check DATA`, then `elias fit DATA -o MODEL`. `elias COMMAND --help` says more.",
    )
    top.add_argument("--version", action="version", version=f"elias {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = parser().parse_args(arguments)
    try:
        return int(args.run(args))
    except EliasError as error:
        print(f"elias: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nelias: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
