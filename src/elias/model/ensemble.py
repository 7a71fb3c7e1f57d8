"""Several models of one dataset as one: the mean of their scores over the union of what they predict.

    score_l = 1/M sum over members of score_l, a label that a member does not predict counting 0

    ensemble/
        ensemble.json       format_version, names of the members and hashes of their config.json, what they are worth
                            together, and a hash of itself
        member-0/ ...       models, each whole; files that are the same in all members are stored once (hard links)

Members differ in clustering, order and noise (`run.member`); tf-idf and the parts of the stacked ranker are the
same, and so a text's words are read once for all members. The published ranker is trained on what its network
retrieves: each member has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core import model_schema
from ..core.checksums import Verified, check_files, check_seal, manifest, sealed
from ..core.errors import InputError, ModelError
from ..core.files import read_object, replacing, write_json
from ..core.model_schema import CONFIG
from ..core.predictions import ID_PARTS, PAD, Predictions
from ..core.schema import REMEDY, check_object
from ..dataset.labels import LabelSet
from ..network.network import Network
from ..network.searcher import Searcher
from .model import Model
from .predict import Predictor
from .serialization import Home
from .storage import load_model

NAME = "ensemble.json"
FORMAT_VERSION = 1
DEPTH = 100  # labels a member predicts, at least


@dataclass(frozen=True, repr=False)
class Ensemble(Predictor):
    """Predicts like a `Model`.

    Parameters
    ----------
    members
        Models of the same labels.
    quality
        What they are worth together (`evaluation/quality.py`), where it was measured.
    """

    members: list[Model]
    quality: dict[str, Any] | None = None
    home: Home | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("an ensemble has at least one member")
        for number, member in enumerate(self.members[1:], start=1):
            problem = _differs(member, self.members[0])
            if problem:
                raise ModelError(f"member {number} has {problem} than member 0; fit them on the same data")

    def __repr__(self) -> str:
        return f"<elias.Ensemble of {len(self.members)}: {self.members[0]!r}>"

    def all_members(self) -> Sequence[Model]:
        return self.members

    def depth(self, k: int, n_candidates: int) -> int:
        return max(k, DEPTH, n_candidates)

    def combine(self, answers: Sequence[Predictions], k: int) -> Predictions:
        return averaged(answers, k)

    # What a model has beside `predict` is that of the first member; inspection shows its index.

    @property
    def labels(self) -> LabelSet:
        return self.first.labels

    @property
    def label_counts(self) -> np.ndarray:
        return self.first.label_counts

    @property
    def n_train(self) -> int:
        return self.first.n_train

    @property
    def about(self) -> dict[str, Any]:
        return {**self.first.about, "quality": self.quality}

    @property
    def network(self) -> Network:
        return self.first.network

    @property
    def searcher(self) -> Searcher:
        return self.first.searcher

    @property
    def stage1_clusters(self) -> np.ndarray:
        return self.first.stage1_clusters

    @property
    def cluster_words(self) -> list[list[str]]:
        return self.first.cluster_words

    @property
    def exclude_own_id(self) -> bool:
        return self.first.exclude_own_id

    def content(self) -> tuple[Any, ...]:
        return tuple(value for member in self.members for value in member.content())

    def write(self, folder: Path) -> None:
        if folder.exists():
            raise ModelError(f"{folder} exists; remove it first, or choose another name")
        names = [f"member-{number}" for number in range(len(self.members))]
        with replacing(folder) as part:
            part.mkdir()
            for name, member in zip(names, self.members, strict=True):
                member.write(part / name)
            write_ensemble(part, names, self.quality)


def _differs(member: Model, first: Model) -> str:
    """What a member has that is not as in the first, so that they cannot answer the same inputs."""
    if member.labels.ids != first.labels.ids:
        return "other labels"
    if (member.vectorizer is None) != (first.vectorizer is None):
        return "another kind of input"
    if member.vectorizer is not None and first.vectorizer is not None:
        if member.vectorizer is not first.vectorizer and member.vectorizer.words.words != first.vectorizer.words.words:
            return "another vocabulary"
    elif member.about["dataset"]["features"] != first.about["dataset"]["features"]:
        return "vectors of another width"
    if member.network.encoder.kind != first.network.encoder.kind:
        return "another kind of encoder"
    return ""


def averaged(found: Sequence[Predictions], k: int) -> Predictions:
    """The k best by mean score. Parts are those of the first member that predicts a label; `member` is its number."""
    labels = np.concatenate([one.labels for one in found], axis=1)
    scores = np.concatenate([one.scores for one in found], axis=1).astype(np.float64)
    order = np.argsort(labels, axis=1, kind="stable")  # equal labels side by side, the first member's first
    labels, scores = np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1)
    first = np.ones(labels.shape, dtype=bool)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    totals = np.zeros(labels.shape)
    if labels.size:
        totals[first] = np.add.reduceat(scores.ravel(), np.flatnonzero(first.ravel())) / len(found)
    real = first & (labels >= 0)
    best = np.lexsort((labels, np.where(real, -totals, np.inf)), axis=1)[:, :k]
    missing = ~np.take_along_axis(real, best, axis=1)
    chosen = np.where(missing, PAD, np.take_along_axis(labels, best, axis=1)).astype(np.int32)
    mean = np.where(missing, 0, np.take_along_axis(totals, best, axis=1)).astype(np.float32)
    parts = None
    if found[0].parts is not None:
        stacked = _beside([one.parts or {} for one in found])
        width = found[0].labels.shape[1]
        stacked["member"] = np.repeat(np.arange(len(found), dtype=np.int32), width)[None].repeat(len(labels), axis=0)
        parts = {name: np.take_along_axis(np.take_along_axis(v, order, 1), best, 1) for name, v in stacked.items()}
        for name, values in parts.items():
            values[missing] = PAD if name in ID_PARTS else 0
    return Predictions(labels=chosen, scores=mean, parts=parts).resize(k)


def _beside(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The parts of all members side by side; 0 where a member has no such part (members may differ in their ranker)."""
    kinds = {name: values.dtype for own in parts for name, values in own.items()}
    absent = [np.zeros(next(iter(own.values())).shape) for own in parts]
    return {
        name: np.concatenate(
            [own.get(name, zeros.astype(kind)) for own, zeros in zip(parts, absent, strict=True)], axis=1
        )
        for name, kind in kinds.items()
    }


