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
    resolved = resolve(settings, size)
    guess = estimate_fit(data, resolved, size)
    if args.json:
        needs = {"memory_bytes": guess.memory_bytes, "seconds": round(guess.seconds)}
        print(json.dumps({**report.as_dict(), "fit": needs}, ensure_ascii=False))
        return 0
    from ..core.progress import duration

    print(format_report(report))
    print(f"\nA fit needs about {guess.total_bytes / 2**30:.1f} GiB of memory:")
    for part, size_in_bytes in guess.memory_bytes.items():
        print(f"  {part:<22} {size_in_bytes / 2**20:8,.0f} MiB")
    for setting, size_then in guess.smaller.items():
        print(f"  (label classifiers with {setting}: {size_then / 2**20:,.0f} MiB)")
    print(f"and about {duration(guess.seconds)} on 2 cores (a rough estimate).")
    if resolved.encoder.kind in ("transformer", "hybrid"):
        print("A transformer adds to both.")
    return 0


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
