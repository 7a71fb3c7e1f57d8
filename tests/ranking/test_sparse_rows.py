"""Sparse rows of labels: products against dense ones, columns of common words, transposes, refused arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from elias import kernels
from elias.core.errors import ModelError
from elias.core.model_schema import sparse_rows
from elias.core.schema import check_arrays
from elias.ranking.sparse_rows import SparseRows, exact_columns, largest_entries, postings_with_columns, stacked
from helpers.sparse_data import sparse


@given(seed=st.integers(0, 10_000), threads=st.integers(1, 3))
def test_products_are_dense_products(seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    weights, x = sparse(rng, 12, 9, signed=True), sparse(rng, 5, 9, signed=True)
    biases = rng.normal(size=12).astype(np.float32)
    rows = SparseRows.from_csr(weights, biases)
    labels = rng.integers(-1, 12, size=(5, 7))
    expected = np.where(labels >= 0, np.take_along_axis(x.toarray() @ weights.toarray().T + biases, labels % 12, 1), 0)
    np.testing.assert_allclose(rows.products(x, labels, threads=threads), expected, rtol=1e-4, atol=1e-5)
    with kernels.reference():
        np.testing.assert_allclose(rows.products(x, labels), expected, rtol=1e-4, atol=1e-5)
    assert rows.products(x[:0], labels[:0], threads=threads).shape == (0, 7)


def test_a_word_listed_twice_counts_twice() -> None:
    x = sp.csr_matrix((np.array([1, 2], dtype=np.float32), np.array([3, 3]), np.array([0, 2])), shape=(1, 5))
    rows = SparseRows.from_csr(sp.csr_matrix(np.eye(5, dtype=np.float32)))
    for definition in (False, True):
        with kernels.reference(definition):
            assert rows.products(x, np.array([[3, 2]])).tolist() == [[3.0, 0.0]]


def test_rows_without_words_have_their_bias_only() -> None:
    rows = SparseRows.empty(4, 3)
    assert len(rows) == 3
    assert rows.products(sp.csr_matrix(np.ones((1, 4), dtype=np.float32)), np.array([[0, 2]])).tolist() == [[0.0, 0.0]]
    assert len(SparseRows.empty(4)) == 0


def test_rows_are_stacked() -> None:
    rng = np.random.default_rng(1)
    first, second = sparse(rng, 4, 6), sparse(rng, 3, 6)
    both = stacked([SparseRows.from_csr(first, np.arange(4)), SparseRows.empty(6), SparseRows.from_csr(second)])
    np.testing.assert_array_equal(both.to_csr().toarray(), np.vstack([first.toarray(), second.toarray()]))
    assert both.biases.tolist() == [0, 1, 2, 3, 0, 0, 0]


def test_coded_rows_are_nearly_the_rows() -> None:
    rng = np.random.default_rng(2)
    weights, x = sparse(rng, 12, 9, signed=True), sparse(rng, 5, 9)
    rows = SparseRows.from_csr(weights, rng.normal(size=12))
    coded, step = rows.coded(), np.abs(weights.toarray()).max(axis=1, keepdims=True) / 32767
    assert (np.abs(coded.to_csr() - rows.to_csr()) <= 0.51 * step).all()
    assert coded.coded() is coded
    labels = rng.integers(-1, 12, size=(5, 7))
    np.testing.assert_array_equal(coded.products(x, labels), coded.decoded().products(x, labels))
    np.testing.assert_allclose(coded.products(x, labels), rows.products(x, labels), atol=1e-3)
    asked = np.arange(12), np.arange(9)
    np.testing.assert_array_equal(coded.entries(*asked), coded.decoded().entries(*asked))
    schema, sizes = sparse_rows("x", "labels", "words", coded=True), {"labels": 12, "words": 9}
    again = SparseRows.from_arrays(check_arrays(Path("file"), coded.arrays("x"), schema, sizes), "x", 9)
    for one, other in zip(vars(again).values(), vars(coded).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ModelError, match=r'"x\.steps" has'):
        check_arrays(Path("file"), {**coded.arrays("x"), "x.steps": step.ravel()[1:].astype(np.float32)}, schema, sizes)


def test_rows_without_words_are_coded() -> None:
    rows = SparseRows.empty(4, 3)
    assert rows.coded().decoded().to_csr().nnz == 0


# -- columns of common words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "share_off"), [(16, 16_000), (8, 60)])
def test_a_column_holds_the_weights_of_its_word(bits: int, share_off: int) -> None:
    words = SparseRows.from_csr(sparse(np.random.default_rng(3), 6, 400, signed=True))
    words.weights[:5] = 1e-9  # too small for the step of its word: a trace stays
    table = postings_with_columns(words, 400, share=1000, bits=bits)
    assert table.codes.itemsize * 8 == bits
    assert (table.column_of >= 0).sum() > 2
    for word in range(6):
        row = words.to_csr()[word].toarray()[0]
        column = table.column_of[word]
        if column < 0:
            assert not row.any()
            continue
        held = table.codes[column] * table.steps[column]
        assert np.abs(held - row).max() <= np.abs(row).max() / share_off
        np.testing.assert_array_equal(held != 0, row != 0)


def test_only_words_of_many_labels_get_a_column() -> None:
    words = sparse(np.random.default_rng(4), 9, 20)
    sizes = np.diff(words.indptr)
    for share in (0, 2, 5, 1000):
        table = postings_with_columns(SparseRows.from_csr(words), 20, share=share)
        np.testing.assert_array_equal(table.column_of >= 0, sizes * share > 20)


@pytest.mark.parametrize("share", [0, 1, 2, 5, 1000])
def test_a_transpose_holds_each_weight_once(share: int) -> None:
    """In a list or in a column; columns of `exact_columns` are not rounded."""
    words = sparse(np.random.default_rng(share), 9, 20, signed=True)
    table = exact_columns(SparseRows.from_csr(sp.csr_matrix(words.T)), share)
    dense = np.zeros(words.shape, dtype=np.float32)
    for word, column in enumerate(table.column_of.tolist()):
        place = slice(table.indptr[word], table.indptr[word + 1])
        dense[word, table.labels[place]] = table.weights[place]
        if column >= 0:
            assert place.start == place.stop
            dense[word] = table.codes[column]
    np.testing.assert_array_equal(dense, words.toarray())
    assert (table.column_of >= 0).sum() == (np.diff(words.indptr) * share > 20).sum()


@given(seed=st.integers(0, 10_000), most=st.integers(1, 9), coarse=st.booleans())
def test_the_largest_entries_of_each_row_are_kept(seed: int, most: int, coarse: bool) -> None:
    matrix = sparse(np.random.default_rng(seed), 6, 8, signed=True, coarse=coarse)
    for definition, threads in ((False, 1), (False, 2), (True, 1)):
        with kernels.reference(definition):
            kept = largest_entries(matrix, most, threads=threads).toarray()
        for row, found in zip(matrix.toarray(), kept, strict=True):
            best = sorted(np.flatnonzero(row), key=lambda column: (-abs(row[column]), column))[:most]
            np.testing.assert_array_equal(found, np.where(np.isin(np.arange(8), best), row, 0))


# -- arrays of a file -------------------------------------------------------------------------------------------------


def read(arrays: dict[str, np.ndarray]) -> SparseRows:
    """As readers of model files do."""
    schema = sparse_rows("x", "labels", "words")
    return SparseRows.from_arrays(check_arrays(Path("file"), arrays, schema, {"labels": 6, "words": 10}), "x", 10)


def test_arrays_are_read_back() -> None:
    rows = SparseRows.from_csr(sparse(np.random.default_rng(7), 6, 10), np.arange(6))
    again = read(rows.arrays("x"))
    np.testing.assert_array_equal(again.to_csr().toarray(), rows.to_csr().toarray())
    np.testing.assert_array_equal(again.biases, rows.biases)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indptr", lambda a: a[::-1]),
        ("indptr", lambda a: a[:-1]),
        ("indptr", lambda a: a.astype(np.int32)),
        ("words", lambda a: a + 100),
        ("words", lambda a: a - 100),
        ("weights", lambda a: a[:-1]),
        ("weights", lambda a: a.astype(np.float64)),
        ("biases", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    arrays = SparseRows.from_csr(sparse(np.random.default_rng(7), 6, 10)).arrays("x")
    arrays[f"x.{name}"] = change(arrays[f"x.{name}"])
    with pytest.raises(ModelError, match=r'^file: "x\..*; restore the whole folder'):
        read(arrays)


def test_a_missing_array_is_refused() -> None:
    arrays = SparseRows.from_csr(sparse(np.random.default_rng(7), 6, 10)).arrays("x")
    del arrays["x.words"]
    with pytest.raises(ModelError, match=r'^file: has no "x\.words"'):
        read(arrays)
