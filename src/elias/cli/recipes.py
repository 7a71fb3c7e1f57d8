"""`elias recipes [NAME]`: the recipes that `elias fit --recipe` knows, or the file of one of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.recipes import Recipe

COLUMNS = ("recipe", "what", "epochs", "C", "batch", "encoder")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "recipes",
        help="list the recipes of `elias fit --recipe`",
        description="The settings of the paper and of the authors' program. With NAME, print that file.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this recipe: a name, or a .toml file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..core.recipes import open_recipe, recipe_names

    if args.name is not None:
        print(open_recipe(args.name).text, end="")
        return 0
    rows = [COLUMNS, *(row_of(open_recipe(name)) for name in recipe_names())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def row_of(recipe: Recipe) -> tuple[str, ...]:
    """One line of the list: both stages where they differ."""
    from ..core.settings import Settings

    s = Settings().updated(recipe.values)
    batches = dict.fromkeys(str(stage.batch_size) for stage in (s.stage1, s.stage2))
    epochs = f"{s.stage1.epochs} + {s.stage2.epochs}"
    clusters = f"{s.clustering.clusters:,}" if s.clustering.clusters else "auto"
    encoder = s.encoder.model or s.encoder.kind
    return recipe.name, recipe.description, epochs, clusters, ", ".join(batches), encoder
