"""Bring the golden models up to the formats of today.

    python tests/golden/convert.py

One function per change of a format, in the order of the changes; each leaves a model alone that already has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parent / "models"


def edit(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as `elias.core.files.write_json` does."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def drop_settings(model: Path, *names: str) -> None:
    """Remove settings (`section.key`) from config.json."""
    path = model / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in names:
        section, key = name.split(".")
        content.get("settings", {}).get(section, {}).pop(key, None)
    edit(path, content)


def without_projection_word_dropout_and_sgd(model: Path) -> None:
    drop_settings(model, "model.label_dim", "encoder.word_dropout", "stage1.momentum", "stage2.momentum")
    path = model / "encoder" / "encoder.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("word_dropout", None)
    edit(path, content)


CHANGES = [
    without_projection_word_dropout_and_sgd,
]


def main() -> None:
    # A member of an ensemble is a model of its own.
    for path in sorted(MODELS.rglob("encoder.json")):
        for change in CHANGES:
            change(path.parents[1])


if __name__ == "__main__":
    main()
