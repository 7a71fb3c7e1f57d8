"""The one way from texts to predictions, for a model and for an ensemble.

    texts -> encode -> candidates -> features -> score -> top k -> Predictions

`Predictor.predict` (explained or not, with candidate lists or without) and `Predictor.predict_rows` (evaluation) end in
`predict_batch`, and so do the command line and the service, which call them. A single text is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.errors import InputError, did_you_mean
from ..core.predictions import Predictions, stack
from ..core.propensity import DEPTH, check_strength, propensity_of, rerank_by_propensity
from ..core.ragged import Ragged
from ..encoders.encoder import Inputs
from ..network.searcher import BATCH
from ..ranking.features import candidate_features, features_of
from ..ranking.score_model import ReferenceScores

if TYPE_CHECKING:
    from .model import Model

MOST_CANDIDATES = 1 << 22  # scored at once
FEATURE_FLOATS = 32  # numbers that the stacked ranker holds per candidate
NO_LABELS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Request:
    """What is asked of a batch of rows."""

    k: int
    excluded: Ragged | None = None  # labels that a row must not be given
    candidates: Ragged | None = None  # the only labels that a row may be given; None: all
    explain: bool = False


def predict_batch(
    members: Sequence[Model], inputs: Inputs, prepared: Sequence[Any], rows: np.ndarray, request: Request
) -> list[Predictions]:
    """The k best labels of some rows by each of the members, which share their ranking parts.

    `prepared`: the inputs as the encoder of each member takes them.
    """
    # encode: phi and W_C phi
    queries = [member.searcher.encode(own, rows) for member, own in zip(members, prepared, strict=True)]
    first = members[0].reranker
    if first is None:  # the network alone: candidates are already in the order of their score p
        return [
            member.searcher.search(query, request.k, excluded=request.excluded, explain=request.explain)
            if request.candidates is None
            else member.searcher.rank_candidates(query, request.k, request.candidates, explain=request.explain)
            for member, query in zip(members, queries, strict=True)
        ]
    # candidates and features
    searchers, bow = [member.searcher for member in members], inputs.bow_rows(rows)
    features = candidate_features(first.parts, searchers, queries, bow, first.sizes(request.k), request.excluded)
    references: list[ReferenceScores | None] = [None] * len(members)
    if request.candidates is not None:  # a given list is scored against what the search finds
        references = [ReferenceScores.of(found) for found in features]
        labels = request.candidates.padded()
        features = [
            features_of(first.parts, searcher, query, bow, labels)
            for searcher, query in zip(searchers, queries, strict=True)
        ]
    # score, top k
    answers = []
    for member, found, reference in zip(members, features, references, strict=True):
        assert member.reranker is not None
        answers.append(member.reranker.rank(found, request.k, explain=request.explain, reference=reference))
    return answers


class Predictor:
    """What a model and an ensemble have in common: `predict`."""

    def all_members(self) -> Sequence[Model]:
        """The members of an ensemble; a model is its only one."""
        raise NotImplementedError

    @property
    def first(self) -> Model:
        """What all members have in common (labels, dataset, tf-idf) is read from the first."""
        return self.all_members()[0]

    def combine(self, answers: Sequence[Predictions], k: int) -> Predictions:
        """The answers of the members as one."""
        raise NotImplementedError

    def depth(self, k: int, n_candidates: int) -> int:
        """How many labels a member must predict for the k best of all members."""
        raise NotImplementedError

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
        """The k best labels of each input.

        Parameters
        ----------
        inputs
            A text, a list of texts, or a matrix of the kind the model was trained on.
        k
            How many labels per input.
        ids
            The inputs' own ids, returned with the predictions. Where the dataset says exclude_own_id, an input is never
            given its own id.
        candidates
            For each input, the only labels (ids) to score.
        allow
            The only labels to suggest for any input; with `candidates`, labels of both.
        block
            Labels never to suggest.
        threshold
            Only labels that are right with at least this probability.
        rare
            0 to 1: how strongly rare labels are preferred (`core/propensity.py`).
        explain
            Add the parts of each score.
        """
        if k < 1:
            raise InputError(f"k={k}: ask for at least one label")
        check_strength(rare)
        self.check_threshold(threshold)
        given = self.read(inputs)
        for what, items in (("candidate lists", candidates), ("ids", ids)):
            if items is not None and len(items) != len(given):
                raise InputError(f"{len(items)} {what} for {len(given)} inputs; give one for each")
        lists = self._candidate_lists(candidates, allow, len(given))
        blocked = self.label_numbers(block or [], "block")
        wanted = max(k, DEPTH) if rare else k  # re-ranking must be able to bring up labels from below the k best
        found = self._predict(
            given, wanted, lambda rows: self._excluded(blocked, ids, rows), lists=lists, explain=explain
        )
        if rare:
            found = rerank_by_propensity(found, propensity_of(self.first), rare, k)
        found = replace(found, ids=ids, label_ids=self.first.labels.ids)
        return found if threshold is None else found.above(threshold)

    def predict_rows(self, inputs: Any, excluded: sp.csr_matrix, k: int) -> Predictions:
        """The k best labels of the rows of a dataset, without the pairs that it excludes (rows x L): for evaluation."""
        found = self._predict(self.read(inputs), k, lambda rows: Ragged.from_rows(excluded, rows)[0])
        return replace(found, label_ids=self.first.labels.ids)

    def _predict(
        self,
        inputs: Inputs,
        k: int,
        excluded_of: Callable[[np.ndarray], Ragged | None],
        *,
        lists: list[np.ndarray] | None = None,
        explain: bool = False,
    ) -> Predictions:
        """All batches, combined over the members."""
        k = min(k, len(self.first.labels))
        longest = max(map(len, lists), default=0) if lists else 0
        depth = min(self.depth(k, longest), len(self.first.labels))
        pieces = []
        with kernels.reference(not self.first.use_kernels):
            groups = [(group, [one.network.encoder.prepare(inputs) for one in group]) for group in self.groups()]
            for rows in batches(len(inputs), self._batch_size(max(longest, depth))):
                excluded = excluded_of(rows)
                candidates = None if lists is None else _without(lists, excluded, rows)
                request = Request(depth, excluded, candidates, explain)
                answers: dict[int, Predictions] = {}
                for group, prepared in groups:
                    found = predict_batch(group, inputs, prepared, rows, request)
                    answers |= {id(member): answer for member, answer in zip(group, found, strict=True)}
                pieces.append(self.combine([answers[id(member)] for member in self.all_members()], k))
        return stack(pieces) if pieces else Predictions.empty(k, explain=explain)

    def groups(self) -> Iterable[Sequence[Model]]:
        """Members that share their ranking parts, and so the pass over the words of a text."""
        groups: dict[int, list[Model]] = {}
        for number, member in enumerate(self.all_members()):
            shared = -1 - number if member.reranker is None else id(member.reranker.parts)
            groups.setdefault(shared, []).append(member)
        return groups.values()

    def _batch_size(self, longest: int) -> int:
        """Rows at once; fewer where long candidate lists would need much memory."""
        most = MOST_CANDIDATES if self.first.reranker is None else MOST_CANDIDATES // FEATURE_FLOATS
        return min(BATCH, max(1, most // max(1, longest)))

    # -- what users give, checked ----------------------------------------------------------------------------------

    def read(self, inputs: Any) -> Inputs:
        """Texts with their tf-idf, or vectors, checked."""
        first = self.first
        if isinstance(inputs, str):
            inputs = [inputs]
        return first.read_texts(inputs) if first.vectorizer is not None else first.read_vectors(inputs)

    def check_threshold(self, threshold: float | None) -> None:
        """Refuse a threshold that is not a probability, or that this model gives no meaning to."""
        if threshold is None:
            return
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"threshold={threshold}: it is a probability; give a number from 0 to 1")
        if not self.gives_probabilities:
            raise InputError(
                f"threshold={threshold}: the scores of this model are not probabilities, because it has no calibrated "
                "score model (that needs texts, and 400 rows or more to hold some out); leave it out"
            )

    @property
    def gives_probabilities(self) -> bool:
        """Whether scores are probabilities, so that a threshold means something."""
        return all(
            one.reranker is not None and one.reranker.score_model.calibration is not None for one in self.all_members()
        )

    def label_numbers(self, names: Sequence[str], what: str) -> np.ndarray:
        """Label numbers of some label ids, rising."""
        labels = self.first.labels
        if isinstance(names, str):
            raise InputError(f'{what}: "{names}" is one text; give a list of label ids')
        numbers: list[int] = []
        for name in names:
            number = labels.number_of.get(str(name))
            if number is None:
                close = did_you_mean(str(name), labels.ids[:200_000])
                raise InputError(f'{what}: unknown label "{name}"{close}')
            numbers.append(number)
        return np.unique(np.array(numbers, dtype=np.int64)) if numbers else NO_LABELS

    def _candidate_lists(
        self, candidates: Sequence[Sequence[str]] | None, allow: Sequence[str] | None, n: int
    ) -> list[np.ndarray] | None:
        """The label numbers each input may be given; None: all labels."""
        allowed = None if allow is None else self.label_numbers(allow, "allow")
        if candidates is None:
            return None if allowed is None else [allowed] * n
        lists = [self.label_numbers(names, f"candidates of input {row}") for row, names in enumerate(candidates)]
        return lists if allowed is None else [np.intersect1d(numbers, allowed) for numbers in lists]

    def _excluded(self, blocked: np.ndarray, ids: Sequence[str] | None, rows: np.ndarray) -> Ragged | None:
        """Labels that each row must not be given; None for the usual case that there are none."""
        first = self.first
        if ids is None or not first.exclude_own_id:
            return Ragged.of([blocked] * len(rows)) if len(blocked) else None
        own = [first.labels.number_of.get(str(ids[row])) for row in rows.tolist()]
        return Ragged.of([blocked if number is None else np.union1d(blocked, [number]) for number in own])


def batches(n_rows: int, size: int) -> Iterator[np.ndarray]:
    for start in range(0, n_rows, size):
        yield np.arange(start, min(start + size, n_rows))


def _without(lists: list[np.ndarray], excluded: Ragged | None, rows: np.ndarray) -> Ragged:
    """The candidate lists of some rows without the labels that they must not be given."""
    if excluded is None:
        return Ragged.of([lists[row] for row in rows.tolist()])
    cuts = excluded.indptr
    return Ragged.of(
        [np.setdiff1d(lists[row], excluded.labels[cuts[i] : cuts[i + 1]]) for i, row in enumerate(rows.tolist())]
    )
