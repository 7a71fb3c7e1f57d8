"""Every block of docs/how-to/use-from-python.md runs, in its order, on small data and with small settings."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from elias import Settings
from elias.core.errors import InputError
from elias.pipeline import fit as fitting
from helpers.processes import STACKED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "use-from-python.md"
WORDS = {"fruit": "apple pear plum", "car": "engine wheel brake", "red": "cherry fire brick", "sea": "wave salt ship"}
SMALL: dict[str, Any] = {
    **STACKED, "split.calibration_rows": 20, "stage1.epochs": 1, "stage2.epochs": 1, "run.threads": 1,
    "score_model.folds": 0, "encoder.dim": 8,
}  # fmt: skip


def write_rows(path: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    lines = ["sku,title,description,tags"]
    for row in range(count):
        tags = rng.sample(sorted(WORDS), rng.randint(1, 2))
        words = [rng.choice(WORDS[tag].split()) for tag in tags for _ in range(3)]
        lines.append(f"s{row},{words[0]},{' '.join(words)},{';'.join(tags)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) > 10
    write_rows(tmp_path / "shop.csv", 120, seed=0)
    write_rows(tmp_path / "shop-test.csv", 20, seed=1)
    monkeypatch.chdir(tmp_path)
    # The page trains with default settings, which take too long here.
    read = fitting._settings_of

    def smaller(given: Settings | Mapping[str, Any] | None, recipe: Any) -> Settings:
        return read(given, recipe).updated(SMALL)

    monkeypatch.setattr(fitting, "_settings_of", smaller)
    names: dict[str, Any] = {}
    try:
        for number, block in enumerate(blocks, start=1):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    finally:
        get_reusable_executor().shutdown()
    assert set(names["model"].labels.ids) == set(WORDS)
    assert len(names["found"].to_pandas()) == 6
    assert names["quality"].metrics.rows == 20
    assert [len(answer) for answer in names["answers"]] == [1, 1]
    assert isinstance(names["classifier"].predict(["red apple"])[0], list)
    with pytest.raises(InputError, match="a dict is not a list of texts"):
        names["model"].predict({"text": "red apple"})
