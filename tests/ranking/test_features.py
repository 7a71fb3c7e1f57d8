"""All that speaks for a text's labels, gathered at once, against the parts called one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from elias.core.ragged import Ragged
from elias.model.model import Model
from elias.network.searcher import EncodedQuery, Searcher
from elias.ranking.features import Evidence
from elias.ranking.gathering import gather_together
from elias.ranking.inverted_index import Lexical
from elias.ranking.knn import Neighbours, build_neighbours
from elias.ranking.label_tree import LabelTree
from elias.ranking.reranker import Plus
from elias.ranking.score_model import Fusion
from elias.ranking.sparse_rows import SparseRows, exact_columns
from helpers.networks import random_case
from helpers.sparse_data import random_tree, sparse

SEEDS = st.integers(0, 1_000_000)
N_WORDS = 12


def random_plus(rng: np.random.Generator, n_labels: int, by_network: int, by_words: int) -> Plus:
    """ELIAS++ of random vectors: v, t, w and shares have nothing to do with each other."""
    v, t, w = (sparse(rng, n_labels, N_WORDS, signed=signed) for signed in (False, False, True))
    shares = rng.random((n_labels, 2)).astype(np.float32) * (rng.random((n_labels, 1)) < 0.8)
    lexical = Lexical(SparseRows.of(t), shares.astype(np.float32), SparseRows.of(sp.csr_matrix(v.T)), threads=2)
    ranker = SparseRows.of(w, rng.normal(size=n_labels))
    tree = random_tree(rng, n_labels, N_WORDS) if rng.random() < 0.8 else LabelTree.none(N_WORDS)
    return Plus(
        lexical=lexical, ranker=ranker, tree=tree, neighbours=random_neighbours(rng, n_labels),
        fusion=Fusion("product", "squared-hinge"), counts=np.arange(n_labels) % 7,
        by_network=by_network, by_words=by_words, threads=2,
    )  # fmt: skip


def random_neighbours(rng: np.random.Generator, n_labels: int) -> Neighbours:
    n_texts = int(rng.integers(1, 20))
    labels = sp.csr_matrix((rng.random((n_texts, n_labels)) < 0.3).astype(np.float32))
    kinds, sizes = np.zeros(n_texts, dtype=np.uint8), {"most": 4, "words_per_text": 5, "budget": 12}
    return build_neighbours(sparse(rng, n_texts, N_WORDS), labels, kinds, **sizes, threads=2)


def values_of(evidence: Evidence, row: int) -> dict[int, list[float]]:
    """All parts of each label of a row."""
    names = ("cluster", "cluster_score", "edge_score", "classifier", "margin", "path", "counts")
    columns = [*(getattr(evidence, name)[row] for name in names), *(part[row] for part in evidence.words)]
    columns += [part[row] for part in evidence.votes]
    there = np.flatnonzero(evidence.labels[row] >= 0).tolist()
    found = {int(evidence.labels[row, place]): [float(column[place]) for column in columns] for place in there}
    assert len(found) == len(there), "each label once"
    return found


def assert_same(quick: Evidence, slow: Evidence) -> None:
    assert len(quick.labels) == len(slow.labels)
    for row in range(len(slow.labels)):
        ours, theirs = values_of(quick, row), values_of(slow, row)
        assert set(ours) == set(theirs)
        for label, values in theirs.items():
            np.testing.assert_allclose(ours[label], values, rtol=1e-3, atol=1e-4, err_msg=f"row {row}, label {label}")


@given(seed=SEEDS, by_network=st.integers(1, 9), by_words=st.integers(1, 9), k=st.integers(1, 12))
def test_at_once_is_step_by_step(seed: int, by_network: int, by_words: int, k: int) -> None:
    """Labels from 1 to 200, texts without words, labels left out, more asked for than there are."""
    rng = np.random.default_rng(seed)
    network, phi, _, excluded = random_case(rng)
    n_labels, searcher = network.index.n_labels, Searcher(network)
    plus = random_plus(rng, n_labels, by_network, by_words)
    with torch.no_grad():
        look = EncodedQuery(torch.from_numpy(phi), network.clusters(torch.from_numpy(phi)))
    bow = sparse(rng, len(phi), N_WORDS)
    everything = np.tile(np.arange(n_labels, dtype=np.int32), len(phi))
    all_labels = Ragged(np.arange(len(phi) + 1, dtype=np.int64) * n_labels, everything)
    for left_out in (None, excluded, all_labels):
        sizes = plus.sizes(k)
        quick = plus.gather(searcher, look, bow, left_out, k)
        assert_same(quick, plus.gather_stepwise(searcher, look, bow, left_out, sizes))
        for one in gather_together([searcher, searcher], [look, look], plus.tables, bow, left_out, sizes, threads=2):
            assert_same(one, quick)
        if left_out is all_labels:
            assert (quick.labels == -1).all()


def test_scratch_is_left_clean(stacked_model: Model) -> None:
    assert stacked_model.plus is not None
    stacked_model.predict(["babipo nazadi", "", "vunili " * 50] * 30, k=7)
    for sums, seen, _ in stacked_model.plus.lexical._free:
        assert not sums.any()
        assert not seen.any()


@pytest.mark.parametrize("share", [0, 1, 2, 5, 1000])
def test_weights_seen_from_the_words(share: int) -> None:
    """Columns and lists together hold each weight once."""
    words = sparse(np.random.default_rng(share), 9, 20, signed=True)
    table = exact_columns(SparseRows.of(sp.csr_matrix(words.T)), share)
    dense = np.zeros(words.shape, dtype=np.float32)
    for word, column in enumerate(table.column_of.tolist()):
        place = slice(table.indptr[word], table.indptr[word + 1])
        dense[word, table.labels[place]] = table.weights[place]
        if column >= 0:
            assert place.start == place.stop
            dense[word] = table.codes[column]
    np.testing.assert_array_equal(dense, words.toarray())
    assert (table.column_of >= 0).sum() == (np.diff(words.indptr) * share > 20).sum()


# -- texts quickly ----------------------------------------------------------------------------------------------------


def generally(model: Model) -> Model:
    """The model without its quick way."""
    other = replace(model)
    other.__dict__["_quick"] = None
    return other


@pytest.mark.parametrize("k", [1, 5, 60])
def test_texts_quickly(stacked_model: Model, k: int) -> None:
    texts = ["babipo nazadi vunili muruga dubeda", "", "xylophone", "tarizi vafonu tarizi gibete"] * 12
    names = stacked_model.labels.ids
    assert stacked_model._quick is not None
    for count in (1, 2, 4, 9, len(texts)):
        for block in (None, names[:7], names):
            quick = stacked_model.predict(texts[:count], k=k, block=block)
            slow = generally(stacked_model).predict(texts[:count], k=k, block=block)
            np.testing.assert_array_equal(quick.labels, slow.labels)
            np.testing.assert_allclose(quick.scores, slow.scores, rtol=1e-3, atol=1e-6)
            assert (quick.labels.dtype, quick.scores.dtype) == (np.int32, np.float32)
            if block is names:
                assert (quick.labels == -1).all()
                assert (quick.scores == 0).all()


def test_phi_of_a_few_texts(stacked_model: Model) -> None:
    from elias.kernels.embed import embed_rows

    quick = stacked_model._quick
    assert quick is not None
    texts = ["babipo nazadi vunili", "", "tarizi vafonu tarizi gibete"]
    phi, logits = (np.empty((3, width), dtype=np.float32) for width in quick._shape)
    embed_rows(0, 3, *quick._features(texts), quick._embedding, phi, logits)
    look = stacked_model.searcher.encode(stacked_model.prepare(texts)[0], np.arange(3))
    np.testing.assert_allclose(phi, look.phi_BD.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits, look.logits_BC.numpy(), rtol=1e-4, atol=1e-4)
    assert not phi[1].any()


def test_what_has_no_quick_way(stacked_model: Model, tiny_model: Model) -> None:
    assert tiny_model._quick is None
    assert stacked_model.plus is not None
    product = replace(stacked_model, plus=replace(stacked_model.plus, fusion=Fusion("product", "squared-hinge")))
    assert product._quick is None
    assert product.predict(["babipo"], k=3).labels.shape == (1, 3)
