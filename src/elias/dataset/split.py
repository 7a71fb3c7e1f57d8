"""Rows held out of everything: validation (choice of checkpoint) and calibration.

    print(row)     = blake2b keyed by the seed, of the row's text (without a text: of its vector, labels and id)
    key(component) = blake2b of its smallest print
    components by rising key: the first fill validation, the next calibration, the rest is training

Rows with the same text or the same group form a component (both together: chains count) and stay together. Near twins
of a row that is held out are held out with it, where they fit, but not those of every second calibration row: texts to
come may have near twins in training or not, and the final score must know both kinds.
In: the training rows. Out: three sorted arrays of row numbers that share no row and cover all.
The choice depends on the seed and on what the rows say, not on their order; label texts are never held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..core.errors import InputError
from .rows import KIND_LABEL_TEXT, Rows

TwinsOf = Callable[[np.ndarray], list[np.ndarray]]  # row numbers -> for each, the rows that nearly say the same

HELD_OUT_SHARE = 0.5  # never more than this share of the rows


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row numbers, int64, sorted."""

    train: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def reserve(
    rows: Rows, *, validation_rows: int, calibration_rows: int, seed: int, twins_of: TwinsOf | None = None
) -> Split:
    """Hold out as nearly as whole components allow, and at most half of the rows.

    A component larger than what is still wanted is passed over, so a huge one stays in training; at the end one more
    is taken if that comes nearer to the number. If both numbers together exceed half of the rows, both shrink in
    proportion.
    """
    for name, wanted in (("validation_rows", validation_rows), ("calibration_rows", calibration_rows)):
        if wanted < 0:
            raise InputError(f"{name} is {wanted}; it must be 0 or more")
    n_rows = len(rows)
    ordinary = rows.kinds != KIND_LABEL_TEXT
    allowed, asked = int(HELD_OUT_SHARE * ordinary.sum()), validation_rows + calibration_rows
    if asked > allowed:
        validation_rows = validation_rows * allowed // asked
        calibration_rows = calibration_rows * allowed // asked
    place = np.zeros(n_rows, dtype=np.int8)  # 0 training, 1 validation, 2 calibration
    if validation_rows + calibration_rows:
        prints = _fingerprints(rows, seed)
        component = _components(rows, prints)
        order, sizes = _draw(component, prints, ordinary)
        with_it = _families(component, order[:asked], twins_of) if twins_of is not None else {}
        closed = np.setdiff1d(np.arange(len(sizes)), order)
        chosen = np.zeros(len(sizes), dtype=np.int8)
        alone = calibration_rows // 2 if with_it else 0
        for number, wanted, along in (
            (1, validation_rows, with_it), (2, calibration_rows - alone, with_it), (2, alone, {})
        ):  # fmt: skip
            free = chosen == 0
            free[closed] = False
            taken = _fill(order[free[order]], sizes, wanted, allowed, along, free)
            chosen[taken] = number
            allowed -= int(sizes[taken].sum())
        place = chosen[component]
    train, validation, calibration = (np.flatnonzero(place == number) for number in range(3))
    return Split(train=train, validation=validation, calibration=calibration)


def _fingerprints(rows: Rows, seed: int) -> np.ndarray:
    """A keyed hash of what each row says, in hexadecimal; equal texts have equal prints."""
    secret = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    prints = np.empty(len(rows), dtype="S32")
    for row in range(len(rows)):
        hashed = hashlib.blake2b(key=secret, digest_size=16)
        if rows.texts is not None:
            hashed.update(rows.texts[row].encode("utf-8", "surrogatepass"))
        else:
            hashed.update(_vector_bytes(rows, row))
        prints[row] = hashed.hexdigest().encode()
    return prints


