"""A trained model as users hold it: texts in, label names and scores out; saved as one folder (`model_folder.py`)."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch

from ..core.errors import InputError, ModelError, did_you_mean
from ..core.files import replacing, write_json
from ..core.predictions import Predictions, stack
from ..core.propensity import predict_by_propensity
from ..core.ragged import Ragged
from ..core.version import __version__
from ..dataset.labels import LabelSet
from ..encoders import Inputs
from ..encoders.tfidf import TfIdf
from ..network.cpu_search import CpuSearch
from ..network.network import Network
from ..network.searcher import BATCH, EncodedQuery, Searcher
from ..network.storage import write_network, write_search_tables
from ..ranking.gathering import words_of
from ..ranking.quick import Quick
from ..ranking.reranker import Plus
from ..ranking.sparse_rows import csr_arrays
from .label_file import write_labels

FORMAT_VERSION = 5
MOST_CANDIDATES = 1 << 22  # scored at a time
PARTS = 32  # numbers that ELIAS++ holds of each
NOBODY = np.empty(0, dtype=np.int64)


@dataclass(kw_only=True, repr=False)
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
    plus: Plus | None = None  # ELIAS++; None: the network alone
    cpu_search: InitVar[CpuSearch | None] = None

    def __post_init__(self, cpu_search: CpuSearch | None) -> None:
        self.searcher = Searcher(self.network, cpu_search)

    def __repr__(self) -> str:
        name = self.about.get("dataset", {}).get("name", "unknown data")
        return f"<elias.Model of {name}: {len(self.labels):,} labels, {self.network.index.n_clusters:,} clusters>"

    @property
    def exclude_own_id(self) -> bool:
        return bool(self.about.get("dataset", {}).get("exclude_own_id", False))

    def prepare(self, inputs: Any) -> tuple[Any, int]:
        """Texts, or a matrix of the kind the model was trained on, as the encoder wants them; and how many."""
        given = self.given(inputs)
        return self.network.encoder.prepare(given), len(given)

    def given(self, inputs: Any) -> Inputs:
        """Inputs, checked: texts with their tf-idf, or vectors."""
        if self.vectorizer is not None:
            texts = _texts(inputs)
            return Inputs(texts=texts, bow=self.vectorizer.transform(texts))
        return self._given_vectors(inputs)

    def _given_vectors(self, inputs: Any) -> Inputs:
        if isinstance(inputs, str) or (isinstance(inputs, list | tuple) and inputs and isinstance(inputs[0], str)):
            raise InputError("this model was trained on vectors, not on texts; pass a matrix with one row an input")
        width = int(self.about["dataset"]["features"])
        is_sparse = "words" in self.network.encoder.tables()
        if sp.issparse(inputs):
            given = Inputs(bow=sp.csr_matrix(cast("Any", inputs), dtype=np.float32))
        elif is_sparse and not len(inputs):
            given = Inputs(bow=sp.csr_matrix(np.empty((0, width), dtype=np.float32)))
        else:
            try:
                rows = np.asarray(inputs, dtype=np.float32)
            except (TypeError, ValueError):
                raise InputError("this model was trained on vectors; pass a matrix with one row an input") from None
            given = Inputs(vectors=rows.reshape(0, width) if rows.size == 0 else np.atleast_2d(rows))
        matrix = given.bow if given.bow is not None else given.vectors
        assert matrix is not None
        if matrix.ndim != 2 or matrix.shape[1] != width:
            raise InputError(f"vectors of shape {matrix.shape}; the model was trained on rows of {width} columns")
        values = matrix if isinstance(matrix, np.ndarray) else matrix.data
        if not np.isfinite(values).all():
            raise InputError("the vectors hold NaN or infinite values")
        return given

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

        `candidates`: for each input, the only labels to score, each over all clusters. `allow`: the same list
        for every input; with both, labels of both. `block`: labels never to suggest. `ids`: the inputs' own ids,
        echoed; where the dataset said exclude_own_id, an input is never given its own id. `threshold`: only labels
        that are right with at least this probability. `rare`: 0 to 1, rare labels first (`rare.py`).
        """
        self.check_threshold(threshold)
        if isinstance(inputs, str):
            inputs = [inputs]
        if rare:
            return predict_by_propensity(
                self, inputs, k, rare,
                ids=ids, candidates=candidates, allow=allow, block=block, threshold=threshold, explain=explain,
            )  # fmt: skip
        if k < 1:
            raise InputError(f"k={k}: ask for at least one label")
        if candidates is None and allow is None and not explain:
            answer = self._quickly(inputs, k, ids, block)
            if answer is not None:
                return answer if threshold is None else answer.above(threshold)
        given = self.given(inputs)
        prepared, n = self.network.encoder.prepare(given), len(given)
        for what, items in (("candidate lists", candidates), ("ids", ids)):
            if items is not None and len(items) != n:
                raise InputError(f"{len(items)} {what} for {n} inputs; give one for each")
        k = min(k, len(self.labels))
        blocked = self.numbers_of(block or [], "block")
        if candidates is None and allow is None:
            wanted, batch = None, BATCH
        else:
            wanted = self._wanted(candidates, allow, n)
            most = MOST_CANDIDATES if self.plus is None else MOST_CANDIDATES // PARTS
            batch = min(BATCH, max(1, most // max(1, max(map(len, wanted), default=1))))
        pieces = []
        for start in range(0, n, batch):
            rows = np.arange(start, min(start + batch, n))
            excluded = self.excluded_of(blocked, ids, rows)
            if wanted is None:
                found = self._find(given, prepared, rows, k, excluded, explain)
            else:
                left = [np.setdiff1d(wanted[row], np.union1d(blocked, self._own(ids, row))) for row in rows.tolist()]
                found = self._score(given, prepared, rows, k, Ragged.of(left), excluded, explain)
            pieces.append(found)
        answer = stack(pieces) if pieces else Predictions.empty(k, explain=explain)
        answer = replace(answer, ids=ids, label_ids=self.labels.ids)
        return answer if threshold is None else answer.above(threshold)

    @cached_property
    def _quick(self) -> Quick | None:
        return Quick.of(self.vectorizer, self.searcher, self.plus)

    def _quickly(
        self, inputs: Any, k: int, ids: Sequence[str] | None, block: Sequence[str] | None
    ) -> Predictions | None:
        """The answer to texts; None for anything else, problems included."""
        if not isinstance(inputs, list | tuple) or not inputs or self._quick is None:
            return None
        if not all(isinstance(text, str) for text in inputs) or (ids is not None and len(ids) != len(inputs)):
            return None
        blocked, k, pieces = self.numbers_of(block, "block") if block else NOBODY, min(k, len(self.labels)), []
        for start in range(0, len(inputs), BATCH):
            texts = inputs[start : start + BATCH]
            excluded = self.excluded_of(blocked, ids, range(start, start + len(texts)))
            pieces.append(self._quick.find(texts, k, excluded))
        found = stack(pieces)
        return Predictions(labels=found.labels, scores=found.scores, ids=ids, label_ids=self.labels.ids)

    def encode(self, given: Inputs, prepared: Any, rows: np.ndarray) -> EncodedQuery:
        """Some inputs as the search sees them."""
        if self._quick is not None:
            return self._quick.look(*csr_arrays(words_of(given, rows)))
        return self.searcher.encode(prepared, rows)

    def _find(
        self, given: Inputs, prepared: Any, rows: np.ndarray, k: int, excluded: Ragged | None, explain: bool
    ) -> Predictions:
        if self.plus is None:
            return self.searcher.search_rows(prepared, rows, k, excluded=excluded, explain=explain)
        query = self.encode(given, prepared, rows)
        return self.plus.find(self.searcher, query, words_of(given, rows), k, excluded=excluded, explain=explain)

    def _score(
        self, given: Inputs, prepared: Any, rows: np.ndarray, k: int, wanted: Ragged, excluded: Ragged | None,
        explain: bool,
    ) -> Predictions:  # fmt: skip
        if self.plus is None:
            return self.searcher.rank_candidates(self.encode(given, prepared, rows), k, wanted, explain=explain)
        query = self.encode(given, prepared, rows)
        return self.plus.score(
            self.searcher, query, words_of(given, rows), k, wanted, excluded=excluded, explain=explain
        )

    @property
    def gives_probabilities(self) -> bool:
        """Whether scores are probabilities, so that a threshold means something."""
        return self.plus is not None and self.plus.fusion.probability is not None

    def check_threshold(self, threshold: float | None) -> None:
        """Refuse a threshold that is none, or that this model gives no meaning to."""
        if threshold is None:
            return
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"threshold={threshold}: it is a probability; give a number from 0 to 1")
        if not self.gives_probabilities:
            raise InputError(
                f"threshold={threshold}: the scores of this model are no probabilities, because it was fitted without "
                "calibration rows; fit it again with split.calibration_rows=500 or more, or leave the threshold out"
            )

    def excluded_of(self, blocked: np.ndarray, ids: Sequence[str] | None, rows: Iterable[int]) -> Ragged | None:
        """Labels that each row must not be given; None for the usual case that there are none."""
        if len(blocked) == 0 and (ids is None or not self.exclude_own_id):
            return None
        if len(blocked) == 0:
            return Ragged.of([self._own(ids, row) for row in rows])
        return Ragged.of([np.union1d(blocked, self._own(ids, row)) for row in rows])

    def _wanted(
        self, candidates: Sequence[Sequence[str]] | None, allow: Sequence[str] | None, n: int
    ) -> list[np.ndarray]:
        """The label numbers each input may be given."""
        allowed = None if allow is None else self.numbers_of(allow, "allow")
        if candidates is None:
            assert allowed is not None
            return [allowed] * n
        wanted = [self.numbers_of(names, f"candidates of input {row}") for row, names in enumerate(candidates)]
        return wanted if allowed is None else [np.intersect1d(numbers, allowed) for numbers in wanted]

    def predict_rows(self, inputs: Any, excluded: sp.csr_matrix, k: int) -> Predictions:
        """The k best labels of dataset rows, with the pairs the dataset excludes left out; for evaluation."""
        given, k = self.given(inputs), min(k, len(self.labels))
        prepared = self.network.encoder.prepare(given)
        pieces = []
        for start in range(0, len(given), BATCH):
            rows = np.arange(start, min(start + BATCH, len(given)))
            pieces.append(self._find(given, prepared, rows, k, Ragged.from_rows(excluded, rows)[0], False))
        found = stack(pieces) if pieces else Predictions.empty(k)
        return replace(found, label_ids=self.labels.ids)

    def _own(self, ids: Sequence[str] | None, row: int) -> np.ndarray:
        if ids is None or not self.exclude_own_id:
            return np.empty(0, dtype=np.int64)
        number = self.labels.number_of.get(str(ids[row]))
        return np.array([] if number is None else [number], dtype=np.int64)

    def numbers_of(self, names: Sequence[str], what: str) -> np.ndarray:
        """Label numbers of some label ids."""
        if isinstance(names, str):
            raise InputError(f'{what}: "{names}" is one text; give a list of label ids')
        numbers: list[int] = []
        for name in names:
            number = self.labels.number_of.get(str(name))
            if number is None:
                close = did_you_mean(str(name), self.labels.ids[:200_000])
                raise InputError(f'{what}: unknown label "{name}"{close}')
            numbers.append(number)
        found = np.array(numbers, dtype=np.int64)
        return np.unique(found) if numbers else found  # the usual case, and `unique` takes its time

    def save(self, folder: str | Path) -> None:
        """Write the model; the folder appears whole, or not at all. An existing folder is refused."""
        folder = Path(folder)
        if folder.exists():
            raise ModelError(f"{folder} exists; remove it first, or choose another name")
        with replacing(folder) as part:
            part.mkdir()
            write_network(self.network, part)
            if self.plus is not None:
                self.plus.save(part)
            self.write_around(part)

    def write_around(self, folder: Path) -> None:
        """Everything but the network and its encoder."""
        write_search_tables(self.network, folder)
        write_labels(folder / "labels.tsv", self.labels, self.label_counts, self.stage1_clusters)
        write_json(folder / "clusters.json", {"words": self.cluster_words})
        if self.vectorizer is not None:
            self.vectorizer.save(folder)
        versions = {"elias": __version__, "python": platform.python_version(), "torch": torch.__version__}
        config = {"format_version": FORMAT_VERSION, "versions": versions, "n_train": self.n_train, **self.about}
        write_json(folder / "config.json", config)


def _texts(inputs: Any) -> Sequence[str]:
    if sp.issparse(inputs) or isinstance(inputs, np.ndarray):
        raise InputError("this model was trained on texts, not on vectors; pass a list of strings")
    try:
        inputs = inputs if isinstance(inputs, Sequence) else list(inputs)
    except TypeError:
        raise InputError(f"a {type(inputs).__name__} is not a list of texts") from None
    for number, text in enumerate(inputs):
        if not isinstance(text, str):
            raise InputError(f"input {number} is {type(text).__name__}, not a text: {text!r}"[:200])
    checked: Sequence[str] = inputs
    return checked
