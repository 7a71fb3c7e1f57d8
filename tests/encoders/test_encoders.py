"""The encoders that need no pretrained weights: bag and dense, and the head they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from elias import kernels
from elias.core.embedding_table import EmbeddingTable, GradientBuffer, RowOptimizer
from elias.core.errors import InputError, ModelError
from elias.core.files import write_tensors
from elias.core.noise import Noise
from elias.core.ragged import take_rows
from elias.encoders import Encoder, Inputs, TrainingContext, load_encoder
from elias.encoders.bag import BagEncoder, bag_of_rows, bag_of_rows_reference
from elias.encoders.dense import DenseEncoder
from elias.encoders.head import Head
from elias.encoders.svd import svd_embeddings

ROWS, WORDS, DIM = 12, 30, 8


@pytest.fixture
def bow() -> sp.csr_matrix:
    """Twelve rows, the fourth and the last without a word."""
    matrix = sp.random(ROWS, WORDS, density=0.2, format="lil", dtype=np.float32, rng=np.random.default_rng(1))
    matrix[3] = 0
    matrix[ROWS - 1] = 0
    return matrix.tocsr()


@pytest.fixture
def bag() -> BagEncoder:
    words = torch.from_numpy(np.random.default_rng(2).standard_normal((WORDS, DIM)).astype(np.float32))
    return trained(BagEncoder(words, radius=3.0, dropout=0.5))


@pytest.fixture
def dense() -> DenseEncoder:
    return trained(DenseEncoder(DIM, radius=3.0, dropout=0.5))


def trained(encoder: Any) -> Any:
    """A head that is not at its start."""
    draw = torch.Generator().manual_seed(3)
    for parameter in encoder.head.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw) * 0.5
    return encoder


def context_on(rows: np.ndarray, epoch: int = 0) -> TrainingContext:
    return TrainingContext(GradientBuffer(), Noise.of(0, "stage1", epoch), torch.from_numpy(rows))


def slow_head(h: np.ndarray, head: Head) -> np.ndarray:
    """The formula in the head's docstring, row by row."""
    weight, bias = head.residual.weight.detach().numpy(), head.residual.bias.detach().numpy()
    phi = np.zeros_like(h)
    for row, vector in enumerate(h):
        length = np.linalg.norm(vector)
        if length > 0:
            n = vector / length
            u = n + F.gelu(torch.from_numpy(weight @ n + bias)).numpy()
            phi[row] = head.radius * u / np.linalg.norm(u)
    return phi


def test_bag_is_its_formula(bag: BagEncoder, bow: sp.csr_matrix) -> None:
    h = bow.toarray() @ bag.words.values.numpy()
    with torch.no_grad():
        phi = bag.encode(bag.prepare(Inputs(bow=bow)), np.arange(ROWS)).numpy()
    np.testing.assert_allclose(phi, slow_head(h, bag.head), rtol=2e-5, atol=1e-5)


def test_dense_is_its_formula(dense: DenseEncoder) -> None:
    vectors = np.random.default_rng(4).standard_normal((ROWS, DIM)).astype(np.float32)
    with torch.no_grad():
        phi = dense.encode(dense.prepare(Inputs(vectors=vectors)), np.arange(ROWS)).numpy()
    np.testing.assert_allclose(phi, slow_head(vectors, dense.head), rtol=2e-5, atol=1e-5)


def test_phi_has_the_given_length_and_a_new_head_changes_no_direction() -> None:
    vectors = np.random.default_rng(5).standard_normal((ROWS, DIM)).astype(np.float32)
    phi = DenseEncoder(DIM, radius=3.0, dropout=0.5).encode(vectors, np.arange(ROWS)).detach().numpy()
    np.testing.assert_allclose(phi, 3.0 * vectors / np.linalg.norm(vectors, axis=1, keepdims=True), rtol=1e-5)


