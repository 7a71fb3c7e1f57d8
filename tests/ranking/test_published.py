"""The published ranker against a slow one in dense numpy and scikit-learn, and its odd cases."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from elias import kernels
from elias.core.errors import ModelError
from elias.core.files import read_tensors, write_tensors
from elias.core.predictions import Predictions
from elias.core.settings import LinearRankerSettings, Settings
from elias.dataset import Dataset
from elias.encoders.centroids import psi
from elias.model.model import Model
from elias.model.storage import load_model
from elias.pipeline.fit import fit_to
from elias.ranking.decision_tree import DEPTH, LEAST_LEAF, DecisionTree
from elias.ranking.linear_ranker import q_of
from elias.ranking.published import (
    NAME,
    TREE_NAME,
    PublishedRanker,
    TreeCalibration,
    train_published_ranker,
    tree_inputs,
)
from elias.ranking.sparse_rows import SparseRows
from helpers.processes import PUBLISHED

TIGHT: dict[str, Any] = {"linear_ranker.tolerance": 1e-6, "linear_ranker.max_iterations": 20_000}
RETRIEVED = 5  # of 60 labels, so that texts do not retrieve all of their own


# -- the whole system, slowly -----------------------------------------------------------------------------------------


def dense_p(model: Model, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(p [texts, L], psi [texts, words + d]) from the equations; the beam of these models holds all clusters."""
    inputs, network = model.read(texts), model.network
    phi = network.encoder.encode(network.encoder.prepare(inputs), np.arange(len(texts))).detach().numpy().astype(float)
    logits = phi @ network.clusters.weight.detach().numpy().T + network.clusters.bias.detach().numpy()
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    s = np.minimum(1, network.settings.alpha * odds / odds.sum(axis=1, keepdims=True))
    index = model.searcher.index
    e = sp.csr_matrix((index.edge_scores(), index.labels, index.indptr), shape=(len(s[0]), index.n_labels)).toarray()
    yhat = (s[:, :, None] * e).max(axis=1)
    z = phi @ network.classifier_weights.values.numpy().T + network.classifier_biases.values.numpy().ravel()
    assert inputs.bow is not None
    bow = inputs.bow.toarray().astype(float)
    joined = np.hstack([rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30) for rows in (bow, phi)])
    return yhat / (1 + np.exp(-z)), joined


def slow_margins(x: np.ndarray, y: np.ndarray, used: np.ndarray, asked: np.ndarray, loss: str) -> np.ndarray:
    """[asked, L]: one classifier of scikit-learn per label, trained on the rows that `used` [rows, L] marks."""
    margins = np.zeros((len(asked), y.shape[1]))
    for label in range(y.shape[1]):
        rows = used[:, label]
        if rows.any():
            more = {"C": 1.0, "tol": 1e-8, "max_iter": 100_000, "random_state": 0}
            kind = LogisticRegression(solver="liblinear", **more) if loss == "logistic" else LinearSVC(**more)
            signs, weights = np.append(y[rows, label], [True, False]), np.append(np.ones(rows.sum()), [1e-9, 1e-9])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.fit(np.vstack([x[rows], np.zeros((2, x.shape[1]))]), signs, sample_weight=weights)  # two classes
            margins[:, label] = asked @ kind.coef_[0] + kind.intercept_[0]
    return margins


