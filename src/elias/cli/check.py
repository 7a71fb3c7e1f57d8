"""`elias check DATA`: what a dataset contains, its defects, and what a fit on it would need."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

from ..core.errors import EliasError
from .options import add_fields, add_settings, changed_settings, chosen_fields

MOST_DEFECTS, SHOWN_ALIKE = 2_000, 3


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="show what a dataset contains and what a fit would need",
        description="Read a dataset as `fit` would: what was recognized, statistics, defects with file and line, "
        "and the memory and time a fit would take.",
    )
    parser.add_argument("data", help="dataset folder or file")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    add_fields(parser)
    add_settings(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..core.defaults import resolve
    from ..core.devices import pick_device
    from ..core.settings import Settings
    from ..dataset import check, collect_defects, format_report, load_dataset
    from ..dataset.label_names import with_names
    from ..pipeline.estimate import estimate_fit

    settings = Settings().updated(changed_settings(args))
    try:
        data = with_names(load_dataset(args.data, **chosen_fields(args)), settings.features.label_texts)
    except EliasError as error:
        # Loading stops at the first defect; the command lists all of them.
        found = collect_defects(args.data, MOST_DEFECTS, **chosen_fields(args))
        defects = summed_up([str(defect) for defect in found]) or [str(error)]
        if args.json:
            print(json.dumps({"defects": defects}, ensure_ascii=False))
        else:
            print("\n".join(f"elias: {defect}" for defect in defects), file=sys.stderr)
        return error.exit_code
    report = check(data)
    size = data.size()
    if settings.run.device == "auto":  # any other may be one of another machine: what would it need there?
        settings = settings.updated({"run.device": str(pick_device("auto"))})
    resolved = resolve(settings, size)
    guess = estimate_fit(data, resolved, size)
    if args.json:
        needs = {"memory_bytes": guess.memory_bytes, "gpu_bytes": guess.gpu_bytes, "seconds": round(guess.seconds)}
        print(json.dumps({**report.as_dict(), "fit": needs}, ensure_ascii=False, allow_nan=False))
        return 0
    from ..core.progress import duration

    print(format_report(report))
    _print_needs("memory", guess.memory_bytes, {key: then.memory_bytes for key, then in guess.smaller.items()})
    if guess.gpu_bytes:
        _print_needs("GPU memory", guess.gpu_bytes, {key: then.gpu_bytes for key, then in guess.smaller.items()})
    print(f"and about {duration(guess.seconds)} on {guess.machine} (a rough estimate).")
    return 0


def _print_needs(memory: str, parts: dict[str, int], smaller: dict[str, dict[str, int]]) -> None:
    total = sum(parts.values())
    print(f"\nA fit needs about {total / 2**30:.1f} GiB of {memory}:")
    for part, size_in_bytes in parts.items():
        if size_in_bytes:
            print(f"  {part:<22} {size_in_bytes / 2**20:8,.0f} MiB")
    for setting, then in smaller.items():
        if sum(then.values()) < total:
            print(f"  (with {setting}: {sum(then.values()) / 2**30:.1f} GiB)")


def summed_up(lines: list[str]) -> list[str]:
    """The first few of lines that differ in numbers and quoted values only, and how many more there are of them."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        alike.setdefault(_without_values(line), []).append(line)
    shown = []
    for same in alike.values():
        shown += same[:SHOWN_ALIKE]
        if len(same) > SHOWN_ALIKE:
            shown[-1] += f" (and {len(same) - SHOWN_ALIKE:,} more)"
    return shown


def _without_values(line: str) -> str:
    return re.sub(r"\d+|'[^']*'|(?<!field )\"[^\"]*\"", "", line)
