"""What the checks cost when a model is opened: the same model, opened in turn with and without them.

    python benchmarks/open_model.py MODEL [--repeat 9]

Without: files are not hashed and arrays and JSON are taken as they are (`core/checksums.py`, `core/schema.py`). Prints
medians, their difference, and the time of `verify=True`. Model files are in the page cache after the first pass.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import elias
from elias.core import schema

READERS = (
    "encoders", "encoders.bag", "encoders.dense", "encoders.hybrid", "encoders.tfidf", "network.storage",
    "ranking.inverted_index", "ranking.knn", "ranking.label_tree", "ranking.linear_ranker", "ranking.published",
    "ranking.reranker", "ranking.score_model", "ranking.training_texts", "model.storage",
)  # fmt: skip


def unchecked_arrays(path: Any, arrays: Any, declared: Any, sizes: Any, error: Any = None) -> Any:
    """Binds the dimensions, which readers need, and looks at nothing."""
    for name, array in declared.items():
        if name in arrays:
            schema._form(arrays[name], array, sizes)
    return {name: arrays[name] for name in declared if name in arrays}


@contextmanager
def without_checks() -> Iterator[None]:
    with ExitStack() as stack:
        for reader in READERS:
            module = __import__(f"elias.{reader}", fromlist=["x"])
            if hasattr(module, "check_arrays"):
                stack.enter_context(patch.object(module, "check_arrays", unchecked_arrays))
        stack.enter_context(patch("elias.model.storage.check_files", lambda path, files, **_: files))
        stack.enter_context(patch("elias.model.storage.check_seal", lambda path, content: None))
        stack.enter_context(patch("elias.model.label_file.check_repeated", lambda path, labels: None))
        yield


def seconds(model: str, **options: Any) -> float:
    started = time.perf_counter()
    elias.load(model, **options)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=9)
    options = parser.parse_args()
    seconds(options.model)
    with_checks, without = [], []
    for _ in range(options.repeat):
        with_checks.append(seconds(options.model))
        with without_checks():
            without.append(seconds(options.model))
    checked, plain = median(with_checks), median(without)
    whole = median(seconds(options.model, verify=True) for _ in range(3))
    print(f"with checks {checked:.3f} s, without {plain:.3f} s, difference {checked - plain:+.3f} s")
    print(f"verify {whole:.3f} s")


if __name__ == "__main__":
    main()
