"""What a transformer costs in a fit: bytes of its weights and activations, and seconds.

    weights        fine-tuned: value, gradient and two moments, 4 bytes each, and the running mean; frozen: the value
    activations    batch x tokens x (layers + 1) x (a hidden + b intermediate + c heads x tokens) bytes: what autograd
                   keeps of each layer, and the gradients of one; with checkpointing two layers and the input of each
    seconds        6 x parameters x tokens trained + 2 x parameters x tokens encoded, times a measured constant

Tokens are counted from the bytes of the texts. A batch is padded to its longest text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.settings import Settings, known
from ..dataset import Dataset
from ..encoders.tokens import TOKENS_AT_ONCE
from ..encoders.transformer_size import TransformerSize, transformer_size

FLOAT, HALF = 4, 2
LIBRARY = 100 << 20  # bytes of transformers and a tokenizer
BYTES_PER_TOKEN = 4.0  # 4.3 of English descriptions, 3.6 of book titles, with the tokenizer of BERT
SPECIAL_TOKENS = 2
# Seconds per floating-point operation, trained and encoded. 2 cores: MiniLM-L6, 24 tokens, 9.3 and 2.5 ms per row in
# float32, 3.2 and 0.89 ms with bfloat16. GPU: table 6 of the paper, an A6000 with mixed precision, 45 to 53e12 per
# second, all of training in it; half of that in float32 (a guess).
PER_OPERATION = {
    ("cpu", "float32"): (6.1e-12, 4.9e-12),
    ("cpu", "bfloat16"): (2.1e-12, 1.75e-12),
    ("cuda", "float32"): (4e-14, 4e-14),
    ("cuda", "bfloat16"): (2e-14, 2e-14),
}
# Bytes that autograd keeps of a layer and token: per hidden dimension, intermediate dimension, and head and pair of
# tokens. CPU: counted on BERT in torch 2.13, where attention with dropout is float32 and a mask of dropout has floats.
# GPU: the same tensors with masks of bytes; less where attention keeps no matrix (not measured).
KEPT = {
    ("cpu", "float32"): (42.0, 8, 12),
    ("cpu", "bfloat16"): (35.4, 4, 12),
    ("cuda", "float32"): (38.0, 8, 9),
    ("cuda", "bfloat16"): (31.0, 4, 5),
}
TRAINED, RECOMPUTED, ENCODED = 6, 2, 2  # operations per parameter and token


@dataclass(frozen=True)
class TransformerLoad:
    """A transformer, and the texts of one dataset in its tokens."""

    size: TransformerSize
    mean_tokens: float  # of a text
    padded_tokens: int  # of the longest text of a batch


def transformer_load(data: Dataset, settings: Settings) -> TransformerLoad | None:
    """None where the encoder has no transformer, or the data no texts."""
    texts = data.train.texts
    if settings.encoder.kind not in ("transformer", "hybrid") or texts is None or not len(texts):
        return None
    tokens = np.minimum(settings.encoder.max_length, texts.lengths() / BYTES_PER_TOKEN + SPECIAL_TOKENS)
    batch = max(known(settings.stage1.batch_size), known(settings.stage2.batch_size))
    padded = int(np.ceil(np.quantile(tokens, 1 - 1 / max(2, batch))))
    return TransformerLoad(transformer_size(settings.encoder.model), float(tokens.mean()), padded)


def on_gpu(settings: Settings) -> bool:
    return settings.run.device.startswith("cuda")


def precision(settings: Settings) -> str:
    """Of the forward pass: `auto` is bfloat16 on CUDA, float32 elsewhere."""
    wanted = settings.encoder.precision
    return wanted if wanted != "auto" else "bfloat16" if on_gpu(settings) else "float32"


def weight_bytes(load: TransformerLoad, settings: Settings) -> int:
    """Weights as they are in training. Autocast keeps a bfloat16 copy of the matrices while a batch runs."""
    size = load.size
    copy = HALF * size.multiplied if precision(settings) == "bfloat16" else 0
    if not settings.encoder.is_fine_tuned:
        return FLOAT * size.parameters + copy
    averaged = min(settings.stage1.average_from, settings.stage2.average_from) < 1
    return (4 + averaged) * FLOAT * size.parameters + copy


def saved_bytes(load: TransformerLoad) -> int:
    """In main memory, wherever it is trained: the weights once more, while they are read or written."""
    return FLOAT * load.size.parameters


def activation_bytes(load: TransformerLoad, settings: Settings) -> int:
    """The larger of a training step and of a pass without gradients, in which a layer is forgotten after the next."""
    size, tokens = load.size, load.padded_tokens
    per_hidden, per_intermediate, per_pair = KEPT[_device(settings), precision(settings)]
    per_token = per_hidden * size.hidden + per_intermediate * size.intermediate + per_pair * size.heads * tokens
    encoded = int(TOKENS_AT_ONCE * per_token)
    if not settings.encoder.is_fine_tuned:
        return encoded
    batch = max(known(settings.stage1.batch_size), known(settings.stage2.batch_size))
    a_layer, layers = batch * tokens * per_token, size.layers
    if settings.encoder.checkpointing:
        inputs = layers * batch * tokens * size.hidden * FLOAT
        return max(encoded, int(inputs + 2 * a_layer))
    return max(encoded, int((layers + 1) * a_layer))


def _device(settings: Settings) -> str:
    return "cuda" if on_gpu(settings) else "cpu"


def prepared_bytes(load: TransformerLoad, settings: Settings, rows: int) -> int:
    """Of all texts: token numbers, or the vectors of a frozen transformer."""
    if settings.encoder.is_fine_tuned:
        return int(rows * (FLOAT * load.mean_tokens + 8))
    return rows * load.size.hidden * FLOAT


def transformer_seconds(load: TransformerLoad, settings: Settings, rows: int) -> float:
    """Of one network with so many training rows, label texts included."""
    per_trained, per_encoded = PER_OPERATION[_device(settings), precision(settings)]
    encodings = rows * encoding_passes(settings)
    encodings += known(settings.split.validation_rows) * _validations(settings)
    seconds = per_encoded * ENCODED * load.size.multiplied * encodings * load.mean_tokens
    if settings.encoder.is_fine_tuned:
        per_token = TRAINED + (RECOMPUTED if settings.encoder.checkpointing else 0)
        epochs = known(settings.stage1.epochs) + known(settings.stage2.epochs) + settings.clustering.again_after
        seconds += per_trained * per_token * load.size.multiplied * rows * epochs * load.padded_tokens
    return seconds


def encoding_passes(settings: Settings) -> int:
    """How often all training rows are encoded besides training: once, if frozen. Else for edges (9), for a second
    clustering, for classifiers that start from centroids, and for what is ranked."""
    if not settings.encoder.is_fine_tuned:
        return 1
    stages = (settings.stage1, settings.stage2)
    passes = 1 + (settings.clustering.again_after > 0) + sum(stage.classifiers == "centroids" for stage in stages)
    return passes + (settings.ranking.kind != "none")


def _validations(settings: Settings) -> int:
    """How often the validation rows are encoded: the mean of the weights is a candidate of its own."""
    if not settings.encoder.is_fine_tuned:
        return 1
    times = 0
    for stage in (settings.stage1, settings.stage2):
        checked = -(-known(stage.epochs) // stage.evaluate_every)
        times += round(checked * (2 - stage.average_from))
    return times
