"""Shrunken copies of the paper's four benchmarks, in the layouts in which they are distributed.

python benchmarks/shrunken.py OUT [--rows N | --factor N] [--only NAME ...] [--seed N]

Texts and labels come from datasets/debian-packages; nothing is downloaded. Each copy keeps what decides how a recipe
behaves: labels per text, labels per training row, test rows per training row, short titles or long texts, files and
propensities. `--rows` gives every copy that many training rows, `--factor` divides the sizes of the originals.

    lf-amazontitles-131k    Extreme Classification Repository, raw texts with label features:
                            trn.json.gz  tst.json.gz  lbl.json.gz  filter_labels_train.txt  filter_labels_test.txt
    amazon-670k             the same repository, both downloads in one folder, without label features:
                            trn.raw.json.gz  tst.raw.json.gz,  train.txt  test.txt ("rows features labels" header)
    wikipedia-500k          the download of XR-Transformer (PECOS):
                            X.trn.txt  Y.trn.npz  tfidf-attnxml/X.trn.npz  output-items.txt, likewise tst
    amazon-3m               what the authors' program reads:
                            raw/trn_X.txt  raw/tst_X.txt  X.trn.npz  Y.trn.npz  X.tst.npz  Y.tst.npz

Then: elias fit OUT/amazon-670k --recipe amazon-670k --set encoder.model=... --set clustering.clusters=...
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from elias.encoders.tfidf import TfIdf

SOURCE = Path(__file__).resolve().parents[1] / "datasets" / "debian-packages"
ROWS, SEED = 1500, 0
AMAZON, WIKIPEDIA = (0.6, 2.6), (0.5, 0.4)  # A and B of the propensity model
ROUNDS = 16  # of the search for a number of labels


@dataclass(frozen=True)
class Split:
    """Rows as debian-packages has them (id, title, text), and their labels."""

    rows: list[dict[str, Any]]
    labels: sp.csr_matrix

    def texts(self) -> list[str]:
        """Title and text, one line each."""
        return [one_line(f"{row['title']} {row['text']}") for row in self.rows]

    def take(self, rows: np.ndarray, labels: sp.csr_matrix) -> Split:
        return Split([self.rows[row] for row in rows.tolist()], labels)


@dataclass(frozen=True)
class Copy:
    """What a layout is written from; label numbers are positions in `label_ids`."""

    train: Split
    test: Split
    label_ids: list[str]
    label_texts: list[str]

    def tfidf(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Bag-of-words features of train and test, as the downloads have them."""
        vectorizer, train = TfIdf.fit_transform(self.train.texts(), min_df=2)
        return train, vectorizer.transform(self.test.texts())


@dataclass(frozen=True)
class Benchmark:
    """An original: its size, and how its copy is written."""

    title: str
    train: int
    test: int
    labels: int
    labels_per_text: float
    propensity: tuple[float, float]
    layout: str
    write: Callable[[Copy, Path], None]


# -- which rows and labels --------------------------------------------------------------------------------------------


