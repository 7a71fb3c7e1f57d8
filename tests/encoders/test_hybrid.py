"""The hybrid encoder: bag and sentence vectors together. Vectors that come with the input need no transformer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from elias.core.embedding_table import GradientBuffer
from elias.core.errors import InputError, MissingExtraError, ModelError, SettingsError
from elias.core.files import write_tensors
from elias.core.noise import Noise
from elias.core.settings import Settings
from elias.dataset import Dataset
from elias.encoders import Inputs, TrainingContext, load_encoder
from elias.encoders.bag import BagEncoder
from elias.encoders.dense import DenseEncoder
from elias.encoders.hybrid import HybridEncoder, Mixed
from elias.pipeline.features_step import new_encoder

N, WORDS, DIM, WIDTH = 12, 30, 8, 5
ROWS = np.arange(N)


@pytest.fixture
def inputs() -> Inputs:
    """Twelve rows; the fourth has no word, the fifth no sentence, the last neither."""
    bow = sp.random(N, WORDS, density=0.2, format="lil", dtype=np.float32, rng=np.random.default_rng(1))
    bow[3] = 0
    bow[N - 1] = 0
    vectors = np.random.default_rng(4).standard_normal((N, WIDTH)).astype(np.float16)
    vectors[4] = 0
    vectors[N - 1] = 0
    return Inputs(bow=bow.tocsr(), vectors=vectors)


@pytest.fixture
def hybrid() -> HybridEncoder:
    words = torch.from_numpy(np.random.default_rng(2).standard_normal((WORDS, DIM)).astype(np.float32))
    bag = BagEncoder(words, radius=3.0, dropout=0.5)
    draw = torch.Generator().manual_seed(3)
    for parameter in bag.head.parameters():  # not at its start
        parameter.data = torch.randn(parameter.shape, generator=draw) * 0.5
    return HybridEncoder(bag, DenseEncoder(WIDTH, radius=1.0, dropout=0.0), weight=0.7)


def context_on(rows: np.ndarray, epoch: int = 0) -> TrainingContext:
    return TrainingContext(GradientBuffer(), Noise.of(0, "stage1", epoch), torch.from_numpy(rows))


def unit(vector: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def slow_phi(encoder: HybridEncoder, given: Inputs) -> np.ndarray:
    """The formula in the module's docstring, row by row."""
    assert given.bow is not None
    assert given.vectors is not None
    head, projection = encoder.bag.head, encoder.projection.weight.detach().numpy()
    weight, bias = head.residual.weight.detach().numpy(), head.residual.bias.detach().numpy()
    phi = np.zeros((len(given), encoder.dim), dtype=np.float32)
    for row in range(len(given)):
        bag = given.bow[row].toarray()[0] @ encoder.bag.words.values.numpy()
        h = unit(bag) + encoder.weight * projection @ unit(given.vectors[row].astype(np.float32))
        if h.any():
            u = unit(h) + F.gelu(torch.from_numpy(weight @ unit(h) + bias)).numpy()
            phi[row] = head.radius * unit(u)
    return phi


def test_hybrid_is_its_formula(hybrid: HybridEncoder, inputs: Inputs) -> None:
    with torch.no_grad():
        phi = hybrid.encode(hybrid.prepare(inputs), ROWS).numpy()
    np.testing.assert_allclose(phi, slow_phi(hybrid, inputs), rtol=2e-5, atol=1e-5)
    assert phi[3].any(), "no word, but a sentence"
    assert phi[4].any(), "no sentence, but words"
    assert not phi[N - 1].any(), "neither: no opinion"


