"""Numba kernels for the CPU, each beside a readable twin elsewhere.

No kernel starts threads of its own. A kernel works on a range of rows and releases the GIL; `run` cuts the
rows into one range a thread. Threads own rows, so results do not depend on timing, and calling from
several Python threads at once is safe.

The first call of a kernel compiles it (a few seconds, cached on disk afterwards).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_pools: dict[int, ThreadPoolExecutor] = {}


def run(kernel: Callable[..., Any], n_rows: int, threads: int, *arguments: Any) -> list[Any]:
    """Call `kernel(start, stop, *arguments)` on one range of rows per thread; results in range order."""
    threads = max(1, min(threads, n_rows))
    if threads == 1:
        return [kernel(0, n_rows, *arguments)]
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="elias-kernel")
    cuts = [n_rows * i // threads for i in range(threads + 1)]
    futures = [
        _pools[threads].submit(kernel, start, stop, *arguments) for start, stop in zip(cuts, cuts[1:], strict=False)
    ]
    return [future.result() for future in futures]
