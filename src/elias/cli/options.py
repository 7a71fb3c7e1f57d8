"""Options that several commands share: --text, --labels, --id, --separator, --set, --seed, --threads."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..core.errors import SettingsError

if TYPE_CHECKING:
    from ..dataset.fields import Fields  # its package imports numpy and scipy, which `--help` does without


def add_fields(parser: argparse.ArgumentParser, *, labels: bool = True) -> None:
    """Which fields of a record are read; `labels`: whether the rows of this command have labels."""
    parser.add_argument(
        "--text", action="append", metavar="FIELD",
        help="the column or field of the text; several are joined: --text title --text abstract",
    )  # fmt: skip
    if labels:
        parser.add_argument("--labels", metavar="FIELD", help="the column or field of the labels")
    parser.add_argument("--id", metavar="FIELD", help="the column or field of the row's own id")
    if labels:
        parser.add_argument(
            "--separator", metavar="S",
            help="what stands between two labels of one cell (tab: a tab; none: a cell is one label)",
        )  # fmt: skip


def chosen_fields(args: argparse.Namespace) -> Fields:
    """The fields that the options name; None for those that they leave open."""
    from ..dataset.fields import Fields

    return Fields.of(args.text, getattr(args, "labels", None), args.id, getattr(args, "separator", None))


def remembered_fields(about: dict[str, Any]) -> Fields:
    """The fields that the data of a model had (`about` of the model)."""
    from ..dataset.fields import Fields

    return Fields.from_dict(about.get("dataset", {}).get("fields") or {})


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
