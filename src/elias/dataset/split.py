"""Rows held out of everything: validation (choice of checkpoint) and calibration.

    hash(row)      = blake2b keyed by the seed, of the row's text (without a text: of its vector, labels and id)
    key(component) = blake2b of its smallest hash
    components by ascending key: the first fill validation, the next calibration, the rest is training

Rows joined by an equal text or an equal group, directly or in a chain, form a component and stay together.
Near-duplicates of a held-out row are held out with it, where they fit, but not those of every second calibration row:
future texts may or may not have near-duplicates in training, and the score model must be fitted on both kinds.
In: the training rows. Out: three sorted arrays of row numbers that share no row and cover all.
The choice depends on the seed and on the content of the rows, not on their order; label texts are never held out.
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

NearDuplicates = Callable[[np.ndarray], list[np.ndarray]]  # row numbers -> for each, rows with nearly the same text

HELD_OUT_SHARE = 0.5  # never more than this share of the rows


@dataclass(frozen=True, kw_only=True)
class Split:
    """Row numbers, int64, sorted."""

    train: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def reserve(
    rows: Rows, *, validation_rows: int, calibration_rows: int, seed: int, near_duplicates: NearDuplicates | None = None
) -> Split:
    """Hold out as nearly as many rows as whole components allow, and at most half of all.

    A component larger than what is still wanted is skipped, so a huge one stays in training; at the end one more is
    taken if that comes nearer to the number. If both numbers together exceed half of the rows, both shrink in
    proportion.
    """
    for name, wanted in (("validation_rows", validation_rows), ("calibration_rows", calibration_rows)):
        if wanted < 0:
            raise InputError(f"{name} is {wanted}; it must be 0 or more")
    n_rows = len(rows)
    ordinary = rows.kinds != KIND_LABEL_TEXT
    allowed, requested = int(HELD_OUT_SHARE * ordinary.sum()), validation_rows + calibration_rows
    if requested > allowed:
        validation_rows = validation_rows * allowed // requested
        calibration_rows = calibration_rows * allowed // requested
    place = np.zeros(n_rows, dtype=np.int8)  # 0 training, 1 validation, 2 calibration
    if validation_rows + calibration_rows:
        hashes = _row_hashes(rows, seed)
        component = _components(rows, hashes)
        order, sizes = _order(component, hashes, ordinary)
        together = (
            _duplicate_components(component, order[:requested], near_duplicates) if near_duplicates is not None else {}
        )
        closed = np.setdiff1d(np.arange(len(sizes)), order)
        chosen = np.zeros(len(sizes), dtype=np.int8)
        alone = calibration_rows // 2 if together else 0  # calibration rows whose near-duplicates stay in training
        for number, wanted, along in (
            (1, validation_rows, together), (2, calibration_rows - alone, together), (2, alone, {})
        ):  # fmt: skip
            free = chosen == 0
            free[closed] = False
            taken = _fill(order[free[order]], sizes, wanted, allowed, along, free)
            chosen[taken] = number
            allowed -= int(sizes[taken].sum())
        place = chosen[component]
    train, validation, calibration = (np.flatnonzero(place == number) for number in range(3))
    return Split(train=train, validation=validation, calibration=calibration)


def _row_hashes(rows: Rows, seed: int) -> np.ndarray:
    """A keyed hash of the content of each row, in hexadecimal; equal texts have equal hashes."""
    secret = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    hashes = np.empty(len(rows), dtype="S32")
    for row in range(len(rows)):
        hashed = hashlib.blake2b(key=secret, digest_size=16)
        if rows.texts is not None:
            hashed.update(rows.texts[row].encode("utf-8", "surrogatepass"))
        else:
            hashed.update(_vector_bytes(rows, row))
        hashes[row] = hashed.hexdigest().encode()
    return hashes


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


def _components(rows: Rows, hashes: np.ndarray) -> np.ndarray:
    """The number of each row's component: rows joined by equal texts or equal groups, directly or in a chain."""
    n_rows = len(rows)
    keys = []
    if rows.texts is not None:
        keys.append(np.unique(hashes, return_inverse=True)[1])
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


def _order(component: np.ndarray, hashes: np.ndarray, ordinary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(components that may be held out, in the order of their keys; sizes of all components)."""
    sizes = np.bincount(component)
    by_hash = np.lexsort((hashes, component))
    first = by_hash[np.searchsorted(component[by_hash], np.arange(len(sizes)))]  # the row with the smallest hash
    closed = np.bincount(component, weights=~ordinary) > 0  # holds a label text
    # Hashed once more: the smallest of many hashes is small, so large components would come first.
    keys = [hashlib.blake2b(smallest, digest_size=16).digest().hex() for smallest in hashes[first].tolist()]
    order = np.argsort(np.asarray(keys, dtype="S32"), kind="stable")
    return order[~closed[order]], sizes


def _duplicate_components(
    component: np.ndarray, candidates: np.ndarray, near_duplicates: NearDuplicates
) -> dict[int, np.ndarray]:
    """For each candidate component, the components that hold near-duplicates of its first row."""
    by_component = np.argsort(component, kind="stable")
    first = by_component[np.searchsorted(component[by_component], candidates)]
    return {
        number: np.setdiff1d(component[duplicates], [number])
        for number, duplicates in zip(candidates.tolist(), near_duplicates(first), strict=True)
    }


def _fill(
    order: np.ndarray, sizes: np.ndarray, wanted: int, allowed: int, together: dict[int, np.ndarray], free: np.ndarray
) -> list[int]:
    """Components in order until their rows are as near to `wanted` as whole components allow, never above `allowed`.

    Those of `together` are taken with a component if they are free and fit.
    """
    chosen: list[int] = []
    skipped: list[int] = []
    for component in order.tolist():
        if wanted == 0:
            break
        if not free[component]:  # taken together with an earlier one
            continue
        if sizes[component] > wanted:
            skipped.append(component)
            continue
        duplicates = together.get(component, order[:0])
        members = [component, *duplicates[free[duplicates]].tolist()]
        for member in members if sizes[members].sum() <= wanted else [component]:
            chosen.append(member)
            free[member] = False
            wanted -= int(sizes[member])
            allowed -= int(sizes[member])
    if wanted and skipped:
        smallest = min(skipped, key=lambda component: int(sizes[component]))
        if sizes[smallest] < 2 * wanted and sizes[smallest] <= allowed:
            chosen.append(smallest)
    return chosen
