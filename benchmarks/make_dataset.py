"""Text datasets with the sizes and statistics of the benchmarks of extreme classification, generated.

    python benchmarks/make_dataset.py amazontitles-131k OUTPUT [--factor 32] [--seed 0]

    OUTPUT/train.jsonl.gz  test.jsonl.gz     {"id", "text", "labels"} per line, as `load_dataset` reads them
    OUTPUT/generator/statistics.json         what was asked for and what was reached, as it is printed
    OUTPUT/generator/best.jsonl.gz           the generator's own five best labels of the test rows, with probabilities

How a row comes about. Labels live in topics, 100 or more in each; a label with n_l training texts has about
sqrt(n_l / 10) modes, each in a topic of its own with words of its own, so that popular labels cannot be told by one
direction. A row takes its labels from one topic. Each of its words is, by shares, one of the four words of a mode of
its labels, one of the twenty words of the topic, or one of all words by Zipf's law. Texts per label follow
n(r) ~ (r + q)^-s with s such that the rarest labels have one text or so.

The best answer is Bayes' rule with the generator's own numbers, once for the topic and then for each label in it, words
taken as independent. A learner sees nothing of these numbers: it can come near to them, but not beyond.

With --factor f there are 1/f of the rows and labels, and f^-0.6 of the words (Heaps' law). Memory grows with the labels
and the pairs of row and label; texts are written as they are made, and never held.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

LABELS_PER_TOPIC = 100  # at least
TOPIC_PER_TEXT = 40  # labels of a topic per label of a text: few of them stand in one text
MODE_TEXTS = 10  # texts of a label with one mode
MOST_OF_TOPIC = 0.3  # of its rows have the same label, at most
MODE_WORDS, TOPIC_WORDS = 4, 20
COMMON_WORDS = 100  # that belong to no label and no topic
WORDS_OF_LABEL = 1.0  # in a text, for each of its labels
TOPIC_SHARE = 0.2  # of the words of a text
HEAPS = 0.6
ZIPF_SHIFT = 2.7
HEAD = 1e-4  # q / L
ROWS_AT_ONCE, BEST_ROWS_AT_ONCE = 4096, 256
BEST, BEST_TOPICS = 5, 5
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Size:
    """What a dataset has; words_per_text as models read it (long texts are cut at 128 tokens)."""

    train_rows: int
    test_rows: int
    labels: int
    labels_per_text: float
    words_per_text: float
    vocabulary: int

    @property
    def texts_per_label(self) -> float:
        return self.train_rows * self.labels_per_text / self.labels

    def shrunken(self, factor: float) -> Size:
        rows = {name: max(1, round(getattr(self, name) / factor)) for name in ("train_rows", "test_rows", "labels")}
        return replace(self, **rows, vocabulary=max(COMMON_WORDS * 2, round(self.vocabulary / factor**HEAPS)))


SIZES = {
    "amazontitles-131k": Size(294_805, 134_835, 131_073, 2.29, 7.0, 40_000),
    "amazon-670k": Size(490_449, 153_025, 670_091, 5.45, 128.0, 135_909),
    "wikipedia-500k": Size(1_779_881, 769_421, 501_070, 4.75, 128.0, 2_381_304),
    "amazon-3m": Size(1_717_899, 742_507, 2_812_281, 36.06, 104.0, 337_067),
}


@dataclass(frozen=True)
class Rows:
    """Rows of a split as the modes of their labels: modes[indptr[i] : indptr[i + 1]]."""

    indptr: np.ndarray
    modes: np.ndarray
    order: np.ndarray  # in which they are written

    def __len__(self) -> int:
        return len(self.order)

    def of(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row within `some`, mode) of every pair; a label stands once in a row only if its modes do."""
        starts, counts = self.indptr[some], self.indptr[some + 1] - self.indptr[some]
        row = np.repeat(np.arange(len(some)), counts)
        at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
        return row, self.modes[at]


