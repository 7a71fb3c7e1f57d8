"""Tf-idf, psi and label centroids against plain loops; storing and mapping."""

from __future__ import annotations

import json
import math
import mmap
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.core.errors import InputError, ModelError
from elias.core.sparse_files import open_csr, write_csr
from elias.core.tokenize import Vocabulary, tokenize
from elias.dataset.rows import TextColumn
from elias.encoders import centroids
from elias.encoders.centroids import label_centroids, normalize_rows, psi
from elias.encoders.tfidf import TfIdf

TEXTS = ["the cat sat on the mat", "the dog", "", "cat cat cat dog", "深圳 cable 電線", "!!!", "the the the naïve mat"]
WORDS = st.lists(st.sampled_from(["a", "b", "c", "été", "漢", "dd", "e1", ",", "\0"]), max_size=12).map(" ".join)


def slow_tfidf(fitted: list[str], texts: list[str], min_df: int) -> tuple[list[str], np.ndarray]:
    df = Counter(word for text in fitted for word in set(tokenize(text)))
    words = sorted((word for word in df if df[word] >= min_df), key=lambda word: (-df[word], word))
    rows = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        tf = Counter(tokenize(text))
        for column, word in enumerate(words):
            if tf[word]:
                idf = math.log((1 + len(fitted)) / (1 + df[word])) + 1
                rows[row, column] = (1 + math.log(tf[word])) * idf
        if rows[row].any():
            rows[row] /= math.sqrt(sum(value * value for value in rows[row]))
    return words, rows


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=10), st.lists(WORDS, max_size=4), st.integers(1, 3))
def test_tfidf_agrees_with_the_formula(fitted: list[str], others: list[str], min_df: int) -> None:
    tfidf, matrix = TfIdf.fit_transform(fitted, min_df=min_df)
    words, expected = slow_tfidf(fitted, fitted, min_df)
    assert list(tfidf.words.words) == words
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-6)
    np.testing.assert_allclose(tfidf.transform(others).toarray(), slow_tfidf(fitted, others, min_df)[1], rtol=1e-6)


def same_bits(left: sp.csr_matrix, right: sp.csr_matrix) -> bool:
    parts = ("data", "indices", "indptr")
    return left.shape == right.shape and all(np.array_equal(getattr(left, p), getattr(right, p)) for p in parts)


