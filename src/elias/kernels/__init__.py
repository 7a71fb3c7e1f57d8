"""Numba kernels for the CPU. A file is named after the module it accelerates, where the readable definition stands;
`beam_search`, `bounds`, `steps`, `exponent`, `numbers`, `prefetch` and `transpose` serve several of them.

No kernel starts threads of its own. A kernel works on a range of rows and releases the GIL; `run` cuts the rows into
one range per thread, `run_ranges` takes ranges that are cut already. Ranges own what they write, so results do not
depend on timing, and calling from several Python threads at once is safe.

Whether kernels or definitions run is decided where they are called: `if kernels.serve(device)`. Inside `reference()`
every definition runs, on one thread (the setting `run.kernels=false`).

The first call of a kernel compiles it (a few seconds, cached on disk afterwards).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

SOURCES = Path(__file__).parent
STAMP = "elias-kernels.json"  # beside the compiled kernels: what each was compiled from

IMPORT = r"^(?:from \.|from \.\.kernels\.)(\w+) import"  # of a kernel file by another, or by one outside

_outside: dict[Path, Path] = {}  # files elsewhere with kernels of their own, and where those are cached
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_pools_lock = Lock()
_enabled: ContextVar[bool] = ContextVar("elias_kernels", default=True)


def serve(device: Any = None) -> bool:
    """Whether kernels do the work: on the CPU (a torch device, or None for numpy arrays), unless switched off."""
    return _enabled.get() and (device is None or device.type == "cpu")


@contextmanager
def reference(on: bool = True) -> Iterator[None]:
    """Inside, the definitions in numpy and torch run in place of the kernels; `on=False` changes nothing."""
    token = _enabled.set(_enabled.get() and not on)
    try:
        yield
    finally:
        _enabled.reset(token)


def run(kernel: Callable[..., Any], n_rows: int, threads: int, *arguments: Any) -> list[Any]:
    """Call `kernel(start, stop, *arguments)` on one range of rows per thread; results in range order."""
    threads = max(1, min(threads, n_rows))
    return run_ranges(kernel, [n_rows * i // threads for i in range(threads + 1)], threads, *arguments)


def run_ranges(kernel: Callable[..., Any], cuts: Sequence[int], threads: int, *arguments: Any) -> list[Any]:
    """Call `kernel(start, stop, *arguments)` on every range between neighboring cuts; results in range order."""
    if threads <= 1 or len(cuts) <= 2 or not _enabled.get():
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


# -- compiled kernels on disk -----------------------------------------------------------------------------------------


def are_new() -> bool:
    """Nothing has been compiled here yet, so that the first calls will take a while."""
    folder = _cache_folder()  # without it we cannot tell
    return folder is not None and not any(folder.glob("*.nbi"))


def register(source: str, kernel: Any) -> None:
    """Have `discard_stale` care for a file outside this folder that compiles `kernel`."""
    cache = getattr(kernel, "_cache", None)
    if cache is not None:
        _outside[Path(source)] = Path(cache.cache_path)


def discard_stale() -> None:
    """Delete compiled kernels whose source, or the source of a kernel they call, has changed or is gone.

    Numba compares a cached function with its own file only: after an edit in a function that it calls, the old code
    would run on. And the index of its cache names the modules of the tuples a kernel was called with, and cannot be
    read without them: where a module is gone, everything goes.
    """
    folder = _cache_folder()
    if folder is None or not folder.is_dir():
        return
    now, stamp = _fingerprints(), folder / STAMP
    try:
        before = dict(json.loads(stamp.read_text()))
    except (OSError, ValueError):
        before = {}
    elsewhere = {name: mark for name, mark in before.items() if name not in now and Path(name).is_absolute()}
    now |= {name: mark for name, mark in elsewhere.items() if Path(name).is_file()}  # not imported by this process
    if before == now:
        return
    compiled = {path: path.name.partition(".")[0] for path in folder.glob("*.nb[ic]")}
    for path, outside in _outside.items():
        compiled |= dict.fromkeys(outside.glob(f"{path.stem}.*.nb[ic]"), str(path))
    gone = not {*compiled.values(), *before}.issubset(now)
    for path, module in compiled.items():
        if gone or before.get(module) != now[module]:
            with suppress(OSError):  # another process was quicker, or it is not ours
                path.unlink()
    with suppress(OSError):
        part = stamp.with_name(f"{STAMP}.{os.getpid()}")
        part.write_text(json.dumps(now))
        os.replace(part, stamp)


def _fingerprints() -> dict[str, str]:
    """Of every kernel file: sizes and times of itself and of the kernel files it imports, directly or not.

    By the name of the module; of a file outside this folder, by its path.
    """
    files = {path.stem: path for path in SOURCES.glob("*.py") if path.stem != "__init__"}
    files |= {str(path): path for path in _outside}
    needs = {name: set(re.findall(IMPORT, path.read_text(), re.M)) for name, path in files.items()}
    found = {}
    for name in files:
        closure: set[str] = set()
        todo = [name]
        while todo:
            module = todo.pop()
            if module in files and module not in closure:
                closure.add(module)
                todo += needs[module]
        stats = [(module, files[module].stat()) for module in sorted(closure)]
        found[name] = ";".join(f"{module}:{stat.st_size}:{stat.st_mtime_ns}" for module, stat in stats)
    return found


def _cache_folder() -> Path | None:
    """Where numba keeps what it has compiled: beside the source, or where it was told to, or the user's own folder."""
    from .beam_search import search_rows

    cache = getattr(search_rows, "_cache", None)
    return None if cache is None else Path(cache.cache_path)
