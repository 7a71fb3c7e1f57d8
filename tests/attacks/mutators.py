"""Damage to files, drawn from a seed: what `run.py` and the tests beside it do to models and datasets.

Each mutator changes one thing of a folder and says what. Damage is of two kinds: as a disk or a copy leaves it (bytes
flipped, cut, swapped, lost), and as a program or a person may write it (a number, type, shape or name that no model
has). With the second kind, checksums can be made anew, so that it meets the checks behind them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from elias.core.checksums import sealed
from helpers.model_files import reseal

TYPES = {"F64": "<f8", "F32": "<f4", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}
ODD_NUMBERS = (
    0, 1, -1, 2, 3, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**64, -(2**63), 10**18, 0.5, -0.0, 1e-45, 1e308, -1e30,
)  # fmt: skip
ODD_VALUES = (
    None, True, False, "", "x", "NaN", [], {}, [1], [[]], {"a": 1}, [None], ["x", 3], 10**400, -(10**400), "\udc80",
    "a\0b", "/etc/passwd", "x" * 10_000, *ODD_NUMBERS,
)  # fmt: skip
ODD_TEXT = ("NaN", "Infinity", "-Infinity", "1e999", "[" * 5000, "9" * 5000, '{"a":', "nul", "\ufeff1")
HUGE = 200 << 30  # bytes of a file that is all hole


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# -- bytes ------------------------------------------------------------------------------------------------------------


def damage_bytes(path: Path, rng: Random) -> str:
    """What a disk, a cable or an interrupted copy does."""
    raw = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "flip", "truncate", "append", "zero", "noise", "empty", "repeat"])
    if not raw or kind == "empty":
        raw = bytearray()
    elif kind == "flip":
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del raw[rng.randrange(len(raw)) :]
    elif kind == "append":
        raw += rng.randbytes(rng.choice([1, 8, 100]))
    else:
        start, length = rng.randrange(len(raw)), rng.choice([1, 4, 64, 1000])
        stop = min(len(raw), start + length)
        if kind == "repeat":
            raw[stop:stop] = raw[start:stop]
        else:
            raw[start:stop] = bytes(stop - start) if kind == "zero" else rng.randbytes(stop - start)
    path.write_bytes(bytes(raw))
    return f"{kind} in {path.name}"


def replace_file(path: Path, rng: Random) -> str:
    """Something that is no file, or no file that fits into memory, under its name."""
    kind = rng.choice(["pipe", "folder", "device", "zeros", "dangling", "gone", "hole"])
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("device", "zeros"):
        path.symlink_to("/dev/null" if kind == "device" else "/dev/zero")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "hole":
        with open(path, "wb") as out:
            out.write((HUGE - 8).to_bytes(8, "little"))
            out.truncate(HUGE)
    return f"{kind} in place of {path.name}"


# -- JSON -------------------------------------------------------------------------------------------------------------


def _places(content: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value."""
    found: list[tuple[Any, Any]] = []
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            found += [(value, key) for key in keys[:200]]
            pending += [value[key] for key in keys[:200]]
    return found


def edit_json(path: Path, rng: Random) -> str:
    """One value of a JSON file replaced, removed, doubled, or something that is no JSON in its place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    places = _places(content)
    if not places:
        return damage_bytes(path, rng)
    where, key = rng.choice(places)
    kind = rng.choice(["value", "value", "value", "number", "remove", "text", "add"])
    said = f"{kind} of {str(key)[:40]} in {path.name}"
    if kind == "remove":
        del where[key]
    elif kind == "add":
        where.append(where[key]) if isinstance(where, list) else where.update({f"{key}x": 1})
    elif kind == "text":
        where[key] = "@@odd@@"
        path.write_text(json.dumps(content).replace('"@@odd@@"', rng.choice(ODD_TEXT)), encoding="utf-8")
        return said
    else:
        where[key] = rng.choice(ODD_NUMBERS if kind == "number" else ODD_VALUES)
    path.write_text(json.dumps(content), encoding="utf-8")
    return said


# -- arrays -----------------------------------------------------------------------------------------------------------


def odd_array(array: np.ndarray, rng: Random) -> np.ndarray:
    """The same array with some odd values."""
    changed = np.array(array)
    if not changed.size:
        return changed
    flat = changed.reshape(-1)
    places = [rng.randrange(len(flat)) for _ in range(rng.choice([1, 1, 3, 50]))]
    if rng.random() < 0.2:
        places = list(range(len(flat)))
    for place in places:
        if flat.dtype.kind == "f":
            flat[place] = rng.choice([np.nan, np.inf, -np.inf, 0.0, 3e38, -3e38, 1e-45, -1.0, 1e10])
        else:
            limits = np.iinfo(flat.dtype)
            near = int(flat[place]) + rng.choice([-1, 1, 2, 1000])
            value = rng.choice([limits.min, limits.max, 0, 1, -1, near, len(flat), 10**6])
            flat[place] = min(max(value, limits.min), limits.max)
    return changed


def read_arrays(path: Path) -> tuple[dict[str, tuple[str, list[int], bytes]], dict[str, str]]:
    """(type, shape, bytes) by name, and the metadata, of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    about = header.pop("__metadata__", {})
    body = raw[8 + length :]
    arrays = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        arrays[name] = (entry["dtype"], entry["shape"], body[start:stop])
    return arrays, about