def random_texts(n_texts: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{number}" for number in rng.zipf(1.3, rng.integers(0, 90)) % 3000) for _ in range(n_texts)]


def test_one_text_is_summed_in_the_same_order() -> None:
    """Here a sum in another order ends in another float32."""
    numbers = "0x1.596459dac8ea7p+2", "0x1.e7c8a2668bdcdp+2", "0x1.11828c9883947p+2"
    idf = np.array([float.fromhex(number) for number in numbers])
    tfidf = TfIdf(Vocabulary(["x", "y", "z"]), idf, min_df=1, max_words=3, n_texts=10)
    np.testing.assert_array_equal(tfidf.transform_one("x y z")[1], tfidf.transform(["x y z"]).data)


def test_training_and_serving_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = random_texts(1500, seed=1)
    tfidf, trained = TfIdf.fit_transform(TextColumn(texts))
    assert tfidf.min_df == 2
    tfidf.save(tmp_path)
    loaded = TfIdf.load(tmp_path)
    assert (loaded.words.words, loaded.n_texts, loaded.max_words) == (tfidf.words.words, 1500, 500_000)
    assert same_bits(loaded.transform(texts), trained)
    assert same_bits(sp.vstack([loaded.transform([text]) for text in texts[:50]], format="csr"), trained[:50])
    for row in range(0, 1500, 7):
        columns, values = loaded.transform_one(texts[row])
        assert np.array_equal(columns, trained[row].indices)
        assert np.array_equal(values, trained[row].data)
        assert (columns.dtype, values.dtype) == (np.int32, np.float32)
    monkeypatch.setattr("elias.core.tokenize.text_chunks.__defaults__", (500,))
    assert same_bits(TfIdf.fit_transform(texts)[1], trained)
    assert same_bits(TfIdf.fit(texts).transform(texts), trained)


def test_tfidf_edges() -> None:
    tfidf, matrix = TfIdf.fit_transform(TEXTS)
    assert tfidf.min_df == 1
    assert matrix.has_sorted_indices
    assert matrix[2].nnz == matrix[5].nnz == 0
    assert tfidf.transform([]).shape == (0, tfidf.n_features)
    assert tfidf.transform_one("unknown")[1].shape == (0,)
    nothing, empty = TfIdf.fit_transform([])
    assert empty.shape == (0, 0)
    assert nothing.transform(["a b"]).shape == (1, 0)
    assert TfIdf.fit(TEXTS, max_words=2).words.words == ("the", "cat")
    with pytest.raises(InputError, match="min_df is 0"):
        TfIdf.fit(TEXTS, min_df=0)
    with pytest.raises(InputError, match="max_words is 0"):
        TfIdf.fit(TEXTS, max_words=0)


def test_one_short_text_takes_well_under_a_millisecond() -> None:
    texts = random_texts(500, seed=2)
    tfidf = TfIdf.fit(texts)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for text in texts[:100]:
            tfidf.transform_one(text)
        best = min(best, (time.perf_counter() - start) / 100)
    assert best < 1e-3


def test_broken_vectorizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is missing"):
        TfIdf.load(tmp_path)
    TfIdf.fit(TEXTS).save(tmp_path)
    path = tmp_path / "vectorizer.json"
    whole = path.read_text()
    for broken, message in [
        ("{", "not readable as JSON"),
        ("[1]", "holds a list"),
        (json.dumps({**json.loads(whole), "format_version": 99}), '"format_version" is 99'),
        (json.dumps({**json.loads(whole), "words": ["a"]}), "with words = 1"),
        (json.dumps({"format_version": 1}), "missing|broken|has no"),
    ]:
        path.write_text(broken)
        with pytest.raises(ModelError, match=message):
            TfIdf.load(tmp_path)
    path.write_text(whole)
    (tmp_path / "vectorizer.npy").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match=r"vectorizer\.npy"):
        TfIdf.load(tmp_path)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0, 0.0, 1e7])
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_every_idf_is_checked_however_many(
    wrong: float, small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not finite would make the values of a whole row so."""
    monkeypatch.setattr("elias.core.schema.SMALL", small)
    TfIdf.fit(TEXTS).save(tmp_path)
    idf = np.load(tmp_path / "vectorizer.npy")
    idf[1] = wrong
    np.save(tmp_path / "vectorizer.npy", idf)
    with pytest.raises(ModelError, match=r'vectorizer\.npy: "idf" has .*restore the whole folder'):
        TfIdf.load(tmp_path)


def slow_centroids(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    centroids = np.zeros((labels.shape[1], features.shape[1]))
    for label in range(labels.shape[1]):
        for row in np.flatnonzero(labels[:, label]):
            length = np.linalg.norm(features[row])
            centroids[label] += features[row] / length if length else 0
        length = np.linalg.norm(centroids[label])
        centroids[label] /= length if length else 1
    return centroids


@pytest.mark.parametrize("seed", range(5))
def test_centroids_agree_with_the_formula(seed: int) -> None:
    features = sp.random(30, 12, density=0.2, format="csr", random_state=seed, dtype=np.float32)
    labels = sp.random(30, 9, density=0.1, format="csr", random_state=seed + 100, dtype=np.float32)
    labels.data[::5] = 0  # stored zeros are no positives
    before = features.copy()
    expected = slow_centroids(features.toarray().astype(np.float64), labels.toarray())
    sparse = label_centroids(sp.csr_matrix(features), sp.csr_matrix(labels))
    assert sparse.has_sorted_indices
    np.testing.assert_allclose(sparse.toarray(), expected, atol=1e-6)
    dense = label_centroids(features.toarray(), sp.csr_matrix(labels))
    assert isinstance(dense, np.ndarray)
    assert dense.dtype == np.float32
    np.testing.assert_allclose(dense, expected, atol=1e-6)
    assert same_bits(features, before)
    with pytest.raises(InputError, match="29 of labels"):
        label_centroids(sp.csr_matrix(features), sp.csr_matrix(labels[:29]))


def test_psi_and_normalized_rows() -> None:
    bow = np.asarray([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    phi = np.asarray([[0.0, 5.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    expected = np.asarray([[0.6, 0.8, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]], dtype=np.float32)
    for left, right in [(bow, phi), (sp.csr_matrix(bow), phi), (sp.csr_matrix(bow), sp.csr_matrix(phi))]:
        joined = psi(left, right)
        assert joined.dtype == np.float32
        dense = joined if isinstance(joined, np.ndarray) else joined.toarray()
        np.testing.assert_allclose(dense, expected, rtol=1e-6)
    np.testing.assert_allclose(normalize_rows(sp.csr_matrix(bow)).toarray(), expected[:, :2], rtol=1e-6)
    with pytest.raises(InputError, match="3 rows of bow, 2 of phi"):
        psi(bow, phi[:2])


def test_psi_of_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without words, and words in any order, as users' matrices have them."""
    rng = np.random.default_rng(0)
    dense = rng.random((11, 6)) * (rng.random((11, 6)) < 0.4)
    bow, phi = sp.csr_matrix(dense, dtype=np.float32), rng.normal(size=(11, 4)).astype(np.float32)
    for row in range(11):
        inside = slice(bow.indptr[row], bow.indptr[row + 1])
        bow.indices[inside], bow.data[inside] = bow.indices[inside][::-1].copy(), bow.data[inside][::-1].copy()
    bow.has_sorted_indices = False
    monkeypatch.setattr(centroids, "ROWS_AT_ONCE", 3)
    joined = psi(bow, phi)
    assert joined.has_canonical_format
    np.testing.assert_array_equal(joined.toarray(), np.hstack([normalize_rows(bow).toarray(), normalize_rows(phi)]))


def test_csr_is_mapped_and_checked(tmp_path: Path) -> None:
    matrix = sp.csr_matrix(sp.random(20, 30, density=0.2, format="csr", random_state=3, dtype=np.float32))
    write_csr(tmp_path / "m", matrix)
    opened = open_csr(tmp_path / "m")
    assert same_bits(opened, matrix)
    assert not opened.data.flags.writeable
    owner = opened.data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    assert same_bits(sp.csr_matrix(opened[[3, 1]]), sp.csr_matrix(matrix[[3, 1]]))
    np.testing.assert_allclose((opened @ opened.T).toarray(), (matrix @ matrix.T).toarray())
    write_csr(tmp_path / "m", sp.csr_matrix(matrix[:5]))  # over the mapped one
    assert open_csr(tmp_path / "m").shape == (5, 30)
    assert same_bits(opened, matrix)
    np.save(tmp_path / "m" / "data.npy", np.zeros(3, dtype=np.float32))
    with pytest.raises(ModelError, match="do not fit together"):
        open_csr(tmp_path / "m")
    np.save(tmp_path / "m" / "data.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError, match="cannot be read"):
        open_csr(tmp_path / "m")
    (tmp_path / "m" / "csr.json").unlink()
    with pytest.raises(ModelError, match="is missing"):
        open_csr(tmp_path / "m")


def test_empty_csr(tmp_path: Path) -> None:
    for shape in [(0, 0), (3, 0), (0, 3), (2, 2)]:
        write_csr(tmp_path, sp.csr_matrix(shape, dtype=np.float32))
        assert open_csr(tmp_path).shape == shape


def test_few_texts_have_the_bits_of_many() -> None:
    texts = ["red apple", "", "apple apple pie", "unknown", "red red red car"]
    tfidf = TfIdf.fit(texts, min_df=1)
    whole = tfidf.transform(texts)
    for count in range(5):
        few = tfidf.transform(texts[:count])
        assert few.shape == (count, tfidf.n_features)
        few.check_format(full_check=True)
        assert (few != whole[:count]).nnz == 0
        assert (few @ np.ones((few.shape[1], 2), dtype=np.float32)).shape == (count, 2)
        assert sp.vstack([few, whole]).shape[0] == count + 5
