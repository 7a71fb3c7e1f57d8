"""Options that several commands share: the fields of the data, --recipe, --set, --seed, --threads."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.errors import SettingsError


def add_fields(parser: argparse.ArgumentParser, *, labels: bool = True) -> None:
    """Options that name the fields of the data; `labels`: whether the rows of this command need labels."""
    group = parser.add_argument_group("fields of the data, where they are not recognized")
    group.add_argument(
        "--text",
        action="append",
        metavar="FIELD",
        help="field of the text; several (a,b or --text a --text b) are joined",
    )
    if labels:
        group.add_argument("--labels", metavar="FIELD", help="field of the labels")
    group.add_argument("--id", metavar="FIELD", help="field of the row's own id")
    if labels:
        group.add_argument(
            "--separator",
            metavar="TEXT",
            help='between the labels of a cell, e.g. ";", or tab, or none (one label per cell)',
        )


def chosen_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `load_dataset` from the options of `add_fields`."""
    return {name: getattr(args, name, None) for name in ("text", "labels", "id", "separator")}


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", metavar="NAME",
        help="start from the settings of a recipe: a name that `elias recipes` lists, or a .toml file; --set wins",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE",
        help="change a setting, e.g. --set stage2.epochs=5 (`elias fit --settings` lists them all)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="same as --set run.seed=N")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: every core)")


def changed_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Changed settings as {"section.key": value}, from --recipe, --set, --seed and --threads; later ones win."""
    from ..core.recipes import read_recipe

    found: dict[str, Any] = read_recipe(args.recipe) if args.recipe is not None else {}
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
