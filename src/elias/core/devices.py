"""Where torch computes, and with how many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from .errors import InputError

_started_in: int | None = None  # the process in which torch has started threads


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f'device "{name}" cannot be used here ({reason}); try run.device=cpu') from None
    return device


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """An array on a device; on its way to a GPU from pinned memory, which neither side waits for."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def pick_threads(threads: int | None) -> int:
    """Threads for our kernels: the given number, or one for each core this process may use.

    Torch itself is set to one thread: its OpenMP workers spin while they wait, and would take the cores from the
    kernels between two small operations (a training step of 776 ms instead of 107 ms on 2 cores).
    """
    if threads is not None and threads < 1:
        raise InputError(f"{threads} threads: give at least 1")
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return threads or len(os.sched_getaffinity(0))


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """On a GPU, products of float32 matrices in TF32 for a while (10 bits of mantissa, sums in float32)."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use more threads for a while, where it does all the work (a transformer).

    A process that was forked from one in which torch has started threads gets one: OpenMP would wait forever for
    threads that did not survive the fork.
    """
    global _started_in
    if _started_in not in (None, os.getpid()):
        threads = 1
    elif threads > 1:
        _started_in = os.getpid()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
