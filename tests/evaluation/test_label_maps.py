"""Which labels and texts the maps of figures 8 and 9 show."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from elias.core.predictions import PAD
from elias.evaluation.label_maps import (
    BACKGROUND,
    OWN,
    EncodedRows,
    background_rows,
    choose_labels,
    label_map,
    own_rows,
    some_of,
    tsne,
)


def test_choice_of_labels() -> None:
    n_clusters = np.array([2, 1, 5, 6, 3, 2, 2])
    n_texts = np.array([9, 50, 30, 99, 4, 20, 30])
    parents = np.array([0, 1, 2, 3, 4, 2, 5])
    # 3 has too many clusters, 4 too few texts, 5 the parent of 2, which has more texts; 2 and 6 tie
    assert choose_labels(n_clusters, n_texts, parents, (2, 5), 6).tolist() == [2, 6, 0]
    assert choose_labels(n_clusters, n_texts, parents, (2, 5), 2).tolist() == [2, 6]
    assert choose_labels(n_clusters, n_texts, parents, (1, 1), 6).tolist() == [1]
    assert choose_labels(n_clusters, n_texts, parents, (7, 9), 6).tolist() == []


def test_texts_of_a_label_and_of_its_clusters() -> None:
    rng = np.random.default_rng(0)
    labels = sp.csc_matrix(rng.random((400, 3)) < [0.02, 0.5, 0.9])
    assert own_rows(labels, 0).tolist() == np.flatnonzero(labels.toarray()[:, 0]).tolist()
    some = own_rows(labels, 1)
    assert len(set(some.tolist())) == OWN
    assert labels.toarray()[some, 1].all()
    scores = np.where(rng.random((400, 4)) < 0.4, 0.3 + 0.7 * rng.random((400, 4)), 0.0)
    rows, places = background_rows(sp.csr_matrix(scores), np.array([2, 0, 3]), 0)
    assert len(rows) == len(set(rows.tolist())) <= BACKGROUND
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        assert scores[row, [2, 0, 3]].argmax() == place
        assert scores[row, [2, 0, 3]].max() > 0.25
    assert np.bincount(places).tolist() == [BACKGROUND // 3] * 3
    assert some_of(rows, 10, "x").tolist() == some_of(rows, 10, "x").tolist(), "the same in every run"


def test_map_of_a_label() -> None:
    rng = np.random.default_rng(0)
    labels = sp.csc_matrix(np.arange(60)[:, None] % 3 == np.arange(3))
    # two groups of texts, one per cluster: the map keeps them apart
    group = np.arange(60) // 30
    phi = rng.normal(0, 0.1, (60, 8)) + 5 * np.eye(8)[group]
    encoded = EncodedRows(np.arange(60), phi, sp.csr_matrix(np.eye(2)[group]))
    found = label_map(1, np.array([1, 0]), labels, encoded)
    assert (found.places == PAD).sum() == 20
    assert np.bincount(found.places[found.places >= 0]).tolist() == [20, 20]
    assert found.points.min() == 0
    assert found.points.max() == 1
    one, other = (found.points[found.places == place] for place in (0, 1))
    spread = max(one.std(axis=0).max(), other.std(axis=0).max())
    assert np.linalg.norm(one.mean(axis=0) - other.mean(axis=0)) > 3 * spread


def test_texts_that_are_all_the_same() -> None:
    assert np.isfinite(tsne(np.ones((6, 4)))).all()
