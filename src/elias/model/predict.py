"""The one way from texts to predictions, for a model and for an ensemble.

    texts -> encode -> candidates -> features -> score -> top k -> Predictions

`Predictor.predict` (explained or not, with candidate lists or without) and `Predictor.predict_rows` (evaluation) end in
`predict_batch`, and so do the command line and the service, which call them. A single text is a batch of one.

A text without evidence is answered with what is known without it: the most frequent labels, each with its base rate
n_l / N as its probability. Which texts these are depends on what the encoder reads:

    bag                       texts without a word of the vocabulary: phi and all features of such texts are the same
    transformer, hybrid       empty texts: the encoder reads other words than those of the vocabulary

Excluded labels and candidate lists hold here too, and the parts of such a score are 0: no path led to it. A model whose
scores are not probabilities has no scale for a base rate, and answers such texts like any other.
`Predictions.known_words` tells them apart in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.arrays import length_of, real_number, whole_number
from ..core.errors import InputError, ModelError, did_you_mean
from ..core.predictions import ID_PARTS, PAD, Predictions, stack
from ..core.propensity import DEPTH, check_strength, propensity_of, rerank_by_propensity
from ..core.ragged import Ragged
from ..dataset.fields import Fields
from ..encoders.bag import BagEncoder
from ..encoders.encoder import Inputs
from ..network.searcher import BATCH, EncodedQuery
from ..ranking.explanation import Evidence
from ..ranking.explanation import explain as explain_labels
from ..ranking.features import candidate_features, features_of
from ..ranking.reranker import Reranker
from ..ranking.score_model import ReferenceScores
from .inputs import table_ids
from .serialization import Home, Reduced, reduced

if TYPE_CHECKING:
    from .ensemble import Ensemble
    from .evaluate import Evaluation
    from .model import Model

MOST_CANDIDATES = 1 << 22  # scored at once
FEATURE_FLOATS = 32  # numbers that a ranker holds per candidate
NO_LABELS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Request:
    """What is asked of a batch of rows."""

    k: int
    excluded: Ragged | None = None  # labels that a row must not be given
    candidates: Ragged | None = None  # the only labels that a row may be given; None: all
    explain: bool = False
    without_evidence: np.ndarray | None = None  # rows of the batch that are answered with base rates; None: none


class Answer(NamedTuple):
    """What one member predicts for a batch of rows."""

    predictions: Predictions
    evidence: Evidence | None = None  # to explain them with; of a stacked ranker, where it was asked for


def predict_batch(
    members: Sequence[Model], inputs: Inputs, prepared: Sequence[Any], rows: np.ndarray, request: Request
) -> list[Answer]:
    """The k best labels of some rows by each of the members, which share their ranking parts.

    `prepared`: the inputs as the encoder of each member takes them.
    """
    # encode: phi and W_C phi
    queries = [member.searcher.encode(own, rows) for member, own in zip(members, prepared, strict=True)]
    first = members[0].reranker
    if not isinstance(first, Reranker):  # candidates of the network alone, with or without the published ranker
        return [
            Answer(_by_network(member, query, inputs, rows, request))
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
        ranker = member.reranker
        assert isinstance(ranker, Reranker)
        ranked = ranker.rank(found, request.k, explain=request.explain, reference=reference)
        if request.without_evidence is not None:
            ranked = _with_base_rates(ranked, members[0], request)
        evidence = Evidence(ranker.parts, ranker.score_model, found, reference) if request.explain else None
        answers.append(Answer(ranked, evidence))
    return answers


def _by_network(member: Model, query: EncodedQuery, inputs: Inputs, rows: np.ndarray, request: Request) -> Predictions:
    """The best labels of the network in the order of p, or of the score of the published ranker."""
    ranker, given, searcher = member.reranker, request.candidates, member.searcher
    assert not isinstance(ranker, Reranker)
    if given is None:
        k = request.k if ranker is None else ranker.depth(request.k)
        found = searcher.search(query, k, excluded=request.excluded, explain=request.explain)
    else:
        k = request.k if ranker is None else max(1, int(np.diff(given.indptr).max(initial=0)))
        found = searcher.rank_candidates(query, k, given, explain=request.explain)
    if ranker is None:
        return found
    phi = query.phi_BD.cpu().numpy()
    return ranker.rank(found, inputs.bow_rows(rows), phi, request.k, explain=request.explain)


def _with_base_rates(found: Predictions, model: Model, request: Request) -> Predictions:
    """`found` with the most frequent labels, and n_l / N as their scores, for the rows without evidence."""
    assert request.without_evidence is not None
    labels, scores = found.labels.copy(), found.scores.copy()
    parts = found.parts and {name: values.copy() for name, values in found.parts.items()}
    for row in request.without_evidence.tolist():
        best = _most_frequent(model, request, row)
        labels[row], scores[row] = PAD, 0
        labels[row, : len(best)] = best
        scores[row, : len(best)] = model.label_counts[best] / max(1, model.n_train)
        for name, values in (parts or {}).items():
            values[row] = PAD if name in ID_PARTS else 0
    return replace(found, labels=labels, scores=scores, parts=parts)


def _most_frequent(model: Model, request: Request, row: int) -> np.ndarray:
    """The k most frequent labels that a row may be given, ties to the lower label."""
    if request.candidates is not None:
        given = np.sort(request.candidates.of_row(row))
        return given[np.argsort(-model.label_counts[given], kind="stable")][: request.k]
    excluded = NO_LABELS if request.excluded is None else request.excluded.of_row(row)
    best = model.labels_by_count[: request.k + len(excluded)]
    return best[~np.isin(best, excluded)][: request.k]


class Predictor:
    """What a model and an ensemble have in common: `predict`, `evaluate`, `save`, copies and pickles."""

    home: Home | None  # the folder with the same content, if there is one

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
            A text; a list, tuple, array, Series or generator of texts; a DataFrame with the fields that the model was
            trained on; for a model of vectors a matrix with one row per input.
        k
            How many labels per input.
        ids
            The inputs' own ids, returned with the predictions; of a DataFrame, by default those of its field of ids.
            Where the dataset says exclude_own_id, an input is never given its own id.
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
            Add the parts of each score, and with a stacked ranker explanations (`ranking/explanation.py`).
        """
        if whole_number(k, "k") < 1:
            raise InputError(f"k={k}: ask for at least one label")
        check_strength(real_number(rare, "rare"))
        self.check_threshold(threshold)
        given = self.read(inputs)
        if ids is not None:
            length_of(ids, "ids")
        if candidates is not None:
            length_of(candidates, "candidates")
        ids = table_ids(inputs, self.first.fields) if ids is None else list(ids)
        for what, items in (("candidate lists", candidates), ("ids", ids)):
            if items is not None and len(items) != len(given):
                raise InputError(f"{len(items)} {what} for {len(given)} inputs; give one for each")
        lists = self._candidate_lists(candidates, allow, len(given))
        blocked = self.label_numbers(block or [], "block")
        wanted = max(k, DEPTH) if rare else k  # re-ranking must be able to bring up labels from below the k best

        def finish(found: Predictions) -> Predictions:
            if rare:
                found = rerank_by_propensity(found, propensity_of(self.first), rare, k)
            return found if threshold is None else found.above(threshold)

        words = known_words(given)
        found = self._predict(
            given, wanted, lambda rows: self._excluded(blocked, ids, rows), words=words, lists=lists, finish=finish,
            explain=explain,
        )  # fmt: skip
        return replace(found, ids=ids, label_ids=self.first.labels.ids, known_words=words)

    def evaluate(
        self,
        data: Any,
        labels: Any = None,
        *,
        split: str | None = None,
        text: str | Sequence[str] | None = None,
        id: str | None = None,
        separator: str | None = None,
        rare: float = 0.0,
    ) -> Evaluation:
        """P, nDCG, PSP, PSnDCG and R on labeled rows, in percent.

        Parameters
        ----------
        data
            Whatever `elias.fit` takes: a file or folder, a DataFrame, texts, a Dataset.
        labels
            The labels of the texts, or the name of the field with the labels.
        split
            Which rows; default: the test rows, or all rows of data that has no splits.
        text, id, separator
            Names of the fields, and what stands between two labels of a cell; default: those of the training data.
        rare
            As in `predict`.
        """
        from .evaluate import evaluate_model, labeled_rows

        field, labels = (labels, None) if isinstance(labels, str) else (None, labels)
        model = cast("Model | Ensemble", self)
        rows, usual = labeled_rows(model, data, labels, Fields.of(text, field, id, separator))
        return evaluate_model(model, rows, split or usual, rare=rare)

    def predict_rows(self, inputs: Any, excluded: sp.csr_matrix, k: int) -> Predictions:
        """The k best labels of the rows of a dataset, without the pairs that it excludes (rows x L): for evaluation."""
        given = self.read(inputs)
        words = known_words(given)
        found = self._predict(given, k, lambda rows: Ragged.from_rows(excluded, rows)[0], words=words)
        return replace(found, label_ids=self.first.labels.ids, known_words=words)

    def _predict(
        self,
        inputs: Inputs,
        k: int,
        excluded_of: Callable[[np.ndarray], Ragged | None],
        *,
        words: np.ndarray | None,
        lists: list[np.ndarray] | None = None,
        finish: Callable[[Predictions], Predictions] = lambda found: found,
        explain: bool = False,
    ) -> Predictions:
        """All batches, combined over the members; `finish` chooses among the labels of a batch before they are
        explained."""
        k = min(k, len(self.first.labels))
        longest = max(map(len, lists), default=0) if lists else 0
        depth = min(self.depth(k, longest), len(self.first.labels))
        pieces, blank = [], self._without_evidence(inputs, words)
        with kernels.reference(not self.first.use_kernels):
            groups = [(group, [one.network.encoder.prepare(inputs) for one in group]) for group in self.groups()]
            for rows in batches(len(inputs), self._batch_size(max(longest, depth))):
                excluded = excluded_of(rows)
                candidates = None if lists is None else _without(lists, excluded, rows)
                places = None if blank is None or not blank[rows].any() else np.flatnonzero(blank[rows])
                request = Request(depth, excluded, candidates, explain, places)
                answers: dict[int, Answer] = {}
                for group, prepared in groups:
                    found = predict_batch(group, inputs, prepared, rows, request)
                    answers |= {id(member): answer for member, answer in zip(group, found, strict=True)}
                ordered = [answers[id(member)] for member in self.all_members()]
                combined = self.combine([answer.predictions for answer in ordered], k)
                _check_scores(combined)
                combined = finish(combined)
                pieces.append(self._explained(combined, ordered, inputs, rows) if explain else combined)
        if pieces:
            return stack(pieces)
        nothing = finish(Predictions.empty(k, explain=explain))
        return replace(nothing, explanations=[]) if explain and isinstance(self.first.reranker, Reranker) else nothing

    def _explained(
        self, found: Predictions, answers: Sequence[Answer], inputs: Inputs, rows: np.ndarray
    ) -> Predictions:
        """With explanations of the labels that are left; as it is where there is no stacked ranker."""
        evidence = [answer.evidence for answer in answers if answer.evidence is not None]
        if not evidence:
            return found
        vectorizer = self.first.vectorizer
        words = None if vectorizer is None else vectorizer.words.words
        return replace(found, explanations=explain_labels(evidence, inputs.bow_rows(rows), found.labels, words))

    def _without_evidence(self, inputs: Inputs, words: np.ndarray | None) -> np.ndarray | None:
        """A mask of the inputs that are answered with base rates; None for the usual case that there are none.

        `words`: how many words of each input are known.
        """
        if words is None or np.count_nonzero(words) == len(words) or not self.gives_probabilities:
            return None
        blank: np.ndarray = words == 0
        if self.first.network.encoder.kind != BagEncoder.kind:
            assert inputs.texts is not None
            for row in np.flatnonzero(blank).tolist():
                blank[row] = not inputs.texts[row].strip()
        return blank

    def groups(self) -> Iterable[Sequence[Model]]:
        """Members that share their ranking parts, and so the pass over the words of a text."""
        groups: dict[int, list[Model]] = {}
        for number, member in enumerate(self.all_members()):
            shared = id(member.reranker.parts) if isinstance(member.reranker, Reranker) else -1 - number
            groups.setdefault(shared, []).append(member)
        return groups.values()

    def _batch_size(self, longest: int) -> int:
        """Rows at once; fewer where long candidate lists would need much memory."""
        most = MOST_CANDIDATES if self.first.reranker is None else MOST_CANDIDATES // FEATURE_FLOATS
        return min(BATCH, max(1, most // max(1, longest)))

    # -- saved, copied, pickled ---------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the model, or all members of the ensemble.

        Parameters
        ----------
        folder
            A folder that does not exist yet. It appears whole, or not at all.
        """
        self.write(Path(folder))
        if self.home is None or not self.home.holds(self.content()):
            self.remember(Path(folder))

    def write(self, folder: Path) -> None:
        """What `save` does with the files."""
        raise NotImplementedError

    def content(self) -> tuple[Any, ...]:
        """Everything that `write` writes, as it is held in memory."""
        raise NotImplementedError

    def remember(self, folder: Path) -> None:
        """From now on, what is pickled is this folder, until it or the model changes (`serialization.py`)."""
        object.__setattr__(self, "home", Home.of(folder, self.content()))  # an ensemble is frozen

    def __reduce__(self) -> Reduced:
        return reduced(self)

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)  # everything is shared; `deepcopy` opens the model anew
        return copied

    # -- what users give, checked ----------------------------------------------------------------------------------

    def read(self, inputs: Any) -> Inputs:
        """Texts with their tf-idf, or vectors, checked."""
        first = self.first
        return first.read_texts(inputs) if first.vectorizer is not None else first.read_vectors(inputs)

    def check_threshold(self, threshold: float | None) -> None:
        """Refuse a threshold that is not a probability, or that this model gives no meaning to."""
        if threshold is None:
            return
        real_number(threshold, "threshold")
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"threshold={threshold}: it is a probability; give a number from 0 to 1")
        if not self.gives_probabilities:
            raise InputError(
                f"threshold={threshold}: the scores of this model are not probabilities, because it has no calibrated "
                "score model (that needs texts, the stacked ranker, and 400 rows or more to hold some out); "
                "leave it out"
            )

    @property
    def gives_probabilities(self) -> bool:
        """Whether scores are probabilities, so that a threshold means something."""
        return all(one.reranker is not None and one.reranker.gives_probabilities for one in self.all_members())

    def label_numbers(self, names: Sequence[str], what: str) -> np.ndarray:
        """Label numbers of some label ids, rising."""
        labels = self.first.labels
        if isinstance(names, str):
            raise InputError(f'{what}: "{names}" is one text; give a list of label ids')
        if not isinstance(names, Iterable):
            raise InputError(f"{what} is {type(names).__name__}; give a list of label ids")
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


def _check_scores(found: Predictions) -> None:
    """Refuse to answer with numbers that a damaged model computes."""
    if not np.isfinite(found.scores).all():
        row = int(np.flatnonzero(~np.isfinite(found.scores).all(axis=1))[0])
        raise ModelError(
            f"row {row} of this batch has a score that is not a finite number: a table of the model is damaged; "
            "`elias verify MODEL` names the file"
        )


def known_words(inputs: Inputs) -> np.ndarray | None:
    """How many different words of each text the vocabulary has, int32; None for vectors."""
    if inputs.texts is None or inputs.bow is None:
        return None
    ends = inputs.bow.indptr
    words: np.ndarray = (ends[1:] - ends[:-1]).astype(np.int32)
    return words


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
