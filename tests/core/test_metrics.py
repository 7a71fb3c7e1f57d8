"""Metrics against hand-computed examples and an independent implementation in plain Python."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.core.errors import InputError
from elias.core.metrics import (
    CALIBRATION_BINS,
    by_decile,
    calibration_error_of,
    deciles,
    evaluate,
    format_metrics,
    per_label,
    recall_curve,
)
from elias.core.propensity import PropensityModel

KS, RECALL_KS = (1, 2, 3, 5), (1, 4, 10)


def slow_propensity(count: int, n_train: int, a: float, b: float) -> float:
    scale = max(0.0, (math.log(n_train) - 1) * (b + 1) ** a)
    return 1 / (1 + scale * (count + b) ** (-a))


def slow_ranked(row: list[int], excluded: set[int]) -> list[int | None]:
    """What is predicted, without holes and excluded labels; a repeated label keeps its place but is no label."""
    ranked: list[int | None] = []
    for label in row:
        if label != -1 and label not in excluded:
            ranked.append(None if label in ranked else label)
    return ranked


def slow_metrics(
    predicted: list[list[int]], right: list[set[int]], excluded: list[set[int]], counts: list[int], n_train: int
) -> dict[str, float]:
    inverse = [1 / slow_propensity(count, n_train, 0.55, 1.5) for count in counts]
    rows = []
    for row, labels, out in zip(predicted, right, excluded, strict=True):
        if labels - out:
            rows.append((slow_ranked(row, out), labels - out))

    def discount(place: int) -> float:
        return 1 / math.log2(place + 2)

    result = {}
    for k in KS:
        precision = ndcg = psp = best_psp = psndcg = best_psndcg = 0.0
        for ranked, labels in rows:
            hits = [(place, label) for place, label in enumerate(ranked[:k]) if label in labels]
            idcg = sum(discount(place) for place in range(min(k, len(labels))))
            precision += len(hits) / k
            ndcg += sum(discount(place) for place, _ in hits) / idcg
            psp += sum(inverse[label] for _, label in hits if label is not None)
            psndcg += sum(inverse[label] * discount(place) for place, label in hits if label is not None) / idcg
            ideal = sorted((inverse[label] for label in labels), reverse=True)[:k]
            best_psp += sum(ideal)
            best_psndcg += sum(value * discount(place) for place, value in enumerate(ideal)) / idcg
        result[f"P@{k}"] = 100 * precision / len(rows) if rows else 0.0
        result[f"nDCG@{k}"] = 100 * ndcg / len(rows) if rows else 0.0
        result[f"PSP@{k}"] = 100 * psp / best_psp if rows else 0.0
        result[f"PSnDCG@{k}"] = 100 * psndcg / best_psndcg if rows else 0.0
    for k in RECALL_KS:
        recall = sum(len(set(ranked[:k]) & labels) / len(labels) for ranked, labels in rows)
        result[f"R@{k}"] = 100 * recall / len(rows) if rows else 0.0
    return result


def matrix_of(sets: list[set[int]], n_labels: int) -> sp.csr_matrix:
    dense = np.zeros((len(sets), n_labels), dtype=np.float32)
    for row, labels in enumerate(sets):
        dense[row, list(labels)] = 0.25  # any weight above 0 counts
    return sp.csr_matrix(dense)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, list[set[int]], list[set[int]], list[int], int]:
    n_rows, n_labels, width = draw(st.integers(0, 8)), draw(st.integers(1, 9)), draw(st.integers(0, 7))
    a_set = st.sets(st.integers(0, n_labels - 1), max_size=n_labels)
    predicted = draw(st.lists(st.lists(st.integers(-1, n_labels - 1), min_size=width, max_size=width),
                              min_size=n_rows, max_size=n_rows))  # fmt: skip
    right = draw(st.lists(a_set, min_size=n_rows, max_size=n_rows))
    excluded = draw(st.lists(st.one_of(st.just(set()), a_set), min_size=n_rows, max_size=n_rows))
    counts = draw(st.lists(st.integers(0, 40), min_size=n_labels, max_size=n_labels))
    return (
        np.asarray(predicted, dtype=np.int32).reshape(n_rows, width),
        right,
        excluded,
        counts,
        draw(st.integers(1, 99)),
    )


Problem = tuple[np.ndarray, list[set[int]], list[set[int]], list[int], int]


@settings(max_examples=300, deadline=None)
@given(problems())
def test_evaluate_agrees_with_the_reference(problem: Problem) -> None:
    predicted, right, excluded, counts, n_train = problem
    before = predicted.copy()
    got = evaluate(
        predicted, matrix_of(right, len(counts)), PropensityModel(np.asarray(counts), n_train),
        ks=KS, recall_ks=RECALL_KS, excluded=matrix_of(excluded, len(counts)),
    )  # fmt: skip
    expected = slow_metrics(predicted.tolist(), right, excluded, counts, n_train)
    assert got.values.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, abs=1e-9), name
        assert 0 <= got[name] <= 100 + 1e-9
    assert got.rows + got.rows_without_labels == len(right)
    curve = recall_curve(predicted, matrix_of(right, len(counts)), 10, excluded=matrix_of(excluded, len(counts)))
    assert [curve[k - 1] for k in RECALL_KS] == pytest.approx([expected[f"R@{k}"] for k in RECALL_KS], abs=1e-9)
    assert np.array_equal(predicted, before)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 6))
def test_deciles_and_labels_agree_with_the_reference(problem: Problem, k: int) -> None:
    predicted, right, excluded, counts, n_train = problem
    labels, out, label_counts = matrix_of(right, len(counts)), matrix_of(excluded, len(counts)), np.asarray(counts)
    table = by_decile(predicted, labels, label_counts=label_counts, k=k, excluded=out)
    each = per_label(predicted, labels, label_counts=label_counts, k=k, excluded=out)
    scored = [
        (slow_ranked(row, gone)[:k], wanted - gone)
        for row, wanted, gone in zip(predicted.tolist(), right, excluded, strict=True)
        if wanted - gone
    ]
    kept = [
        [label for label in row if label != -1 and label not in gone][:k]
        for row, wanted, gone in zip(predicted.tolist(), right, excluded, strict=True)
        if wanted - gone
    ]
    for label, count in enumerate(counts):
        assert each.predicted_count[label] == sum(row.count(label) for row in kept)
        hits = sum(label in ranked and label in wanted for ranked, wanted in scored)
        test_count = sum(label in wanted for _, wanted in scored)
        assert each.training_count[label] == count
        assert (each.hits[label], each.test_count[label]) == (hits, test_count)
        assert each.recall[label] == pytest.approx(100 * hits / test_count if test_count else 0)
        assert each.precision[label] == pytest.approx(100 * hits / max(1, each.predicted_count[label]))
    of_label = deciles(label_counts)
    for decile in table:
        inside = set(np.flatnonzero(of_label == decile.decile).tolist())
        contribution = sum(len(set(ranked) & wanted & inside) / len(wanted) for ranked, wanted in scored)
        hits = sum(len(set(ranked) & wanted & inside) for ranked, wanted in scored)
        assert (decile.labels, decile.training_pairs) == (len(inside), sum(counts[label] for label in inside))
        assert decile.test_pairs == sum(len(wanted & inside) for _, wanted in scored)
        assert decile.contribution == pytest.approx(100 * contribution / max(1, len(scored)))
        assert decile.recall == pytest.approx(100 * hits / max(1, decile.test_pairs))
    whole = evaluate(predicted, labels, PropensityModel(label_counts, n_train), recall_ks=[k], excluded=out)
    assert sum(decile.contribution for decile in table) == pytest.approx(whole[f"R@{k}"])


def test_metrics_agree_with_those_by_hand() -> None:
    labels = matrix_of([{0, 1}, {2}, set()], 4)
    predicted = np.asarray([[1, 3, 0], [0, 2, -1], [0, 1, 2]], dtype=np.int32)
    counts = np.asarray([10, 5, 1, 0])
    got = evaluate(predicted, labels, PropensityModel(counts, 12), recall_ks=(1, 2))
    assert (got.rows, got.rows_without_labels) == (2, 1)
    assert got["P@1"] == pytest.approx(50)
    assert got["P@3"] == pytest.approx(100 * (2 / 3 + 1 / 3) / 2)
    assert got["P@5"] == pytest.approx(100 * (2 / 5 + 1 / 5) / 2)  # only 3 predictions: the rest are misses
    second = 1 / math.log2(3)
    assert got["nDCG@3"] == pytest.approx(100 * ((1 + 0.5) / (1 + second) + second) / 2)
    assert got["R@1"] == pytest.approx(25)
    assert got["R@2"] == pytest.approx(75)
    scale = (math.log(12) - 1) * 2.5**0.55
    w0, w1, w2 = (1 + scale * (count + 1.5) ** -0.55 for count in (10, 5, 1))
    assert got["PSP@1"] == pytest.approx(100 * w1 / (w1 + w2))
    assert got["PSP@3"] == pytest.approx(100)
    worst = (w1 + w0 / 2) / (1 + second) + w2 * second
    assert got["PSnDCG@3"] == pytest.approx(100 * worst / ((w1 + w0 * second) / (1 + second) + w2))


def test_deciles_agree_with_those_by_hand() -> None:
    assert deciles(np.asarray([1] * 10)).tolist() == list(range(10))
    assert deciles(np.asarray([0, 5, 1, 1, 1, 1, 1, 0])).tolist() == [9, 0, 5, 6, 7, 8, 9, 9]
    assert deciles(np.zeros(3, dtype=int)).tolist() == [9, 9, 9]
    counts = np.random.default_rng(0).zipf(1.5, 5000).clip(max=2000)
    pairs = np.bincount(deciles(counts), weights=counts)
    assert (abs(pairs - counts.sum() / 10) <= 2000).all()


def test_excluded_predictions_move_up() -> None:
    labels, excluded = matrix_of([{0, 2}], 4), matrix_of([{0, 1}], 4)
    predicted = np.asarray([[0, 1, 2]], dtype=np.int32)
    got = evaluate(predicted, labels, PropensityModel(np.ones(4), 9), excluded=excluded.astype(bool))
    assert got["P@1"] == got["nDCG@1"] == got["R@10"] == 100
    all_gone = evaluate(predicted, labels, PropensityModel(np.ones(4), 9), excluded=matrix_of([{0, 2}], 4))
    assert all_gone.rows == 0
    assert set(all_gone.values.values()) == {0.0}


def test_stored_zeros_are_no_labels_and_order_does_not_matter() -> None:
    parts = (np.asarray([1.0, 0.0, 2.0], np.float32), np.asarray([3, 1, 0]), np.asarray([0, 3]))
    labels = sp.csr_matrix(parts, shape=(1, 4))
    got = evaluate(np.asarray([[1, 0, 3]]), labels, PropensityModel(np.ones(4), 9))
    assert got["P@1"] == 0
    assert got["P@3"] == pytest.approx(200 / 3)


def test_bad_arguments_are_named() -> None:
    labels, counts = matrix_of([{0}], 3), np.ones(3)
    for predicted, message in [([[3]], "from 3 to 3; there are 3"), ([[-2]], "from -2"), ([[0], [1]], "for 1 rows")]:
        with pytest.raises(InputError, match=message):
            evaluate(np.asarray(predicted), labels, PropensityModel(counts, 9))
    with pytest.raises(InputError, match="2 label counts for 3"):
        evaluate(np.asarray([[0]]), labels, PropensityModel(np.ones(2), 9))
    with pytest.raises(InputError, match="k is 0"):
        evaluate(np.asarray([[0]]), labels, PropensityModel(counts, 9), ks=(0, 1))
    with pytest.raises(InputError, match="excluded pairs of shape"):
        evaluate(np.asarray([[0]]), labels, PropensityModel(counts, 9), excluded=matrix_of([{0}], 2))


def test_metrics_print_as_a_table_and_as_json() -> None:
    labels = matrix_of([{0}, {1}, set()], 3)
    got = evaluate(np.asarray([[0], [0], [0]]), labels, PropensityModel(np.ones(3), 9))
    assert format_metrics(got).splitlines() == [
        "              @1      @3      @5     @10     @20    @100",
        "P          50.00   16.67   10.00",
        "nDCG       50.00   50.00   50.00",
        "PSP        50.00   50.00   50.00",
        "PSnDCG     50.00   50.00   50.00",
        "R                                  50.00   50.00   50.00",
        "2 rows, 1 without labels left out",
    ]
    assert json.loads(json.dumps(got.as_dict()))["P@1"] == 50.0
    assert got.as_dict()["rows"] == 2


def test_100_000_rows_take_seconds_of_processor_time() -> None:
    rng = np.random.default_rng(0)
    n_rows, n_labels = 100_000, 50_000
    predicted = rng.integers(0, n_labels, (n_rows, 100), dtype=np.int32)
    indices = np.concatenate([rng.integers(0, n_labels, (n_rows, 3)), predicted[:, [0, 30]]], axis=1).ravel()
    labels = sp.csr_matrix((np.ones(len(indices)), indices, np.arange(n_rows + 1) * 5), shape=(n_rows, n_labels))
    counts = rng.integers(0, 100, n_labels)
    start = time.process_time()
    got = evaluate(predicted, labels, PropensityModel(counts, 200_000))
    assert time.process_time() - start < 10  # about 1 s; processor time does not depend on other processes
    assert got["P@1"] > 99.9


def test_calibration_error_of_the_first_labels() -> None:
    """Only the first k labels of rows that have labels, in bins of equally many pairs; pads are no pairs."""
    n_rows = 4 * CALIBRATION_BINS
    labels = sp.csr_matrix(np.tile([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 0, 0]], (CALIBRATION_BINS, 1)))
    predicted = np.tile(np.array([[0, 2, 1, -1]]), (n_rows, 1))
    probabilities = np.tile(np.array([[0.75, 0.25, 0.9, 0.0]]), (n_rows, 1))
    # Two of the three rows with labels have label 0: |0.75 - 2/3| for the first labels; the second are never right.
    assert calibration_error_of(predicted, probabilities, labels, k=1) == pytest.approx(0.75 - 2 / 3)
    assert calibration_error_of(predicted, probabilities, labels, k=2) == pytest.approx(
        (0.75 - 2 / 3 + 0.25) / 2, abs=0.02
    )
    assert calibration_error_of(predicted, probabilities, sp.csr_matrix((n_rows, 3))) == 0.0