def test_a_text_without_words_has_no_opinion_even_after_training(bag: BagEncoder, bow: sp.csr_matrix) -> None:
    with torch.no_grad():
        phi = bag.encode(bow, np.arange(ROWS))
        assert not phi[3].any()
        assert not phi[ROWS - 1].any()
        assert phi[0].any()
        assert not bag.encode(bow, np.array([3])).any()
    context = context_on(np.array([3, ROWS - 1]))
    bag.encode(bow, np.array([3, ROWS - 1]), context).sum().backward()
    assert torch.isfinite(bag.head.residual.weight.grad).all()


def test_training_is_prediction_times_dropout(bag: BagEncoder, bow: sp.csr_matrix) -> None:
    rows = np.array([5, 0, 7, 5])
    context = context_on(rows)
    phi = bag.encode(bow, rows).detach()
    expected = context.noise.dropout(phi, context.rows_B, bag.head.dropout)
    torch.testing.assert_close(bag.encode(bow, rows, context).detach(), expected)
    bag.head.dropout = 0.0
    torch.testing.assert_close(bag.encode(bow, rows, context_on(rows)).detach(), phi)


def test_dropout_depends_on_the_row_not_on_the_batch(dense: DenseEncoder) -> None:
    vectors = np.random.default_rng(6).standard_normal((ROWS, DIM)).astype(np.float32)
    alone = dense.encode(vectors, np.array([4]), context_on(np.array([4])))
    among = dense.encode(vectors, np.array([2, 4]), context_on(np.array([2, 4])))
    assert torch.equal(alone[0] == 0, among[1] == 0)
    later = dense.encode(vectors, np.array([2, 4]), context_on(np.array([2, 4]), epoch=1))
    assert not torch.equal(among == 0, later == 0)


def test_gradients_reach_the_words_of_the_batch_and_the_head(bag: BagEncoder, bow: sp.csr_matrix) -> None:
    rows = np.array([1, 2])
    context = context_on(rows)
    bag.encode(bow, rows, context).square().sum().backward()
    ((table, touched, gradient),) = context.buffer.gradients()
    assert table is bag.words
    assert sorted(touched.tolist()) == sorted(set(bow[rows].indices.tolist()))
    assert gradient.shape == (len(touched), DIM)
    assert gradient.any()
    assert bag.head.residual.weight.grad is not None


@pytest.mark.parametrize("has_pending_decay", [False, True])
def test_the_bag_kernel_is_torchs_embedding_bag(has_pending_decay: bool) -> None:
    rng = np.random.default_rng(0)
    table = EmbeddingTable(
        torch.from_numpy(rng.normal(size=(30, 7)).astype(np.float32)), RowOptimizer(decay=0.5), threads=3
    )
    if has_pending_decay:
        table.apply(torch.tensor([3, 9]), torch.ones(2, 7), 0.2)
    offsets = np.array([0, 4, 4, 5, 20], dtype=np.int64)  # the second text has no words
    words = rng.integers(0, 12, 20).astype(np.int32)
    weights = torch.from_numpy(rng.random(20, dtype=np.float32))
    upstream = torch.from_numpy(rng.normal(size=(4, 7)).astype(np.float32))
    found = []
    for function in (bag_of_rows, bag_of_rows_reference):
        buffer = GradientBuffer()
        h = function(table, words, offsets, weights, buffer)
        h.backward(upstream)
        dense = torch.zeros_like(table.values)
        for _, rows, gradient in buffer.gradients():
            dense.index_add_(0, rows, gradient)
        found.append([h.detach(), dense])
    for by_kernel, by_torch in zip(*found, strict=True):
        np.testing.assert_allclose(by_kernel, by_torch, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [[0, 1, 2], [3], [11, 3, 5, 5, 0], []])
