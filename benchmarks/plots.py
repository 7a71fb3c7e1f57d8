"""Plots of docs/results.md from the JSON lines of scale.py and search.py.

    python benchmarks/scale.py --json > scale.jsonl
    python benchmarks/plots.py scale.jsonl docs/figures

Colors are readable on light and dark pages; the background is transparent.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

GRAY = "#8a8a8a"
COLORS = {"L/100": "#d9822b", "sqrt(L)": "#2b8cd9"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.rows.read_text().splitlines() if line.startswith("{")]
    args.folder.mkdir(parents=True, exist_ok=True)
    for column, title in (("single p50 ms", "one query, ms"), ("batch ms", "per query in batches of 256, ms")):
        draw(rows, column, title, args.folder / f"scale-{column.split()[0]}.svg")


def draw(rows: list[dict[str, Any]], column: str, title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"text.color": GRAY, "axes.labelcolor": GRAY, "axes.edgecolor": GRAY, "svg.hashsalt": "elias"})
    mpl.rcParams.update({"xtick.color": GRAY, "ytick.color": GRAY, "font.size": 11})
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    figure, axes = plt.subplots(figsize=(6, 3.6))
    for rule, color in COLORS.items():
        line = sorted((row["labels"], row[column]) for row in rows if row["rule"] == rule)
        axes.plot(*zip(*line, strict=True), marker="o", color=color, linewidth=2)
        axes.annotate(f"C ~ {rule}", line[-1], xytext=(6, 0), textcoords="offset points", color=color, va="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("labels L")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color=GRAY, alpha=0.25)
    axes.margins(x=0.18)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
