"""Options that several commands share: --set, --seed, --threads."""

from __future__ import annotations

import argparse

from ..core.errors import SettingsError


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE",
        help="change a setting, e.g. --set stage2.epochs=5 (`elias fit --settings` lists them all)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="same as --set run.seed=N")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: every core)")


def changed_settings(args: argparse.Namespace) -> dict[str, str]:
    """Changed settings as {"section.key": "value"}, from --set, --seed and --threads."""
    found = {}
    for item in args.settings:
        key, equals, value = item.partition("=")
        if not equals:
            raise SettingsError(f"--set {item}: write it as section.key=value")
        found[key.strip()] = value.strip()
    if args.seed is not None:
        found["run.seed"] = str(args.seed)
    if getattr(args, "threads", None) is not None:
        found["run.threads"] = str(args.threads)
    return found