def test_take_rows(bow: sp.csr_matrix, rows: list[int]) -> None:
    columns, values, offsets = take_rows(bow, np.array(rows, dtype=np.int64))
    expected = bow[rows] if rows else sp.csr_matrix((0, WORDS), dtype=np.float32)
    np.testing.assert_array_equal(columns, expected.indices)
    np.testing.assert_array_equal(values, expected.data)
    np.testing.assert_array_equal(offsets, expected.indptr)


def test_take_rows_of_memory_mapped_arrays(tmp_path: Path, bag: BagEncoder, bow: sp.csr_matrix) -> None:
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(bow, name))
    parts = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
    mapped = sp.csr_matrix(tuple(parts), shape=bow.shape, copy=False)
    rows = np.array([7, 3, 0, 11])
    for got, expected in zip(take_rows(mapped, rows), take_rows(bow, rows), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert torch.equal(bag.encode(mapped, rows), bag.encode(bow, rows))


def test_svd_start_is_the_svd(bow: sp.csr_matrix) -> None:
    dim = 4
    table = svd_embeddings(bow, dim, seed=0)
    _, strength, directions = np.linalg.svd(bow.toarray(), full_matrices=False)
    expected = directions[:dim].T * strength[:dim] ** -0.5
    assert table.dtype == np.float32
    # A singular vector has no sign of its own, and a randomised SVD of a flat spectrum is close, not equal.
    cosines = np.abs((table * expected).sum(0)) / np.linalg.norm(table, axis=0) / np.linalg.norm(expected, axis=0)
    assert cosines[0] > 0.98
    np.testing.assert_allclose(np.linalg.norm(table, axis=0), strength[:dim] ** -0.5, rtol=0.1)
    np.testing.assert_array_equal(table, svd_embeddings(bow, dim, seed=0))


def test_the_svd_start_without_kernels_is_the_same(bow: sp.csr_matrix) -> None:
    by_kernel = svd_embeddings(bow, 3, seed=0)
    with kernels.reference():
        np.testing.assert_allclose(svd_embeddings(bow, 3, seed=0), by_kernel, rtol=1e-3, atol=1e-4)


def test_svd_start_fills_directions_that_the_data_does_not_have() -> None:
    few = sp.csr_matrix(np.random.default_rng(0).random((3, WORDS)).astype(np.float32))
    table = svd_embeddings(few, DIM, seed=0)
    assert table.shape == (WORDS, DIM)
    assert np.isfinite(table).all()
    assert (table.std(axis=0) > 0).all()
    assert table[:, 2:].std() < 0.5 * table[:, :2].std()


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 6)])
def test_svd_start_of_degenerate_data_is_finite(shape: tuple[int, int]) -> None:
    for matrix in (sp.csr_matrix(shape, dtype=np.float32), sp.csr_matrix(np.ones(shape, dtype=np.float32))):
        assert np.isfinite(svd_embeddings(matrix, DIM, seed=0)).all()


@pytest.mark.parametrize("kind", ["bag", "dense"])
def test_saved_and_loaded_is_the_same_bit_for_bit(
    kind: str, tmp_path: Path, bag: BagEncoder, dense: DenseEncoder, bow: sp.csr_matrix
) -> None:
    encoder: Encoder = bag if kind == "bag" else dense
    prepared = bow if kind == "bag" else np.random.default_rng(7).standard_normal((ROWS, DIM)).astype(np.float16)
    encoder.save(tmp_path / "encoder")
    loaded = load_encoder(tmp_path / "encoder")
    rows = np.arange(ROWS)
    assert (loaded.kind, loaded.dim) == (kind, DIM)
    assert torch.equal(loaded.encode(prepared, rows), encoder.encode(prepared, rows))
    assert torch.equal(
        loaded.encode(prepared, rows, context_on(rows)), encoder.encode(prepared, rows, context_on(rows))
    )
    assert {name: table.values.shape for name, table in loaded.tables().items()} == {
        name: table.values.shape for name, table in encoder.tables().items()
    }


