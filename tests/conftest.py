"""What every test shares: two threads, hypothesis without deadlines, and one small dataset that can be learned."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from processes import PLUS, SMALL

if TYPE_CHECKING:
    from elias import Dataset, Ensemble, Model
    from serving import Running

# Before numpy, torch or numba are imported: they read these once.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "2")

# The first call of a kernel compiles it, which no per-example deadline survives.
settings.register_profile("elias", deadline=None, derandomize=True)  # the same examples on every machine
settings.load_profile("elias")

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]

# A shell starts background jobs with Ctrl-C ignored, and so would be the tests of Ctrl-C and the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_kernels_of_old() -> None:
    from elias import kernels

    kernels.forget_removed()


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


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small dataset that can be learned; shared by all tests, so read only."""
    return write_tiny_dataset(tmp_path_factory.mktemp("tiny-dataset"))


def fit_tiny(data: Path, output: Path, settings: dict[str, Any], members: int = 1) -> Path:
    from elias import Settings, load_dataset
    from elias.fitting import fit_to

    return fit_to(load_dataset(data), output, settings=Settings().updated(settings), members=members)


@pytest.fixture(scope="session")
def tiny_model_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the small dataset, both stages, saved; with its run folder beside it. Read only."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("tiny-model") / "model", SMALL)


@pytest.fixture(scope="session")
def tiny_model(tiny_model_folder: Path) -> Model:
    """The same model, loaded."""
    from elias.model_folder import load_model

    return load_model(tiny_model_folder, threads=2)


@pytest.fixture(scope="session")
def plus_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the sparse side and a learned final score: ELIAS++."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("plus-model") / "model", PLUS)


@pytest.fixture(scope="session")
def plus_model(plus_folder: Path) -> Model:
    from elias.model_folder import load_model

    return load_model(plus_folder, threads=2)


@pytest.fixture(scope="session")
def ensemble_folder(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two members of it."""
    return fit_tiny(tiny_dataset, tmp_path_factory.mktemp("ensemble") / "both", PLUS, members=2)


@pytest.fixture(scope="session")
def ensemble(ensemble_folder: Path) -> Ensemble:
    from elias import Ensemble, load

    loaded = load(ensemble_folder, threads=2)
    assert isinstance(loaded, Ensemble)
    return loaded


@pytest.fixture(scope="session")
def service(tiny_model: Model, tiny_model_folder: Path) -> Iterator[Running]:
    """The small model as a service with two names; shared, so leave it as it is."""
    from serving import running

    folders = {"tiny": tiny_model_folder, "again": tiny_model_folder}
    with running(folders, lambda folder: tiny_model) as found:
        yield found


@pytest.fixture(scope="session")
def data(tiny_dataset: Path) -> Dataset:
    """The small dataset, read."""
    import elias

    return elias.load_dataset(tiny_dataset)


@pytest.fixture(scope="session")
def texts(data: Dataset) -> list[str]:
    """Its test texts."""
    assert data.test is not None
    assert data.test.texts is not None
    return list(data.test.texts)