def _vector_bytes(rows: Rows, row: int) -> bytes:
    """The vector and the labels of a row without a text, and its id if it has one."""
    parts = [rows.labels.indices[rows.labels.indptr[row] : rows.labels.indptr[row + 1]].astype("<i8").tobytes()]
    if isinstance(rows.vectors, np.ndarray):
        parts.append(rows.vectors[row].astype("<f4").tobytes())
    elif rows.vectors is not None:
        inside = slice(rows.vectors.indptr[row], rows.vectors.indptr[row + 1])
        parts.append(rows.vectors.indices[inside].astype("<i8").tobytes())
        parts.append(rows.vectors.data[inside].astype("<f4").tobytes())
    if rows.ids is not None:
        parts.append(rows.ids[row].encode("utf-8", "surrogatepass"))
    return b"\x1f".join(parts)


def _components(rows: Rows, prints: np.ndarray) -> np.ndarray:
    """The number of each row's component: rows joined by equal texts or equal groups, directly or in a chain."""
    n_rows = len(rows)
    keys = []
    if rows.texts is not None:
        keys.append(np.unique(prints, return_inverse=True)[1])
    if rows.groups is not None:
        known: dict[str, int] = {}
        # A row without a group ("") stands alone.
        numbers = [known.setdefault(group, len(known)) if group else -1 for group in rows.groups]
        keys.append(np.asarray(numbers, dtype=np.int64))
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for key in keys:
        order = np.argsort(key, kind="stable")
        same = (key[order][1:] == key[order][:-1]) & (key[order][1:] >= 0)
        left.append(order[:-1][same])
        right.append(order[1:][same])
    pairs = (np.concatenate(left), np.concatenate(right))
    joined = coo_matrix((np.ones(len(pairs[0]), dtype=np.int8), pairs), shape=(n_rows, n_rows))
    return np.asarray(connected_components(joined, directed=False)[1])


def _draw(component: np.ndarray, prints: np.ndarray, ordinary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components that may be held out, in the order of their keys, and the sizes of all."""
    sizes = np.bincount(component)
    by_print = np.lexsort((prints, component))
    first = by_print[np.searchsorted(component[by_print], np.arange(len(sizes)))]  # the row with the smallest print
    closed = np.bincount(component, weights=~ordinary) > 0  # holds a label text
    # Hashed once more: the smallest of many prints is small, and large components would come first.
    keys = [hashlib.blake2b(smallest, digest_size=16).digest().hex() for smallest in prints[first].tolist()]
    order = np.argsort(np.asarray(keys, dtype="S32"), kind="stable")
    return order[~closed[order]], sizes


def _families(component: np.ndarray, asked: np.ndarray, twins_of: TwinsOf) -> dict[int, np.ndarray]:
    """The components with near twins of the first row of each component asked for."""
    by_component = np.argsort(component, kind="stable")
    first = by_component[np.searchsorted(component[by_component], asked)]
    return {
        number: np.setdiff1d(component[twins], [number])
        for number, twins in zip(asked.tolist(), twins_of(first), strict=True)
    }


def _fill(
    order: np.ndarray, sizes: np.ndarray, wanted: int, allowed: int, with_it: dict[int, np.ndarray], free: np.ndarray
) -> list[int]:
    """Components in order until their rows are as near to `wanted` as whole components allow, never above `allowed`.

    Components `with_it` come along if they are free and fit.
    """
    chosen: list[int] = []
    passed_over: list[int] = []
    for component in order.tolist():
        if wanted == 0:
            break
        if not free[component]:  # came along with another
            continue
        if sizes[component] > wanted:
            passed_over.append(component)
            continue
        twins = with_it.get(component, order[:0])
        family = [component, *twins[free[twins]].tolist()]
        for member in family if sizes[family].sum() <= wanted else [component]:
            chosen.append(member)
            free[member] = False
            wanted -= int(sizes[member])
            allowed -= int(sizes[member])
    if wanted and passed_over:
        smallest = min(passed_over, key=lambda component: int(sizes[component]))
        if sizes[smallest] < 2 * wanted and sizes[smallest] <= allowed:
            chosen.append(smallest)
    return chosen
