"""A model folder, written and read.

    model/
        config.json              format_version, resolved settings, versions, metrics at save time, data facts; size
                                 and hash of every other file, and a hash of itself
        labels.tsv               id, text, training count, stage-1 cluster; row number = label number
        clusters.json            typical words of each cluster
        vectorizer.json, .npy    tf-idf (texts only)
        encoder/, clusters.safetensors, index.safetensors, classifiers.safetensors, network.json
        search.safetensors       what the CPU search reads, made from the others; may be deleted
        ranking.json, score_model.json, {inverted_index,linear_ranker,label_tree,knn}.safetensors    the stacked ranker
        published.json, {linear_ranker,calibration_tree}.safetensors    the published ranker, in place of it
        training_texts.safetensors    excerpts of the training texts that vote (knn.keep_texts); may be deleted

JSON, safetensors and plain .npy; never pickle. When the folder is opened, every file is compared with its entry in
config.json (`core/checksums.py`) and with the declaration of what it may hold (`core/model_schema.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from .. import kernels
from ..core import model_schema
from ..core.checksums import Verified, check_files, check_seal, manifest, sealed
from ..core.devices import pick_device, pick_threads
from ..core.errors import ModelError
from ..core.files import read_json, read_object, read_tensors, replacing, same_files, write_json
from ..core.model_schema import CONFIG
from ..core.schema import REMEDY, check_object, first_non_finite, not_finite
from ..core.version import __version__
from ..encoders.tfidf import FILES as TFIDF_FILES
from ..encoders.tfidf import TfIdf
from ..network.network import Network
from ..network.storage import load_network, read_search_tables, write_network, write_search_tables
from ..ranking import inverted_index, knn, label_tree, linear_ranker, published, reranker, training_texts
from ..ranking.features import RankingParts
from ..ranking.published import PublishedRanker
from ..ranking.reranker import Reranker
from .label_file import check_numbers, read_labels, write_labels
from .model import Model

FORMAT_VERSION = 1
NOT_ABOUT = ("format_version", "versions", "files", "checksum")  # fields of config.json that are made anew
PART_FILES = (inverted_index.NAME, linear_ranker.NAME, label_tree.NAME, knn.NAME, training_texts.NAME)

Shared = tuple[Path, Model]  # another model and its folder: tables from files that are the same are held once


def save_model(model: Model, folder: Path) -> None:
    """Write everything `load_model` needs; the folder appears whole, or not at all."""
    if folder.exists():
        raise ModelError(f"{folder} exists; remove it first, or choose another name")
    with replacing(folder) as part:
        part.mkdir()
        write_network(model.network, part)
        if model.reranker is not None:
            model.reranker.save(part)
        write_around_network(model, part)


def write_around_network(model: Model, folder: Path) -> None:
    """Everything but the network, its encoder and its ranker."""
    write_search_tables(model.network, folder)
    write_labels(folder / "labels.tsv", model.labels, model.label_counts, model.stage1_clusters)
    write_json(folder / "clusters.json", {"words": model.cluster_words})
    if model.vectorizer is not None:
        model.vectorizer.save(folder)
    versions = {"elias": __version__, "python": platform.python_version(), "torch": torch.__version__}
    check_finite(folder, _own_files(folder), "the fit went wrong: lower the learning rates or the row weights")
    write_config(folder, {"versions": versions, "n_train": model.n_train, **model.about})


def write_config(folder: Path, content: Mapping[str, Any]) -> None:
    """config.json, last: with size and hash of every other file of the model, and its own checksum."""
    about = {"format_version": FORMAT_VERSION, **content, "files": manifest(folder, _own_files(folder))}
    write_json(folder / CONFIG, sealed(about))


def _own_files(folder: Path) -> set[str]:
    """The files of a folder that belong to a model."""
    names = {name for name in model_schema.TOP_FILES if (folder / name).exists()}
    inside = (path for part in model_schema.FOLDERS for path in (folder / part).rglob("*") if not path.is_dir())
    return names | {path.relative_to(folder).as_posix() for path in inside}


def load_model(
    folder: str | Path, *, device: str = "auto", threads: int | None = None, use_kernels: bool = True,
    shared: Shared | None = None, verify: Verified | None = None,
) -> Model:  # fmt: skip
    """Open a saved model (`ensemble.load`: or an ensemble), memory-mapped, so quickly whatever the size.

    `verify`: read every file whole and compare it with its checksum, not only the small ones.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no model folder here; `elias fit DATA -o {folder}` would make one")
    if not (folder / CONFIG).exists():
        raise ModelError(f"{folder}: has no config.json, so it is not a model folder of elias")
    about, files = _read_config(folder / CONFIG, verify)
    kernels.discard_stale()
    labels, counts, clusters = read_labels(folder / model_schema.LABELS)
    network = load_network(folder, device=pick_device(device), threads=pick_threads(threads))
    index = network.index
    _agree(folder / model_schema.LABELS, f"{len(labels)} labels", len(labels), "index.safetensors", index.n_labels)
    check_numbers(folder / model_schema.LABELS, counts, clusters, index.n_clusters)
    words = _cluster_words(folder / "clusters.json")
    _agree(folder / "clusters.json", f"{len(words)} clusters", len(words), "index.safetensors", index.n_clusters)
    features = about["dataset"]["features"]
    vectorizer = _vectorizer(folder, shared) if features is None else None
    n_words = features if vectorizer is None else vectorizer.n_features
    _check_input(folder, network, n_words, is_text=vectorizer is not None)
    model = Model(
        network=network,
        labels=labels,
        label_counts=counts,
        stage1_clusters=clusters,
        cluster_words=words,
        vectorizer=vectorizer,
        n_train=about.pop("n_train"),
        about=about,
        use_kernels=use_kernels,
        cpu_search=read_search_tables(network, folder),
    )
    if reranker.NAME in files and published.NAME in files:
        raise ModelError(f"{folder}: has both {reranker.NAME} and {published.NAME}, of two models; {REMEDY}")
    if reranker.NAME in files:
        parts = _shared_parts(folder, network, shared)
        model.reranker = Reranker.load(folder, counts, n_words, threads=network.threads, parts=parts)
    elif published.NAME in files:
        size = {"n_labels": len(labels), "n_words": n_words, "dim": network.encoder.dim}
        model.reranker = PublishedRanker.load(folder, **size, threads=network.threads)
    if verify is not None:
        check_finite(folder, files)
    model.remember(folder)
    return model


