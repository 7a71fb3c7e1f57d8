"""A trained model as users hold it: texts in, label names and scores out; saved as one folder (`storage.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..core.predictions import Predictions
from ..dataset.fields import Fields
from ..dataset.labels import LabelSet
from ..encoders.encoder import Inputs
from ..encoders.tfidf import TfIdf
from ..network.cpu_search import CpuSearch
from ..network.network import Network
from ..network.searcher import Searcher
from ..ranking.published import PublishedRanker
from ..ranking.reranker import Reranker
from .inputs import as_matrix, as_texts
from .predict import Predictor
from .serialization import Home


@dataclass(kw_only=True, repr=False)
class Model(Predictor):
    """A network, its ranker, and what makes numbers into names."""

    network: Network
    labels: LabelSet
    label_counts: np.ndarray  # training rows of each label
    stage1_clusters: np.ndarray  # PAD for labels without a training row
    cluster_words: list[list[str]]
    vectorizer: TfIdf | None  # None: the model was trained on vectors
    n_train: int
    about: dict[str, Any] = field(default_factory=dict)  # settings, dataset facts, metrics
    reranker: Reranker | PublishedRanker | None = None  # stacked, or the paper's; None: the network alone
    use_kernels: bool = True  # False: the definitions in numpy and torch
    cpu_search: InitVar[CpuSearch | None] = None
    home: Home | None = field(default=None, init=False, compare=False)

    def __post_init__(self, cpu_search: CpuSearch | None) -> None:
        self.searcher = Searcher(self.network, cpu_search)

    def __repr__(self) -> str:
        name = self.about.get("dataset", {}).get("name", "unknown data")
        return f"<elias.Model of {name}: {len(self.labels):,} labels, {self.network.index.n_clusters:,} clusters>"

    @cached_property
    def labels_by_count(self) -> np.ndarray:
        """Labels with a training row, most frequent first, ties to the lower label."""
        order = np.argsort(-self.label_counts, kind="stable")
        return np.asarray(order[: np.count_nonzero(self.label_counts)])

    @property
    def exclude_own_id(self) -> bool:
        return bool(self.about.get("dataset", {}).get("exclude_own_id", False))

    def all_members(self) -> Sequence[Model]:
        return [self]

    def depth(self, k: int, n_candidates: int) -> int:
        return k

    def combine(self, answers: Sequence[Predictions], k: int) -> Predictions:
        return answers[0]

    @cached_property
    def fields(self) -> Fields:
        """The fields of the data that the model was trained on, as far as it remembers them."""
        return Fields.from_dict(self.about.get("dataset", {}).get("fields") or {})

    def read_texts(self, inputs: Any) -> Inputs:
        texts = as_texts(inputs, self.fields)
        assert self.vectorizer is not None
        return Inputs(texts=texts, bow=self.vectorizer.transform(texts))

    def read_vectors(self, inputs: Any) -> Inputs:
        is_sparse = "words" in self.network.encoder.tables()
        matrix = as_matrix(inputs, int(self.about["dataset"]["features"]), sparse=is_sparse)
        return Inputs(vectors=matrix) if isinstance(matrix, np.ndarray) else Inputs(bow=matrix)

    def content(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.name != "home")

    def write(self, folder: Path) -> None:
        from .storage import save_model

        save_model(self, folder)
