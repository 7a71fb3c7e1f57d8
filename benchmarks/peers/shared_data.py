"""What every peer gets: one tf-idf matrix, one matrix of labels, the test texts. Written once for a dataset.

    FOLDER/data-KEY/
        train.npz, labels.npz    tf-idf and labels of the training rows, label texts last where they are used
        test.npz, texts.json     tf-idf of the test rows, and their texts
        vectorizer.json, .npy    to time a peer from the raw text
        data.json                how many predictions to ask for, and what making all this took

Training rows without a feature or without a label are left out: omikuji refuses the first kind, and there is nothing
to learn from the second. A dataset of vectors has no texts and no vectorizer: its vectors are the features.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from elias.core.files import replacing, write_json
from elias.dataset import Dataset, LabelSet, Rows
from elias.dataset.label_texts import with_label_texts
from elias.encoders.tfidf import TfIdf

DEPTH = 100
MIN_DF = 2


def key_of(*parts: Any) -> str:
    """A short hash of settings, versions and fingerprints."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=6).hexdigest()


def shared_data(data: Dataset, work: Path, *, label_texts: bool, label_ids: bool) -> Path:
    """The folder for these settings, made unless it is there."""
    settings = {"min_df": MIN_DF, "label_texts": label_texts, "depth": DEPTH, "layout": 1}
    if label_texts and label_ids and ids_differ(data.labels):
        settings["label_ids"] = True
    folder = work / f"data-{key_of(data.fingerprint(), settings)}"
    if not folder.exists():
        with replacing(folder) as part:
            part.mkdir(parents=True)
            _write(data, part, label_texts, label_ids)
    return folder


def ids_differ(labels: LabelSet) -> bool:
    """Whether some label's id is a name other than its text, so that `label_ids` makes a difference."""
    pairs = zip(labels.ids, labels.texts, strict=True)
    return any(text and text != name and any(map(str.isalpha, name)) for name, text in pairs)


def _write(data: Dataset, folder: Path, label_texts: bool, label_ids: bool) -> None:
    assert data.test is not None
    started = time.perf_counter()
    train = with_label_texts(data.train, data.labels, ids=label_ids) if label_texts else data.train
    features, vectorizer = _features(train, folder)
    seconds = time.perf_counter() - started
    kept = np.flatnonzero((np.diff(features.indptr) > 0) & (np.diff(train.labels.indptr) > 0))
    labels = sp.csr_matrix(train.labels[kept], dtype=np.float32)
    labels.data[:] = 1.0  # no peer takes graded relevance
    sp.save_npz(folder / "train.npz", features[kept])
    sp.save_npz(folder / "labels.npz", labels)
    if vectorizer is not None:
        assert data.test.texts is not None
        sp.save_npz(folder / "test.npz", vectorizer.transform(data.test.texts))
        write_json(folder / "texts.json", list(data.test.texts), indent=None)
    else:
        sp.save_npz(folder / "test.npz", sp.csr_matrix(data.test.vectors, dtype=np.float32))
    most_excluded = int(np.diff(data.test.excluded.indptr).max(initial=0))
    about = {
        "features": int(features.shape[1]),
        "rows": len(kept),
        "rows_left_out": len(train) - len(kept),
        "label_texts": len(train) - len(data.train),
        "ask": min(DEPTH + most_excluded, len(data.labels)),  # so that 100 are left after the filter
        "seconds": seconds,
    }
    write_json(folder / "data.json", about)


def _features(train: Rows, folder: Path) -> tuple[sp.csr_matrix, TfIdf | None]:
    if train.texts is None:
        return sp.csr_matrix(train.vectors, dtype=np.float32), None
    vectorizer, features = TfIdf.fit_transform(train.texts, min_df=MIN_DF)
    vectorizer.save(folder)
    return features, vectorizer
