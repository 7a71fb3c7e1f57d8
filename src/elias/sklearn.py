"""`EliasClassifier`: ELIAS as a scikit-learn classifier, for pipelines, cross-validation and grid search.

    X    texts (a list, an array, a Series), or a matrix of features, dense or sparse
    y    lists of labels, one label per row, or an indicator matrix, dense or sparse; its column numbers are the labels

`predict` answers in the form of y. What scikit-learn's own checks do not hold for is listed in tests/test_sklearn.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import assert_all_finite, check_array, check_is_fitted, validate_data

from .core.errors import EliasError
from .core.predictions import Predictions
from .core.settings import Settings
from .dataset import Dataset
from .dataset.fields import Fields
from .model.inputs import as_texts
from .pipeline.fit import fit

MOST_SEED = 2**31 - 1
Form = Literal["lists", "single", "dense", "sparse", "sparse array"]  # of y


class EliasClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Suggests labels for texts: extreme multi-label classification with a learned index.

    Parameters
    ----------
    k
        How many labels `predict` and `predict_proba` give per row, at most.
    threshold
        Only labels that are right with at least this probability; default: the k best, however likely.
    settings
        Settings of `elias.fit` that differ from the defaults, such as `{"stage2.epochs": 5}`.
    random_state
        Seed of the training and of the rows that are held out; None: 0.
    n_jobs
        Threads; None and -1: one for each core.
    verbose
        Whether to print the progress of `fit`.

    Attributes
    ----------
    classes_
        The labels in the order of the columns of `predict_proba`.
    model_
        The `elias.Model`, with `predict(..., explain=True)` and `save`.
    n_features_in_
        Columns of X, if it was a matrix.

    Notes
    -----
    Lists of labels are not a target that scikit-learn itself knows: where it splits rows (`cross_val_score`,
    `GridSearchCV`), pass `cv=KFold(5)` instead of a number, or an indicator matrix.
    """

    def __init__(
        self,
        *,
        k: int = 5,
        threshold: float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.k = k
        self.threshold = threshold
        self.settings = settings
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any) -> EliasClassifier:
        """Train on rows and their labels.

        Parameters
        ----------
        X
            Texts, or a matrix of features.
        y
            For each row a list of labels or one label; or an indicator matrix, whose columns are the labels.
        """
        with _value_errors():
            inputs = self._inputs(X, reset=True)
            target = _read_target(y)
            check_consistent_length(inputs, target.rows)
            ids = [str(label) for label in target.labels]
            if isinstance(inputs, list):
                rows = [[ids[label] for label in row] for row in target.rows]
                data = Dataset.from_lists(inputs, rows, name="X")
            else:
                data = Dataset.from_arrays(inputs, target.matrix(), label_ids=ids, name="X")
            self.model_ = fit(data, settings=self._settings(), progress=bool(self.verbose))
        self.classes_ = target.classes()
        self._form, self._dtype, self._labels = target.form, target.dtype, target.labels
        self._frequent = int(np.bincount(np.concatenate(target.rows)).argmax())
        place = {label: number for number, label in enumerate(ids)}
        self._class_of = np.array([place[label] for label in self.model_.labels.ids], dtype=np.int64)
        return self

    def predict(self, X: Any) -> Any:
        """The labels of each row, in the form of y: lists, an array of single labels, or an indicator matrix."""
        if check_fitted(self)._form == "single":
            best = self._classes(self._predict(X, k=1))[:, 0]
            return self.classes_[np.where(best < 0, self._frequent, best)]
        found = self._classes(self._predict(X, k=self.k, threshold=self.threshold))
        if self._form == "lists":
            return [[self._labels[label] for label in row if label >= 0] for row in found.tolist()]
        rows, columns = np.nonzero(found >= 0)
        entries = (np.ones(len(rows), dtype=self._dtype), (rows, found[rows, columns]))
        matrix = sp.csr_matrix(entries, shape=(len(found), len(self.classes_)), dtype=self._dtype)
        if self._form == "sparse":
            return matrix
        return sp.csr_array(matrix) if self._form == "sparse array" else matrix.toarray()

    def predict_proba(self, X: Any) -> sp.csr_array:
        """The scores of the k best labels of each row, rows x classes, sparse.

        They are probabilities of each label by itself, which need not sum to 1, if the model was calibrated, that is,
        trained on texts, or on sparse matrices, with enough rows.
        """
        found = check_fitted(self)._predict(X, k=self.k, threshold=self.threshold)
        matrix = found.to_csr(len(self.model_.labels)).tocoo()
        entries = (matrix.data, (matrix.row, self._class_of[matrix.col]))
        return sp.csr_array(entries, shape=(len(found), len(self.classes_)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1 as a share: rows whose best label is right, of the rows with labels. For single labels, the accuracy."""
        best = self._classes(check_fitted(self)._predict(X, k=1))[:, 0]
        with _value_errors():
            target = _read_target(y)
        check_consistent_length(best, target.rows)
        given = [{str(target.labels[label]) for label in row} for row in target.rows]
        best = np.where(best < 0, self._frequent, best)
        right = [str(self._labels[label]) in row for label, row in zip(best.tolist(), given, strict=True)]
        weights = np.ones(len(best)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        weights = np.where([bool(row) for row in given], weights, 0)
        return float(np.average(right, weights=weights)) if weights.sum() > 0 else 0.0

    # -- inputs -------------------------------------------------------------------------------------------------------

    def _inputs(self, X: Any, *, reset: bool) -> Any:
        """Texts as a list, or a checked matrix."""
        if isinstance(X, str):
            raise ValueError("X is one text; pass a list of texts")
        if _are_texts(X):
            texts = list(as_texts(X.iloc[:, 0] if hasattr(X, "iloc") and X.ndim == 2 else X, Fields()))
            if not reset and self.model_.first.vectorizer is None:
                raise ValueError("X has texts, but the classifier was fitted on a matrix")
            return texts
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float32, np.float64])

    def _predict(self, X: Any, *, k: int, threshold: float | None = None) -> Predictions:
        with _value_errors():
            inputs = self._inputs(X, reset=False)
            return self.model_.predict(inputs, k=k, threshold=threshold)

    def _classes(self, found: Predictions) -> np.ndarray:
        """Places in `classes_` in place of label numbers."""
        return np.where(found.labels >= 0, self._class_of[np.maximum(found.labels, 0)], -1)

    def _settings(self) -> Settings:
        seed = 0 if self.random_state is None else self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(MOST_SEED)
        own: dict[str, Any] = {"run.seed": int(seed), "split.seed": int(seed)}
        if self.n_jobs not in (None, -1):
            own["run.threads"] = self.n_jobs
        return Settings().updated({**own, **(self.settings or {})})


def check_fitted(classifier: EliasClassifier) -> EliasClassifier:
    check_is_fitted(classifier, "model_")
    return classifier


@contextmanager
def _value_errors() -> Iterator[None]:
    """What users cause is a ValueError, as scikit-learn expects."""
    try:
        yield
    except EliasError as error:
        raise ValueError(str(error)) from error


def _are_texts(X: Any) -> bool:
    """Whether X is a list, array or Series of texts, or a table with one column of them."""
    if sp.issparse(X) or isinstance(X, str | bytes) or not hasattr(X, "__len__"):
        return False
    if hasattr(X, "iloc"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        if X.dtype.kind not in "UOT" or X.ndim == 0 or X.size != len(X):
            return False
        X = X.reshape(-1)
    return any(isinstance(text, str) for text in X) if isinstance(X, np.ndarray | Sequence) else False


# -- targets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Target:
    """What y says."""

    form: Form
    labels: list[Any]  # the distinct labels as they were given
    rows: list[np.ndarray]  # places in `labels`
    dtype: Any = None  # of an indicator matrix, or of the array of single labels

    def matrix(self) -> sp.csr_matrix:
        sizes = [len(row) for row in self.rows]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        columns = np.concatenate(self.rows) if self.rows else np.empty(0, dtype=np.int64)
        return sp.csr_matrix(
            (np.ones(len(columns), dtype=np.float32), columns, ends), shape=(len(sizes), len(self.labels))
        )

    def classes(self) -> np.ndarray:
        if self.form == "single":
            return np.array(self.labels, dtype=self.dtype)
        if self.form != "lists":
            return np.arange(len(self.labels))
        kinds = {str if isinstance(label, str) else type(label) for label in self.labels}
        found = np.empty(len(self.labels), dtype=object)
        found[:] = self.labels
        return np.array(self.labels) if kinds in ({str}, {int}) else found


def _read_target(y: Any) -> _Target:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if sp.issparse(y):
        return _indicator(sp.csr_matrix(cast("Any", y)), "sparse array" if isinstance(y, sp.sparray) else "sparse")
    if hasattr(y, "iloc"):
        y = y.to_numpy()
    elif not isinstance(y, Sequence) and hasattr(y, "__array__"):
        y = np.asarray(y)
    if _are_lists(y):
        return _lists(y)
    if is_multilabel(y):
        return _indicator(np.asarray(y), "dense")
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1:
        raise ValueError(f"y has shape {y.shape} and is not an indicator matrix: its values must be 0 and 1")
    return _single(y)


def _are_lists(y: Any) -> bool:
    """Whether y has lists of labels. Lists of equal length with 0 and 1 are an indicator matrix, as in scikit-learn."""
    if isinstance(y, np.ndarray) and (y.dtype != object or y.ndim != 1):
        return False
    lists = [row for row in y if isinstance(row, list | tuple | set | frozenset | np.ndarray)]
    if not lists:
        return False
    if len(lists) < len(y) or len({len(row) for row in lists}) > 1 or isinstance(lists[0], set | frozenset):
        return True
    return not is_multilabel(y)


def _indicator(y: Any, form: Form) -> _Target:
    matrix = sp.csr_matrix(y)
    matrix.eliminate_zeros()
    assert_all_finite(matrix.data, input_name="y")
    cuts = matrix.indptr.tolist()
    rows = [matrix.indices[start:stop].astype(np.int64) for start, stop in pairwise(cuts)]
    return _Target(form, list(range(matrix.shape[1])), rows, y.dtype)


def _single(y: Any) -> _Target:
    array = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0), warn=True)
    assert_all_finite(array, input_name="y")
    check_classification_targets(array)
    classes, numbers = np.unique(array, return_inverse=True)
    return _Target("single", classes.tolist(), list(numbers.reshape(-1, 1)), classes.dtype)


def _lists(y: Iterable[Any]) -> _Target:
    names: dict[str, Any] = {}
    given: list[list[str]] = []
    for number, row in enumerate(y):
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise ValueError(f"y has lists of labels, but row {number} is {row!r}; give every row a list"[:200])
        labels = row.tolist() if isinstance(row, np.ndarray) else list(row)
        for label in labels:
            if label is None or label != label:
                raise ValueError(f"row {number} of y has a missing label ({label!r}); leave it out")
            if names.setdefault(str(label), label) != label:
                raise ValueError(f"y has the labels {names[str(label)]!r} and {label!r}, which are the same text")
        given.append([str(label) for label in labels])
    try:
        order = sorted(names, key=lambda name: names[name])
    except TypeError:  # numbers and texts
        order = sorted(names)
    place = {name: number for number, name in enumerate(order)}
    rows = [np.array(sorted({place[name] for name in row}), dtype=np.int64) for row in given]
    return _Target("lists", [names[name] for name in order], rows)
