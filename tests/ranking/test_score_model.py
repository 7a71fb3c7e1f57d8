"""The final score: its formulas by hand, that learning helps, evidence and its distances, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elias.core.devices import pick_threads
from elias.core.errors import ModelError
from elias.core.settings import ScoreModelSettings
from elias.ranking.calibration import fit_probability
from elias.ranking.features import LEAST, N_COLUMNS, NAMES, RANKED, RELATIVE, Evidence, Field
from elias.ranking.linear_ranker import quality
from elias.ranking.score_model import FARTHEST, NAME, Fusion, fit_fusion

LOSS = "squared-hinge"


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """As in a fit."""
    pick_threads(2)


def evidence(seed: int = 0, rows: int = 40, m: int = 12) -> tuple[Evidence, np.ndarray]:
    """(random evidence, which labels are right): right ones have a larger p and margin; some places are empty."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.permuted(np.tile(np.arange(60), (rows, 1)), axis=1)[:, :m], axis=1).astype(np.int32)
    labels[np.arange(m) >= rng.integers(3, m + 1, size=(rows, 1))] = -1
    right = (rng.random(labels.shape) < 0.2) & (labels >= 0)
    some = lambda: rng.random(labels.shape).astype(np.float32)  # noqa: E731
    classifier = np.where(right, 0.3 + 0.7 * some(), 0.8 * some()).astype(np.float32)
    margin = (2 * some() - 1.5 + right * some()).astype(np.float32)
    counts = rng.integers(0, 50, size=labels.shape)
    parts = Evidence(
        labels, rng.integers(0, 4, labels.shape), some(), some(), classifier, margin, -some(), (some(), some(), some()),
        (some(), some()), counts,
    )  # fmt: skip
    return parts, right


def test_columns_are_the_parts_their_distances_and_ranks() -> None:
    given, _ = evidence()
    given.votes[0][:, ::2] = 0.0  # equal values share a rank
    columns = given.columns()
    assert columns.shape == (40, 12, N_COLUMNS) == (40, 12, len(NAMES) + RELATIVE + len(RANKED))
    there = given.labels >= 0
    p = given.classifier * given.cluster_score * given.edge_score
    yhat = given.cluster_score * given.edge_score
    z = np.log(given.classifier / (1 - given.classifier))
    expected = [np.log(np.maximum(p, LEAST)), z, np.log(np.maximum(yhat, LEAST)), given.margin, given.path]
    expected += [*given.words, *given.votes]
    for place, values in enumerate(expected):
        np.testing.assert_allclose(columns[..., place][there], values[there], rtol=1e-3, atol=1e-4)
        for row in range(40):
            best = columns[row, there[row], place].max()
            np.testing.assert_allclose(
                columns[row, there[row], len(NAMES) + place], columns[row, there[row], place] - best
            )
    np.testing.assert_allclose(columns[..., len(NAMES) - 1], np.log1p(given.counts), rtol=1e-5)
    for place, values in enumerate((given.words[0], given.words[2], given.votes[0])):
        for row in range(40):
            own = values[row, there[row]]
            more = [(own > value).sum() for value in own]
            np.testing.assert_allclose(
                columns[row, there[row], len(NAMES) + RELATIVE + place], np.log1p(more), rtol=1e-6
            )
    assert np.isfinite(columns).all()


@pytest.mark.parametrize("raised", [None, 2.0, -5.0])
def test_the_kernel_is_the_formula(raised: float | None) -> None:
    given, right = evidence(3)
    given = replace(given, labels=np.where(np.arange(40)[:, None] < 2, -1, given.labels))  # rows with nobody
    learned = fit_fusion(given, right, ScoreModelSettings(hidden=32, epochs=2), LOSS, 0).learned
    assert learned is not None
    given.words[0][:, ::3] = 0.25
    field = None if raised is None else moved(given.field(), raised)
    there = given.labels >= 0
    expected = learned(given.columns(field))
    np.testing.assert_allclose(learned.of(given, field, threads=2)[there], expected[there], rtol=1e-4, atol=2e-5)
    assert not learned.of(given, field)[~there].any()


def moved(field: Field, by: float) -> Field:
    return Field(field.best + np.float32(by), field.rising + np.float32(by))


def test_the_kernel_ranks_the_parts_that_evidence_names() -> None:
    from elias.kernels import fuse

    assert len(NAMES) == fuse.PARTS
    assert [NAMES[part] for part in RANKED] == ["v.x", "c.x", "vote"]  # the order of `fuse.RANKS`
    assert (len(NAMES), len(NAMES) + RELATIVE, N_COLUMNS) == (fuse.PARTS, fuse.RANKS, fuse.N_COLUMNS)


