"""What the benchmarks share: timing with percentiles, a table or JSON lines, and a word about the machine."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def batch_ms(call: Callable[[int], Any], rows: int, repeats: int, seconds: float = math.inf) -> float:
    """Median milliseconds a row of `call(i)`, i = 0 .. repeats - 1, each working on `rows` rows; fewer repeats where
    they would take more than `seconds`."""
    call(0)
    return float(np.median(_repeated(call, repeats, seconds))) * 1000 / rows


def single_ms(call: Callable[[int], Any], repeats: int, seconds: float = math.inf) -> tuple[float, float]:
    """(p50, p99) milliseconds of `call(i)`; fewer repeats where they would take more than `seconds`."""
    _repeated(call, min(10, repeats), seconds / 10)
    taken = _repeated(call, repeats, seconds)
    return float(np.quantile(taken, 0.5)) * 1000, float(np.quantile(taken, 0.99)) * 1000


def _repeated(call: Callable[[int], Any], repeats: int, seconds: float) -> list[float]:
    """The seconds of each call, at least one."""
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) < seconds:
        taken.append(_timed(call, len(taken)))
    return taken


def _timed(call: Callable[[int], Any], i: int) -> float:
    started = time.perf_counter()
    call(i)
    return time.perf_counter() - started


def machine() -> dict[str, Any]:
    """What a figure depends on: cores, vector units, and how busy the machine was (percent of the last 10 s)."""
    flags = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")]
        known = {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"}
        flags = known & set(lines[0].split()) if lines else set()
    pressure = Path("/proc/pressure/cpu")
    busy = pressure.read_text().split("avg10=")[1].split()[0] if pressure.exists() else "unknown"
    return {"cores": os.cpu_count(), "machine": platform.machine(), "flags": sorted(flags), "cpu_pressure": busy}


def report(title: str, rows: Sequence[dict[str, Any]], *, as_json: bool, **about: Any) -> None:
    """A table, or one JSON object a line."""
    if as_json:
        for row in rows:
            print(json.dumps({**about, **row}), flush=True)
        return
    print(f"\n{title}")
    columns = list(rows[0])
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    print("  ".join(f"{column:<{width}}" for column, width in zip(columns, widths, strict=True)))
    for row in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def peak_bytes() -> int:
    """The most memory this process has held. Not from getrusage: that one begins with the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
