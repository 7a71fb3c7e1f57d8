"""What a transformer needs is counted before it is opened: weights, activations, seconds; on a GPU, GPU memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import elias
from elias.core.defaults import DataSize, resolve
from elias.core.errors import SettingsError
from elias.core.settings import Settings
from elias.encoders.pretrained import open_folder
from elias.encoders.transformer_size import BERT_BASE, TransformerSize, transformer_size
from elias.pipeline.estimate import Workload, estimate, estimate_fit
from elias.pipeline.memory import available_gpu_bytes, refuse_if_too_large
from elias.pipeline.transformer_cost import TransformerLoad, activation_bytes, transformer_seconds, weight_bytes
from helpers.processes import SMALL
from helpers.tiny_bert import DIM, _no_network, tiny_bert  # noqa: F401

SIZE = DataSize(rows=490_449, labels=670_091, pairs=2_600_000)
LOAD = TransformerLoad(BERT_BASE, mean_tokens=100.0, padded_tokens=128)
PAPER: dict[str, Any] = {
    "encoder.kind": "transformer", "encoder.model": "bert-base-uncased", "encoder.frozen": False,
    "clustering.clusters": 8192, "index.kappa": 1000, "index.training_shortlist_size": 2000, "ranking.kind": "none",
    "stage1.epochs": 20, "stage2.epochs": 40, "stage1.batch_size": 256, "stage2.batch_size": 256,
    "stage1.optimizer": "adamw", "stage2.optimizer": "adamw", "stage1.average_from": 1, "stage2.average_from": 1,
}  # fmt: skip


def settings_of(**changes: Any) -> Settings:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return resolve(Settings().updated({**PAPER, "run.device": "cpu", **named}), SIZE)


def needs(settings: Settings) -> Any:
    return estimate(settings, Workload(SIZE, n_labels=670_091, n_words=135_909, words_per_text=60.0, transformer=LOAD))


def test_parameters_are_counted_without_opening_the_model(tiny_bert: Path) -> None:  # noqa: F811
    opened, size = open_folder(tiny_bert).model, transformer_size(str(tiny_bert))
    assert size.parameters == sum(parameter.numel() for parameter in opened.parameters())
    assert size.embeddings == sum(parameter.numel() for parameter in opened.embeddings.parameters())
    assert (size.hidden, size.layers, size.intermediate, size.heads, size.assumed) == (DIM, 2, 32, 2, False)


def test_a_model_that_is_not_here_counts_as_bert_base(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    for name in ("bert-base-uncased-that-is-not-here", "", str(tmp_path)):
        assert transformer_size(name) is BERT_BASE
    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig())
    assert BERT_BASE.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert BERT_BASE.embeddings == sum(parameter.numel() for parameter in model.embeddings.parameters())
    assert BERT_BASE.pooler == sum(parameter.numel() for parameter in model.pooler.parameters())


def test_weights_gradients_moments_and_mean() -> None:
    n = BERT_BASE.parameters
    assert weight_bytes(LOAD, settings_of()) == 16 * n
    assert weight_bytes(LOAD, settings_of(stage2__average_from=0.5)) == 20 * n
    assert weight_bytes(LOAD, settings_of(encoder__frozen=True)) == 4 * n
    assert weight_bytes(LOAD, settings_of(encoder__precision="bfloat16")) == 16 * n + 2 * BERT_BASE.multiplied


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("hidden", [48, 96])
def test_activations_are_those_that_autograd_keeps(hidden: int, precision: str) -> None:
    batch, width, layers = 16, 40, 6
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * hidden, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config).train()
    matrices = {parameter.numel() for parameter in model.parameters()}  # as they are, and cast to bfloat16
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() not in matrices:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
    with half, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ids = torch.randint(0, 100, (batch, width))
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    assert states.requires_grad
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    load = TransformerLoad(
        TransformerSize(0, 0, 0, hidden, layers, 4 * hidden, 4), mean_tokens=width, padded_tokens=width
    )
    # Many rows, so that the pass that encodes 8,192 tokens at once is not the larger one.
    many = settings_of(stage1__batch_size=64 * batch, stage2__batch_size=64 * batch, encoder__precision=precision)
    gradients = (layers + 1) / layers
    assert activation_bytes(load, many) / 64 == pytest.approx(measured * gradients, rel=0.1)


def test_half_batches_halve_activations_and_half_precision_saves_some() -> None:
    whole = activation_bytes(LOAD, settings_of())
    assert activation_bytes(LOAD, settings_of(stage1__batch_size=128, stage2__batch_size=128)) == whole / 2
    assert 0.6 < activation_bytes(LOAD, settings_of(encoder__precision="bfloat16")) / whole < 0.85


def test_seconds_are_those_measured() -> None:
    """MiniLM-L6 of 10.6 million parameters, 24 tokens, 2 threads: 9.3 ms per row trained, 2.5 ms encoded."""
    minilm = TransformerLoad(TransformerSize(10_600_000, 0, 0, 384, 6, 1536, 12), mean_tokens=24, padded_tokens=24)
    once = {"stage1__epochs": 1, "stage2__epochs": 0, "split__validation_rows": 0, "stage1__classifiers": "random"}
    random = {**once, "stage2__classifiers": "random"}
    seconds = transformer_seconds(minilm, settings_of(**random), 1000)
    assert seconds == pytest.approx(9.3 + 2.5, rel=0.02), "one epoch, and once for the edges"
    assert transformer_seconds(minilm, settings_of(**random, encoder__frozen=True), 1000) == pytest.approx(
        2.5, rel=0.02
    )
    half = transformer_seconds(minilm, settings_of(**random, encoder__precision="bfloat16"), 1000)
    assert half == pytest.approx(3.2 + 0.89, rel=0.02)


def test_phi_is_as_wide_as_the_transformer() -> None:
    found = needs(settings_of()).memory_bytes
    assert found["label classifiers"] == 670_091 * 768 * (4 + 4 + 8)
    assert found["clusters"] == 8192 * 768 * (4 + 4 + 8)
    assert found["word embeddings"] == 0
    assert found["tokens or vectors"] == 490_449 * (4 * 100 + 8)
    assert "labels of a batch" not in found, "the kernels hold no product of the batch"
    assert "labels of a batch" in needs(settings_of(run__kernels=False)).memory_bytes


def test_on_a_gpu_tables_and_transformer_are_in_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(run__device="cuda:0", encoder__precision="bfloat16")
    found = needs(settings)
    gpu, host = found.gpu_bytes, found.memory_bytes
    assert gpu["label classifiers"] == 670_091 * 768 * 16
    assert gpu["transformer"] >= 16 * BERT_BASE.parameters
    union = min(670_091, 256 * 2000)
    assert gpu["labels of a batch"] >= 2 * union * 768 * 4
    assert {"activations", "edges", "labels of a batch"}.isdisjoint(host)
    assert host["transformer"] == 4 * BERT_BASE.parameters, "while it is saved"
    assert host["label classifiers"] == 670_091 * 768 * 4, "made here, saved from here"
    assert found.machine.endswith("A6000")
    hours = found.seconds / 3600
    assert 5 < hours < 20, "table 6 of the paper: 10.1"

    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (12 << 30, 48 << 30))
    assert available_gpu_bytes("cpu") is None
    assert available_gpu_bytes("cuda:0") == 12 << 30
    assert asked == [torch.device("cuda:0")]
    refuse_if_too_large(found, 1 << 40, 1 << 40)
    with pytest.raises(SettingsError) as refusal:
        refuse_if_too_large(found, 1 << 40, available_gpu_bytes("cuda:0"))
    words = str(refusal.value)
    assert "GiB of GPU memory and 12.0 GiB are free" in words
    for remedy in ("stage1.optimizer=rowwise", "stage1.batch_size=128", "encoder.frozen=true", "run.device=cpu"):
        assert remedy in words
    assert "encoder.dim" not in words, "d is the transformer's"
    with pytest.raises(SettingsError, match=r"GiB of memory and 1\.0 GiB are free"):
        refuse_if_too_large(found, 1 << 30, 1 << 40)


def test_a_fit_counts_its_transformer(tiny_dataset: Path, tiny_bert: Path) -> None:  # noqa: F811
    data = elias.load_dataset(tiny_dataset)
    given = Settings().updated({**SMALL, "encoder.kind": "transformer", "encoder.model": str(tiny_bert)})
    frozen = resolve(given.updated({"run.device": "cpu"}), data.size())
    tuned = replace(frozen, encoder=replace(frozen.encoder, frozen=False))
    kept, learned = (estimate_fit(data, settings, data.size()) for settings in (frozen, tuned))
    assert learned.memory_bytes["transformer"] > 2 * kept.memory_bytes["transformer"] > 0
    assert learned.seconds > kept.seconds
    assert kept.memory_bytes["label classifiers"] == learned.memory_bytes["label classifiers"]
    assert learned.memory_bytes["label classifiers"] % DIM == 0
