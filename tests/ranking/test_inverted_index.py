"""Candidates by words: the inverted index against dense matrices, the vector of a label, files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias import kernels
from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.core.ragged import Ragged
from elias.dataset.rows import KIND_LABEL_TEXT, KIND_TEXT
from elias.ranking import inverted_index as module
from elias.ranking.inverted_index import NAME, InvertedIndex, build_inverted_index
from elias.ranking.sparse_rows import SparseRows, postings_with_columns
from helpers.sparse_data import sparse


def index_of(vectors: sp.csr_matrix, threads: int = 1) -> InvertedIndex:
    """An index of vectors as they are."""
    texts = SparseRows.from_csr(sp.csr_matrix(vectors.shape, dtype=np.float32))
    mixture = np.zeros((vectors.shape[0], 2), dtype=np.float32)
    return InvertedIndex(texts, mixture, SparseRows.from_csr(sp.csr_matrix(vectors.T)), threads=threads)


def dense_search(x: np.ndarray, v: np.ndarray, k: int, excluded: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    scores = x @ v.T
    labels, best = np.full((len(x), k), -1), np.zeros((len(x), k), dtype=np.float32)
    for row in range(len(x)):
        positive = [label for label in range(len(v)) if scores[row, label] > 0 and label not in excluded[row]]
        for place, label in enumerate(sorted(positive, key=lambda label: (-scores[row, label], label))[:k]):
            labels[row, place], best[row, place] = label, scores[row, label]
    return labels, best


@given(
    seed=st.integers(0, 10_000), k=st.integers(1, 30), signed=st.booleans(), threads=st.integers(1, 3),
    share=st.sampled_from([0, 3, 8]), bits=st.sampled_from([8, 16]),
)  # fmt: skip
def test_search_is_the_dense_product(seed: int, k: int, signed: bool, threads: int, share: int, bits: int) -> None:
    """Ties to the lower label, nothing at or below 0, no excluded labels, fewer than k where there are fewer.

    Without columns, with some, and with all words that have a label or two. Coarse values lose nothing in 8 bits.
    """
    rng = np.random.default_rng(seed)
    vectors, x = (sparse(rng, rows, 8, signed=signed, coarse=True) for rows in (20, 7))
    excluded = [rng.choice(20, rng.integers(6), replace=False).tolist() for _ in range(7)]
    asked = rng.integers(-1, 20, size=(7, 4)).astype(np.int32)
    dense = x.toarray() @ vectors.toarray().T
    expected = np.where(asked >= 0, np.take_along_axis(dense, np.maximum(asked, 0), axis=1), 0)
    index = index_of(vectors, threads)
    index.__dict__["table"] = postings_with_columns(index.postings, 20, share=share, bits=bits)
    for left_out in (excluded, [[]] * 7):
        labels, scores = dense_search(x.toarray(), vectors.toarray(), k, left_out)
        given_lists = Ragged.of([np.array(item, dtype=np.int64) for item in left_out]) if left_out is excluded else None
        for definition in (False, True):
            with kernels.reference(definition):
                found, answers = index.search_and_score(x, k, asked, given_lists)
                alone = index.search(x, k, given_lists)
            np.testing.assert_array_equal(found.labels, labels)
            np.testing.assert_array_equal(found.scores, scores)
            np.testing.assert_array_equal(answers, expected)  # excluded labels have their score too
            np.testing.assert_array_equal(alone.labels, labels)
            np.testing.assert_array_equal(alone.scores, scores)


@pytest.mark.parametrize(("bits", "share_off"), [(16, 32_000), (8, 120)])
def test_quantized_columns_are_off_by_half_a_step_per_word(bits: int, share_off: int) -> None:
    """The scores of the kernel against the definition, which is not rounded; every word is a column."""
    rng = np.random.default_rng(bits)
    vectors, x = (sp.csr_matrix(rng.random((rows, 12)).astype(np.float32)) for rows in (200, 9))
    index = index_of(vectors)
    index.__dict__["table"] = postings_with_columns(index.postings, 200, share=1000, bits=bits)
    assert (index.table.column_of >= 0).all()
    asked = np.tile(np.arange(200, dtype=np.int32), (9, 1))
    _, answers = index.search_and_score(x, 5, asked)
    with kernels.reference():
        found, exact = index.search_and_score(x, 5, asked)
    # A step is a power of two: at most twice the largest weight over the largest code.
    bound = (x.toarray() * vectors.toarray().max(axis=0)).sum(axis=1, keepdims=True) / share_off
    assert (np.abs(answers - exact) <= bound).all()
    assert (answers != exact).any(), "rounded"
    np.testing.assert_allclose(np.take_along_axis(answers, found.labels, axis=1), found.scores, atol=bound.max())


def test_many_labels_have_columns_of_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = sparse(np.random.default_rng(0), 30, 6)
    assert index_of(vectors).table.codes.dtype == np.int16
    monkeypatch.setattr(module, "QUANTIZED_FROM", 30)
    assert index_of(vectors).table.codes.dtype == np.int8
    assert index_of(vectors[:29]).table.codes.dtype == np.int16


@given(seed=st.integers(0, 10_000))
def test_many_labels_and_few_places(seed: int) -> None:
    """More labels above 0 than are held at once, in columns and in lists."""
    rng = np.random.default_rng(seed)
    vectors, x = sparse(rng, 3000, 5, coarse=True), sparse(rng, 3, 5, coarse=True)
    index = index_of(vectors)
    labels, scores = dense_search(x.toarray(), vectors.toarray(), 10, [[]] * 3)
    for share in (0, 1000):
        index.__dict__["table"] = postings_with_columns(index.postings, 3000, share=share)
        found = index.search(x, 10)
        np.testing.assert_array_equal(found.labels, labels)
        np.testing.assert_array_equal(found.scores, scores)


def test_a_text_without_known_words_finds_nothing() -> None:
    index = index_of(sparse(np.random.default_rng(0), 5, 8))
    for definition in (False, True):
        with kernels.reference(definition):
            found = index.search(sp.csr_matrix((2, 8), dtype=np.float32), 3)
            assert (found.labels == -1).all()
            assert (found.scores == 0).all()
            assert index.search(sp.csr_matrix((0, 8), dtype=np.float32), 3).labels.shape == (0, 3)


def test_a_word_listed_twice_counts_twice() -> None:
    x = sp.csr_matrix((np.array([1, 2], dtype=np.float32), np.array([3, 3]), np.array([0, 2])), shape=(1, 5))
    index = index_of(sp.csr_matrix(np.eye(5, dtype=np.float32)))
    for definition in (False, True):
        with kernels.reference(definition):
            assert index.search(x, 1).scores.tolist() == [[3.0]]


def test_threads_share_an_index() -> None:
    rng = np.random.default_rng(1)
    index = index_of(sparse(rng, 300, 40), threads=2)
    batches = [sparse(rng, rows, 40) for rows in (1, 7, 30, 64)]
    expected = [index.search(batch, 10) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(lambda number: index.search(batches[number % 4], 10), range(60))):
            np.testing.assert_array_equal(found.labels, expected[number % 4].labels)
            np.testing.assert_array_equal(found.scores, expected[number % 4].scores)
    scratch = list(index._sums._free)
    assert scratch
    assert not any(sums.any() or seen.any() for sums, seen, _ in scratch), "scratch is zero between calls"


# -- the vectors of labels ---------------------------------------------------------------------------------------------


def unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30))


def dense_build(
    bow: np.ndarray, labels: np.ndarray, kinds: np.ndarray, words: int, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(v, t, c), label by label from the formulas."""
    v, t, c = (np.zeros((labels.shape[1], bow.shape[1])) for _ in range(3))
    rows = unit(bow.astype(np.float64))
    for label in range(labels.shape[1]):
        has = labels[:, label] > 0
        total = rows[has & (kinds != KIND_LABEL_TEXT)].sum(axis=0)
        kept = np.argsort(-np.abs(total), kind="stable")[:words]
        c[label, kept] = total[kept]
        c[label] = unit(c[label])
        t[label] = unit(rows[has & (kinds == KIND_LABEL_TEXT)].sum(axis=0))
        v[label] = unit(np.linalg.norm(total) * c[label] + weight * t[label])
    return v, t, c


