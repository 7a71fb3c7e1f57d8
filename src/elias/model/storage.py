"""A model folder, written and read.

    model/
        config.json              format_version, resolved settings, versions, metrics at save time, data facts
        labels.tsv               id, text, training count, stage-1 cluster; row number = label number
        clusters.json            typical words of each cluster
        vectorizer.json, .npy    tf-idf (texts only)
        encoder/, clusters.safetensors, index.safetensors, classifiers.safetensors, network.json
        search.safetensors       what the CPU search reads, made from the others; may be deleted
        ranking.json, score_model.json, {inverted_index,linear_ranker,label_tree,knn}.safetensors    the stacked ranker
        published.json, {linear_ranker,calibration_tree}.safetensors    the published ranker, in place of it
        training_texts.safetensors    excerpts of the training texts that vote (knn.keep_texts); may be deleted

JSON, safetensors and plain .npy; never pickle. Every file is checked against the others when the folder is opened.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from .. import kernels
from ..core.devices import pick_device, pick_threads
from ..core.errors import ModelError
from ..core.files import read_object, replacing, same_files, write_json
from ..core.version import __version__
from ..encoders.tfidf import FILES as TFIDF_FILES
from ..encoders.tfidf import TfIdf
from ..network.network import Network
from ..network.storage import load_network, read_search_tables, write_network, write_search_tables
from ..ranking import inverted_index, knn, label_tree, linear_ranker, published, reranker, training_texts
from ..ranking.features import RankingParts
from ..ranking.published import PublishedRanker
from ..ranking.reranker import Reranker
from .label_file import read_labels, write_labels
from .model import Model

FORMAT_VERSION = 1
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
    config = {"format_version": FORMAT_VERSION, "versions": versions, "n_train": model.n_train, **model.about}
    write_json(folder / "config.json", config)


def load_model(
    folder: str | Path, *, device: str = "auto", threads: int | None = None, use_kernels: bool = True,
    shared: Shared | None = None,
) -> Model:  # fmt: skip
    """Open a saved model (`ensemble.load`: or an ensemble), memory-mapped, so quickly whatever the size."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no model folder here; `elias fit DATA -o {folder}` would make one")
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder}: has no config.json, so it is not a model folder of elias")
    about = _read_config(folder / "config.json")
    kernels.discard_stale()
    labels, counts, clusters = read_labels(folder / "labels.tsv")
    network = load_network(folder, device=pick_device(device), threads=pick_threads(threads))
    index = network.index
    _agree(folder / "labels.tsv", f"{len(labels)} labels", len(labels), "index.safetensors", index.n_labels)
    words = read_object(folder / "clusters.json", "words")["words"]
    _agree(folder / "clusters.json", f"{len(words)} clusters", len(words), "index.safetensors", index.n_clusters)
    vectorizer = _vectorizer(folder, shared) if about["dataset"]["features"] is None else None
    table = network.encoder.tables().get("words")
    if vectorizer is not None and table is not None:
        n_words = vectorizer.n_features
        _agree(folder / "vectorizer.json", f"{n_words} words", n_words, "encoder/encoder.safetensors", len(table))
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
    features = about["dataset"]["features"]
    n_words = int(features or 0) if vectorizer is None else vectorizer.n_features
    if (folder / reranker.NAME).exists():
        parts = _shared_parts(folder, network, shared)
        model.reranker = Reranker.load(folder, counts, n_words, threads=network.threads, parts=parts)
    elif (folder / published.NAME).exists():
        size = {"n_labels": len(labels), "n_words": n_words, "dim": network.encoder.dim}
        model.reranker = PublishedRanker.load(folder, **size, threads=network.threads)
    model.remember(folder)
    return model


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


def _read_config(path: Path) -> dict[str, Any]:
    """config.json without its versions, once they are known to be readable."""
    about = read_object(path, "format_version")
    version, versions = about.pop("format_version"), about.pop("versions", {})
    if version != FORMAT_VERSION:
        written = versions.get("elias", "another program") if isinstance(versions, dict) else "another program"
        raise ModelError(
            f"{path}: format_version {version}, written by elias {written}; this elias {__version__} reads "
            f"format_version {FORMAT_VERSION}; fit the model again, or use the elias that wrote it"
        )
    if not isinstance(about.get("n_train"), int) or "features" not in (about.get("dataset") or {}):
        raise ModelError(f"{path}: lacks n_train or dataset.features; the file is damaged, restore it from a copy")
    return about


def _agree(path: Path, what: str, ours: int, other: str, theirs: int) -> None:
    if ours != theirs:
        raise ModelError(f"{path}: {what}, but {other} has {theirs}; these files do not belong together")
