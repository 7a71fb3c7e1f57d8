"""A small generated dataset that can be learned, and fits of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def _make_words(rng: random.Random, count: int) -> list[str]:
    """`count` different words of three syllables."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choices(SYLLABLES, k=3))] = None
    return list(words)


def write_tiny_dataset(
    folder: Path, *, train_rows: int = 400, test_rows: int = 80, label_count: int = 60, seed: int = 0
) -> Path:
    """Write train.jsonl, test.jsonl and labels.tsv into `folder`.

    Labels come in topics of ten. A row has one to three labels of one topic; its text holds two of the
    three words that belong to each label alone, one of the topic's two words, and six noise words.
    Every label has at least `train_rows // label_count` training rows.
    """
    rng = random.Random(seed)
    words = iter(_make_words(rng, label_count * 3 + (label_count // 10 + 1) * 2 + 150))
    label_words = [[next(words) for _ in range(3)] for _ in range(label_count)]
    topic_words = [[next(words) for _ in range(2)] for _ in range(label_count // 10 + 1)]
    noise_words = list(words)
    ids = [f"label-{number:02d}" for number in range(label_count)]

    def make_row(name: str, first_label: int) -> str:
        topic = first_label // 10
        neighbours = [n for n in range(topic * 10, min(topic * 10 + 10, label_count)) if n != first_label]
        labels = [first_label, *rng.sample(neighbours, k=min(rng.randrange(3), len(neighbours)))]
        text = [word for label in labels for word in rng.sample(label_words[label], k=2)]
        text += [rng.choice(topic_words[topic]), *rng.choices(noise_words, k=6)]
        rng.shuffle(text)
        return json.dumps({"id": name, "text": " ".join(text), "labels": [ids[label] for label in labels]}) + "\n"

    for part, rows in (("train", train_rows), ("test", test_rows)):
        lines = [make_row(f"{part}-{row}", row % label_count) for row in range(rows)]
        rng.shuffle(lines)
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    labels_tsv = "".join(f"{label_id}\t{' '.join(own)}\n" for label_id, own in zip(ids, label_words, strict=True))
    (folder / "labels.tsv").write_text(labels_tsv, encoding="utf-8")
    return folder


def fit_tiny(data: Path, output: Path, settings: dict[str, Any], members: int = 1) -> Path:
    from elias import Settings, load_dataset
    from elias.pipeline.fit import fit_to

    return fit_to(load_dataset(data), output, settings=Settings().updated(settings), members=members)