@given(
    seed=st.integers(0, 10_000), words=st.integers(1, 12), weight=st.sampled_from([0.0, 0.5, 2.0]), signed=st.booleans()
)  # fmt: skip
def test_vectors_are_the_formulas(seed: int, words: int, weight: float, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    bow, labels = sparse(rng, 30, 10, signed=signed), sparse(rng, 30, 9)
    kinds = np.where(rng.random(30) < 0.2, KIND_LABEL_TEXT, KIND_TEXT).astype(np.uint8)
    built = build_inverted_index(bow, labels, kinds, words_per_label=words, label_text_weight=weight)
    v, t, c = dense_build(bow.toarray(), labels.toarray(), kinds, words, weight)
    np.testing.assert_allclose(built.postings.to_csr().toarray().T, v, atol=1e-5)
    np.testing.assert_allclose(built.label_texts.to_csr().toarray(), t, atol=1e-5)

    x, asked = sparse(rng, 6, 10, signed=signed), rng.integers(-1, 9, size=(6, 5)).astype(np.int32)
    # Solved for the centroid score, an error of 16 bits in the combined one is divided by the share of the centroid.
    for definition, tolerance in ((False, 2e-4), (True, 2e-5)):
        with kernels.reference(definition):
            scores = built.scores(x, asked)
        for found, vectors in zip(scores, (v, t, c), strict=True):
            products = np.take_along_axis(x.toarray() @ vectors.T, np.maximum(asked, 0), axis=1)
            np.testing.assert_allclose(found, np.where(asked >= 0, products, 0), atol=tolerance)
            assert found.dtype == np.float32


def test_labels_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    bow, labels, kinds = sparse(rng, 50, 12), sparse(rng, 50, 23), np.zeros(50, dtype=np.uint8)
    whole = build_inverted_index(bow, labels, kinds, words_per_label=5, label_text_weight=1.0)
    monkeypatch.setattr(module, "LABELS_AT_ONCE", 4)
    blocks = build_inverted_index(bow, labels, kinds, words_per_label=5, label_text_weight=1.0)
    np.testing.assert_array_equal(blocks.postings.to_csr().toarray(), whole.postings.to_csr().toarray())
    np.testing.assert_array_equal(blocks.mixture, whole.mixture)


def test_only_the_largest_words_are_kept() -> None:
    bow = sp.csr_matrix(np.array([[3, 2, 1, 0], [0, 0, 0, 5]], dtype=np.float32))
    labels = sp.csr_matrix(np.eye(2, dtype=np.float32))
    built = build_inverted_index(bow, labels, np.zeros(2, dtype=np.uint8), words_per_label=2, label_text_weight=2.0)
    vectors = built.postings.to_csr().toarray().T
    np.testing.assert_allclose(vectors[0], np.array([3, 2, 0, 0]) / np.sqrt(13), rtol=1e-6)
    np.testing.assert_allclose(vectors[1], [0, 0, 0, 1])
    assert (built.postings.to_csr().toarray() != 0).sum(axis=0).tolist() == [2, 1]


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> tuple[InvertedIndex, Path]:
    rng = np.random.default_rng(7)
    kinds = np.array([KIND_TEXT] * 20 + [KIND_LABEL_TEXT] * 5, dtype=np.uint8)
    built = build_inverted_index(
        sparse(rng, 25, 10), sparse(rng, 25, 6), kinds, words_per_label=4, label_text_weight=2.0
    )
    built.save(tmp_path)
    return built, tmp_path


def test_saved_and_loaded(saved: tuple[InvertedIndex, Path]) -> None:
    built, folder = saved
    loaded = InvertedIndex.load(folder, n_labels=6, n_words=10, threads=2)
    x = sparse(np.random.default_rng(8), 9, 10)
    before, after = built.search(x, 4), loaded.search(x, 4)
    assert (before.labels >= 0).any()
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, before.scores)
    for ours, theirs in zip(loaded.scores(x, before.labels), built.scores(x, before.labels), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_files_of_another_model_are_refused(saved: tuple[InvertedIndex, Path]) -> None:
    for sizes in ({"n_labels": 5, "n_words": 10}, {"n_labels": 6, "n_words": 9}, {"n_labels": 7, "n_words": 10}):
        with pytest.raises(ModelError, match=rf"{NAME}: .*(other files of this model need|must be from 0)"):
            InvertedIndex.load(saved[1], **sizes)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label_texts.indptr", lambda a: a[::-1]),
        ("label_texts.indptr", lambda a: a[:-1]),
        ("label_texts.words", lambda a: a + 100),
        ("label_texts.words", lambda a: a - 100),
        ("label_texts.weights", lambda a: a[:-1]),
        ("label_texts.weights", lambda a: a.astype(np.float64)),
        ("label_texts.biases", lambda a: a[:-1]),
        ("postings.words", lambda a: a + 6),
        ("mixture", lambda a: a[:, :1]),
        ("mixture", lambda a: a.astype(np.int32)),
        ("mixture", None),
        ("label_texts.words", None),
    ],
)
def test_damaged_arrays_are_refused(saved: tuple[InvertedIndex, Path], name: str, change: object) -> None:
    folder = saved[1]
    arrays = {key: np.array(array) for key, array in read_tensors(folder / NAME)[0].items()}
    if change is None:
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(change(arrays[name]))  # type: ignore[operator]
    write_tensors(folder / NAME, arrays)
    with pytest.raises(ModelError, match=rf"{NAME}: .*restore"):
        InvertedIndex.load(folder, n_labels=6, n_words=10)


