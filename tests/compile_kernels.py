"""Compile and cache the kernels that most tests need, so that two test processes do not both do it.

python tests/compile_kernels.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from conftest import fit_tiny, write_tiny_dataset
from elias import load, load_dataset
from processes import PLUS


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = write_tiny_dataset(Path(folder))
        model = load(fit_tiny(data, Path(folder) / "model", PLUS, members=2), threads=2)
        test = load_dataset(data).test
        assert test is not None
        assert test.texts is not None
        for texts in (test.texts[:1], test.texts):
            model.predict(list(texts), 5, explain=True)
            model.predict(list(texts), 5)
    print("kernels compiled", file=sys.stderr)


if __name__ == "__main__":
    main()
