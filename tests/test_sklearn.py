"""The scikit-learn classifier: every form of y, and predict in the same; pipelines, searches, scikit-learn's checks."""

from __future__ import annotations

import pickle
import random
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_classifiers_train, estimator_checks_generator

import elias
from elias.sklearn import EliasClassifier

TINY: dict[str, Any] = {
    "clustering.clusters": 2, "encoder.dim": 16, "stage1.epochs": 2, "stage2.epochs": 1, "stage1.batch_size": 16,
    "stage2.batch_size": 16, "ranking.kind": "none", "split.validation_rows": 0, "features.min_df": 1,
}  # fmt: skip
WORDS = {"fruit": "apple pear plum", "car": "engine wheel brake", "tree": "leaf root bark", "sea": "wave salt ship"}
NAMES = sorted(WORDS)


def tiny(**parameters: Any) -> EliasClassifier:
    return EliasClassifier(settings=TINY, n_jobs=1, **parameters)


def rows(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of the words of their one or two labels."""
    rng = random.Random(seed)
    labels = [sorted(rng.sample(NAMES, 1 + n % 2)) for n in range(count)]
    return [" ".join(rng.choice(WORDS[label].split()) for label in row for _ in range(4)) for row in labels], labels


TEXTS, LISTS = rows(96)
NEW_TEXTS, NEW_LISTS = rows(24, seed=1)
FIRSTS, NEW_FIRSTS = ([row[0] for row in lists] for lists in (LISTS, NEW_LISTS))
BINARIZER = MultiLabelBinarizer().fit(LISTS)
DENSE, NEW_DENSE = BINARIZER.transform(LISTS), BINARIZER.transform(NEW_LISTS)


@pytest.fixture(scope="module")
def of_lists() -> EliasClassifier:
    return tiny(k=2).fit(TEXTS, LISTS)


@pytest.fixture(scope="module")
def of_singles() -> EliasClassifier:
    return tiny().fit(np.array(TEXTS), np.array(FIRSTS))


# -- y and predict in one form ----------------------------------------------------------------------------------------


def test_lists_of_labels(of_lists: EliasClassifier) -> None:
    found = of_lists.predict(NEW_TEXTS)
    assert isinstance(found, list)
    assert all(isinstance(row, list) and len(row) == 2 and set(row) <= set(NAMES) for row in found)
    assert of_lists.classes_.tolist() == NAMES
    assert isinstance(of_lists.model_, elias.Model)
    hits = [found[row][0] in NEW_LISTS[row] for row in range(len(found))]
    assert of_lists.score(NEW_TEXTS, NEW_LISTS) == np.mean(hits)
    assert np.mean(hits) > 0.7


def test_the_best_labels_come_first_and_agree_with_the_probabilities(of_lists: EliasClassifier) -> None:
    found, scores = of_lists.predict(NEW_TEXTS), of_lists.predict_proba(NEW_TEXTS)
    assert isinstance(scores, sp.csr_array)
    assert scores.shape == (len(NEW_TEXTS), len(NAMES))
    assert (np.diff(scores.indptr) == 2).all()
    assert of_lists.classes_[scores.argmax(axis=1)].tolist() == [row[0] for row in found]


def test_single_labels(of_singles: EliasClassifier) -> None:
    found = of_singles.predict(np.array(NEW_TEXTS))
    assert isinstance(found, np.ndarray)
    assert found.shape == (len(NEW_TEXTS),)
    assert of_singles.score(NEW_TEXTS, NEW_FIRSTS) == accuracy_score(NEW_FIRSTS, found)
    assert of_singles.classes_.tolist() == NAMES


def test_single_labels_keep_their_type() -> None:
    numbers = np.array([NAMES.index(label) * 10 for label in FIRSTS], dtype=np.int16)
    found = tiny().fit(TEXTS, numbers).predict(NEW_TEXTS)
    assert found.dtype == np.int16
    assert set(found.tolist()) <= {0, 10, 20, 30}
    series = tiny().fit(pd.Series(TEXTS), pd.Series(FIRSTS, dtype="category")).predict(pd.Series(NEW_TEXTS))
    assert set(series) <= set(NAMES)


@pytest.mark.parametrize("form", [np.array, sp.csr_matrix, sp.csr_array])
def test_indicator_matrices(form: Any) -> None:
    classifier = tiny(k=2).fit(TEXTS, form(DENSE))
    found = classifier.predict(NEW_TEXTS)
    assert type(found) is type(form(DENSE))
    assert found.dtype == DENSE.dtype
    assert found.shape == NEW_DENSE.shape
    assert (found.sum(axis=1) == 2).all()
    assert classifier.classes_.tolist() == [0, 1, 2, 3]
    assert classifier.score(NEW_TEXTS, form(NEW_DENSE)) > 0.7


def test_labels_of_any_kind_come_back_as_they_were() -> None:
    for labels in ([1, 2, 3, 4], [0.5, 1.5, "x", "y"], [(1,), (2,), (3,), (4,)], ["a b", " c", "d;e", "f,g"]):
        chosen = dict(zip(NAMES, labels, strict=True))
        y = [[chosen[label] for label in row] for row in LISTS]
        classifier = tiny(k=1).fit(TEXTS, y)
        found = classifier.predict(NEW_TEXTS)
        assert {type(label) for row in found for label in row} <= {type(label) for label in labels}
        assert {label for row in found for label in row} <= set(labels)
        assert classifier.score(TEXTS, y) > 0.7


def test_sets_tuples_and_rows_without_labels() -> None:
    for kind in (set, tuple, frozenset, np.array):
        y = [kind(row) for row in LISTS[:-1]] + [kind([])]
        assert tiny(k=1).fit(TEXTS, y).score(TEXTS, y) > 0.7


def test_a_column_that_no_row_has_is_never_predicted() -> None:
    wide = np.hstack([DENSE, np.zeros((len(DENSE), 1), dtype=DENSE.dtype)])
    classifier = tiny(k=5).fit(TEXTS, wide)
    assert classifier.classes_.tolist() == [0, 1, 2, 3, 4]
    assert not classifier.predict(NEW_TEXTS)[:, 4].any()


def test_a_threshold_leaves_out_what_is_unlikely(stacked_settings: dict[str, Any]) -> None:
    classifier = EliasClassifier(k=4, threshold=0.5, settings=stacked_settings, n_jobs=1).fit(*rows(150))
    sizes = [len(row) for row in classifier.predict(NEW_TEXTS)]
    assert min(sizes) < 4
    classifier.set_params(threshold=None)
    assert [len(row) for row in classifier.predict(NEW_TEXTS)] == [4] * len(NEW_TEXTS)
    scores = classifier.predict_proba(NEW_TEXTS)
    assert 0 < scores.data.min() <= scores.data.max() <= 1


@pytest.fixture
def stacked_settings() -> dict[str, Any]:
    return {
        **TINY, "ranking.kind": "stacked", "split.calibration_rows": 50, "score_model.epochs": 3,
        "score_model.hidden_units": 4, "score_model.folds": 0,
    }  # fmt: skip


# -- X ----------------------------------------------------------------------------------------------------------------


def test_texts_in_any_container_give_the_same_answers(of_lists: EliasClassifier) -> None:
    expected = of_lists.predict(NEW_TEXTS)
    for texts in (
        tuple(NEW_TEXTS), np.array(NEW_TEXTS), np.array(NEW_TEXTS, dtype=object), pd.Series(NEW_TEXTS),
        pd.DataFrame({"text": NEW_TEXTS}), np.array(NEW_TEXTS).reshape(-1, 1),
    ):  # fmt: skip
        assert of_lists.predict(texts) == expected


def test_a_matrix_of_features_dense_and_sparse() -> None:
    vectors = TfidfVectorizer().fit(TEXTS)
    for form in (lambda matrix: matrix, lambda matrix: matrix.toarray()):
        X, new = form(vectors.transform(TEXTS)), form(vectors.transform(NEW_TEXTS))
        classifier = tiny(k=2).fit(X, LISTS)
        assert classifier.n_features_in_ == X.shape[1]
        assert classifier.score(new, NEW_LISTS) > 0.6
        with pytest.raises(ValueError, match="texts, but the classifier was fitted on a matrix"):
            classifier.predict(NEW_TEXTS)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (TEXTS, LISTS[:-1], "inconsistent numbers of samples"),
        (["a", None], [["x"], ["y"]], "input 1 is None, not a text: a missing value"),
        (["a", 5], [["x"], ["y"]], "input 1 is int"),
        ([], [], "Expected 2D array"),
        (TEXTS[:2], [["x"], "y"], "row 1 is 'y'; give every row a list"),
        (TEXTS[:2], [["x"], [None]], "row 1 of y has a missing label"),
        (TEXTS[:2], [["x", 1], ["1"]], "the labels 1 and '1', which are the same text"),
        (TEXTS[:2], [[], []], "label"),
        (TEXTS[:2], [0.5, 1.5], "Unknown label type"),
        (TEXTS[:2], np.array([[1, 2], [3, 4]]), "not an indicator matrix"),
        (TEXTS[:2], None, "y"),
        ("one text", ["x"], "X is one text; pass a list of texts"),
    ],
)
def test_what_cannot_be_fitted_is_a_value_error(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny().fit(X, y)


def test_settings_that_do_not_exist_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        EliasClassifier(settings={"stage2.epoch": 1}).fit(TEXTS, LISTS)


# -- inside scikit-learn ----------------------------------------------------------------------------------------------


def test_a_pipeline_of_tf_idf_and_elias() -> None:
    pipeline = make_pipeline(TfidfVectorizer(), tiny(k=2)).fit(TEXTS, LISTS)
    assert pipeline.score(NEW_TEXTS, NEW_LISTS) > 0.6
    assert pickle.loads(pickle.dumps(pipeline)).predict(NEW_TEXTS) == pipeline.predict(NEW_TEXTS)


def test_cross_validation_of_every_form() -> None:
    assert np.mean(cross_val_score(tiny(), TEXTS, FIRSTS, cv=2)) > 0.5
    assert np.mean(cross_val_score(tiny(), TEXTS, LISTS, cv=KFold(2))) > 0.6
    assert np.mean(cross_val_score(tiny(), TEXTS, DENSE, cv=2)) > 0.6
    assert cross_val_predict(tiny(), TEXTS, FIRSTS, cv=2).shape == (len(TEXTS),)


def test_a_grid_search_over_our_parameters() -> None:
    grid = {"settings": [{**TINY, "stage1.epochs": 0, "stage2.epochs": 0}, {**TINY, "stage1.epochs": 3}], "k": [2]}
    search = GridSearchCV(tiny(), grid, cv=KFold(2)).fit(TEXTS, LISTS)
    assert search.best_params_["k"] == 2
    assert len(search.predict(NEW_TEXTS)) == len(NEW_TEXTS)
    assert search.score(NEW_TEXTS, NEW_LISTS) > 0.6
    sparse = GridSearchCV(tiny(), {"k": [1, 2]}, cv=2, refit=False).fit(TEXTS, sp.csr_matrix(DENSE))
    assert sparse.cv_results_["mean_test_score"].min() > 0.6


@pytest.mark.slow
def test_workers_of_a_grid_search() -> None:
    from joblib.externals.loky import get_reusable_executor

    try:
        scores = cross_val_score(tiny(), TEXTS, DENSE, cv=2, n_jobs=2)
    finally:
        get_reusable_executor().shutdown()
    np.testing.assert_array_equal(scores, cross_val_score(tiny(), TEXTS, DENSE, cv=2))


def test_parameters_and_clones(of_lists: EliasClassifier) -> None:
    parameters = of_lists.get_params()
    assert list(parameters) == ["k", "n_jobs", "random_state", "settings", "threshold", "verbose"]
    again = clone(of_lists)
    assert again.get_params() == parameters
    assert not hasattr(again, "model_")
    assert again.fit(TEXTS, LISTS).predict(NEW_TEXTS) == of_lists.predict(NEW_TEXTS)


def test_the_seed_is_the_random_state(of_lists: EliasClassifier) -> None:
    scores = of_lists.predict_proba(NEW_TEXTS).toarray()
    same, other = (tiny(k=2, random_state=seed).fit(TEXTS, LISTS).predict_proba(NEW_TEXTS).toarray() for seed in (0, 7))
    np.testing.assert_array_equal(same, scores)
    assert not np.array_equal(other, scores)
    assert tiny(random_state=np.random.RandomState(3)).fit(TEXTS, LISTS).score(NEW_TEXTS, NEW_LISTS) > 0.5


def test_a_fitted_classifier_is_pickled_whole(of_lists: EliasClassifier) -> None:
    back = pickle.loads(pickle.dumps(of_lists))
    assert back.predict(NEW_TEXTS) == of_lists.predict(NEW_TEXTS)


def test_import_elias_is_enough() -> None:
    assert elias.sklearn.EliasClassifier is EliasClassifier


# -- scikit-learn's own checks, which pass matrices -------------------------------------------------------------------

NOT_DENSE = "predict_proba is sparse and has the k best labels of each row, each with a probability of its own"
EXPECTED_TO_FAIL = {
    "check_classifiers_train": f"asks for probabilities that sum to 1: {NOT_DENSE}; all else in it is tested below",
    "check_classifiers_multilabel_output_format_predict_proba": f"asks for an array: {NOT_DENSE}",
}
SLOW = {"check_estimator_sparse_matrix", "check_estimators_dtypes", "check_classifiers_classes"}  # seconds each


def checks() -> list[Any]:
    found: dict[str, Any] = {}
    for estimator, check in estimator_checks_generator(tiny()):
        name = check.func.__name__
        variant = ", ".join(f"{key}={value}" for key, value in check.keywords.items() if key != "readonly_memmap")
        found.setdefault(f"{name} {variant}".strip(), (estimator, check, name))
    return [
        pytest.param(estimator, check, name, id=title, marks=[pytest.mark.slow] if name in SLOW else [])
        for title, (estimator, check, name) in found.items()
    ]


@pytest.mark.parametrize(("estimator", "check", "name"), checks())
def test_the_checks_of_scikit_learn(estimator: EliasClassifier, check: Any, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks warn of what they provoke
        if name not in EXPECTED_TO_FAIL:
            check(estimator)
            return
        with pytest.raises((AssertionError, ValueError)):
            check(estimator)


class WithoutProbabilities(EliasClassifier):
    predict_proba = property()  # hasattr is False


def test_all_else_in_the_check_of_training() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_classifiers_train("EliasClassifier", WithoutProbabilities(settings=TINY, n_jobs=1))