@pytest.mark.parametrize(("loss", "unretrieved"), [("logistic", False), ("squared-hinge", True)])
def test_it_is_the_slow_one(loss: str, unretrieved: bool, data: Dataset, texts: list[str], tmp_path: Path) -> None:
    changes = {"linear_ranker.loss": loss, "linear_ranker.min_weight": 0.0, "ranking.network_candidates": RETRIEVED}
    changes["published.unretrieved_positives"] = unretrieved
    model = load_model(fit_to(data, tmp_path / "model", settings=Settings().updated({**PUBLISHED, **TIGHT, **changes})))
    rows, _ = read_tensors(tmp_path / "model.run" / "10-features" / "split.safetensors")
    assert data.train.texts is not None
    train, held_out = ([data.train.texts[row] for row in rows[name]] for name in ("train", "calibration"))
    y = data.train.labels[rows["train"]].toarray() > 0

    p_train, x = dense_p(model, train)
    place = np.argsort(np.argsort(-p_train, axis=1), axis=1)
    used = place < RETRIEVED
    assert (y & ~used).any(), "some positives are not retrieved"
    used |= y & unretrieved
    for asked in (texts, held_out):
        p, x_asked = dense_p(model, asked)
        q = q_of(slow_margins(x, y, used, x_asked, loss), loss)
        found = model.predict(asked, k=RETRIEVED, explain=True)
        best = np.argsort(-p, axis=1, kind="stable")[:, :RETRIEVED]
        np.testing.assert_array_equal(np.sort(found.labels, axis=1), np.sort(best, axis=1))
        assert found.parts is not None
        parts = found.parts
        product = parts["cluster_score"] * parts["edge_score"] * parts["classifier"] * parts["ranker"]
        np.testing.assert_allclose(parts["ranker"], np.take_along_axis(q, found.labels, axis=1), atol=2e-3)
        np.testing.assert_allclose(product, np.take_along_axis(p * q, found.labels, axis=1), atol=2e-3)
        np.testing.assert_allclose(found.scores, 0.5 * parts["tree"] + 0.5 * product, rtol=1e-5)
        assert (np.diff(found.scores, axis=1) <= 0).all()

    # T, from what the held-out rows were given: the last digits of its inputs decide about its splits.
    pairs, _ = read_tensors(tmp_path / "model.run" / "65-held-out" / "pairs.safetensors")
    truth = np.take_along_axis(data.train.labels[rows["calibration"]].toarray() > 0, pairs["labels"], axis=1)
    columns = tree_inputs(pairs["p"], pairs["q"], y.sum(axis=0)[pairs["labels"]])
    grown = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0)
    grown.fit(columns.reshape(-1, 4), truth.ravel())
    found = model.predict(held_out, k=RETRIEVED, explain=True)
    assert found.parts is not None
    order = np.argsort(pairs["labels"], axis=1), np.argsort(found.labels, axis=1)
    theirs = grown.predict_proba(columns.reshape(-1, 4))[:, 1].reshape(pairs["labels"].shape)
    ours = np.take_along_axis(found.parts["tree"], order[1], axis=1)
    np.testing.assert_allclose(ours, np.take_along_axis(theirs, order[0], axis=1), atol=1e-6)
    assert len(np.unique(ours)) > 4


# -- parts ------------------------------------------------------------------------------------------------------------


def test_pairs_are_what_is_retrieved() -> None:
    """Label 0: right and wrong texts; 1: wrong ones only; 2: by none; 3: a text of it, which does not retrieve it."""
    rng = np.random.default_rng(0)
    x = psi(sp.csr_matrix(rng.random((6, 5)).astype(np.float32)), rng.normal(size=(6, 3)).astype(np.float32))
    assert isinstance(x, sp.csr_matrix)
    y = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
    retrieved = np.array([[0, 1], [0, -1], [0, 1], [1, -1], [-1, -1], [-1, -1]], dtype=np.int32)
    labels = sp.csr_matrix(y.astype(np.float32))
    settings = LinearRankerSettings(loss="logistic", tolerance=1e-7, max_iterations=20_000, min_weight=0.0)
    used = np.zeros(y.shape, dtype=bool)
    used[np.nonzero(retrieved >= 0)[0], retrieved[retrieved >= 0]] = True
    for unretrieved in (False, True):
        for definition in (False, True):
            with kernels.reference(definition):
                found = train_published_ranker(x, retrieved, labels, settings, unretrieved_positives=unretrieved)
            expected = slow_margins(x.toarray(), y, used | (y & unretrieved), x.toarray(), "logistic")
            ours = found.products(x, np.tile(np.arange(4), (6, 1)))
            np.testing.assert_allclose(ours, expected, atol=1e-3)
            assert (ours[:, 1] < -0.2).all(), "only wrong texts: rejected"
            assert not ours[:, 2].any(), "no classifier: a margin of 0"
            assert (ours[:, 3] > 0.2).all() if unretrieved else not ours[:, 3].any()


