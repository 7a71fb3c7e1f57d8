"""What a file may hold, declared, and checked before anything reads it: arrays by name, fields of a JSON object.

    SCHEMA = {"indptr": Array("int64", "clusters + 1", pointers="edges"),
              "labels": Array("int32", "edges", below="labels", rising="indptr")}
    sizes = {"labels": 150}
    check_arrays(path, arrays, SCHEMA, sizes)           # sizes now has "clusters" and "edges" too

A dimension is a name, a name plus a number, or a number. The first array that has a name binds it, every other one must
agree, and so must the other files of a model that share `sizes`. Whatever is used to index memory (pointers, numbers of
labels, words and texts) is checked to the last value, however large. Other numbers must be finite; arrays of more than
`SMALL` bytes are scanned for that by `elias verify` alone (`non_finite`). `core/model_schema.py` has the declarations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import EliasError, ModelError

SMALL = 1 << 20  # bytes that are checked whenever a file is opened
AT_ONCE = 1 << 18  # values of a scan, so that they stay in the caches
REMEDY = "restore the whole folder from one copy"
Sizes = dict[str, int]


@dataclass(frozen=True)
class Array:
    """One array of a file. `shape`: its dimensions, separated by commas; `dtypes`: those it may have, by spaces."""

    dtypes: str
    shape: str
    low: float | None = None
    high: float | None = None
    below: str | None = None  # whole numbers from `low` (0) to this dimension - 1
    pointers: str | None = None  # rises from 0 to this dimension: where the rows of other arrays start and end
    rising: str | None = None  # values rise strictly within each row; the name of the pointers
    optional: bool = False


Arrays = Mapping[str, Array]


def check_arrays(
    path: Path, arrays: Mapping[str, Any], schema: Arrays, sizes: Sizes, error: type[EliasError] = ModelError
) -> dict[str, np.ndarray]:
    """The arrays of the schema, each checked; `sizes` learns the dimensions that it did not have."""
    found: dict[str, np.ndarray] = {}
    for name, declared in schema.items():
        if name not in arrays:
            if declared.optional:
                continue
            raise error(f'{path}: has no "{name}"; this is not such a file of elias: {REMEDY}')
        problem = _form(arrays[name], declared, sizes) or _values(arrays[name], declared, sizes, found)
        if problem:
            raise error(f'{path}: "{name}" {problem}; {REMEDY}')
        found[name] = arrays[name]
    return found


def _form(array: np.ndarray, declared: Array, sizes: Sizes) -> str:
    """What is wrong with type and shape."""
    dimensions = [part.strip() for part in declared.shape.split(",") if part.strip()]
    if str(array.dtype) not in declared.dtypes.split():
        return f"is {array.dtype}, not {declared.dtypes.replace(' ', ' or ')}"
    if array.ndim != len(dimensions):
        return f"has {array.ndim} dimensions, not [{', '.join(dimensions)}]"
    for length, dimension in zip(array.shape, dimensions, strict=True):
        name, _, more = dimension.partition(" + ")
        if name.isdigit():
            wanted = int(name)
        else:
            wanted = sizes.setdefault(name, length - int(more or 0)) + int(more or 0)
        if length != wanted or length < int(more or 0):
            return (
                f"has the shape {array.shape}, but the other files of this model need [{', '.join(dimensions)}] with "
                f"{dimension} = {wanted}; these files do not belong together"
            )
    return ""


def _values(array: np.ndarray, declared: Array, sizes: Sizes, found: Mapping[str, np.ndarray]) -> str:
    """What is wrong with the numbers."""
    if declared.pointers is not None:
        end = int(array[-1]) if len(array) else -1
        wanted = sizes.setdefault(declared.pointers, end)
        if not len(array) or array[0] != 0 or end != wanted or _falls(array):
            return f"must rise from 0 to {wanted} ({declared.pointers})"
        return ""
    low, high = declared.low, declared.high
    if declared.below is not None:
        low, high = declared.low or 0, sizes[declared.below] - 1
    is_float = array.dtype.kind == "f" or array.dtype == np.uint16
    if is_float and array.nbytes <= SMALL and not_finite(array):
        return f"has a number that is not finite at {first_non_finite(array)}"
    if (low is not None or high is not None) and array.size and (not is_float or array.nbytes <= SMALL):
        least, most = _range(array)
        if (low is not None and least < low) or (high is not None and most > high):
            wrong = least if low is not None and least < low else most
            said = f"from {low} to {high}" if high is not None else f"{low} or more"
            return f"has the value {wrong}, which must be {said}" + (f" ({declared.below})" if declared.below else "")
    if declared.rising is not None and not _rises_in_rows(array, found[declared.rising]):
        return f"does not rise within the rows of {declared.rising}"
    return ""


def _pieces(array: np.ndarray) -> Sequence[np.ndarray]:
    flat = array.reshape(-1)
    return [flat[start : start + AT_ONCE + 1] for start in range(0, len(flat), AT_ONCE)]  # one value overlaps


def _falls(array: np.ndarray) -> bool:
    return any(bool((piece[1:] < piece[:-1]).any()) for piece in _pieces(array))


def _range(array: np.ndarray) -> tuple[float, float]:
    pieces = _pieces(array)
    return min(piece.min() for piece in pieces).item(), max(piece.max() for piece in pieces).item()


def _rises_in_rows(array: np.ndarray, pointers: np.ndarray) -> bool:
    """Whether values rise strictly inside each row: wherever they do not, a row starts."""
    for number, piece in enumerate(_pieces(array)):
        drops = np.flatnonzero(piece[1:] <= piece[:-1]) + (number * AT_ONCE + 1)
        if len(drops) and (pointers[np.searchsorted(pointers, drops)] != drops).any():
            return False
    return True


def not_finite(array: np.ndarray) -> bool:
    """Whether a float array, or one of bfloat16 bits, has a number that is not finite."""
    if array.dtype.kind != "f" and array.dtype != np.uint16:
        return False
    return any(not _finite(piece).all() for piece in _pieces(array))


def _finite(piece: np.ndarray) -> np.ndarray:
    if piece.dtype == np.uint16:  # the bits of bfloat16
        return np.asarray((piece & 0x7F80) != 0x7F80)
    return np.asarray(np.isfinite(piece))


def first_non_finite(array: np.ndarray) -> str:
    """The place of the first such number, as an index."""
    for number, piece in enumerate(_pieces(array)):
        wrong = np.flatnonzero(~_finite(piece))
        if len(wrong):
            place = np.unravel_index(number * AT_ONCE + int(wrong[0]), array.shape)
            return f"[{', '.join(str(int(i)) for i in place)}]"
    return "no place"


# -- fields of JSON ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """One value of a JSON object.

    `kind`: whole, number, flag, text, texts (a list of them), object, list, or numbers (nested lists that become an
    array, checked by `array`).
    """

    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    or_null: bool = False
    optional: bool = False
    array: Array | None = None
    fields: Mapping[str, Field] | None = None  # of an object


Fields = Mapping[str, Field]
LARGEST_WHOLE = 2**31 - 1
_SAID = {
    "whole": "a whole number", "number": "a finite number", "flag": "true or false", "text": "a text",
    "texts": "a list of texts", "object": "an object", "list": "a list", "numbers": "numbers",
}  # fmt: skip


def check_object(
    path: Path, content: Any, schema: Fields, sizes: Sizes | None = None, *, inside: str = "",
    error: type[EliasError] = ModelError,
) -> dict[str, Any]:  # fmt: skip
    """The fields of the schema from a JSON object, each checked; lists of numbers as arrays."""
    sizes = {} if sizes is None else sizes
    if not isinstance(content, dict):
        what = f'"{inside}"' if inside else "the file"
        raise error(f"{path}: {what} holds {_shown(content)}, not an object; {REMEDY}")
    found: dict[str, Any] = {}
    for name, field in schema.items():
        place = f"{inside}.{name}" if inside else name
        if name not in content:
            if field.optional:
                continue
            raise error(f'{path}: has no "{place}"; the file is damaged or not one of elias: {REMEDY}')
        value = content[name]
        if value is None and field.or_null:
            found[name] = None
        elif field.fields is not None:
            found[name] = check_object(path, value, field.fields, sizes, inside=place, error=error)
        elif field.array is not None:
            found[name] = _array_of(path, value, place, field.array, sizes, error)
        else:
            problem = _problem(value, field)
            if problem:
                raise error(f'{path}: "{place}" is {_shown(value)}, but must be {problem}; {REMEDY}')
            found[name] = value
    return found


def _array_of(path: Path, value: Any, place: str, declared: Array, sizes: Sizes, error: type[EliasError]) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # what overflows float32 becomes infinite, which is refused
            array = np.asarray(value, dtype=declared.dtypes.split()[0])
    except (TypeError, ValueError, OverflowError):
        raise error(f'{path}: "{place}" is {_shown(value)}, not an array of numbers; {REMEDY}') from None
    return check_arrays(path, {place: array}, {place: declared}, sizes, error)[place]


def _problem(value: Any, field: Field) -> str:
    """What the value must be; empty if it is that."""
    kind = type(value)
    low, high = field.low, LARGEST_WHOLE if field.kind == "whole" and field.high is None else field.high
    good = {
        "whole": kind is int,
        "number": kind is int or (kind is float and math.isfinite(value)),
        "flag": kind is bool,
        "text": kind is str,
        "texts": kind is list and all(type(item) is str for item in value),
        "object": kind is dict,
        "list": kind is list,
    }[field.kind]
    if good and field.choices:
        good = value in field.choices
    if good and field.kind in ("whole", "number"):
        good = (low is None or value >= low) and (high is None or value <= high)
    if good:
        return ""
    if field.choices:
        return f"one of {', '.join(field.choices)}"
    said = _SAID[field.kind]
    if low is not None or high is not None:
        said += f" from {low:g}" if low is not None else ""
        said += f" to {high:g}" if high is not None else ""
    return said + (" or null" if field.or_null else "")


def _shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**20:
        return "a number of many digits"
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
