"""Train the golden models and write down what they answer.

    python tests/golden/make.py               # models and answers
    python tests/golden/make.py product tree  # of these kinds only
    python tests/golden/make.py --answers     # answers of the models that are there
    python tests/golden/make.py --checksums   # config.json of the models that are there, with their checksums anew

A golden model is a small model of each kind, trained on a cut of datasets/debian-packages and committed. Its answers
are committed too, and `tests/golden/test_golden.py` compares: labels exactly, scores to 1e-6. A change that is not
meant to change answers must leave them as they are; one that is (another loss,
other defaults) makes them anew and says why.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import elias

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from helpers.model_files import reseal  # noqa: E402

SOURCE = HERE.parents[1] / "datasets" / "debian-packages"
MODELS, ANSWERS, QUERIES = HERE / "models", HERE / "answers", HERE / "queries.json"
ROWS, WORDS, LEAST = 800, 12, 3  # rows of the cut, words per text, rows per label
SMALL: dict[str, Any] = {
    "clustering.clusters": 8, "encoder.dim": 16, "stage1.epochs": 3, "stage2.epochs": 3, "stage1.batch_size": 32,
    "stage2.batch_size": 32, "run.threads": 2,
}  # fmt: skip
RANKED: dict[str, Any] = {
    **SMALL, "split.calibration_rows": 200, "ranking.network_candidates": 40, "inverted_index.candidates": 60,
    "inverted_index.words_per_label": 24, "linear_ranker.min_weight": 0.2, "score_model.epochs": 20,
    "score_model.hidden_units": 8, "index.shortlist_size": 120,
}  # fmt: skip
PUBLISHED: dict[str, Any] = {
    **SMALL, "ranking.kind": "published", "split.calibration_rows": 200, "ranking.network_candidates": 40,
    "linear_ranker.min_weight": 0.2, "index.shortlist_size": 120,
}  # fmt: skip
PRODUCT = {"published.calibration": False, "published.unretrieved_positives": True}
TREE = {"linear_ranker.loss": "logistic"}
KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "network": ({**SMALL, "ranking.kind": "none"}, 1),
    "stacked": (RANKED, 1),
    "ensemble": (RANKED, 2),
    "product": ({**PUBLISHED, **PRODUCT}, 1),  # the published ranker: p q
    "tree": ({**PUBLISHED, **TREE}, 2),  # and T + p q, two members
}


def cut(folder: Path) -> list[dict[str, Any]]:
    """Write a small dataset (first words of some packages, labels that occur often enough); returns rows left over."""
    with gzip.open(SOURCE / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(20_000), strict=False)]
    with gzip.open(SOURCE / "labels.tsv.gz", "rt", encoding="utf-8") as file:
        names = dict(line.rstrip("\n").split("\t")[:2] for line in file)
    common = [label for label, _ in Counter(label for row in rows for label in row["labels"]).most_common(150)]
    kept = []
    for row in rows:
        labels = [label for label in row["labels"] if label in common]
        if labels:
            text = " ".join(f"{row.get('title', '')} {row['text']}".split()[:WORDS])
            kept.append({"id": row["id"], "text": text, "labels": labels})
    train, left = kept[:ROWS], kept[ROWS : ROWS + 40]
    counts = Counter(label for row in train for label in row["labels"])
    for row in train:
        row["labels"] = [label for label in row["labels"] if counts[label] >= LEAST]
    used = sorted(label for label in counts if counts[label] >= LEAST)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in train if row["labels"]))
    (folder / "labels.tsv").write_text("".join(f"{label}\t{names[label]}\n" for label in used))
    (folder / "dataset.toml").write_text("exclude_own_id = true\n")
    return left


def make_models(kinds: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as work:
        data_folder = Path(work) / "debian-cut"
        data_folder.mkdir()
        left = cut(data_folder)
        data = elias.load_dataset(data_folder)
        labels = data.labels.ids
        texts = [row["text"] for row in left]
        texts[3:3] = ["", "qqqqq zzzzz", "日本語 python ümläut", "python " * 400, " ".join(texts[:8])]
        ids = [row["id"] for row in left]
        ids[3:3] = [labels[3], labels[10], labels[20], labels[30], labels[40]]
        content = {"texts": texts, "ids": ids, "block": labels[:25], "allow": labels[10:60],
                   "candidates": [labels[n % 7 :: 9] for n in range(len(texts))]}  # fmt: skip
        QUERIES.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        for kind in kinds:
            settings, members = KINDS[kind]
            shutil.rmtree(MODELS / kind, ignore_errors=True)
            model = elias.fit(data, settings=elias.Settings().updated(settings), members=members)
            model.save(MODELS / kind)


def calls() -> dict[str, dict[str, Any]]:
    """What every model is asked, by name: arguments of `predict`."""
    queries = json.loads(QUERIES.read_text(encoding="utf-8"))
    texts, ids = queries["texts"], queries["ids"]
    return {
        "plain": {"inputs": texts, "k": 5},
        "one": {"inputs": texts[:1], "k": 5},
        "all labels": {"inputs": texts[:6], "k": 10_000},
        "explained": {"inputs": texts, "k": 10, "explain": True},
        "own ids": {"inputs": texts, "k": 5, "ids": ids},
        "block": {"inputs": texts, "k": 5, "block": queries["block"], "explain": True},
        "allow": {"inputs": texts[:12], "k": 8, "allow": queries["allow"], "explain": True},
        "candidates": {"inputs": texts, "k": 6, "candidates": queries["candidates"], "explain": True},
        "candidates and ids": {"inputs": texts, "k": 6, "candidates": queries["candidates"], "ids": ids},
        "rare": {"inputs": texts, "k": 5, "rare": 0.5},
    }


def answer(model: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Labels, scores and parts of one call, as JSON."""
    found = model.predict(**call)
    parts = {name: _rounded(values) for name, values in (found.parts or {}).items()}
    return {"labels": found.labels.tolist(), "scores": _rounded(found.scores), "parts": parts}


def _rounded(values: np.ndarray) -> list[Any]:
    return values.tolist() if values.dtype.kind == "i" else np.round(values.astype(np.float64), 8).tolist()


def write_answers(kinds: Sequence[str]) -> None:
    ANSWERS.mkdir(exist_ok=True)
    for kind in kinds:
        model = elias.load(MODELS / kind, threads=2)
        found = {name: answer(model, call) for name, call in calls().items()}
        (ANSWERS / f"{kind}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", action="store_true", help="keep the models, write their answers anew")
    parser.add_argument("--checksums", action="store_true", help="keep the models, record their checksums anew")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    options = parser.parse_args()
    kinds = options.kinds or list(KINDS)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    if options.checksums:
        for kind in kinds:
            reseal(MODELS / kind)
        return
    if not options.answers:
        make_models(kinds)
    write_answers(kinds)


if __name__ == "__main__":
    main()
