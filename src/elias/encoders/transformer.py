"""`transformer`: any Hugging Face encoder, frozen or fine-tuned, then the head.

    t = transformer(tokens),     h = t_cls  or  mean over tokens t,     phi = head(h)

The paper's phi is fine-tuned, h = t_cls, without a head of its own: `encoder.head=none` (head.py).

Frozen: h is computed once for each text, in `prepare`, and read back from a file; training costs what it
costs with dense vectors. Fine-tuned: texts are cut into tokens once and the transformer runs in each step.

The transformer's own dropout draws from a torch stream. That stream is seeded in every training step, from
the epoch's noise key and the step's rows, so a resumed run draws what an undisturbed run draws.
Shapes: B batch, W longest text of the batch, D dimension.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..core import model_schema
from ..core.devices import upload
from ..core.embedding_table import EmbeddingTable
from ..core.errors import InputError, ModelError
from ..core.files import read_json, read_tensors, write_json, write_tensors
from ..core.rng import key
from ..core.schema import check_arrays, check_object
from ..core.settings import EncoderSettings
from .encoder import Inputs, TrainingContext, silent
from .head import Head, NoHead
from .pretrained import link_transformer, n_embeddings, open_folder, open_pretrained, save_transformer
from .tokens import MOST_ROWS_AT_ONCE, TOKENS_AT_ONCE, Tokens, fingerprint, forget_tokens, tokenize_texts
from .vector_cache import VectorCache

# Settings in encoder.json.
SAVED = ("head", "radius", "dropout", "pooling", "max_length", "precision", "frozen", "checkpointing", "compile")


class TransformerEncoder:
    kind = "transformer"

    def __init__(self, transformer: Any, tokenizer: Tokenizer, settings: EncoderSettings) -> None:
        """`settings`: everything but the kind, the dimension and the name of the model counts."""
        self.dim: int = transformer.config.hidden_size
        self.settings, self.frozen = settings, settings.frozen
        self.transformer: nn.Module = transformer.eval().requires_grad_(not settings.frozen)
        self.head: Head | NoHead = NoHead(dropout=settings.dropout)
        if settings.head == "residual":
            self.head = Head(self.dim, radius=settings.radius, dropout=settings.dropout)
        self._in_training: Any = transformer
        if settings.checkpointing and not settings.frozen:
            transformer.config.use_cache = False  # an encoder has none, but transformers would warn of it
            transformer.gradient_checkpointing_enable({"use_reentrant": False})
        if settings.compile and not settings.frozen:
            # Batches have as many tokens as their longest text, so shapes vary: dynamic=True compiles once for all.
            self._in_training = torch.compile(transformer, dynamic=True)
        pad = transformer.config.pad_token_id
        self.pad: int = 0 if pad is None else pad
        # Set once and never again: a tokenizer that does not change may be used by many threads.
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(settings.max_length)
        self._files: Path | None = None  # where frozen weights are already saved by us
        self._learned = nn.ModuleDict(
            {"head": self.head} if self.frozen else {"head": self.head, "transformer": transformer}
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
        return cls(pretrained.model, pretrained.tokenizer, settings)

    def module(self) -> nn.Module:
        return self._learned

    def tables(self) -> dict[str, EmbeddingTable]:
        return {}

    def to(self, device: torch.device) -> None:
        self.transformer.to(device)
        self.head.to(device)

    @property
    def device(self) -> torch.device:
        return next(self.transformer.parameters()).device

    @property
    def in_bfloat16(self) -> bool:
        """Whether the forward pass computes in bfloat16."""
        on_cuda = self.settings.precision == "auto" and self.device.type == "cuda"
        return on_cuda or self.settings.precision == "bfloat16"

    # -- inputs ---------------------------------------------------------------------------------------------------

    def prepare(
        self, inputs: Inputs, folder: Path | None = None, progress: Callable[[int, int], None] = silent
    ) -> np.ndarray | Tokens:
        """Frozen: a matrix of vectors. Fine-tuned: tokens. A `folder` holds one set of texts and is used again."""
        if inputs.texts is None:
            raise InputError("this model reads texts, and was given vectors")
        if not self.frozen:
            return self._tokens(inputs.texts, folder, progress)
        texts, shape = inputs.texts, (len(inputs.texts), self.dim)
        dtype = np.dtype(np.float16 if self.in_bfloat16 else np.float32)
        if folder is None or not len(texts):
            tokens = self._tokens(texts, None, silent)
            vectors, done = np.empty(shape, dtype), 0
            for batch in tokens.batches(np.arange(len(tokens))):
                vectors[batch] = self._vectors(tokens, batch)
                done += len(batch)
                progress(done, len(texts))
            return vectors
        cache = VectorCache(folder, fingerprint(texts, *self._fingerprint()))
        if cache.whole:
            return cache.open()
        tokens = self._tokens(texts, folder, silent)
        batches = tokens.batches(np.arange(len(tokens)))
        whole = cache.fill(batches, lambda rows: self._vectors(tokens, rows).astype(dtype), shape, dtype, progress)
        forget_tokens(folder)
        return whole

    def _tokens(self, texts: Sequence[str], folder: Path | None, progress: Callable[[int, int], None]) -> Tokens:
        """The texts as numbers of embeddings that there are."""
        tokens = tokenize_texts(texts, self.tokenizer, self.pad, folder, progress)
        embeddings = n_embeddings(self.transformer)
        largest = int(tokens.ids.max(initial=0))
        if largest >= embeddings:
            raise ModelError(
                f"tokenizer.json of the encoder has the token {largest}, but model.safetensors has {embeddings} "
                "embeddings; restore both from a copy"
            )
        return tokens

    def _fingerprint(self) -> list[str | bytes]:
        """Everything besides the texts that a frozen vector depends on."""
        digest = hashlib.blake2b()
        for name, tensor in self.transformer.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy())
        precision = "bfloat16" if self.in_bfloat16 else "float32"
        batches = f"{TOKENS_AT_ONCE} {MOST_ROWS_AT_ONCE}"  # how texts meet in a batch decides the last bits
        return [digest.digest(), self.tokenizer.to_str(), self.settings.pooling, precision, batches]

    # -- phi ------------------------------------------------------------------------------------------------------

    def encode(self, prepared: np.ndarray | Tokens, rows: np.ndarray, context: TrainingContext | None = None) -> Tensor:
        if isinstance(prepared, Tokens):
            h_BD = self._h_learning(prepared, rows, context) if context else self._h(prepared, rows)
        else:
            h_BD = upload(self.take(prepared, rows), self.device)
        phi_BD: Tensor = self.head(h_BD, context)
        return phi_BD

    def take(self, prepared: np.ndarray | Tokens, rows: np.ndarray) -> Any:
        return prepared.take(rows) if isinstance(prepared, Tokens) else np.asarray(prepared[rows], dtype=np.float32)

    def _h_learning(self, tokens: Tokens, rows: np.ndarray, context: TrainingContext) -> Tensor:
        """With gradients and with the transformer's dropout, which depends on the noise key and the rows only."""
        numbers = context.rows_B if context.rows is None else context.rows
        seed = key(context.noise.key, "transformer", *numbers.tolist())
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            self.transformer.train()
            try:
                return self._pooled(tokens, rows, self._in_training)
            finally:
                if not self.settings.checkpointing:  # else the backward pass runs it again, and needs the same dropout
                    self.transformer.eval()

    @torch.no_grad()
    def _h(self, tokens: Tokens, rows: np.ndarray) -> Tensor:
        """Without gradients, texts of like length together."""
        if self.transformer.training:
            self.transformer.eval()
        h_BD = torch.empty((len(rows), self.dim), device=self.device)
        for batch in tokens.batches(rows):
            h_BD[torch.from_numpy(batch).to(self.device)] = self._pooled(tokens, rows[batch])
        return h_BD

    @torch.no_grad()
    def _vectors(self, tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        return self._pooled(tokens, rows).cpu().numpy()

    def _pooled(self, tokens: Tokens, rows: np.ndarray, transformer: Any = None) -> Tensor:
        """h of one padded batch, float32."""
        if not len(rows):  # one of several ranks in a small batch; its backward pass takes part in what all do
            return torch.zeros((0, self.dim), device=self.device, requires_grad=torch.is_grad_enabled())
        ids, mask = tokens.padded(rows, self.pad)
        ids_BW, mask_BW = upload(ids, self.device), upload(mask, self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            run = self.transformer if transformer is None else transformer
            try:
                states_BWD = run(input_ids=ids_BW, attention_mask=mask_BW.long()).last_hidden_state
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
                said = " ".join(str(problem).split())[:200]
                message = f"the transformer of the encoder does not compute ({said}); config.json does not fit it"
                raise ModelError(f"{message}: restore it from a copy") from problem
        states_BWD = states_BWD.float()
        h_BD: Tensor
        if self.settings.pooling == "cls":
            h_BD = states_BWD[:, 0]
            return h_BD
        weight_BW1 = mask_BW[:, :, None].float()
        h_BD = (states_BWD * weight_BW1).sum(1) / weight_BW1.sum(1)
        return h_BD

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """encoder.json, encoder.safetensors (head), transformer/ as save_pretrained writes it, with tokenizer.json."""
        folder.mkdir(parents=True, exist_ok=True)
        own = {name: getattr(self.settings, name) for name in SAVED}
        write_json(folder / "encoder.json", {"kind": self.kind, "dim": self.dim, **own})
        write_tensors(folder / "encoder.safetensors", self.head.arrays())
        if self._files is not None and self._files.is_dir():
            link_transformer(self._files, folder / "transformer")
            return
        save_transformer(self.transformer, folder / "transformer")
        self.tokenizer.save(str(folder / "transformer" / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> TransformerEncoder:
        path = folder / "encoder.json"
        about = check_object(path, read_json(path), model_schema.TRANSFORMER)
        pretrained = open_folder(folder / "transformer", ModelError)
        settings = EncoderSettings(kind=cls.kind, **{name: about[name] for name in SAVED})
        encoder = cls(pretrained.model, pretrained.tokenizer, settings)
        if encoder.dim != about["dim"] or about["max_length"] > pretrained.longest:
            raise ModelError(
                f"{path}: dim {about['dim']} and max_length {about['max_length']} do not fit the transformer beside it "
                f"({encoder.dim}, at most {pretrained.longest}); restore the whole folder from one copy"
            )
        path, schema = folder / "encoder.safetensors", model_schema.HEAD if settings.head == "residual" else {}
        encoder.head.take_arrays(check_arrays(path, read_tensors(path)[0], schema, {"dim": encoder.dim}))
        encoder._files = folder / "transformer" if encoder.frozen else None
        return encoder