def read_source() -> Copy:
    """The whole of debian-packages."""
    with gzip.open(SOURCE / "labels.tsv.gz", "rt", encoding="utf-8") as lines:
        names = [line.rstrip("\n").split("\t") for line in lines]
    number = {name[0]: n for n, name in enumerate(names)}
    splits = []
    for split in ("train", "test"):
        with gzip.open(SOURCE / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        labels = [[number[label] for label in row["labels"]] for row in rows]
        starts = np.cumsum([0, *map(len, labels)])
        flat = np.array([label for of in labels for label in of], dtype=np.int32)
        matrix = sp.csr_matrix((np.ones(len(flat), dtype=np.float32), flat, starts), shape=(len(rows), len(names)))
        splits.append(Split(rows, matrix))
    return Copy(splits[0], splits[1], [name[0] for name in names], [one_line(name[1]) for name in names])


def shrunken(source: Copy, original: Benchmark, n_rows: int, seed: int) -> Copy:
    """A copy with `n_rows` training rows, and labels, labels per text and test rows in proportion."""
    per_text, wanted = original.labels_per_text, round(n_rows * original.labels / original.train)
    counts = np.bincount(source.train.labels.indices, minlength=len(source.label_ids))
    order = np.argsort(-counts, kind="stable")
    # The most frequent labels, as many as leave the wanted number with a row. Random labels of a long tail would
    # leave rows with one label and labels with one row; frequent ones meet in rows.
    few, many = 1, len(order)
    best: tuple[np.ndarray, np.ndarray, sp.csr_matrix] | None = None
    for _ in range(ROUNDS):
        middle = (few + many) // 2
        candidates = np.sort(order[:middle])
        rows, labels = chosen(source.train.labels[:, candidates], n_rows, per_text, np.random.default_rng(seed))
        alive = np.flatnonzero(np.bincount(labels.indices, minlength=middle))
        if best is None or abs(len(alive) - wanted) < abs(len(best[0]) - wanted):
            best = candidates[alive], rows, labels[:, alive]
        few, many = (middle, many) if len(alive) < wanted else (few, middle)
    assert best is not None
    kept, rows, labels = best
    n_test = max(1, round(len(rows) * original.test / original.train))
    test_rows, test_labels = chosen(source.test.labels[:, kept], n_test, per_text, np.random.default_rng(seed))
    return Copy(
        source.train.take(rows, labels),
        source.test.take(test_rows, test_labels),
        [source.label_ids[label] for label in kept.tolist()],
        [source.label_texts[label] for label in kept.tolist()],
    )


def chosen(
    labels: sp.csr_matrix, n_rows: int, per_text: float, rng: np.random.Generator
) -> tuple[np.ndarray, sp.csr_matrix]:
    """Random rows and their labels, `per_text` on average: rows with few labels are passed over where the mean would
    be lower, and labels beyond a number are dropped at random where it would be higher."""
    counts, least = np.diff(labels.indptr), 1
    while counts[counts >= least].mean() < per_text and np.count_nonzero(counts > least) >= n_rows:
        least += 1
    rows = np.sort(rng.permutation(np.flatnonzero(counts >= least))[:n_rows])
    found = labels[rows]
    counts = np.diff(found.indptr)
    most = int(counts.max())
    while most > 1 and np.minimum(counts, most).mean() > per_text:
        most -= 1
    for row in np.flatnonzero(counts > most).tolist():
        places = np.arange(found.indptr[row], found.indptr[row + 1])
        found.data[rng.permutation(places)[most:]] = 0
    found.eliminate_zeros()
    found.sort_indices()
    return rows, found


# -- layouts ----------------------------------------------------------------------------------------------------------


def write_lf_json(copy: Copy, folder: Path) -> None:
    """Raw texts with label features; filters list a row with the label of the same id, or of the same description."""
    for split, short, name in ((copy.train, "trn", "train"), (copy.test, "tst", "test")):
        write_json(folder / f"{short}.json.gz", raw_rows(split, titles_alone=True))
        pairs = ((row, label) for row, labels in enumerate(same_product(copy, split)) for label in labels)
        if listed := "".join(f"{row} {label}\n" for row, label in pairs):
            (folder / f"filter_labels_{name}.txt").write_text(listed)
    names = zip(copy.label_ids, copy.label_texts, strict=True)
    write_json(folder / "lbl.json.gz", ({"uid": uid, "title": title, "content": ""} for uid, title in names))


def same_product(copy: Copy, split: Split) -> Iterable[list[int]]:
    """Of each row the labels that are the same package, or one described in the same words, and no positives."""
    named: dict[str, set[int]] = {}
    for label, names in enumerate(zip(copy.label_ids, copy.label_texts, strict=True)):
        for name in names:
            named.setdefault(name.lower(), set()).add(label)
    for row, source in enumerate(split.rows):
        description = one_line(source["title"].partition(": ")[2]).lower()
        found = named.get(source["id"].lower(), set()) | named.get(description, set())
        yield sorted(found - set(split.labels[row].indices.tolist()))


def write_repository(copy: Copy, folder: Path) -> None:
    """Raw texts, and the sparse text files of the same rows."""
    for split, short, name, features in zip(
        (copy.train, copy.test), ("trn", "tst"), ("train", "test"), copy.tfidf(), strict=True
    ):
        write_json(folder / f"{short}.raw.json.gz", raw_rows(split, titles_alone=False))
        with (folder / f"{name}.txt").open("w", encoding="utf-8") as out:
            out.write(f"{features.shape[0]} {features.shape[1]} {split.labels.shape[1]}\n")
            for row in range(features.shape[0]):
                out.write(f"{','.join(map(str, split.labels[row].indices))} {sparse_row(features[row])}\n")


def write_pecos(copy: Copy, folder: Path) -> None:
    (folder / "tfidf-attnxml").mkdir()
    for split, short, features in zip((copy.train, copy.test), ("trn", "tst"), copy.tfidf(), strict=True):
        write_lines(folder / f"X.{short}.txt", split.texts())
        sp.save_npz(folder / f"Y.{short}.npz", split.labels)
        sp.save_npz(folder / "tfidf-attnxml" / f"X.{short}.npz", features)
    write_lines(folder / "output-items.txt", copy.label_texts)


def write_program(copy: Copy, folder: Path) -> None:
    """The layout of the README of the authors' program."""
    (folder / "raw").mkdir()
    for split, short, features in zip((copy.train, copy.test), ("trn", "tst"), copy.tfidf(), strict=True):
        write_lines(folder / "raw" / f"{short}_X.txt", split.texts())
        sp.save_npz(folder / f"X.{short}.npz", features)
        sp.save_npz(folder / f"Y.{short}.npz", split.labels)


def raw_rows(split: Split, *, titles_alone: bool) -> Iterable[dict[str, Any]]:
    for row, source in enumerate(split.rows):
        targets = split.labels[row].indices.tolist()
        content = "" if titles_alone else source["text"]
        told = {"uid": source["id"], "title": source["title"], "content": content}
        yield {**told, "target_ind": targets, "target_rel": [1.0] * len(targets)}


def sparse_row(row: sp.csr_matrix) -> str:
    return " ".join(f"{column}:{value:.6f}" for column, value in zip(row.indices, row.data, strict=True))


def one_line(text: str) -> str:
    return " ".join(text.split())


def write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_json(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One object per line; the same bytes every time, so without the time of writing."""
    body = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    file.write_bytes(gzip.compress(body.encode(), mtime=0))


BENCHMARKS = {
    "lf-amazontitles-131k": Benchmark(
        "LF-AmazonTitles-131K", 294_805, 134_835, 131_073, 2.29, AMAZON,
        "Extreme Classification Repository: raw titles with label features and filters", write_lf_json,
    ),
    "amazon-670k": Benchmark(
        "Amazon-670K", 490_449, 153_025, 670_091, 5.45, AMAZON,
        "Extreme Classification Repository: raw texts and sparse text files", write_repository,
    ),
    "wikipedia-500k": Benchmark(
        "Wikipedia-500K", 1_779_881, 769_421, 501_070, 4.75, WIKIPEDIA,
        "download of XR-Transformer (PECOS): texts, label matrices, tf-idf", write_pecos,
    ),
    "amazon-3m": Benchmark(
        "Amazon-3M", 1_717_899, 742_507, 2_812_281, 36.06, AMAZON,
        "what the authors' program reads: raw/trn_X.txt with X and Y matrices", write_program,
    ),
}  # fmt: skip


def write_copy(name: str, copy: Copy, out: Path) -> str:
    """The folder of one copy; what it imitates, in a line of its README."""
    original, folder = BENCHMARKS[name], out / name
    folder.mkdir(parents=True)
    original.write(copy, folder)
    a, b = original.propensity
    (folder / "dataset.toml").write_text(f'name = "{name}"\npropensity_a = {a}\npropensity_b = {b}\n')
    train, pairs = len(copy.train.rows), copy.train.labels.nnz
    told = (
        f"A shrunken copy of {original.title} made of datasets/debian-packages, in its layout ({original.layout}): "
        f"{train:,} training and {len(copy.test.rows):,} test rows, {len(copy.label_ids):,} labels, "
        f"{pairs / train:.2f} labels per text (original: {original.train:,}, {original.test:,}, {original.labels:,}, "
        f"{original.labels_per_text})."
    )
    (folder / "README.md").write_text(told + "\n")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that gets one folder per copy")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--rows", type=int, default=ROWS, help=f"training rows of each copy (default {ROWS})")
    sizes.add_argument("--factor", type=float, help="training rows are those of the original divided by this")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    source = read_source()
    for name in options.only:
        rows = round(BENCHMARKS[name].train / options.factor) if options.factor else options.rows
        if not 10 <= rows <= len(source.train.rows):
            parser.error(f"{name}: {rows:,} training rows; the source has {len(source.train.rows):,}, 10 are the least")
        if (options.out / name).exists():
            parser.error(f"{options.out / name} exists; choose another folder")
        print(write_copy(name, shrunken(source, BENCHMARKS[name], rows, options.seed), options.out))


if __name__ == "__main__":
    main()
