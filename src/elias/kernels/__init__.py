"""Numba kernels for the CPU, each beside a readable twin elsewhere.

No kernel starts threads of its own. A kernel works on a range of rows and releases the GIL; `run` cuts the
rows into one range a thread, `run_ranges` takes ranges that are cut already; `helper.py` divides a single row.
Ranges own what they write, so results do not depend on timing, and calling from several Python threads at once is safe.

The first call of a kernel compiles it (a few seconds, cached on disk afterwards).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_pools_lock = Lock()


def run(kernel: Callable[..., Any], n_rows: int, threads: int, *arguments: Any) -> list[Any]:
    """Call `kernel(start, stop, *arguments)` on one range of rows per thread; results in range order."""
    threads = max(1, min(threads, n_rows))
    return run_ranges(kernel, [n_rows * i // threads for i in range(threads + 1)], threads, *arguments)


def run_ranges(kernel: Callable[..., Any], cuts: Sequence[int], threads: int, *arguments: Any) -> list[Any]:
    """Call `kernel(start, stop, *arguments)` on every range between neighbouring cuts; results in range order."""
    if threads <= 1 or len(cuts) <= 2:
        return [kernel(start, stop, *arguments) for start, stop in pairwise(cuts)]
    pool, ranges = _pool(threads), list(pairwise(cuts))
    own = len(ranges) <= threads  # then the caller's thread does the first range itself, instead of waiting
    futures = [pool.submit(kernel, start, stop, *arguments) for start, stop in ranges[own:]]
    results = [kernel(*ranges[0], *arguments)] if own else []
    return results + [future.result() for future in futures]


def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool for each number of threads. A forked process makes its own: threads do not survive a fork."""
    with _pools_lock:
        owner = (os.getpid(), threads)
        if owner not in _pools:
            _pools[owner] = ThreadPoolExecutor(threads, thread_name_prefix="elias-kernel")
        return _pools[owner]


def are_new() -> bool:
    """Nothing has been compiled here yet, so that the first calls will take a while."""
    folder = _compiled_in()  # without it we cannot tell
    return folder is not None and not any(folder.glob("find.find_rows-*.nbi"))


def forget_removed() -> None:
    """Throw away what an earlier version has compiled, if it had a module that is gone; a folder is looked through.

    An index of numba's cache names the modules of the tuples that a kernel was called with, and cannot be read without
    them. An upgrade leaves these files where they are.
    """
    modules = {path.stem for path in Path(__file__).parent.glob("*.py")}
    folder = _compiled_in()
    compiled = list(folder.glob("*.nb[ic]")) if folder is not None else []
    if any(path.name.partition(".")[0] not in modules for path in compiled):
        for path in compiled:
            with suppress(OSError):  # another process was quicker, or it is not ours
                path.unlink()


def _compiled_in() -> Path | None:
    """Where numba keeps what it has compiled: beside the source, or where it was told to, or the user's own folder."""
    from .find import find_rows

    cache = getattr(find_rows, "_cache", None)
    return None if cache is None else Path(cache.cache_path)