class World:
    """The numbers of the generator: labels with their modes, topics and words."""

    def __init__(self, size: Size, seed: int) -> None:
        self.size, self.seed = size, seed
        rng = np.random.default_rng([seed, 0])
        self.n_topics = max(2, round(size.labels / max(LABELS_PER_TOPIC, TOPIC_PER_TEXT * size.labels_per_text)))
        counts = texts_per_label(size)
        rng.shuffle(counts)
        most = MOST_OF_TOPIC * size.train_rows / self.n_topics
        modes = np.maximum(np.sqrt(counts / MODE_TEXTS).round(), np.ceil(counts / most)).astype(np.int64)
        modes = np.minimum(np.maximum(modes, 1), np.minimum(counts, self.n_topics))
        self.label = np.repeat(np.arange(size.labels, dtype=np.int32), modes)  # of each mode
        place = np.arange(len(self.label)) - np.repeat(np.cumsum(modes) - modes, modes)
        own = np.repeat(modes, modes)
        self.quota = (np.repeat(counts, modes) // own + (place < np.repeat(counts, modes) % own)).astype(np.int32)
        # The modes of a label are in different topics.
        first, stride = rng.integers(self.n_topics, size=size.labels), rng.integers(1, max(2, self.n_topics // 64))
        self.topic = ((np.repeat(first, modes) + place * stride) % self.n_topics).astype(np.int32)
        self.mode_words = self._words(rng, (len(self.label), MODE_WORDS))
        self.topic_words = self._words(rng, (self.n_topics, TOPIC_WORDS))
        self.word_share = 1 / (np.arange(size.vocabulary) + ZIPF_SHIFT)
        self.word_share /= self.word_share.sum()
        self.label_share = min(0.4, WORDS_OF_LABEL * size.labels_per_text / size.words_per_text)
        self.common_share = 1 - self.label_share - TOPIC_SHARE

    def _words(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Words of labels and topics: of all ranks, the frequent ones more often."""
        spread = self.size.vocabulary - COMMON_WORDS
        return (COMMON_WORDS + (rng.random(shape) ** 1.5 * spread)).astype(np.int32)

    @cached_property
    def words(self) -> np.ndarray:
        """The words as texts, frequent ones short."""
        found = []
        for number in range(self.size.vocabulary):
            syllables = []
            while number or len(syllables) < 2:
                number, syllable = divmod(number, len(SYLLABLES))
                syllables.append(SYLLABLES[syllable])
            found.append("".join(syllables))
        return np.array(found, dtype=object)

    def rows(self, split: str) -> Rows:
        """The rows of a split. Each mode stands in as many training rows as its quota says."""
        number, count = {"train": (1, self.size.train_rows), "test": (2, self.size.test_rows)}[split]
        rng = np.random.default_rng([self.seed, number])
        pairs = np.repeat(np.arange(len(self.label), dtype=np.int32), self.quota)
        start = np.cumsum(self.quota, dtype=np.int64) - self.quota
        # The rows of a mode are spread over those of its topic, so that hardly any row has it twice.
        key = (np.arange(len(pairs)) - start[pairs] + rng.random(len(pairs))) / self.quota[pairs]
        pairs = pairs[np.argsort(self.topic[pairs] + np.minimum(key, 1 - 1e-9), kind="stable")]
        lengths = self._lengths(rng, len(pairs))
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        order = rng.permutation(len(lengths))
        if split == "train":
            return Rows(indptr, pairs, order)
        return Rows(indptr, pairs, order[:count] if count <= len(order) else rng.choice(order, count))

    def _lengths(self, rng: np.random.Generator, pairs: int) -> np.ndarray:
        """Labels per row of the training rows: 1 + Poisson, made to add up to the pairs."""
        lengths = 1 + rng.poisson(max(0.0, pairs / self.size.train_rows - 1), self.size.train_rows)
        while (missing := pairs - int(lengths.sum())) != 0:
            free = np.arange(len(lengths)) if missing > 0 else np.flatnonzero(lengths > 1)
            some = rng.choice(free, min(abs(missing), len(free)), replace=False)
            lengths[some] += 1 if missing > 0 else -1
        return lengths

    def texts(self, row: np.ndarray, mode: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(first word of each row, words of all rows) for some rows, given as pairs of row and mode."""
        counts = np.bincount(row)
        lengths = 2 + rng.poisson(self.size.words_per_text - 2, len(counts))
        of_row = np.repeat(np.arange(len(counts)), lengths)
        first = np.cumsum(counts) - counts
        kind = rng.random(len(of_row))
        chosen = mode[first[of_row] + (rng.random(len(of_row)) * counts[of_row]).astype(np.int64)]
        found = np.searchsorted(np.cumsum(self.word_share), rng.random(len(of_row))).clip(max=self.size.vocabulary - 1)
        by_label = kind < self.label_share
        by_topic = ~by_label & (kind < self.label_share + TOPIC_SHARE)
        places = rng.integers(MODE_WORDS * TOPIC_WORDS, size=len(of_row))
        found[by_label] = self.mode_words[chosen[by_label], places[by_label] % MODE_WORDS]
        found[by_topic] = self.topic_words[self.topic[chosen[by_topic]], places[by_topic] % TOPIC_WORDS]
        return np.concatenate([[0], np.cumsum(lengths)]), found


def texts_per_label(size: Size) -> np.ndarray:
    """n_l by rank, a power law with at least one text per label, that adds up to the pairs of row and label."""
    total, mean = round(size.train_rows * size.labels_per_text), size.texts_per_label
    shape = (np.arange(size.labels) + 1 + HEAD * size.labels) ** -(1 - 1 / max(mean, 1.2))
    most = max(1, size.train_rows // 20)

    def rounded(scale: float) -> np.ndarray:
        return np.clip(np.floor(shape * scale + 0.5), 1, most).astype(np.int64)

    low, high = 0.0, float(total)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rounded(middle).sum() < total else (low, middle)
    return rounded(high)


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class Statistics:
    """Counted while rows are written."""

    n_labels: int
    vocabulary: int
    rows: int = 0
    words: int = 0
    label_counts: np.ndarray = field(init=False)
    seen: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.label_counts = np.zeros(self.n_labels, dtype=np.int64)
        self.seen = np.zeros(self.vocabulary, dtype=bool)

    def table(self) -> dict[str, float]:
        counts = self.label_counts[self.label_counts > 0]
        return {
            "rows": self.rows,
            "labels": len(counts),
            "labels per text": round(int(counts.sum()) / self.rows, 3),
            "texts per label": round(float(counts.mean()), 3),
            "texts of the median label": float(np.median(counts)),
            "texts of the most frequent label": int(counts.max()),
            "labels with at most 5 texts, %": round(100 * float((counts <= 5).mean()), 1),
            "words per text": round(self.words / self.rows, 2),
            "vocabulary": int(self.seen.sum()),
        }


def chunks(world: World, split: str, at_once: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, tuple[Any, Any]]]:
    """(number of the first row, row and mode of the pairs, texts) in the order of the file; always the same."""
    rows = world.rows(split)
    seed = {"train": 3, "test": 4}[split]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows.order[start : start + ROWS_AT_ONCE]
        row, mode = rows.of(some)
        indptr, words = world.texts(row, mode, np.random.default_rng([world.seed, seed, start]))
        for first in range(0, len(some), at_once):
            last = min(first + at_once, len(some))
            pairs = slice(*np.searchsorted(row, [first, last]))
            ends = indptr[first : last + 1]
            yield start + first, row[pairs] - first, mode[pairs], (ends - ends[0], words[ends[0] : ends[-1]])


def write_split(world: World, split: str, folder: Path) -> Statistics:
    found = Statistics(world.size.labels, world.size.vocabulary)
    with gzip.open(folder / f"{split}.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as file:
        for number, row, mode, (indptr, words) in chunks(world, split, ROWS_AT_ONCE):
            n_rows = len(indptr) - 1
            pairs = np.unique(np.stack([row, world.label[mode]]), axis=1)  # several modes of a label are one label
            ends = np.searchsorted(pairs[0], np.arange(n_rows + 1))
            labels, texts = pairs[1].tolist(), world.words[words].tolist()
            file.writelines(
                json.dumps(
                    {
                        "id": f"{split}-{number + i}",
                        "text": " ".join(texts[indptr[i] : indptr[i + 1]]),
                        "labels": [f"L{label}" for label in labels[ends[i] : ends[i + 1]]],
                    }
                )
                + "\n"
                for i in range(n_rows)
            )
            found.rows += n_rows
            found.words += len(words)
            found.label_counts += np.bincount(pairs[1], minlength=world.size.labels)
            found.seen[words] = True
    return found


# -- the best answer --------------------------------------------------------------------------------------------------


class BestAnswer:
    """Bayes' rule with the numbers of the world: P(topic | words), then P(label | topic, words)."""

    def __init__(self, world: World) -> None:
        self.world = world
        n_modes, V, T = len(world.label), world.size.vocabulary, world.n_topics
        order = np.argsort(world.topic, kind="stable")
        self.modes_of_topic = np.searchsorted(world.topic[order], np.arange(T + 1)), order
        total = np.bincount(world.topic, world.quota, minlength=T)
        share = world.quota / total[world.topic]  # of the labels of its topic
        common = world.common_share * world.word_share
        # word x topic: how much likelier a word is in a topic than anywhere
        by_mode = sp.coo_matrix(
            (
                np.repeat(world.label_share * share / MODE_WORDS, MODE_WORDS),
                (world.mode_words.ravel(), np.repeat(world.topic, MODE_WORDS)),
            ),
            shape=(V, T),
        )
        by_topic = sp.coo_matrix(
            (
                np.full(T * TOPIC_WORDS, TOPIC_SHARE / TOPIC_WORDS),
                (world.topic_words.ravel(), np.repeat(np.arange(T), TOPIC_WORDS)),
            ),
            shape=(V, T),
        )
        of_topic = sp.csr_matrix(by_mode + by_topic)
        other = sp.csr_matrix(of_topic, copy=True)
        other.data = np.log1p(other.data / np.repeat(common, np.diff(other.indptr)))
        self.topic_evidence = other
        self.topic_prior = np.log(total / total.sum() + 1e-300)
        # word x mode: how much likelier a word is in a row with the label than in another row of the topic
        k = world.size.labels_per_text
        words, modes = world.mode_words.ravel(), np.repeat(np.arange(n_modes), MODE_WORDS)
        own = world.label_share * share[modes] / MODE_WORDS
        without = np.maximum(np.asarray(of_topic[words, world.topic[modes]]).ravel() - own, 0) + common[words]
        gain = np.log1p(world.label_share / (k * MODE_WORDS) / without)
        self.mode_evidence = sp.csr_matrix(sp.coo_matrix((gain, (words, modes)), shape=(V, n_modes)))
        odds = np.clip(k * share, 1e-9, 0.95)
        # A row with the label is expected to have some of its words.
        self.mode_prior = np.log(odds / (1 - odds)) - world.label_share * world.size.words_per_text / k

    def rank(self, indptr: np.ndarray, words: np.ndarray) -> list[list[tuple[int, float]]]:
        """The BEST labels of each row, best first, with their probabilities."""
        n = len(indptr) - 1
        bag = sp.csr_matrix((np.ones(len(words)), words, indptr), shape=(n, self.world.size.vocabulary))
        topics = np.asarray((bag @ self.topic_evidence).todense()) + self.topic_prior
        keep = min(BEST_TOPICS, topics.shape[1])
        best = np.argpartition(-topics, keep - 1, axis=1)[:, :keep]
        weight = np.take_along_axis(topics, best, axis=1)
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        evidence = sp.csr_matrix(bag @ self.mode_evidence)
        ends, order = self.modes_of_topic
        answers = []
        for row in range(n):
            modes = np.concatenate([order[ends[topic] : ends[topic + 1]] for topic in best[row]])
            topic_weight = np.repeat(weight[row], ends[best[row] + 1] - ends[best[row]])
            part = slice(evidence.indptr[row], evidence.indptr[row + 1])
            known, gain = evidence.indices[part], evidence.data[part]
            sort = np.argsort(known)
            known, gain = known[sort], gain[sort]
            at = np.searchsorted(known, modes).clip(max=max(0, len(known) - 1))
            own = np.where(known[at] == modes, gain[at], 0.0) if len(known) else np.zeros(len(modes))
            chance = topic_weight / (1 + np.exp(-(self.mode_prior[modes] + own)))
            labels, inverse = np.unique(self.world.label[modes], return_inverse=True)
            chances = np.bincount(inverse, chance)
            chances /= min(1.0, chances.sum())  # a row has at least one label
            top = np.lexsort((labels, -chances))[:BEST]
            answers.append([(int(labels[i]), float(chances[i])) for i in top])
        return answers


def write_best(world: World, file: Path) -> dict[str, float]:
    """best.jsonl.gz; returns P@1, P@3 and P@5 of the best answer, in percent."""
    best = BestAnswer(world)
    hits, rows = np.zeros(BEST), 0
    with gzip.open(file, "wt", compresslevel=1, encoding="utf-8") as out:
        for number, row, mode, (indptr, words) in chunks(world, "test", BEST_ROWS_AT_ONCE):
            ends = np.searchsorted(row, np.arange(len(indptr)))
            for i, answer in enumerate(best.rank(indptr, words)):
                right = set(world.label[mode[ends[i] : ends[i + 1]]].tolist())
                hits[: len(answer)] += [label in right for label, _ in answer]
                labels = [{"label": f"L{label}", "score": float(f"{chance:.4g}")} for label, chance in answer]
                out.write(json.dumps({"id": f"test-{number + i}", "labels": labels}) + "\n")
            rows += len(indptr) - 1
    return {f"P@{k}": round(100 * float(hits[:k].sum()) / (k * rows), 2) for k in (1, 3, 5)}


def make(name: str, folder: Path, *, factor: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Write a dataset; returns the content of statistics.json."""
    size = SIZES[name].shrunken(factor)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "generator").mkdir(exist_ok=True)
    world = World(size, seed)
    reached = {split: write_split(world, split, folder).table() for split in ("train", "test")}
    best = write_best(world, folder / "generator" / "best.jsonl.gz")
    wanted = {**asdict(size), "texts_per_label": size.texts_per_label}
    content = {"name": name, "factor": factor, "seed": seed, "wanted": wanted, "reached": reached, "best": best}
    (folder / "generator" / "statistics.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return content


def show(content: dict[str, Any]) -> str:
    """The table of what was wanted and what was reached, as Markdown."""
    wanted, train, test = content["wanted"], content["reached"]["train"], content["reached"]["test"]
    asked = {
        "rows": f"{wanted['train_rows']:,} / {wanted['test_rows']:,}",
        "labels": f"{wanted['labels']:,}",
        "labels per text": f"{wanted['labels_per_text']}",
        "texts per label": f"{wanted['texts_per_label']:.2f}",
        "words per text": f"{wanted['words_per_text']}",
        "vocabulary": f"{wanted['vocabulary']:,}",
    }
    lines = ["| | wanted | train | test |", "|---|---|---|---|"]
    lines += [f"| {name} | {asked.get(name, '')} | {train[name]:,} | {test[name]:,} |" for name in train]
    best = ", ".join(f"{name} {value}" for name, value in content["best"].items())
    return "\n".join([*lines, "", f"The generator's own best answer to the test rows: {best}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("output", type=Path)
    parser.add_argument("--factor", type=float, default=1.0, help="1/f of the rows and labels")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(show(make(args.size, args.output, factor=args.factor, seed=args.seed)))


if __name__ == "__main__":
    main()