def test_without_weight_it_is_the_bag(hybrid: HybridEncoder, inputs: Inputs) -> None:
    hybrid.weight = 0.0
    with torch.no_grad():
        phi = hybrid.encode(hybrid.prepare(inputs), ROWS)
        torch.testing.assert_close(phi, hybrid.bag.encode(inputs.bow, ROWS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [5, 40])
def test_a_new_projection_keeps_lengths_and_is_that_of_its_seed(width: int) -> None:
    def new(seed: int) -> HybridEncoder:
        bag = BagEncoder(torch.zeros(WORDS, DIM), radius=1.0, dropout=0.0)
        return HybridEncoder(bag, DenseEncoder(width, radius=1.0, dropout=0.0), weight=1.0, seed=seed)

    one = new(0)
    t = F.normalize(torch.randn(200, width, generator=torch.Generator().manual_seed(0)), dim=1)
    lengths = one.projection(t).detach().norm(dim=1)
    assert abs(float(lengths.square().mean()) - 1.0) < (1e-5 if width <= DIM else 0.1)
    assert torch.equal(one.projection.weight, new(0).projection.weight)
    assert not torch.equal(one.projection.weight, new(1).projection.weight)


def test_gradients_reach_words_projection_and_head(hybrid: HybridEncoder, inputs: Inputs) -> None:
    rows = np.array([1, 3, N - 1])
    context = context_on(rows)
    hybrid.encode(hybrid.prepare(inputs), rows, context)[:, 0].sum().backward()
    ((table, touched, gradient),) = context.buffer.gradients()
    assert table is hybrid.tables()["words"]
    assert inputs.bow is not None
    assert set(touched.tolist()) == set(inputs.bow[rows].indices.tolist())
    assert gradient.any()
    parameters = dict(hybrid.module().named_parameters())
    assert set(parameters) == {"head.residual.weight", "head.residual.bias", "projection.weight"}
    for parameter in parameters.values():
        assert parameter.grad is not None
        assert parameter.grad.any()
        assert torch.isfinite(parameter.grad).all()


def test_noise_depends_on_the_row_not_on_the_batch(hybrid: HybridEncoder, inputs: Inputs) -> None:
    prepared = hybrid.prepare(inputs)
    alone = hybrid.encode(prepared, np.array([4]), context_on(np.array([4])))
    among = hybrid.encode(prepared, np.array([2, 4]), context_on(np.array([2, 4])))
    torch.testing.assert_close(alone[0], among[1])
    assert not torch.equal(among, hybrid.encode(prepared, np.array([2, 4]), context_on(np.array([2, 4]), epoch=1)))


def test_saved_and_loaded_is_the_same_bit_for_bit(hybrid: HybridEncoder, inputs: Inputs, tmp_path: Path) -> None:
    hybrid.save(tmp_path / "encoder")
    loaded = load_encoder(tmp_path / "encoder")
    assert isinstance(loaded, HybridEncoder)
    assert (loaded.kind, loaded.dim, loaded.weight) == ("hybrid", DIM, 0.7)
    prepared = loaded.prepare(inputs)
    assert isinstance(prepared, Mixed)
    assert len(prepared) == N
    assert torch.equal(loaded.encode(prepared, ROWS), hybrid.encode(prepared, ROWS))
    assert torch.equal(loaded.encode(prepared, ROWS, context_on(ROWS)), hybrid.encode(prepared, ROWS, context_on(ROWS)))


def test_what_is_wrong_is_named(hybrid: HybridEncoder, inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was given dense vectors"):
        hybrid.prepare(Inputs(vectors=inputs.vectors))
    with pytest.raises(InputError, match="vectors of 5 numbers"):
        hybrid.prepare(Inputs(bow=inputs.bow))
    assert inputs.vectors is not None
    with pytest.raises(InputError, match="11 vectors for 12 texts"):
        hybrid.prepare(Inputs(bow=inputs.bow, vectors=inputs.vectors[1:]))
    hybrid.save(tmp_path)
    about = json.loads((tmp_path / "encoder.json").read_text())
    del about["weight"]
    (tmp_path / "encoder.json").write_text(json.dumps(about))
    with pytest.raises(ModelError, match="weight"):
        load_encoder(tmp_path)
    hybrid.save(tmp_path)
    write_tensors(tmp_path / "encoder.safetensors", hybrid.bag.arrays() | {"projection": np.zeros((2, 2), np.float32)})
    with pytest.raises(ModelError, match="do not belong together"):
        load_encoder(tmp_path)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(SettingsError, match=r"encoder\.frozen=false: encoder\.kind=hybrid keeps its transformer"):
        Settings().updated({"encoder.kind": "hybrid", "encoder.frozen": False})
    settings = Settings().updated({"encoder.kind": "hybrid", "encoder.model": "some-model", "run.threads": 1})
    vectors = Dataset.from_arrays(np.eye(3, dtype=np.float32), sp.csr_matrix(np.eye(3, dtype=np.float32)))
    with pytest.raises(SettingsError, match=r"encoder\.kind=hybrid needs texts"):
        new_encoder(settings, vectors.train, None)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    settings = Settings().updated({"encoder.kind": "hybrid", "encoder.model": str(tmp_path), "run.threads": 1})
    rows = Dataset.from_lists(["one text"], [["a"]]).train
    with pytest.raises(MissingExtraError, match=r"hybrid\) needs .* pip install 'elias-xmc\[transformers\]'"):
        new_encoder(settings, rows, sp.csr_matrix(np.eye(2, dtype=np.float32)))
