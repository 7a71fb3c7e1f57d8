"""Compile and cache the kernels that most tests need, so that two test processes do not both do it.

PYTHONPATH=tests python -m helpers.compile_kernels
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from elias import load, load_dataset
from helpers.processes import STACKED
from helpers.tiny_dataset import fit_tiny, write_tiny_dataset


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = write_tiny_dataset(Path(folder))
        model = load(fit_tiny(data, Path(folder) / "model", STACKED, members=2), threads=2)
        test = load_dataset(data).test
        assert test is not None
        assert test.texts is not None
        for texts in (test.texts[:1], test.texts):
            model.predict(list(texts), 5, explain=True)
            model.predict(list(texts), 5)
    print("kernels compiled", file=sys.stderr)


if __name__ == "__main__":
    main()
