"""Several models of one dataset as one: the mean of their scores over the union of what they predict.

    score_l = 1/M sum over members of score_l, a label that a member does not predict counting 0

    ensemble/
        ensemble.json       format_version, names of the members
        member-0/ ...       models, each whole; files that are the same in all members are stored once (hard links)

Members differ in clustering, order and noise (`run.member`); the tf-idf, the words, the neighbours and a
ranker that needs no network are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError, ModelError
from ..core.files import read_object, replacing, write_json
from ..core.predictions import ID_PARTS, PAD, Predictions
from ..core.propensity import predict_by_propensity
from ..core.ragged import Ragged
from ..dataset.labels import LabelSet
from ..network.network import Network
from ..network.searcher import Searcher
from .model import Model
from .storage import load_model
from .together import find_together, share_words

NAME = "ensemble.json"
FORMAT_VERSION = 1
DEPTH = 100  # labels a member predicts, at least


@dataclass(frozen=True, repr=False)
class Ensemble:
    """Predicts like a `Model`."""

    members: list[Model]

    def __post_init__(self) -> None:
        if not self.members:
            raise InputError("an ensemble has at least one member")
        first = self.members[0]
        for number, member in enumerate(self.members[1:], start=1):
            if member.labels.ids != first.labels.ids:
                raise ModelError(f"member {number} has other labels than member 0; fit them on the same data")

    def __repr__(self) -> str:
        return f"<elias.Ensemble of {len(self.members)}: {self.members[0]!r}>"

    @property
    def labels(self) -> LabelSet:
        return self.members[0].labels

    @property
    def label_counts(self) -> np.ndarray:
        return self.members[0].label_counts

    @property
    def n_train(self) -> int:
        return self.members[0].n_train

    @property
    def about(self) -> dict[str, Any]:
        return self.members[0].about

    # One looks into the index of the first member.

    @property
    def network(self) -> Network:
        return self.members[0].network

    @property
    def searcher(self) -> Searcher:
        return self.members[0].searcher

    def prepare(self, inputs: Any) -> tuple[Any, int]:
        return self.members[0].prepare(inputs)

    @property
    def stage1_clusters(self) -> np.ndarray:
        return self.members[0].stage1_clusters

    @property
    def cluster_words(self) -> list[list[str]]:
        return self.members[0].cluster_words

    @property
    def exclude_own_id(self) -> bool:
        return self.members[0].exclude_own_id

    @property
    def gives_probabilities(self) -> bool:
        return all(member.gives_probabilities for member in self.members)

    def predict(
        self,
        inputs: Any,
        k: int = 5,
        *,
        ids: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
        allow: Sequence[str] | None = None,
        block: Sequence[str] | None = None,
        threshold: float | None = None,
        rare: float = 0.0,
        explain: bool = False,
    ) -> Predictions:
        """The k best labels of each input; everything as in `Model.predict`."""
        for member in self.members:
            member.check_threshold(threshold)
        if k < 1:
            raise InputError(f"k={k}: ask for at least one label")
        if isinstance(inputs, str):
            inputs = [inputs]
        elif isinstance(inputs, Iterator):
            inputs = list(inputs)  # every member reads them
        if rare:
            return predict_by_propensity(
                self, inputs, k, rare,
                ids=ids, candidates=candidates, allow=allow, block=block, threshold=threshold, explain=explain,
            )  # fmt: skip
        depth = max([k, DEPTH, len(allow or ()), *map(len, candidates or ())])
        if self._shares_words and candidates is None and allow is None:
            found = self._together(inputs, depth, ids, block, explain)
        else:
            options: dict[str, Any] = {"ids": ids, "candidates": candidates, "allow": allow, "block": block}
            found = [member.predict(inputs, depth, **options, explain=explain) for member in self.members]
        answer = replace(averaged(found, min(k, len(self.labels))), ids=ids, label_ids=self.labels.ids)
        return answer if threshold is None else answer.above(threshold)

    def predict_rows(self, inputs: Any, excluded: sp.csr_matrix, k: int) -> Predictions:
        """As in `Model.predict_rows`."""
        if self._shares_words:
            given, depth = self.members[0].given(inputs), min(max(k, DEPTH), len(self.labels))
            found = find_together(self.members, given, depth, lambda rows: Ragged.from_rows(excluded, rows)[0], False)
        else:
            found = [member.predict_rows(inputs, excluded, max(k, DEPTH)) for member in self.members]
        return replace(averaged(found, min(k, len(self.labels))), label_ids=self.labels.ids)

    @cached_property
    def _shares_words(self) -> bool:
        return share_words(self.members)

    def _together(
        self, inputs: Any, k: int, ids: Sequence[str] | None, block: Sequence[str] | None, explain: bool
    ) -> list[Predictions]:
        """What each member predicts, words read once."""
        first = self.members[0]
        blocked = first.numbers_of(block or [], "block")
        given, k = first.given(inputs), min(k, len(self.labels))
        if ids is not None and len(ids) != len(given):
            raise InputError(f"{len(ids)} ids for {len(given)} inputs; give one for each")
        return find_together(self.members, given, k, lambda rows: first.excluded_of(blocked, ids, rows), explain)

    def save(self, folder: str | Path) -> None:
        """Write all members; the folder appears whole, or not at all. An existing folder is refused."""
        folder = Path(folder)
        if folder.exists():
            raise ModelError(f"{folder} exists; remove it first, or choose another name")
        names = [f"member-{number}" for number in range(len(self.members))]
        with replacing(folder) as part:
            part.mkdir()
            for name, member in zip(names, self.members, strict=True):
                member.save(part / name)
            write_ensemble(part, names)


def averaged(found: Sequence[Predictions], k: int) -> Predictions:
    """The k best by the mean score; parts are those of the first member that predicts a label, and its number."""
    labels = np.concatenate([one.labels for one in found], axis=1)
    scores = np.concatenate([one.scores for one in found], axis=1).astype(np.float64)
    order = np.argsort(labels, axis=1, kind="stable")  # the first member first
    labels, scores = np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1)
    first = np.ones(labels.shape, dtype=bool)
    first[:, 1:] = labels[:, 1:] != labels[:, :-1]
    totals = np.zeros(labels.shape)
    if labels.size:
        totals[first] = np.add.reduceat(scores.ravel(), np.flatnonzero(first.ravel())) / len(found)
    there = first & (labels >= 0)
    best = np.lexsort((labels, np.where(there, -totals, np.inf)), axis=1)[:, :k]
    missing = ~np.take_along_axis(there, best, axis=1)
    chosen = np.where(missing, PAD, np.take_along_axis(labels, best, axis=1)).astype(np.int32)
    mean = np.where(missing, 0, np.take_along_axis(totals, best, axis=1)).astype(np.float32)
    parts = None
    if found[0].parts is not None:
        stacked = {
            name: np.concatenate([one.parts[name] for one in found if one.parts], axis=1) for name in found[0].parts
        }
        width = found[0].labels.shape[1]
        stacked["member"] = np.repeat(np.arange(len(found), dtype=np.int32), width)[None].repeat(len(labels), axis=0)
        parts = {name: np.take_along_axis(np.take_along_axis(v, order, 1), best, 1) for name, v in stacked.items()}
        for name, values in parts.items():
            values[missing] = PAD if name in ID_PARTS else 0
    return Predictions(labels=chosen, scores=mean, parts=parts).resize(k)


def write_ensemble(folder: Path, members: Sequence[str]) -> None:
    """ensemble.json beside the folders of the members."""
    write_json(folder / NAME, {"format_version": FORMAT_VERSION, "members": list(members)})


def load(folder: str | Path, *, device: str = "auto", threads: int | None = None) -> Model | Ensemble:
    """Open a saved model or ensemble. Large arrays are memory-mapped, so this is quick whatever the size."""
    folder = Path(folder)
    if not (folder / NAME).exists():
        return load_model(folder, device=device, threads=threads)
    content = read_object(folder / NAME, "format_version", "members")
    if content["format_version"] != FORMAT_VERSION:
        raise ModelError(
            f"{folder / NAME}: format_version {content['format_version']}; this elias reads {FORMAT_VERSION}"
        )
    names = content["members"]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
        raise ModelError(f"{folder / NAME}: members must be names of folders beside it; the file is damaged")
    for name in names:
        if not (folder / name).is_dir():
            raise ModelError(f"{folder / NAME}: names the member {name}, which is not there; restore it from a copy")
    first = load_model(folder / names[0], device=device, threads=threads)
    like = folder / names[0], first
    others = [load_model(folder / name, device=device, threads=threads, like=like) for name in names[1:]]
    return Ensemble([first, *others])


def only_member(model: Model | Ensemble, folder: str | Path, what: str) -> Model:
    """The one model of a folder; of an ensemble, a hint to name a member."""
    if isinstance(model, Ensemble):
        raise InputError(f"{folder} is an ensemble; {what} one of its members, e.g. {Path(folder) / 'member-0'}")
    return model
