"""Arrays as programs pass them by mistake: to `Dataset.from_arrays`, `predict`, `evaluate` and `Ensemble`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp

import elias
from attacks.bases import N_FEATURES, N_LABELS, N_ROWS, TEXTS, VECTOR_SETTINGS, vectors

ODD = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e38, 1e-45, 1e308, -1.0, 0.0)


def broken_csr(matrix: sp.csr_matrix, rng: Random) -> sp.csr_matrix:
    """A CSR matrix with one of its arrays changed, which scipy's constructor does not notice."""
    found = sp.csr_matrix(matrix, copy=True)
    kind = rng.choice(
        ["index", "negative", "pointer", "end", "value", "type", "duplicate", "unsorted", "short", "wide"]
    )
    place = rng.randrange(max(1, found.nnz))
    if kind == "index":
        found.indices[place] = rng.choice([found.shape[1], found.shape[1] + 1000, 2**31 - 1])
    elif kind == "negative":
        found.indices[place] = rng.choice([-1, -(2**31)])
    elif kind == "pointer":
        found.indptr[rng.randrange(len(found.indptr))] = rng.choice([-1, 0, found.nnz + 5, 10**6])
    elif kind == "end":
        found.indptr[-1] = rng.choice([found.nnz + 100, 10**6, 0])
    elif kind == "value":
        found.data[place] = rng.choice(ODD)
    elif kind == "type":
        found.data = found.data.astype(rng.choice(["f8", "i8", "c16", "bool", "f2", "u1"]))
    elif kind == "duplicate":
        found.indices[:] = found.indices[0]
    elif kind == "unsorted":
        found.indices[:] = found.indices[::-1].copy()
    elif kind == "short":
        found.data = found.data[:-1]
    else:
        found = sp.csr_matrix(sp.hstack([found, found]))
    return found


def odd_dense(matrix: np.ndarray, rng: Random) -> Any:
    """A dense matrix of another shape, type or order, or with odd values."""
    rows, columns = matrix.shape
    made: list[Callable[[], Any]] = [
        lambda: _with(matrix, rng, rng.choice(ODD)), lambda: _with(matrix, rng, rng.choice(ODD)),
        lambda: matrix * np.float64(rng.choice([1e30, 1e38, 1e300, 1e-300, 0.0])),
        lambda: matrix[:, :1], lambda: matrix[:, None], lambda: matrix[0], lambda: matrix.T, lambda: matrix[:0],
        lambda: matrix.astype("c16"), lambda: matrix.astype("U8"), lambda: matrix.astype(object), lambda: matrix > 0,
        lambda: matrix.astype(">f4"), lambda: np.asfortranarray(matrix), lambda: matrix[::-1, ::-1],
        lambda: matrix.tolist(), lambda: [matrix[0], matrix[0, :2]], lambda: np.ma.masked_array(matrix, matrix > 0),
        lambda: np.zeros((rows, 0), np.float32), lambda: np.zeros((0, columns + 1)), lambda: None, lambda: 3,
        lambda: "x",
        lambda: np.broadcast_to(np.float32(1), (rows, columns)), lambda: np.matrix(matrix), lambda: {"a": 1},
        lambda: np.zeros(()), lambda: [[10**400] * columns], lambda: np.array([[None] * columns]),
    ]  # fmt: skip
    return rng.choice(made)()