def test_tanh_of_the_kernel() -> None:
    from elias.kernels.fuse import tanh_of

    x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, 1e-6, -1e-6]]).astype(np.float32)
    np.testing.assert_allclose([tanh_of(value) for value in x], np.tanh(x.astype(np.float64)), atol=4e-7)


@pytest.mark.parametrize("k", [1, 4, 20])
def test_ranks_are_sorted_scores(k: int) -> None:
    """Ties to the lower label, nobody last; fewer than k where there are fewer."""
    from elias.kernels.fuse import rank_rows

    given, _ = evidence(4)
    scores = np.random.default_rng(4).integers(-2, 3, given.labels.shape).astype(np.float32)
    places = np.empty((len(scores), k), dtype=np.int64)
    rank_rows(0, len(scores), given.labels, scores, places)
    for row in range(len(scores)):
        there = [place for place in range(scores.shape[1]) if given.labels[row, place] >= 0]
        best = sorted(there, key=lambda place: (-scores[row, place], given.labels[row, place]))[:k]
        assert places[row].tolist() == best + [-1] * (k - len(best))


def test_a_better_field_moves_distances_and_ranks_only() -> None:
    given, _ = evidence(1)
    columns, field, there = given.columns(), given.field(), given.labels >= 0
    np.testing.assert_array_equal(given.columns(field), columns)  # among themselves they are what they are
    ranks = len(NAMES) + RELATIVE
    worse = given.columns(moved(field, -5))
    np.testing.assert_array_equal(worse[..., :ranks], columns[..., :ranks])  # a worse one moves no distance
    assert not worse[there][:, ranks:].any()  # and everybody is first
    better = given.columns(moved(field, 2))
    np.testing.assert_array_equal(better[..., : len(NAMES)], columns[..., : len(NAMES)])
    np.testing.assert_allclose(better[..., len(NAMES) : ranks], columns[..., len(NAMES) : ranks] - 2, atol=1e-4)
    everybody = np.broadcast_to(np.log1p(there.sum(axis=1))[:, None, None], better[..., ranks:].shape)
    np.testing.assert_allclose(better[..., ranks:][there], everybody[there], rtol=1e-6)


def test_rows_with_nobody_and_extreme_parts_stay_finite() -> None:
    given, right = evidence(2)
    extreme = replace(
        given, labels=np.where(np.arange(40)[:, None] < 3, -1, given.labels), classifier=given.classifier.round(),
        cluster_score=np.zeros_like(given.cluster_score),
    )  # fmt: skip
    assert np.isfinite(extreme.columns()).all()
    fitted = fit_fusion(extreme, right, ScoreModelSettings(hidden=32, epochs=2), LOSS, 0)
    assert np.isfinite(fitted.score(extreme)).all()


def test_the_product_and_the_tree_by_hand() -> None:
    given, right = evidence(3, rows=200)
    q = quality(given.margin, LOSS)
    product = fit_fusion(given, right, ScoreModelSettings(kind="product"), LOSS, 0)
    np.testing.assert_allclose(product.score(given), given.p * q, rtol=1e-6)
    logistic = fit_fusion(given, right, ScoreModelSettings(kind="product"), "logistic", 0)
    np.testing.assert_allclose(logistic.score(given), given.p / (1 + np.exp(-given.margin)), rtol=1e-5)
    for weight in (0.0, 0.3, 1.0):
        tree = fit_fusion(given, right, ScoreModelSettings(kind="tree", tree_weight=weight), LOSS, 0)
        assert tree.tree is not None
        leaf = tree.tree(np.stack([given.p, q, given.p * q, given.counts], axis=-1).astype(np.float32))
        np.testing.assert_allclose(tree.score(given), weight * leaf + (1 - weight) * given.p * q, rtol=1e-5, atol=1e-6)
        assert leaf[right].mean() > leaf[(given.labels >= 0) & ~right].mean()


