"""What every rival gets: one tf-idf matrix, one matrix of labels, the texts to answer. Written once for a dataset.

    FOLDER/data-PART-KEY/
        train.npz, labels.npz        tf-idf and labels of the training rows, label texts last
        train_texts.json, kinds.npy  their texts; 0: a training text, 1: a label text
        label_numbers.npy            the dataset's number of each column of labels.npz
        test.npz, texts.json         tf-idf of the rows to answer, and their texts
        vectorizer.json, .npy        to time a rival from the raw text
        answers.npz, excluded.npz    of the rows to answer; only in `choice`: nobody is shown the labels of test rows
        data.json                    how many predictions to ask for, and what making all this took

PART is `final` (all training rows, the test rows) or `choice` (training rows without the validation rows, which are the
rows to answer: settings are chosen there). Validation rows are those of the dataset's own validation file; without
one they are cut from the training rows by the rule by which our own fit holds rows out.

All are given the same. Where the dataset excludes own ids, a training text whose id is a label is a text of that label:
the pair is a positive here, and it is filtered before scoring. Every label with a training row has one more training
row, its id and text. Columns are labels with a training row: a tree must not have leaves that nothing is known of.
Training rows without a feature or without a label are left out: omikuji refuses the first kind, and there is nothing
to learn from the second. A dataset of vectors has no texts and no vectorizer: its vectors are the features.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from elias.core.files import replacing, write_json
from elias.dataset import Dataset, Rows
from elias.dataset.label_texts import with_label_texts
from elias.dataset.split import reserve
from elias.encoders.tfidf import TfIdf

DEPTH = 100
MIN_DF = 2
LAYOUT = 2  # raised when the content of these files changes
MOST_VALIDATION = 4000


class Given(NamedTuple):
    """Rows to learn from and rows to answer."""

    part: str
    train: Rows
    test: Rows


def key_of(*parts: Any) -> str:
    """A short hash of settings, versions and fingerprints."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=6).hexdigest()


def inputs_key(data: Dataset, *, label_texts: bool) -> str:
    return key_of(data.fingerprint(), {"min_df": MIN_DF, "label_texts": label_texts, "depth": DEPTH, "layout": LAYOUT})


def final_rows(data: Dataset) -> Given:
    assert data.test is not None
    return Given("final", data.train, data.test)


def choice_rows(data: Dataset) -> Given:
    """The validation rows, and what may be learned from to answer them."""
    if data.validation is not None and len(data.validation) > 0:
        return Given("choice", data.train, data.validation)
    wanted = min(MOST_VALIDATION, len(data.train) // 5)
    split = reserve(
        data.train, validation_rows=0, calibration_rows=wanted, seed=0, near_duplicates=_near_duplicates(data.train)
    )
    return Given("choice", data.train.take(split.train), data.train.take(split.calibration))


def _near_duplicates(rows: Rows) -> Any:
    if rows.texts is None:
        return None
    from elias.pipeline.near_duplicates import near_duplicates

    texts = rows.texts
    return lambda asked: near_duplicates(TfIdf.fit_transform(texts)[1], asked)


def shared_data(data: Dataset, given: Given, work: Path, *, label_texts: bool = True) -> Path:
    """The folder of these rows, made unless it is there."""
    folder = work / f"data-{given.part}-{inputs_key(data, label_texts=label_texts)}"
    if not folder.exists():
        with replacing(folder) as part:
            part.mkdir(parents=True)
            _write(data, given, part, label_texts)
    return folder


def with_own_ids(rows: Rows, data: Dataset) -> Rows:
    """Where own ids are excluded from answers: the pairs (text, label with its id) as positives."""
    if not data.settings.exclude_own_id or rows.ids is None:
        return rows
    numbers = np.array([data.labels.number_of.get(row_id, -1) for row_id in rows.ids], dtype=np.int64)
    own = np.flatnonzero(numbers >= 0)
    ones = np.ones(len(own), dtype=np.float32)
    pairs = sp.csr_matrix((ones, (own, numbers[own])), shape=rows.labels.shape)
    return replace(rows, labels=sp.csr_matrix(rows.labels.maximum(pairs), dtype=np.float32))


def _write(data: Dataset, given: Given, folder: Path, label_texts: bool) -> None:
    started = time.perf_counter()
    train = with_own_ids(given.train, data)
    if label_texts:
        train = with_label_texts(train, data.labels, ids=True)
    features, vectorizer = _features(train, folder)
    seconds = time.perf_counter() - started
    kept = np.flatnonzero((np.diff(features.indptr) > 0) & (np.diff(train.labels.indptr) > 0))
    labels = sp.csr_matrix(train.labels[kept], dtype=np.float32)
    labels.data[:] = 1.0  # no peer takes graded relevance
    numbers = np.unique(labels.indices)
    sp.save_npz(folder / "train.npz", features[kept])
    sp.save_npz(folder / "labels.npz", sp.csr_matrix(labels[:, numbers]))
    np.save(folder / "label_numbers.npy", numbers.astype(np.int32))
    np.save(folder / "kinds.npy", train.kinds[kept])
    if vectorizer is not None:
        assert given.test.texts is not None
        assert train.texts is not None
        sp.save_npz(folder / "test.npz", vectorizer.transform(given.test.texts))
        write_json(folder / "texts.json", list(given.test.texts), indent=None)
        write_json(folder / "train_texts.json", [train.texts[int(row)] for row in kept], indent=None)
    else:
        sp.save_npz(folder / "test.npz", sp.csr_matrix(given.test.vectors, dtype=np.float32))
    if given.part == "choice":
        sp.save_npz(folder / "answers.npz", given.test.labels)
        sp.save_npz(folder / "excluded.npz", given.test.excluded)
    most_excluded = int(np.diff(given.test.excluded.indptr).max(initial=0))
    about = {
        "features": int(features.shape[1]),
        "rows": len(kept),
        "rows_left_out": len(train) - len(kept),
        "label_texts": len(train) - len(given.train),
        "own_ids": int(train.labels.nnz - given.train.labels.nnz) - (len(train) - len(given.train)),
        "ask": min(DEPTH + most_excluded, len(numbers)),  # so that 100 are left after the filter
        "seconds": seconds,
    }
    write_json(folder / "data.json", about)


def _features(train: Rows, folder: Path) -> tuple[sp.csr_matrix, TfIdf | None]:
    if train.texts is None:
        return sp.csr_matrix(train.vectors, dtype=np.float32), None
    vectorizer, features = TfIdf.fit_transform(train.texts, min_df=MIN_DF)
    vectorizer.save(folder)
    return features, vectorizer
