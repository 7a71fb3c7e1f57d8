"""A trained model as users hold it: texts in, label names and scores out; saved as one folder (`storage.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from ..core.errors import InputError
from ..core.predictions import Predictions
from ..dataset.labels import LabelSet
from ..encoders.encoder import Inputs
from ..encoders.tfidf import TfIdf
from ..network.cpu_search import CpuSearch
from ..network.network import Network
from ..network.searcher import Searcher
from ..ranking.reranker import Reranker
from .predict import Predictor


@dataclass(kw_only=True, repr=False)
class Model(Predictor):
    """A network, its stacked ranker, and what makes numbers into names."""

    network: Network
    labels: LabelSet
    label_counts: np.ndarray  # training rows of each label
    stage1_clusters: np.ndarray  # PAD for labels without a training row
    cluster_words: list[list[str]]
    vectorizer: TfIdf | None  # None: the model was trained on vectors
    n_train: int
    about: dict[str, Any] = field(default_factory=dict)  # settings, dataset facts, metrics
    reranker: Reranker | None = None  # None: the network alone
    use_kernels: bool = True  # False: the definitions in numpy and torch
    cpu_search: InitVar[CpuSearch | None] = None

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

    def read_texts(self, inputs: Any) -> Inputs:
        if sp.issparse(inputs) or isinstance(inputs, np.ndarray):
            raise InputError("this model was trained on texts, not on vectors; pass a list of strings")
        try:
            texts: Sequence[str] = inputs if isinstance(inputs, Sequence) else list(inputs)
        except TypeError:
            raise InputError(f"a {type(inputs).__name__} is not a list of texts") from None
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"input {number} is {type(text).__name__}, not a text: {text!r}"[:200])
        assert self.vectorizer is not None
        return Inputs(texts=texts, bow=self.vectorizer.transform(texts))

    def read_vectors(self, inputs: Any) -> Inputs:
        if isinstance(inputs, list | tuple) and inputs and isinstance(inputs[0], str):
            raise InputError("this model was trained on vectors, not on texts; pass a matrix with one row per input")
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
                raise InputError("this model was trained on vectors; pass a matrix with one row per input") from None
            given = Inputs(vectors=rows.reshape(0, width) if rows.size == 0 else np.atleast_2d(rows))
        matrix = given.bow if given.bow is not None else given.vectors
        assert matrix is not None
        if matrix.ndim != 2 or matrix.shape[1] != width:
            raise InputError(f"vectors of shape {matrix.shape}; the model was trained on rows of {width} columns")
        values = matrix if isinstance(matrix, np.ndarray) else matrix.data
        if not np.isfinite(values).all():
            raise InputError("the vectors hold NaN or infinite values")
        return given

    def save(self, folder: str | Path) -> None:
        """Write the model.

        Parameters
        ----------
        folder
            A folder that does not exist yet. It appears whole, or not at all.
        """
        from .storage import save_model

        save_model(self, Path(folder))