def write_ensemble(folder: Path, members: Sequence[str], quality: dict[str, Any] | None) -> None:
    """ensemble.json beside the folders of the members."""
    configs = manifest(folder, [f"{name}/{CONFIG}" for name in members])
    content = {"format_version": FORMAT_VERSION, "members": list(members), "quality": quality, "configs": configs}
    write_json(folder / NAME, sealed(content))


def load(
    folder: str | Path, *, device: str = "auto", threads: int | None = None, kernels: bool = True, verify: bool = False
) -> Model | Ensemble:
    """Open a saved model or ensemble. Large arrays are memory-mapped, so this is quick whatever the size.

    Parameters
    ----------
    folder
        What `elias fit`, `Model.save` or `Ensemble.save` wrote.
    device
        Where torch computes: auto, cpu, cuda, cuda:1, mps.
    threads
        CPU threads; default: the cores of this machine.
    kernels
        False: the reference implementation in numpy and torch in place of the compiled kernels. Slow.
    verify
        Read every file whole, and compare it with the checksum that was recorded when it was written. Without it only
        files of up to a megabyte are compared; what indexes memory is checked either way.
    """
    return open_folder(Path(folder), device, threads, kernels, Verified() if verify else None)


def open_folder(
    folder: Path, device: str, threads: int | None, kernels: bool, verify: Verified | None
) -> Model | Ensemble:
    """`load`; `verify` counts what was compared."""
    options: dict[str, Any] = {"device": device, "threads": threads, "use_kernels": kernels, "verify": verify}
    if not (folder / NAME).exists():
        return load_model(folder, **options)
    path = folder / NAME
    content = read_object(path, "format_version", "members")
    if content["format_version"] != FORMAT_VERSION:
        version = str(content["format_version"])[:20]
        raise ModelError(f"{path}: format_version {version}; this elias reads {FORMAT_VERSION}")
    check_seal(path, content)
    names = check_object(path, content, model_schema.ENSEMBLE)["members"]
    if not names or len(set(names)) < len(names) or any(Path(n).name != n or "\0" in n for n in names):
        raise ModelError(f"{path}: members must be different names of folders beside it; {REMEDY}")
    for name in names:
        if not (folder / name).is_dir():
            raise ModelError(f"{path}: names the member {name}, which is not there; restore it from a copy")
        if f"{name}/{CONFIG}" not in content["configs"]:
            raise ModelError(f"{path}: has no hash of {name}/{CONFIG}; {REMEDY}")
    check_files(path, content["configs"], every=verify)
    first = load_model(folder / names[0], **options)
    shared = folder / names[0], first
    others = [load_model(folder / name, **options, shared=shared) for name in names[1:]]
    ensemble = Ensemble([first, *others], content.get("quality"))
    ensemble.remember(folder)
    return ensemble


def only_member(model: Model | Ensemble, folder: str | Path, what: str) -> Model:
    """The one model of a folder; of an ensemble, a hint to name a member."""
    if isinstance(model, Ensemble):
        raise InputError(f"{folder} is an ensemble; {what} one of its members, e.g. {Path(folder) / 'member-0'}")
    return model