def _with(matrix: np.ndarray, rng: Random, value: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        changed = np.array(matrix, dtype=rng.choice(["f4", "f8"]))
        changed[rng.randrange(len(changed)), rng.randrange(changed.shape[1])] = value
    return changed


def odd_list(length: int, rng: Random) -> Any:
    """Where one entry per row is wanted."""
    return rng.choice([
        np.ones((length, 1)), np.ones(length + 1), np.ones((length, 2)), np.full(length, rng.choice(ODD)),
        [1.0] * length,
        ["x"] * length, [None] * length, [10**400] * length, 3, "x", [[1.0]] * length, np.ones(length) * 1e30,
        np.full(length, 1e-30), np.ones(length, dtype=complex), [{}] * length, np.zeros(length), [True] * length,
        np.array(["a"] * length)[:, None], {"a": 1}, [1.0] * (length - 1), np.linspace(1e-6, 1e6, length),
    ])  # fmt: skip


def attack(rng: Random, models: dict[str, Any]) -> tuple[str, Callable[[], Any]]:
    """(what, the call to make)."""
    x, y = vectors()
    sparse_x = sp.csr_matrix(np.where(x > 0, x, 0))
    kind = rng.choice(
        ["from_arrays"] * 3 + ["predict"] * 4 + ["fit", "evaluate", "lists", "ensemble", "texts", "options"]
    )
    if kind == "from_arrays":
        return _from_arrays(rng, x, sparse_x, y)
    if kind == "predict":
        name = rng.choice(["dense", "sparse"])
        given = broken_csr(sparse_x, rng) if rng.random() < 0.5 else odd_dense(x, rng)
        return f"predict of {name}", lambda: models[name].predict(given, k=rng.choice([1, 3, 100]))
    if kind == "fit":
        scale = rng.choice([1.0, 1e-20, 1e-38, 1e8, 1e11, 1e15, 1e30])
        weights = rng.choice([None, np.linspace(1e-6, 1e6, N_ROWS), np.full(N_ROWS, 1e5), np.full(N_ROWS, 1e30)])
        labels = y * np.float32(rng.choice([1.0, 0.5, 1e-6, 1e3, 1e30]))

        def fit() -> Any:
            settings = {**VECTOR_SETTINGS, "run.check_memory": False}
            model = elias.fit(
                elias.Dataset.from_arrays(x * np.float32(scale), labels, weights=weights), settings=settings
            )
            return model.predict(x, k=2)

        return f"fit of features times {scale:g}", fit
    if kind == "evaluate":
        given, labels = odd_dense(x, rng), rng.choice([y, broken_csr(y, rng), odd_list(N_ROWS, rng)])
        return "evaluate of dense", lambda: models["dense"].evaluate(given, labels)
    if kind == "lists":
        texts, labels = ["a b", "c d", "e f"], odd_list(3, rng)
        options = {rng.choice(["ids", "weights", "groups"]): odd_list(3, rng)} if rng.random() < 0.6 else {}
        return "from_lists", lambda: elias.Dataset.from_lists(texts, labels if not options else [["a"]] * 3, **options)
    if kind == "ensemble":
        one, two = (models[rng.choice(list(models))] for _ in range(2))
        given = rng.choice([x, sparse_x, TEXTS])
        return "ensemble of two models", lambda: elias.Ensemble([*one.all_members(), *two.all_members()]).predict(given)
    if kind == "texts":
        given = odd_dense(x, rng) if rng.random() < 0.5 else odd_list(3, rng)
        return "texts of stacked", lambda: models["stacked"].predict(given)
    options = rng.choice([
        {"k": rng.choice([0, -1, 10**9, 2**63, 1.5, "3", None, True, 10**400])},
        {"threshold": rng.choice([np.nan, -1, 2, "x"])},
        {"rare": rng.choice([np.nan, -1, 2, 0.5, "x"])}, {"allow": rng.choice([[], ["x"], "x", 3, [None], [10**400]])},
        {"block": rng.choice([[], ["x"], 3, [[]]])}, {"ids": odd_list(5, rng)},
        {"candidates": rng.choice([[], [[]] * 5, 3, ["x"] * 5])},
    ])  # fmt: skip
    return f"options {list(options)}", lambda: models["stacked"].predict(TEXTS, **options)


def _from_arrays(
    rng: Random, x: np.ndarray, sparse_x: sp.csr_matrix, y: sp.csr_matrix
) -> tuple[str, Callable[[], Any]]:
    what = rng.choice(["vectors", "sparse vectors", "labels", "labels", "weights", "ids", "label_ids", "test"])
    arguments: dict[str, Any] = {"vectors": x, "labels": y}
    if what == "vectors":
        arguments["vectors"] = odd_dense(x, rng)
    elif what == "sparse vectors":
        arguments["vectors"] = broken_csr(sparse_x, rng)
    elif what == "labels":
        arguments["labels"] = broken_csr(y, rng) if rng.random() < 0.6 else odd_dense(y.toarray(), rng)
    elif what == "test":
        arguments |= {"test_vectors": odd_dense(x, rng), "test_labels": rng.choice([y, broken_csr(y, rng), None])}
    else:
        arguments[what] = odd_list(N_LABELS if what == "label_ids" else N_ROWS, rng)
    assert x.shape == (N_ROWS, N_FEATURES)
    return f"from_arrays with odd {what}", lambda: elias.Dataset.from_arrays(**arguments)
