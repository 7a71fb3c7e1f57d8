"""What is held out is held out of everything: nothing straddles, and the choice depends on content alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from elias.core.errors import InputError
from elias.dataset.rows import KIND_LABEL_TEXT, Rows, TextColumn
from elias.dataset.split import Split, reserve


def make_rows(
    texts: list[str] | None = None,
    groups: list[str] | None = None,
    kinds: list[int] | None = None,
    vectors: sp.csr_matrix | np.ndarray | None = None,
    ids: list[str] | None = None,
) -> Rows:
    n_rows = len(texts) if texts is not None else vectors.shape[0]  # type: ignore[union-attr]
    labels = sp.csr_matrix(np.ones((n_rows, 1), dtype=np.float32))
    return Rows(
        texts=None if texts is None else TextColumn(texts),
        vectors=vectors,
        labels=labels,
        ids=ids,
        groups=groups,
        weights=np.ones(n_rows, dtype=np.float32),
        kinds=np.asarray(kinds if kinds is not None else [0] * n_rows, dtype=np.uint8),
        excluded=sp.csr_matrix(labels.shape, dtype=bool),
    )


def slow_components(texts: list[str], groups: list[str]) -> list[set[int]]:
    """Merge whatever shares a text or a group until nothing changes."""
    components = [{row} for row in range(len(texts))]
    merged = True
    while merged:
        merged = False
        for i, left in enumerate(components):
            for right in components[i + 1 :]:
                if any(texts[a] == texts[b] or (groups[a] and groups[a] == groups[b]) for a in left for b in right):
                    components.remove(right)
                    left |= right
                    merged = True
                    break
    return components


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.validation, split.calibration]


ROW = st.tuples(st.sampled_from("abcdefghijklm"), st.sampled_from(["", "", "", "p", "q", "r"]), st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=25), st.integers(0, 8), st.integers(0, 8), st.integers(0, 3))
def test_parts_are_disjoint_and_complete_and_components_stay_together(
    content: list[tuple[str, str, int]], n_validation: int, n_calibration: int, seed: int
) -> None:
    texts = [text for text, _, _ in content]
    groups = [group for _, group, _ in content]
    kinds = [int(kind == 0) for _, _, kind in content]  # one in ten is a label text
    rows = make_rows(texts, groups, kinds)
    split = reserve(rows, validation_rows=n_validation, calibration_rows=n_calibration, seed=seed)
    assert sorted(np.concatenate(parts(split)).tolist()) == list(range(len(content)))
    for part in parts(split):
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    held_out = {*split.validation.tolist(), *split.calibration.tolist()}
    assert all(kinds[row] != KIND_LABEL_TEXT for row in held_out)
    assert 2 * len(held_out) <= kinds.count(0)
    for component in slow_components(texts, groups):
        assert sum(bool(component & set(part.tolist())) for part in parts(split)) == 1


def test_single_rows_give_exact_counts() -> None:
    rows = make_rows([f"text {row}" for row in range(1000)])
    split = reserve(rows, validation_rows=100, calibration_rows=50, seed=0)
    assert [len(part) for part in parts(split)] == [850, 100, 50]
    split = reserve(rows, validation_rows=4000, calibration_rows=1000, seed=0)  # 5 times what is there
    assert [len(part) for part in parts(split)] == [500, 400, 100]
    split = reserve(rows, validation_rows=0, calibration_rows=0, seed=0)
    assert [len(part) for part in parts(split)] == [1000, 0, 0]


def test_depends_on_content_and_seed_not_on_order() -> None:
    texts = [f"text {row % 400}" for row in range(500)]
    groups = [f"g{row % 90}" if row % 3 == 0 else "" for row in range(500)]

    def chosen(order: np.ndarray, seed: int) -> tuple[set[str], set[str]]:
        rows = make_rows([texts[row] for row in order], [groups[row] for row in order])
        split = reserve(rows, validation_rows=60, calibration_rows=40, seed=seed)
        return {texts[row] for row in order[split.validation]}, {texts[row] for row in order[split.calibration]}

    plain = chosen(np.arange(500), 0)
    assert plain == chosen(np.random.default_rng(0).permutation(500), 0)
    assert plain != chosen(np.arange(500), 1)


def test_a_huge_group_stays_in_training_and_counts_are_near() -> None:
    texts = [f"text {row}" for row in range(300)]
    huge = ["huge" if row < 200 else f"g{row // 4}" for row in range(300)]
    for seed in range(5):
        split = reserve(make_rows(texts, huge), validation_rows=40, calibration_rows=10, seed=seed)
        assert set(range(200)) <= set(split.train.tolist())
        assert len(split.validation) == 40
        assert len(split.calibration) == 8  # groups of 4: one more would be 12, which is no nearer
        split = reserve(make_rows(texts, huge), validation_rows=3, calibration_rows=11, seed=seed)
        assert [len(split.validation), len(split.calibration)] == [4, 12]
    one_group = make_rows(texts, ["same"] * 300)
    assert len(reserve(one_group, validation_rows=40, calibration_rows=10, seed=0).train) == 300


def test_large_and_small_groups_are_drawn_alike() -> None:
    texts = [f"text {row}" for row in range(3000)]
    groups = [f"large {row // 10}" if row < 1500 else f"small {row}" for row in range(3000)]
    split = reserve(make_rows(texts, groups), validation_rows=1000, calibration_rows=0, seed=0)
    assert 0.4 < np.mean(split.validation < 1500) < 0.6


def test_rows_that_share_text_with_a_label_text_stay_in_training() -> None:
    texts = ["Cables"] * 3 + [f"text {row}" for row in range(7)]
    rows = make_rows(texts, kinds=[KIND_LABEL_TEXT, 0, 0] + [0] * 7)
    split = reserve(rows, validation_rows=3, calibration_rows=1, seed=0)
    assert {0, 1, 2} <= set(split.train.tolist())
    assert len(split.train) == 6


@pytest.mark.parametrize("sparse", [False, True])
def test_vectors_are_not_compared(sparse: bool) -> None:
    dense = np.repeat(np.eye(10, dtype=np.float32), 10, axis=0)
    rows = make_rows(vectors=sp.csr_matrix(dense) if sparse else dense, ids=[str(row) for row in range(100)])
    split = reserve(rows, validation_rows=13, calibration_rows=7, seed=0)
    assert [len(part) for part in parts(split)] == [80, 13, 7]
    without = make_rows(vectors=sp.csr_matrix(dense) if sparse else dense)
    assert len(reserve(without, validation_rows=13, calibration_rows=7, seed=0).train) == 80


def test_tiny_splits_and_negative_numbers() -> None:
    for texts in ([], ["a"], ["\ud800", "\0"]):
        split = reserve(make_rows(texts), validation_rows=1, calibration_rows=1, seed=0)
        assert sum(len(part) for part in parts(split)) == len(texts)
    with pytest.raises(InputError, match="validation_rows is -1"):
        reserve(make_rows(["a"]), validation_rows=-1, calibration_rows=0, seed=0)
