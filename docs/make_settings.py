"""Writes docs/reference/settings.md from the settings of the package: python docs/make_settings.py

tests/test_readme.py fails while the page and `elias.core.settings` disagree.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from elias.core.settings import Settings

PAGE = Path(__file__).parent / "reference" / "settings.md"
HEAD = """# Settings

`elias fit DATA -o MODEL --set SECTION.KEY=VALUE`, as often as needed; in Python
`elias.Settings().updated({"stage2.epochs": 5})`. `elias fit --settings` prints the same list. An unknown key or a value
out of range is refused with every problem listed. This page is generated: `python docs/make_settings.py`.

`auto` is resolved from the size of the data by the rules at the end of this page; the values are printed before
training starts and stored in `config.json` of the model. "Paper" is the symbol of the ELIAS paper.
"""
RULES = """
## What auto becomes

L is the number of labels with a training row, N the number of training rows.

| setting | rule |
|---|---|
| `clustering.clusters` | 2^ceil(log2(L / 128)) |
| `index.kappa` | 10 L / C |
| `index.beta` | L / C |
| `index.shortlist_size` | 100 x `index.beam_size` |
| `stage1.epochs` | 300,000 rows, label texts included; 3 to 6 epochs; with folds 3 |
| `stage2.epochs` | 400,000 rows; 4 to 8 epochs; with folds 4 |
| `score_model.continued_epochs` | 3, up to 10,000 rows 0 |
| `stage*.batch_size` | N / 50, with folds N / 12; 16 to 512 |
| `encoder.dim` | 256 with the encoder `bag` under the stacked ranker, else 512 |
| `network.saved_precision` | int8 under the stacked ranker, else that of training |
| `features.label_texts` | true, where labels have texts or [ids that are words](data-layouts.md#label-names) |
| `features.min_df` | 2 from 1,000 rows on, else 1 |
| `split.validation_rows` | the validation file; else N / 50, at least min(500, N / 10), at most 4,000; with folds 0 |
| `split.calibration_rows` | half of a validation file; per fold N / 4 to 8,000, small N / 3 or N / 5; else N / 16 |
| `split.calibration_rows`, published | half of a validation file; N / 16, least min(1,500, N / 8); 100 to 5,000, or 0 |
| `score_model.folds` | 2; to 10,000 rows 5 to 10,000 pairs, 3 to 50,000; 0 below 400 rows, from 100,000, with a file |
| `score_model.hidden_units` | 32, or one per 60 calibration rows of all folds, at least 4 |
| `score_model.epochs` | 40, or as many as make 2,000 steps of 64 rows |
| `score_model.negatives` | 32 |
| `run.threads` | the cores of this machine |

"With folds" means the stacked ranker with the encoder `bag` and `score_model.folds` above 0
([experiment](../experiments/one-fold.md)).

`network.kind=one-versus-all` has one cluster, K = L, and one stage with the epochs of both.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    return HEAD + "".join(map(section, fields(Settings))) + RULES


def section(part: Any) -> str:
    """One table; stage1 and stage2 have the same keys, and each has its own table."""
    values = part.default
    lines = [
        f"\n## {part.name}\n",
        f"{type(values).__doc__}\n",
        "| setting | default | paper | meaning |",
        "|---|---|---|---|",
    ]
    for item in fields(values):
        about = item.metadata
        meaning = about["what"] + (f" ({', '.join(about['choices'])})" if about["choices"] else "")
        default = shown(getattr(values, item.name))
        lines.append(f"| `{part.name}.{item.name}` | {default} | {about['letter']} | {meaning} |")
    return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    """As it would be typed after --set."""
    if value is None:
        return "auto"
    return str(value).lower() if isinstance(value, bool) else str(value) or "(none)"


if __name__ == "__main__":
    main()