def random_ranker(rng: np.random.Generator, *, calibrated: bool, n_labels: int = 30) -> PublishedRanker:
    weights = sp.csr_matrix(rng.normal(size=(n_labels, 9)) * (rng.random((n_labels, 9)) < 0.6), dtype=np.float32)
    tree = DecisionTree(
        np.array([0, 3, -1, -1, -1]), np.array([0.3, 5.0, 0, 0, 0]), np.array([1, 2, -1, -1, -1]),
        np.array([4, 3, -1, -1, -1]), np.array([0.5, 0.4, 0.1, 0.3, 0.8]),
    )  # fmt: skip
    return PublishedRanker(
        ranker=SparseRows.from_csr(weights, rng.normal(size=n_labels)), loss="squared-hinge", network_candidates=10,
        calibration=TreeCalibration(tree, rng.integers(0, 12, n_labels), 0.3) if calibrated else None, threads=2,
    )  # fmt: skip


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("k", [1, 4, 15])
def test_ranked_by_hand(k: int, calibrated: bool) -> None:
    """Rows with fewer candidates than k end in pads; equal scores go by label."""
    rng = np.random.default_rng(k)
    ranker = random_ranker(rng, calibrated=calibrated)
    labels = np.stack([rng.permutation(30)[:10] for _ in range(8)]).astype(np.int32)
    p = np.sort(rng.random((8, 10)).astype(np.float32), axis=1)[:, ::-1].copy()
    labels[2, 3:], p[2, 3:], labels[3], p[3] = -1, 0, -1, 0
    p[4] = 0  # all scores without T are equal
    bow, phi = sp.random(8, 6, 0.5, "csr", np.float32, 0), rng.normal(size=(8, 3)).astype(np.float32)
    bow.data *= 7  # of any length, as the vectors of users are
    bow = sp.csr_matrix(bow)
    found = ranker.rank(Predictions(labels=labels, scores=p, parts={"classifier": p}), bow, phi, k, explain=True)
    plain = ranker.rank(Predictions(labels=labels, scores=p), bow, phi, k)
    assert plain.parts is None
    np.testing.assert_array_equal(plain.labels, found.labels)
    assert found.parts is not None
    assert list(found.parts) == ["classifier", "ranker", *(["tree"] if calibrated else [])]
    weights, biases = ranker.ranker.to_csr().toarray(), ranker.ranker.biases
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30) for rows in (bow.toarray(), phi)]
    q = np.exp(-(np.maximum(0, 1 - np.hstack(unit) @ weights.T - biases) ** 3))
    for row in range(8):
        scores = {}
        for label, own in zip(labels[row].tolist(), p[row].tolist(), strict=True):
            if label >= 0:
                scores[label] = own * q[row, label]
                if ranker.calibration is not None:
                    few = ranker.calibration.counts[label] <= 5
                    scores[label] = 0.7 * scores[label] + 0.3 * (0.8 if own > 0.3 else 0.1 if few else 0.3)
        count = min(k, len(scores))
        chosen = found.labels[row, :count].tolist()
        np.testing.assert_allclose(found.scores[row, :count], sorted(scores.values(), reverse=True)[:count], atol=1e-6)
        np.testing.assert_allclose(found.scores[row, :count], [scores[label] for label in chosen], atol=1e-6)
        assert len(set(chosen)) == count
        assert (found.labels[row, count:] == -1).all()
        assert not found.scores[row, count:].any()
        assert not found.parts["ranker"][row, count:].any()
        if row == 4 and not calibrated:
            assert chosen == sorted(scores)[:k]
    assert [ranker.depth(asked) for asked in (1, 12, 99)] == [10, 12, 30]


# -- files ------------------------------------------------------------------------------------------------------------

SIZES = {"n_labels": 30, "n_words": 6, "dim": 3, "threads": 1}


@pytest.mark.parametrize("calibrated", [False, True])
def test_saved_and_loaded(calibrated: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ranker = random_ranker(rng, calibrated=calibrated)
    ranker.save(tmp_path)
    loaded = PublishedRanker.load(tmp_path, **SIZES)
    assert (tmp_path / TREE_NAME).exists() == calibrated
    found = Predictions(labels=np.arange(30, dtype=np.int32)[None], scores=rng.random((1, 30)).astype(np.float32))
    bow, phi = sp.csr_matrix(rng.random((1, 6)), dtype=np.float32), rng.normal(size=(1, 3)).astype(np.float32)
    ours, theirs = (one.rank(found, bow, phi, 30) for one in (ranker, loaded))
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    with pytest.raises(ModelError, match=r"ranker\.words. has the value"):
        PublishedRanker.load(tmp_path, **{**SIZES, "dim": 2, "n_words": 2})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (NAME, {"network_candidates": 0}),
        (NAME, {"network_candidates": True}),
        (NAME, {"loss": "hinge"}),
        (NAME, {"tree_weight": 1.5}),
        (NAME, {"tree_weight": "half"}),
        (TREE_NAME, {"counts": np.zeros(29, dtype=np.int64)}),
        (TREE_NAME, {"counts": np.zeros(30)}),
        (TREE_NAME, {"left": np.zeros(5, dtype=np.int64)}),
        (TREE_NAME, {"value": None}),
        (TREE_NAME, {"counts": None}),
    ],
)
def test_damaged_files_are_refused(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    random_ranker(np.random.default_rng(6), calibrated=True).save(tmp_path)
    if name == NAME:
        (tmp_path / NAME).write_text(json.dumps({**json.loads((tmp_path / NAME).read_text()), **change}))
    else:
        arrays = {**read_tensors(tmp_path / name)[0], **change}
        write_tensors(tmp_path / name, {key: np.array(value) for key, value in arrays.items() if value is not None})
    with pytest.raises(ModelError, match=rf"{name}: .*restore"):
        PublishedRanker.load(tmp_path, **SIZES)
