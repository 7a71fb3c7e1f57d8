"""A trained model as users hold it: texts in, label names and scores out; saved and loaded as one folder.

    model/
        config.json              format_version, resolved settings, versions, metrics at save time, data facts
        labels.tsv               id, text, training count, stage-1 cluster; row number = label number
        clusters.json            typical words of each cluster
        vectorizer.json, .npy    tf-idf (texts only)
        encoder/, clusters.safetensors, index.safetensors, classifiers.safetensors, network.json

format_version 1. Policy: a change that an older elias would misread raises it; this version reads every
format_version up to its own and refuses newer ones, naming the version that wrote them.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from .dataset.labels import LabelSet
from .encoders import Inputs
from .errors import InputError, ModelError, did_you_mean
from .features import TfIdf
from .finder import BATCH, Finder
from .label_file import read_labels, write_labels
from .model import Network
from .network_files import load_network, write_network
from .persistence import read_json, write_json, written_beside
from .predictions import Predictions, stack
from .search import Ragged
from .version import __version__

FORMAT_VERSION = 1


@dataclass(kw_only=True)
class Model:
    """A network with everything around it that makes numbers into names."""

    network: Network
    labels: LabelSet
    label_counts: np.ndarray  # training rows of each label
    stage1_clusters: np.ndarray  # -1 for labels without a training row
    cluster_words: list[list[str]]
    vectorizer: TfIdf | None
    n_train: int
    about: dict[str, Any] = field(default_factory=dict)  # settings, dataset facts, metrics

    def __post_init__(self) -> None:
        self.finder = Finder(self.network)

    @property
    def exclude_own_id(self) -> bool:
        return bool(self.about.get("dataset", {}).get("exclude_own_id", False))

    def prepare(self, inputs: Any) -> tuple[Any, int]:
        """Texts, or a matrix of the kind the model was trained on, as the encoder wants them; and how many."""
        if self.vectorizer is not None:
            texts = _texts(inputs)
            return self.network.encoder.prepare(Inputs(texts=texts, bow=self.vectorizer.transform(texts))), len(texts)
        return self._prepare_vectors(inputs)

    def _prepare_vectors(self, inputs: Any) -> tuple[Any, int]:
        if isinstance(inputs, (str, list, tuple)) and len(inputs) and isinstance(inputs[0], str):
            raise InputError("this model was trained on vectors, not on texts; pass a matrix with one row an input")
        if sp.issparse(inputs):
            given = Inputs(bow=sp.csr_matrix(inputs, dtype=np.float32))
            width = given.bow.shape[1] if given.bow is not None else 0
        else:
            given = Inputs(vectors=np.atleast_2d(np.asarray(inputs, dtype=np.float32)))
            width = given.vectors.shape[1] if given.vectors is not None else 0
        wanted = self.about.get("dataset", {}).get("features")
        if wanted is not None and width != wanted:
            raise InputError(f"these vectors have {width} columns; the model was trained on {wanted}")
        return self.network.encoder.prepare(given), len(given)

    def predict(
        self,
        inputs: Any,
        k: int = 5,
        *,
        ids: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        explain: bool = False,
    ) -> Predictions:
        """The k best labels of each input.

        `candidates`: for each input, the only labels to score, each over all clusters. `allow`: the same list
        for every input. `block`: labels never to suggest. `ids`: the inputs' own ids, echoed; where the dataset
        said exclude_own_id, an input is never given its own id.
        """
        if isinstance(inputs, str):
            inputs = [inputs]
        if k < 1:
            raise InputError(f"k={k}: ask for at least one label")
        prepared, n = self.prepare(inputs)
        if candidates is not None and len(candidates) != n:
            raise InputError(f"{len(candidates)} candidate lists for {n} inputs; give one list an input")
        if ids is not None and len(ids) != n:
            raise InputError(f"{len(ids)} ids for {n} inputs; give one id an input")
        if allow is not None and candidates is None:
            candidates = [allow] * n
        k = min(k, len(self.labels))
        blocked = self._numbers(block or [])
        pieces = []
        for start in range(0, n, BATCH):
            rows = np.arange(start, min(start + BATCH, n))
            excluded = [np.union1d(blocked, self._own(ids, row)) for row in rows]
            if candidates is None:
                found = self.finder.find(prepared, rows, k, excluded=_ragged(excluded), explain=explain)
            else:
                wanted = [self._numbers(candidates[row]) for row in rows]
                left = [np.setdiff1d(w, e) for w, e in zip(wanted, excluded, strict=True)]
                found = self.finder.score(prepared, rows, k, _ragged(left), explain=explain)
            pieces.append(found)
        if not pieces:
            nothing = np.empty((0, k))
            pieces = [Predictions(labels=nothing.astype(np.int32), scores=nothing.astype(np.float32))]
        return replace(stack(pieces), ids=ids, label_ids=self.labels.ids)

    def predict_rows(self, inputs: Any, excluded: sp.csr_matrix, k: int) -> Predictions:
        """The k best labels of dataset rows, with the pairs the dataset excludes left out; for evaluation."""
        prepared, n = self.prepare(inputs)
        found = self.finder.find_all(prepared, n, min(k, len(self.labels)), excluded=excluded)
        return replace(found, label_ids=self.labels.ids)

    def _own(self, ids: Sequence[str] | None, row: int) -> np.ndarray:
        if ids is None or not self.exclude_own_id:
            return np.empty(0, dtype=np.int64)
        number = self.labels.number_of.get(str(ids[row]))
        return np.array([] if number is None else [number], dtype=np.int64)

    def _numbers(self, names: Sequence[str]) -> np.ndarray:
        """Label numbers of some label ids."""
        numbers = []
        for name in names:
            number = self.labels.number_of.get(str(name))
            if number is None:
                raise InputError(f'unknown label "{name}"{did_you_mean(str(name), self.labels.ids[:200_000])}')
            numbers.append(number)
        return np.unique(np.array(numbers, dtype=np.int64))

    def save(self, folder: str | Path) -> None:
        """Write the model; the folder appears whole, or not at all. An existing folder is refused."""
        folder = Path(folder)
        if folder.exists():
            raise ModelError(f"{folder} exists; remove it first, or choose another name")
        with written_beside(folder) as part:
            part.mkdir()
            write_network(self.network, part)
            self.write_around(part)

    def write_around(self, folder: Path) -> None:
        """Everything but the network."""
        write_labels(folder / "labels.tsv", self.labels, self.label_counts, self.stage1_clusters)
        write_json(folder / "clusters.json", {"words": self.cluster_words})
        if self.vectorizer is not None:
            self.vectorizer.save(folder)
        versions = {"elias": __version__, "python": platform.python_version(), "torch": torch.__version__}
        config = {"format_version": FORMAT_VERSION, "versions": versions, "n_train": self.n_train, **self.about}
        write_json(folder / "config.json", config)


def load(folder: str | Path, *, device: str = "auto", threads: int | None = None) -> Model:
    """Open a saved model. Large arrays are memory-mapped, so this is quick whatever the size."""
    from .devices import pick_device, pick_threads

    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no model folder here; `elias fit DATA -o {folder}` would make one")
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder}: has no config.json, so it is not a model folder of elias")
    about = read_json(folder / "config.json")
    version = about.pop("format_version", None)
    if not isinstance(version, int) or version > FORMAT_VERSION or version < 1:
        written = about.get("versions", {}).get("elias", "another program")
        raise ModelError(
            f"{folder / 'config.json'}: format_version {version} was written by elias {written}; this elias {__version__} "
            f"reads up to {FORMAT_VERSION}; upgrade elias"
        )
    about.pop("versions", None)
    labels, counts, clusters = read_labels(folder / "labels.tsv")
    network = load_network(folder, device=pick_device(device), threads=pick_threads(threads))
    if network.index.n_labels != len(labels):
        raise ModelError(
            f"{folder / 'labels.tsv'}: {len(labels)} labels, but index.safetensors knows {network.index.n_labels}; "
            "these files do not belong together"
        )
    return Model(
        network=network,
        labels=labels,
        label_counts=counts,
        stage1_clusters=clusters,
        cluster_words=read_json(folder / "clusters.json")["words"],
        vectorizer=TfIdf.load(folder) if (folder / "vectorizer.json").exists() else None,
        n_train=int(about.pop("n_train", 0)),
        about=about,
    )


def _texts(inputs: Any) -> Sequence[str]:
    if sp.issparse(inputs) or isinstance(inputs, np.ndarray):
        raise InputError("this model was trained on texts, not on vectors; pass a list of strings")
    for number, text in enumerate(inputs):
        if not isinstance(text, str):
            raise InputError(f"input {number} is {type(text).__name__}, not a text: {text!r}"[:200])
    checked: Sequence[str] = inputs
    return checked


def _ragged(lists: list[np.ndarray]) -> Ragged:
    indptr = np.concatenate([[0], np.cumsum([len(item) for item in lists])]).astype(np.int64)
    return Ragged(indptr, np.concatenate([*lists, np.empty(0, dtype=np.int64)]).astype(np.int32))
