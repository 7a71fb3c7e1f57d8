"""`transformer`: any Hugging Face encoder, frozen or fine-tuned, then the head.

    t = transformer(tokens),     h = t_cls  or  mean over tokens t,     phi = head(h)

Frozen: h is computed once for each text, in `prepare`, and read back from a file; training costs what it
costs with dense vectors. Fine-tuned: texts are cut into tokens once and the transformer runs in each step.

The transformer's own dropout draws from a torch stream. That stream is seeded in every training step, from
the epoch's noise key and the step's rows, so a resumed run draws what an undisturbed run draws.
Shapes: B batch, W longest text of the batch, D dimension.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError, ModelError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.rng import key
from ..core.settings import EncoderSettings
from .encoder import Inputs, TrainingContext, silent
from .head import Head
from .pretrained import link_transformer, open_folder, open_pretrained, save_transformer
from .tokens import MOST_ROWS_AT_ONCE, TOKENS_AT_ONCE, Tokens, fingerprint, forget_tokens, tokenize_texts
from .vector_cache import VectorCache


class TransformerEncoder:
    kind = "transformer"

    def __init__(
        self,
        transformer: Any,
        tokenizer: Tokenizer,
        *,
        radius: float,
        dropout: float,
        pooling: str = "mean",
        max_length: int = 128,
        precision: str = "float32",
        frozen: bool = True,
    ) -> None:
        assert pooling in ("cls", "mean") and precision in ("float32", "bfloat16")
        self.dim: int = transformer.config.hidden_size
        self.transformer: nn.Module = transformer.eval().requires_grad_(not frozen)
        self.head = Head(self.dim, radius=radius, dropout=dropout)
        self.pooling, self.max_length, self.precision, self.frozen = pooling, max_length, precision, frozen
        pad = transformer.config.pad_token_id
        self.pad: int = 0 if pad is None else pad
        # Set once and never again: a tokenizer that does not change may be used by many threads.
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length)
        self._files: Path | None = None  # where frozen weights are already saved by us
        self._learned = nn.ModuleDict(
            {"head": self.head} if frozen else {"head": self.head, "transformer": transformer}
        )

    @classmethod
    def from_settings(cls, settings: EncoderSettings) -> TransformerEncoder:
        """A new encoder from pretrained weights; its dimension is the transformer's."""
        pretrained = open_pretrained(settings.model)
        longest = pretrained.longest
        if settings.max_length > longest:
            raise InputError(
                f"encoder.max_length={settings.max_length}: {settings.model} reads at most {longest} tokens; "
                f"set encoder.max_length={longest}"
            )
        return cls(
            pretrained.model, pretrained.tokenizer,
            radius=settings.radius, dropout=settings.dropout, pooling=settings.pooling,
            max_length=settings.max_length, precision=settings.precision, frozen=settings.frozen,
        )  # fmt: skip

    def module(self) -> nn.Module:
        return self._learned

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}

    def to(self, device: torch.device) -> None:
        self.transformer.to(device)
        self.head.to(device)

    @property
    def device(self) -> torch.device:
        return self.head.residual.weight.device

    # -- inputs ---------------------------------------------------------------------------------------------------

    def prepare(
        self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent
    ) -> np.ndarray | Tokens:
        """Frozen: a matrix of vectors. Fine-tuned: tokens. A `folder` holds one set of texts and is used again."""
        if inputs.texts is None:
            raise InputError("this model reads texts, and was given vectors")
        if not self.frozen:
            return tokenize_texts(inputs.texts, self.tokenizer, self.pad, folder, progress)
        texts, shape = inputs.texts, (len(inputs.texts), self.dim)
        dtype = np.dtype(np.float32 if self.precision == "float32" else np.float16)
        if folder is None or not len(texts):
            tokens = tokenize_texts(texts, self.tokenizer, self.pad, None, silent)
            vectors, done = np.empty(shape, dtype), 0
            for batch in tokens.batches(np.arange(len(tokens))):
                vectors[batch] = self._vectors(tokens, batch)
                done += len(batch)
                progress(done, len(texts))
            return vectors
        cache = VectorCache(folder, fingerprint(texts, *self._fingerprint()))
        if cache.whole:
            return cache.open()
        tokens = tokenize_texts(texts, self.tokenizer, self.pad, folder, silent)
        batches = tokens.batches(np.arange(len(tokens)))
        whole = cache.fill(batches, lambda rows: self._vectors(tokens, rows).astype(dtype), shape, dtype, progress)
        forget_tokens(folder)
        return whole

    def _fingerprint(self) -> list[str | bytes]:
        """Everything besides the texts that a frozen vector depends on."""
        digest = hashlib.blake2b()
        for name, tensor in self.transformer.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy())
        batches = f"{TOKENS_AT_ONCE} {MOST_ROWS_AT_ONCE}"  # how texts meet in a batch decides the last bits
        return [digest.digest(), self.tokenizer.to_str(), self.pooling, self.precision, batches]

    # -- phi ------------------------------------------------------------------------------------------------------

    def encode(self, prepared: np.ndarray | Tokens, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        if isinstance(prepared, Tokens):
            h_BD = self._h_learning(prepared, rows, context) if context else self._h(prepared, rows)
        else:
            h_BD = torch.from_numpy(np.asarray(prepared[rows], dtype=np.float32)).to(self.device)
        phi_BD: Tensor = self.head(h_BD, context)
        return phi_BD

    def _h_learning(self, tokens: Tokens, rows: np.ndarray, context: TrainingContext) -> Tensor:
        """With gradients and with the transformer's dropout, which depends on the noise key and the rows only."""
        seed = key(context.noise.key, "transformer", *context.rows_B.tolist())
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            self.transformer.train()
            try:
                return self._pooled(tokens, rows)
            finally:
                self.transformer.eval()

    @torch.no_grad()
    def _h(self, tokens: Tokens, rows: np.ndarray) -> Tensor:
        """Without gradients, texts of like length together."""
        h_BD = torch.empty((len(rows), self.dim), device=self.device)
        for batch in tokens.batches(rows):
            h_BD[torch.from_numpy(batch).to(self.device)] = self._pooled(tokens, rows[batch])
        return h_BD

    @torch.no_grad()
    def _vectors(self, tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        return self._pooled(tokens, rows).cpu().numpy()

    def _pooled(self, tokens: Tokens, rows: np.ndarray) -> Tensor:
        """h of one padded batch, float32."""
        ids, mask = tokens.padded(rows, self.pad)
        ids_BW, mask_BW = torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            states_BWD = self.transformer(input_ids=ids_BW, attention_mask=mask_BW.long()).last_hidden_state
        states_BWD = states_BWD.float()
        h_BD: Tensor
        if self.pooling == "cls":
            h_BD = states_BWD[:, 0]
            return h_BD
        weight_BW1 = mask_BW[:, :, None].float()
        h_BD = (states_BWD * weight_BW1).sum(1) / weight_BW1.sum(1)
        return h_BD

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """encoder.json, encoder.safetensors (head), transformer/ as save_pretrained writes it, with tokenizer.json."""
        folder.mkdir(parents=True, exist_ok=True)
        own = {
            "pooling": self.pooling,
            "max_length": self.max_length,
            "precision": self.precision,
            "frozen": self.frozen,
        }
        write_json(folder / "encoder.json", {"kind": self.kind, "dim": self.dim, **self.head.options(), **own})
        write_tensors(folder / "encoder.safetensors", self.head.arrays())
        if self._files is not None and self._files.is_dir():
            link_transformer(self._files, folder / "transformer")
            return
        save_transformer(self.transformer, folder / "transformer")
        self.tokenizer.save(str(folder / "transformer" / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> TransformerEncoder:
        about: dict[str, Any] = read_json(folder / "encoder.json")
        pretrained = open_folder(folder / "transformer", ModelError)
        encoder = cls(
            pretrained.model, pretrained.tokenizer,
            radius=about["radius"], dropout=about["dropout"], pooling=about["pooling"],
            max_length=about["max_length"], precision=about["precision"], frozen=about["frozen"],
        )  # fmt: skip
        encoder.head.take_arrays(read_tensors(folder / "encoder.safetensors")[0])
        encoder._files = folder / "transformer" if encoder.frozen else None
        return encoder
