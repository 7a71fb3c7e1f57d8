"""Latency of one text inside a process, from raw text to the 5 best labels, and of each step; then memory.

    python benchmarks/latency.py models/debian --data datasets/debian-packages

one text    `predict([text], 5)`, then its steps one by one: tf-idf, phi and clusters, candidates and features, score.
            CPU milliseconds beside wall ones: on a busy machine only the former compare.
batches     `predict(texts, 5)` of 256 texts
memory      peak of a process that imports torch, numba and elias; of `elias predict MODEL FILE` with every test text
An ensemble is timed as a whole; steps are those of a model with the stacked ranker.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import machine, report

import elias
from elias.model.model import Model
from elias.ranking.features import candidate_features
from elias.ranking.reranker import Reranker

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
    """The steps of one text as in `model/predict.py`, each from the result of the one before."""
    searcher, reranker, rows = model.searcher, model.reranker, np.arange(1)
    if not isinstance(reranker, Reranker):
        return []
    inputs = [model.read([text]) for text in texts]
    sizes = reranker.sizes(5)

    def encode(i: int) -> Any:
        return searcher.encode(model.network.encoder.prepare(inputs[i]), rows)

    queries = [encode(i) for i in range(len(texts))]

    def gather(i: int) -> Any:
        return candidate_features(reranker.parts, [searcher], [queries[i]], inputs[i].bow_rows(rows), sizes, None)[0]

    features = [gather(i) for i in range(len(texts))]
    n = len(texts)
    return [
        {"row": "  tf-idf", **times(lambda i: model.read([texts[i]]), n)},
        {"row": "  phi and clusters", **times(encode, n)},
        {"row": "  candidates and features", **times(gather, n)},
        {"row": "  score and top k", **times(lambda i: reranker.rank(features[i], 5), n)},
    ]


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
    found.append({"row": f"per text in batches of {MANY}", **{name: ms / MANY for name, ms in batch.items()}})
    return found


PEAK = """
import sys
{body}
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1], file=sys.stderr)
"""
IMPORTS = "import torch, numba, elias, elias.model.model"
PREDICT = "import elias.cli; sys.argv[0] = 'elias'; elias.cli.main()"


def memory(folder: Path, data: Path) -> list[dict[str, Any]]:
    """Peak memory of processes of their own, in MB."""
    rows = elias.load_dataset(data).test
    assert rows is not None
    assert rows.texts is not None
    with tempfile.TemporaryDirectory() as work:
        texts = Path(work) / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows.texts))
        command = ["predict", str(folder), str(texts), "-o", str(Path(work) / "answers.jsonl"), "--quiet"]
        found = []
        for name, body, given in (("imports", IMPORTS, []), (f"predict {len(rows):,} texts", PREDICT, command)):
            run = [sys.executable, "-c", PEAK.format(body=body), *given]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            found.append({"row": name, "peak MB": int(done.stderr.split()[-1]) * 1024e-6})
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return [*found, {"row": "model on disk", "peak MB": size / 1e6}]


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
    report("memory", memory(args.model, args.data), as_json=args.json)


if __name__ == "__main__":
    main()
