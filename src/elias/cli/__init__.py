"""The command line: check, fit, recipes, predict, evaluate, inspect, report, compact, verify, serve.

Exit codes: 0 done, 1 something else went wrong, 2 wrong usage or argument, 3 data, 4 settings, 5 model folder,
6 run folder or disk, 7 an optional package is missing, 130 interrupted. An error is one line on standard error.

Each command is a file with `add` (its arguments) and `run` (its steps). `run` imports torch and the rest of the package
inside the function, so `--help` and wrong arguments are answered at once.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from ..core.errors import EliasError, did_you_mean
from ..core.version import __version__
from . import check, compact, evaluate, fit, inspect, predict, recipes, report, serve, verify

COMMANDS = (check, fit, recipes, predict, evaluate, inspect, report, compact, verify, serve)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="elias",
        description="Match texts to the right few of very many labels.",
        epilog="Start with `elias check DATA`, then `elias fit DATA -o MODEL`. `elias COMMAND --help` tells more.",
    )
    top.add_argument("--version", action="version", version=f"elias {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """As `ArgumentParser.parse_args`, but the error for an unknown option suggests the most similar one."""
    top = parser()
    args, unknown = top.parse_known_args(arguments)
    if unknown:
        commands: Any = next(action.choices for action in top._actions if action.dest == "command")
        command = commands[args.command]
        options = [option for action in (*command._actions, *top._actions) for option in action.option_strings]
        wrong = next((argument for argument in unknown if argument.startswith("-")), unknown[0])
        hint = did_you_mean(wrong.split("=")[0], options)
        command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # label names may not fit the terminal's encoding
    args = parse(arguments)
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except EliasError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        resumes = args.command == "fit" or (args.command == "predict" and args.output)
        hint = "; run the same command again to continue" if resumes else ""
        return _fail(f"interrupted{hint}", 130)
    except BrokenPipeError:  # the reader has stopped, as in `elias predict ... | head`
        # Python flushes standard output once more at exit; that must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(str(error), EliasError.exit_code)
    except MemoryError:
        return _fail("not enough memory; `elias check DATA` estimates what a fit needs", EliasError.exit_code)


def _fail(message: str, code: int) -> int:
    print(f"elias: {' '.join(message.split())}", file=sys.stderr)
    return code
