"""A model folder, read.

    model/
        config.json              format_version, resolved settings, versions, metrics at save time, data facts
        labels.tsv               id, text, training count, stage-1 cluster; row number = label number
        clusters.json            typical words of each cluster
        vectorizer.json, .npy    tf-idf (texts only)
        encoder/, clusters.safetensors, index.safetensors, classifiers.safetensors, network.json
        search.safetensors       what the CPU search reads, made from the others; may be deleted
        plus.json, fusion.json, {lexical,ranker,label_tree,neighbours}.safetensors    ELIAS++, where it is on

format_version 5 (2: classifiers may be bfloat16 or int8; 3: plus.json; 4: neighbours; 5: label tree). Policy: a change
that an older elias would misread raises it; this version reads every format_version up to its own and refuses newer
ones, naming the version that wrote them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import kernels
from ..core.devices import pick_device, pick_threads
from ..core.errors import ModelError
from ..core.files import read_object, same_files
from ..core.version import __version__
from ..encoders.tfidf import FILES as TFIDF_FILES
from ..encoders.tfidf import TfIdf
from ..network.network import Network
from ..network.storage import load_network, read_search_tables
from ..ranking.inverted_index import NAME as LEXICAL
from ..ranking.knn import NAME as NEIGHBOURS
from ..ranking.label_tree import NAME as TREE
from ..ranking.linear_ranker import NAME as RANKER
from ..ranking.reranker import NAME as PLUS
from ..ranking.reranker import Plus
from .label_file import read_labels
from .model import FORMAT_VERSION, Model


def load_model(
    folder: str | Path, *, device: str = "auto", threads: int | None = None, like: tuple[Path, Model] | None = None
) -> Model:
    """Open a saved model (`ensemble.load`: or an ensemble), memory-mapped, so quickly whatever the size.

    `like`: another model and its folder; tables from files that are the same are held once.
    """
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
    vectorizer = _vectorizer(folder, like) if about["dataset"]["features"] is None else None
    table = network.encoder.tables().get("words")
    if vectorizer is not None and table is not None:
        n_words = vectorizer.n_features
        _agree(folder / "vectorizer.json", f"{n_words} words", n_words, "encoder/encoder.safetensors", len(table))
    return Model(
        network=network,
        labels=labels,
        label_counts=counts,
        stage1_clusters=clusters,
        cluster_words=words,
        vectorizer=vectorizer,
        n_train=about.pop("n_train"),
        about=about,
        cpu_search=read_search_tables(network, folder),
        plus=_load_plus(folder, counts, vectorizer, about, network, like),
    )


def _vectorizer(folder: Path, like: tuple[Path, Model] | None) -> TfIdf:
    if like is not None and like[1].vectorizer is not None and same_files(folder, like[0], *TFIDF_FILES):
        return like[1].vectorizer
    return TfIdf.load(folder)


def _load_plus(
    folder: Path, counts: np.ndarray, vectorizer: TfIdf | None, about: dict[str, Any], network: Network,
    like: tuple[Path, Model] | None,
) -> Plus | None:  # fmt: skip
    """ELIAS++ of a folder, where it has one."""
    if not (folder / PLUS).exists():
        return None
    n_words = vectorizer.n_features if vectorizer is not None else int(about["dataset"]["features"])
    folders = [folder] if like is None else [folder, like[0]]
    names = [name for name in (LEXICAL, RANKER, TREE, NEIGHBOURS) if any((path / name).exists() for path in folders)]
    other = None if like is None or not same_files(folder, like[0], *names) else like[1].plus
    return Plus.load(folder, counts, n_words, threads=network.threads, dim=network.encoder.dim, like=other)


def _read_config(path: Path) -> dict[str, Any]:
    """config.json without its versions, once they are known to be ours to read."""
    about = read_object(path, "format_version")
    version = about.pop("format_version")
    versions = about.pop("versions", {})
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        written = versions.get("elias", "another program") if isinstance(versions, dict) else "another program"
        raise ModelError(
            f"{path}: format_version {version}, written by elias {written}; this elias {__version__} reads "
            f"format_version 1 to {FORMAT_VERSION}; upgrade elias"
        )
    if not isinstance(about.get("n_train"), int) or "features" not in (about.get("dataset") or {}):
        raise ModelError(f"{path}: lacks n_train or dataset.features; the file is damaged, restore it from a copy")
    return about


def _agree(path: Path, what: str, ours: int, other: str, theirs: int) -> None:
    if ours != theirs:
        raise ModelError(f"{path}: {what}, but {other} has {theirs}; these files do not belong together")