def test_the_learned_score_by_hand() -> None:
    given, right = evidence(4)
    fitted = fit_fusion(given, right, ScoreModelSettings(hidden=5, epochs=3), LOSS, 0)
    assert fitted.learned is not None
    w = fitted.learned
    assert w.hidden.shape == (N_COLUMNS, 5)
    scores, columns = fitted.score(given), given.columns().astype(np.float64)
    for row, place in ((0, 0), (7, 2), (39, 1)):
        x = np.clip((columns[row, place] - w.mean) / w.spread, -FARTHEST, FARTHEST)
        expected = w.linear @ x + w.out @ np.tanh(w.hidden.T @ x + w.shift) + w.bias
        assert scores[row, place] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_learning_puts_right_labels_first_and_is_repeatable() -> None:
    (train, right), (fresh, truth) = evidence(5, rows=400), evidence(6, rows=400)
    fitted = fit_fusion(train, right, ScoreModelSettings(hidden=32, epochs=10), LOSS, 0)

    def hits(scores: np.ndarray) -> float:
        best = np.where(fresh.labels >= 0, scores, -np.inf).argmax(axis=1)
        return float(truth[np.arange(400), best][truth.any(axis=1)].mean())

    assert hits(fitted.score(fresh)) > hits(fresh.words[0]) + 0.2
    assert hits(fitted.score(fresh)) > hits(fresh.p) + 0.05
    again = fit_fusion(train, right, ScoreModelSettings(hidden=32, epochs=10), LOSS, 0)
    np.testing.assert_array_equal(again.score(fresh), fitted.score(fresh))


def test_rows_without_a_right_label_teach_nothing_and_break_nothing() -> None:
    given, right = evidence(7)
    for kind in ("learned", "tree", "product"):
        fitted = fit_fusion(given, np.zeros_like(right), ScoreModelSettings(kind=kind, hidden=32, epochs=2), LOSS, 0)
        assert np.isfinite(fitted.score(given)).all()


@pytest.mark.parametrize("kind", ["learned", "tree", "product"])
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    given, right = evidence(8)
    fitted = fit_fusion(
        given, right, ScoreModelSettings(kind=kind, hidden=32, epochs=2, tree_weight=0.3), "logistic", 0
    )
    curve = fit_probability(fitted.score(given), right, given.labels >= 0)
    for whole in (fitted, replace(fitted, probability=curve)):
        whole.save(tmp_path)
        loaded = Fusion.load(tmp_path)
        assert (loaded.kind, loaded.loss, loaded.tree_weight) == (kind, "logistic", whole.tree_weight)
        np.testing.assert_array_equal(loaded.score(given), whole.score(given))
        assert (loaded.probability is None) == (whole.probability is None)


@pytest.mark.parametrize("missing", [("path",), ("path", "ranks"), ("path", "ranks", "vote", "closest")])
def test_a_score_made_before_some_columns_were_is_the_same_as_one_that_ignores_them(
    missing: tuple[str, ...], tmp_path: Path
) -> None:
    given, right = evidence(10)
    learned = fit_fusion(given, right, ScoreModelSettings(hidden=32, epochs=2), LOSS, 0).learned
    assert learned is not None
    parts = [NAMES.index(name) for name in missing if name in NAMES]
    unknown = [*parts, *(len(NAMES) + part for part in parts)]
    if "ranks" in missing:
        unknown += range(len(NAMES) + RELATIVE, N_COLUMNS)
    arrays = {name: getattr(learned, name) for name in ("mean", "spread", "linear", "hidden")}
    kept = {name: np.delete(values, unknown, axis=0) for name, values in arrays.items()}
    Fusion("learned", LOSS, learned=replace(learned, **kept)).save(tmp_path)
    ignoring = {name: arrays[name].copy() for name in ("linear", "hidden")}
    for values in ignoring.values():
        values[unknown] = 0.0
    expected = Fusion("learned", LOSS, learned=replace(learned, **ignoring)).score(given)
    np.testing.assert_allclose(Fusion.load(tmp_path).score(given), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "guess"},
        {"loss": "hinge"},
        {"kind": "tree"},  # without one
        {"learned": None},
        {"learned": []},
        {"learned": {}},
        {"tree_weight": "half"},
        {"probability": {}},
        {"probability": {"scores": [1, 0], "probabilities": [0, 1], "error": 0, "rows": 1}},
        {"learned.mean": [0.0]},
        {"learned.linear": ["x"] * N_COLUMNS},
        {"learned.spread": [float("nan")] * N_COLUMNS},
        {"learned.more": 1},
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    given, right = evidence(9)
    fit_fusion(given, right, ScoreModelSettings(hidden=32, epochs=1), LOSS, 0).save(tmp_path)
    content = json.loads((tmp_path / NAME).read_text())
    for key, value in change.items():
        section, _, name = key.partition(".")
        if name:
            content[section][name] = value
        else:
            content[section] = value
    (tmp_path / NAME).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=rf"{NAME}: not a final score of elias .*restore it from a copy"):
        Fusion.load(tmp_path)