def test_a_torn_or_missing_file_is_refused(saved: tuple[InvertedIndex, Path]) -> None:
    path = saved[1] / NAME
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        InvertedIndex.load(saved[1], n_labels=6, n_words=10)
    path.unlink()
    with pytest.raises(ModelError, match="missing"):
        InvertedIndex.load(saved[1], n_labels=6, n_words=10)


# -- the k largest sums -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [1, 50, 200, 3000])
@pytest.mark.parametrize("kind", ["spread", "ties", "sample-misled", "sample-misses", "few", "none"])
def test_the_largest_sums_are_found_whatever_the_sample(kind: str, room: int) -> None:
    """A sample of the sums guesses the bar; a wrong guess does not change the result."""
    from elias.kernels.inverted_index import SAMPLE, keys_of_all, likely_bar
    from elias.kernels.shortlist import LOW32, key_of

    rng, n = np.random.default_rng(room), 20_011
    sums = rng.random(n).astype(np.float32)
    if kind == "ties":
        sums = rng.integers(0, 4, n).astype(np.float32)
    elif kind == "sample-misled":  # the sampled sums are the largest: the bar is too high
        sums[::SAMPLE] += 10.0
    elif kind == "sample-misses":  # and the other way round: all others pass
        sums[::SAMPLE] = 1e-6
    elif kind == "few":
        sums[rng.random(n) < 0.999] = 0.0
    elif kind == "none":
        sums[:] = 0.0
    bar = likely_bar(sums, room)
    above = int((sums > bar).sum())
    if kind == "sample-misled" and room > 1:
        assert above < room
    if kind == "sample-misses":
        assert above > n // 2
    keys = np.empty(max(256, 4 * room), dtype=np.uint64)
    held = keys_of_all(sums, room, keys)
    found = {int(LOW32 - (key & LOW32)) for key in keys[:held]}
    order = sorted((int(label) for label in range(n) if sums[label] > 0), key=lambda label: (-sums[label], label))
    assert found == set(order[:room])
    assert len(found) == held
    assert {int(key_of(sums[label], label)) for label in found} == set(keys[:held].tolist())