def _check_input(folder: Path, network: Network, n_words: int, *, is_text: bool) -> None:
    """Whether the encoder reads what the rest of the model makes of an input."""
    encoder, table = network.encoder, network.encoder.tables().get("words")
    if encoder.kind in ("transformer", "hybrid") and not is_text:
        raise ModelError(f"{folder / CONFIG}: dataset.features {n_words}, but the encoder reads texts; {REMEDY}")
    reads = len(table) if table is not None else encoder.dim if encoder.kind == "dense" else n_words
    if encoder.kind == "dense" and is_text:
        raise ModelError(f"{folder / CONFIG}: dataset.features null, but the encoder reads vectors; {REMEDY}")
    place = folder / ("vectorizer.json" if is_text else CONFIG)
    _agree(place, f"{n_words} {'words' if is_text else 'features'}", n_words, "encoder/encoder.safetensors", reads)


def _cluster_words(path: Path) -> list[list[str]]:
    words: list[Any] = check_object(path, read_json(path), model_schema.CLUSTER_WORDS)["words"]
    if not all(isinstance(own, list) and all(isinstance(word, str) for word in own) for own in words):
        raise ModelError(f'{path}: "words" is not a list of lists of texts; {REMEDY}')
    return words


def check_finite(folder: Path, files: Iterable[str], remedy: str = REMEDY) -> None:
    """Refuse numbers that are not finite in any array of a model, however large."""
    for name in files:
        if name.endswith(".safetensors"):
            for key, array in read_tensors(folder / name)[0].items():
                if not_finite(array):
                    place = first_non_finite(array)
                    raise ModelError(f'{folder / name}: "{key}" has a number that is not finite at {place}; {remedy}')


def _vectorizer(folder: Path, shared: Shared | None) -> TfIdf:
    if shared is not None and shared[1].vectorizer is not None and same_files(folder, shared[0], *TFIDF_FILES):
        return shared[1].vectorizer
    return TfIdf.load(folder)


def _shared_parts(folder: Path, network: Network, shared: Shared | None) -> RankingParts | None:
    """The ranking parts of the other model where they come from the same files and the same counts."""
    if shared is None or shared[1].network.threads != network.threads:
        return None
    ranker = shared[1].reranker
    if not isinstance(ranker, Reranker):
        return None
    names = [name for name in PART_FILES if any((path / name).exists() for path in (folder, shared[0]))]
    same = same_files(folder, shared[0], *names, reranker.NAME)
    return ranker.parts if same else None


def _read_config(path: Path, verify: Verified | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json without its versions, and the entries of the files beside it, once they are known to be readable."""
    about = read_object(path, "format_version")
    version, versions = about.get("format_version"), about.get("versions")
    if version != FORMAT_VERSION:
        written = str(versions.get("elias"))[:20] if isinstance(versions, dict) else "another program"
        raise ModelError(
            f"{path}: format_version {str(version)[:20]}, written by elias {written}; this elias {__version__} reads "
            f"format_version {FORMAT_VERSION}; fit the model again, or use the elias that wrote it"
        )
    check_seal(path, about)
    check_object(path, about, model_schema.CONFIG_FIELDS)
    files = check_files(path, about["files"], may_be_missing=model_schema.MAY_BE_MISSING, every=verify)
    for name in sorted(_own_files(path.parent) - about["files"].keys()):
        raise ModelError(f"{path.parent / name}: config.json does not list it, so it is of another model; remove it")
    return {name: value for name, value in about.items() if name not in NOT_ABOUT}, files


def _agree(path: Path, what: str, ours: int, other: str, theirs: int) -> None:
    if ours != theirs:
        raise ModelError(f"{path}: {what}, but {other} has {theirs}; these files do not belong together")