def test_a_loaded_bag_can_learn_and_leaves_its_file_alone(tmp_path: Path, bag: BagEncoder) -> None:
    bag.save(tmp_path)
    before = (tmp_path / "encoder.safetensors").read_bytes()
    loaded = BagEncoder.load(tmp_path)
    loaded.words.apply(torch.tensor([1]), torch.ones(1, DIM), 0.1)
    assert not torch.equal(loaded.words.values, bag.words.values)
    assert (tmp_path / "encoder.safetensors").read_bytes() == before


def test_a_bag_with_rounded_words(tmp_path: Path, bag: BagEncoder, bow: sp.csr_matrix) -> None:
    rounded, rows = bag.rounded(), np.arange(bow.shape[0])
    assert rounded.words.values.dtype == torch.bfloat16
    expected = bow.toarray() @ rounded.words.values.float().numpy()
    for definition in (False, True):
        with kernels.reference(definition):
            np.testing.assert_allclose(rounded.h(bow, rows), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rounded.encode(bow, rows), bag.encode(bow, rows), rtol=0, atol=2e-2)
    rounded.save(tmp_path)
    again = BagEncoder.load(tmp_path)
    assert torch.equal(again.words.values, rounded.words.values)
    assert torch.equal(again.encode(bow, rows), rounded.encode(bow, rows))


def test_wrong_inputs_are_named(bag: BagEncoder, dense: DenseEncoder, bow: sp.csr_matrix) -> None:
    with pytest.raises(InputError, match="dense vectors"):
        bag.prepare(Inputs(vectors=np.zeros((2, DIM))))
    with pytest.raises(InputError, match="rows of 29 columns; this model reads rows of 30"):
        bag.prepare(Inputs(bow=bow[:, :29]))
    with pytest.raises(InputError, match="vectors of 8 numbers"):
        dense.prepare(Inputs(texts=["a"]))
    with pytest.raises(InputError, match=r"shape \(2, 7\)"):
        dense.prepare(Inputs(vectors=np.zeros((2, 7))))


def test_damaged_folders_are_named(tmp_path: Path, dense: DenseEncoder) -> None:
    with pytest.raises(ModelError, match=r"encoder\.json: the file is missing"):
        load_encoder(tmp_path)
    dense.save(tmp_path)
    about = json.loads((tmp_path / "encoder.json").read_text())
    for change, words in (
        ({"kind": "cat"}, "must be one of bag"),
        ({"dim": 5}, "do not belong together"),
    ):
        (tmp_path / "encoder.json").write_text(json.dumps(about | change))
        with pytest.raises(ModelError, match=words):
            load_encoder(tmp_path)
    (tmp_path / "encoder.json").write_text('{"kind": "dense"}')
    with pytest.raises(ModelError, match="dim"):
        load_encoder(tmp_path)
    (tmp_path / "encoder.json").write_text(json.dumps(about))
    write_tensors(tmp_path / "encoder.safetensors", {"other": np.zeros(3, dtype=np.float32)})
    with pytest.raises(ModelError, match=r'has no "head\.residual\.weight"'):
        load_encoder(tmp_path)


def test_inputs_know_their_length(bow: sp.csr_matrix) -> None:
    assert len(Inputs(texts=["a", "b"])) == 2
    assert len(Inputs(bow=bow)) == ROWS
    assert len(Inputs(vectors=np.zeros((3, 2)))) == 3
    assert len(Inputs()) == 0


def test_rows_taken_alone_are_encoded_as_among_all(bag: BagEncoder, bow: sp.csr_matrix) -> None:
    rows = np.array([5, 0, 3, 3])
    vectors = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float16)
    dense = DenseEncoder(DIM, radius=3.0, dropout=0.5)
    for encoder, prepared in ((bag, bow), (dense, vectors)):
        alone = encoder.take(prepared, rows)
        for context in (None, context_on(rows)):
            found = encoder.encode(alone, np.arange(4), context)
            assert torch.equal(found, encoder.encode(prepared, rows, context))
