"""One text, raw text in and the 5 best labels out, inside a process: how long, and where the time goes.

    python benchmarks/latency.py models/debian --data datasets/debian-packages

one text    `predict([text], 5)`, which two threads share, then its steps one by one on one thread: words of the text,
            phi and clusters, labels and their evidence, final score. CPU milliseconds beside wall ones: on a busy
            machine only the former compare.
batches     `predict(texts, 5)` of 256 texts
An ensemble is timed as a whole; steps are those of a model with ELIAS++.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import machine, report

import elias
from elias.core.ragged import Ragged
from elias.kernels.embed import embed_rows
from elias.kernels.fuse import learned_scores, rank_rows
from elias.kernels.gather import gather_rows
from elias.model.model import Model
from elias.ranking.features import Field
from elias.ranking.gathering import search_arguments
from elias.ranking.reranker import shown

MANY = 256


def times(call: Callable[[int], Any], repeats: int) -> dict[str, float]:
    """p50 and p99 of the wall clock and p50 of CPU, in milliseconds."""
    for i in range(min(10, repeats)):
        call(i)
    wall, cpu = np.empty(repeats), np.empty(repeats)
    for i in range(repeats):
        started, used = time.perf_counter(), time.process_time()
        call(i)
        wall[i], cpu[i] = time.perf_counter() - started, time.process_time() - used
    return {
        "p50 ms": 1000 * float(np.quantile(wall, 0.5)),
        "p99 ms": 1000 * float(np.quantile(wall, 0.99)),
        "cpu ms": 1000 * float(np.quantile(cpu, 0.5)),
    }


def steps(model: Model, texts: list[str]) -> list[dict[str, Any]]:
    """The steps of one text, each from what the one before it has made."""
    quick = model._quick
    if quick is None:
        return []
    features = [quick._features([text]) for text in texts]
    looks = [quick._embed(*x) for x in features]
    nothing, sizes = Ragged.empty(1), quick.plus.sizes(5)
    room = quick.searcher.cpu_search.room_for(nothing, quick.searcher.network.settings.beam_size)
    scratch, search = quick.plus.tables.take(), quick.searcher.cpu_search.scratch.take(room)
    outs, searched = [to_be_found_for(sizes) for _ in texts], search_arguments(quick.searcher, sizes)

    def gather(i: int) -> None:
        gather_rows(  # type: ignore[call-arg]
            0, 1, *looks[i], *searched, *features[i], quick._words, nothing.indptr, nothing.labels, search,
            *scratch[1:], *outs[i],
        )  # fmt: skip

    def embed(i: int) -> None:
        embed_rows(0, 1, *features[i], quick._embedding, *looks[i])

    def score(i: int) -> None:
        out = outs[i][2]
        scores, places = np.empty(out.labels.shape, dtype=np.float32), np.empty((1, 5), dtype=np.int64)
        field = Field.own(1)
        log_counts = quick._log_counts[out.labels]
        learned_scores(0, 1, out, log_counts, quick._weights, field.best, field.rising, scores)
        rank_rows(0, 1, out.labels, scores, places)
        shown(quick.plus.fusion, out.labels, scores, places)

    n = len(texts)
    return [
        {"row": "  words of the text", **times(lambda i: quick.vectorizer.words.token_ids(texts[i]), n)},
        {"row": "  phi and clusters", **times(embed, n)},
        {"row": "  labels and evidence", **times(gather, n)},
        {"row": "  final score", **times(score, n)},
    ]


def to_be_found_for(sizes: Any) -> Any:
    from elias.ranking.gathering import to_be_found

    return to_be_found(1, sizes)


def measure(folder: Path, data: Path, count: int) -> list[dict[str, Any]]:
    rows = elias.load_dataset(data).test
    assert rows is not None
    assert rows.texts is not None
    texts = list(rows.texts[: max(count, MANY)])
    model = elias.load(folder)
    found = [{"row": "one text", **times(lambda i: model.predict([texts[i]], 5), count)}]
    if isinstance(model, Model):
        found += steps(model, texts[:count])
    batch = times(lambda i: model.predict(texts[:MANY], 5), 8)
    found.append({"row": f"a text in batches of {MANY}", **{name: ms / MANY for name, ms in batch.items()}})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[1] / "datasets" / "debian-packages"
    )
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    about = machine()
    report(f"{args.model.name}; {about}", measure(args.model, args.data, args.texts), as_json=args.json)


if __name__ == "__main__":
    main()