def write_arrays(path: Path, arrays: dict[str, tuple[str, list[Any], bytes]], about: dict[str, Any]) -> None:
    header: dict[str, Any] = {"__metadata__": about} if about else {}
    at = 0
    for name, (dtype, shape, body) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(body)]}
        at += len(body)
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(body for _, _, body in arrays.values()))


def edit_arrays(path: Path, rng: Random) -> str:
    """One array of a safetensors file with other values, another type, shape, name or order; or other metadata."""
    arrays, about = read_arrays(path)
    if not arrays:
        return damage_bytes(path, rng)
    name = rng.choice(list(arrays))
    dtype, shape, body = arrays[name]
    kind = rng.choice(
        ["values"] * 8 + ["type", "shape", "remove", "rename", "swap", "shorter", "longer", "about", "add"]
    )
    if kind == "values":
        arrays[name] = dtype, shape, odd_array(np.frombuffer(body, TYPES[dtype]), rng).tobytes()
    elif kind == "type":
        other = rng.choice(list(TYPES))
        size = len(body) // np.dtype(TYPES[other]).itemsize * np.dtype(TYPES[other]).itemsize
        count = size // np.dtype(TYPES[other]).itemsize
        arrays[name] = other, [count] if rng.random() < 0.5 else shape, body[:size]
    elif kind == "shape":
        arrays[name] = (
            dtype,
            rng.choice([[*shape, 1], shape[::-1], [1, *shape], [len(body)], [-1], [1.0], "x", [2**62] * 3]),
            body,
        )
    elif kind == "remove":
        del arrays[name]
    elif kind == "rename":
        arrays[name + "x"] = arrays.pop(name)
    elif kind == "swap":
        other = rng.choice(list(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
    elif kind in ("shorter", "longer") and shape and shape[0]:
        row = len(body) // shape[0]
        rows = shape[0] + (-1 if kind == "shorter" else 1)
        arrays[name] = dtype, [rows, *shape[1:]], (body + body[:row])[: rows * row]
    elif kind == "about":
        about = {
            **about,
            rng.choice([*about, "beta", "n_labels"]): rng.choice(["", "x", "nan", "-1", "1e99", "0", "9" * 400]),
        }
    else:
        arrays["extra"] = dtype, shape, body
    write_arrays(path, arrays, about)
    return f"{kind} of {name} in {path.name}"


def edit_npy(path: Path, rng: Random) -> str:
    array = np.load(path)
    kind = rng.choice(["values", "values", "values", "shape", "type", "shorter", "empty"])
    changed = {
        "values": lambda: odd_array(array, rng), "shape": lambda: array[:, None], "shorter": lambda: array[:-1],
        "type": lambda: array.astype(rng.choice(["f4", "i8", "U3", "c16"])), "empty": lambda: array[:0],
    }[kind]()  # fmt: skip
    np.save(path, changed)
    return f"{kind} of {path.name}"


def edit_lines(path: Path, rng: Random) -> str:
    """A line of a table removed, doubled, swapped, or one of its cells replaced."""
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    place = rng.randrange(len(lines))
    kind = rng.choice(["remove", "double", "swap", "cell", "cell", "cell", "cell", "blank", "long"])
    if kind == "remove":
        del lines[place]
    elif kind == "double":
        lines.insert(place, lines[place])
    elif kind == "swap":
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == "blank":
        lines.insert(place, "")
    elif kind == "long":
        lines[place] += rng.choice(["x" * 200_000, "\t" * 50, "," * 50, '"', "[" * 5000])
    else:
        separator = rng.choice(["\t", ",", " ", ":", ";"])
        cells = lines[place].split(separator)
        odd = rng.choice(
            [
                "",
                "-1",
                "-9",
                "1e999",
                "nan",
                "9" * 400,
                "2147483648",
                "x",
                "[1, 2",
                '["a',
                "\\",
                "é",
                "\0",
                '"',
                "{",
                "0.5",
            ]
        )
        cells[rng.randrange(len(cells))] = odd
        lines[place] = separator.join(cells)
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    return f"{kind} in line {place + 1} of {path.name}"


EDITS: dict[str, Callable[[Path, Random], str]] = {
    ".json": edit_json, ".safetensors": edit_arrays, ".npy": edit_npy, ".tsv": edit_lines,
}  # fmt: skip


# -- models -----------------------------------------------------------------------------------------------------------


def mutate_model(folder: Path, rng: Random, donor: Path) -> tuple[str, bool]:
    """Damage a copy of a model; (what was done, whether checksums were made anew). `donor`: another model."""
    files = files_of(folder)
    path = rng.choice(files)
    kind = rng.choice(
        ["bytes", "bytes", "edit", "edit", "edit", "edit", "edit", "replace", "donor", "exchange", "extra"]
    )
    if kind == "bytes":
        said = damage_bytes(path, rng)
    elif kind == "replace":
        return replace_file(path, rng), False
    elif kind == "donor":
        others = files_of(donor)
        same = [other for other in others if other.name == path.name]
        other = rng.choice(same or others)
        shutil.copyfile(other, path)
        said = f"{path.name} of another model"
    elif kind == "exchange":
        other = rng.choice(files)
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
        said = f"{path.name} and {other.name} exchanged"
    elif kind == "extra":
        other = rng.choice(files_of(donor))
        target = path.parent / other.name
        said = f"{other.name} added" if not target.exists() else f"{other.name} replaced"
        shutil.copyfile(other, target)
    else:
        said = EDITS.get(path.suffix, damage_bytes)(path, rng)
    anew = rng.random() < 0.7 and _resealed(folder)
    return said, anew


def _resealed(folder: Path) -> bool:
    """Whether checksums could be made anew: not where a file that records them is broken itself."""
    try:
        reseal(folder)
    except Exception:
        pass
    else:
        return True
    for path in files_of(folder):  # what was edited as an object, at least with its own checksum
        if path.name in ("config.json", "ensemble.json"):
            try:
                path.write_text(json.dumps(sealed(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
            except Exception:
                return False
    return True


# -- datasets ---------------------------------------------------------------------------------------------------------


def mutate_dataset(folder: Path, rng: Random) -> str:
    """Damage a copy of a dataset."""
    path = rng.choice(files_of(folder))
    kind = rng.choice(["bytes", "edit", "edit", "edit", "replace"])
    if kind == "bytes":
        return damage_bytes(path, rng)
    if kind == "replace":
        return replace_file(path, rng)
    if path.suffix == ".npz":
        return edit_npz(path, rng)
    if path.suffix == ".npy":
        return edit_npy_matrix(path, rng)
    if path.suffix == ".jsonl" and rng.random() < 0.7:
        return edit_json_line(path, rng)
    if path.suffix == ".json" and rng.random() < 0.5:
        try:
            return edit_json(path, rng)
        except ValueError:
            return edit_json_line(path, rng)
    if path.suffix == ".toml" and rng.random() < 0.5:
        odd = rng.choice(
            ["[" * 5000, "9" * 400, "1e999", "nan", "[]", '["a", 1]', "true", '"' + "x" * 5000 + '"', "{" * 3000]
        )
        lines = path.read_text(encoding="utf-8").split("\n")
        place = rng.randrange(len(lines))
        lines[place] = f"{lines[place].split('=')[0].strip() or 'name'} = {odd}"
        path.write_text("\n".join(lines), encoding="utf-8")
        return f"odd value in line {place + 1} of {path.name}"
    return edit_lines(path, rng)


def edit_json_line(path: Path, rng: Random) -> str:
    lines = path.read_text(encoding="utf-8").split("\n")
    place = rng.randrange(len(lines))
    one = path.with_name("line.json")
    try:
        json.loads(lines[place])
    except ValueError:
        return edit_lines(path, rng)
    one.write_text(lines[place], encoding="utf-8")
    said = edit_json(one, rng)
    lines[place] = one.read_text(encoding="utf-8").replace("\n", " ")
    one.unlink()
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"{said}, line {place + 1} of {path.name}"


def edit_npz(path: Path, rng: Random) -> str:
    with np.load(path) as opened:
        arrays = {name: opened[name] for name in opened.files}
    name = rng.choice(list(arrays))
    kind = rng.choice(["values", "values", "values", "float", "shape", "remove", "text"])
    array = arrays[name]
    if kind == "values" and array.dtype.kind in "fiu":
        arrays[name] = odd_array(array, rng)
    elif kind == "float" and array.dtype.kind in "fiu":
        arrays[name] = array.astype(np.float64) + rng.choice([0.0, 0.5])
    elif kind == "shape":
        arrays[name] = rng.choice([array.reshape(-1, 1), array.reshape(-1)[:1], np.zeros((0,)), array.reshape(1, -1)])
    elif kind == "remove":
        del arrays[name]
    else:
        arrays[name] = np.array(["x"])
    np.savez(path, **arrays)
    return f"{kind} of {name} in {path.name}"


def edit_npy_matrix(path: Path, rng: Random) -> str:
    array = np.load(path)
    changed = rng.choice([lambda: odd_array(array, rng), lambda: array[:, :1], lambda: array.T, lambda: array[:0],
                          lambda: array.astype("c16"), lambda: array[None], lambda: array.astype("U4")])()  # fmt: skip
    np.save(path, changed)
    return f"another array in {path.name}"
