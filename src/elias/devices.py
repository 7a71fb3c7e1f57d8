"""Where torch computes, and with how many threads."""

from __future__ import annotations

import os

import torch

from .errors import InputError


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        raise InputError(f'device "{name}" cannot be used here ({str(problem).splitlines()[0]}); try device=cpu') from None
    return device


def pick_threads(threads: int | None) -> int:
    """The given number, or one for each core this process may use; torch follows it."""
    chosen = threads or len(os.sched_getaffinity(0))
    if torch.get_num_threads() != chosen:
        torch.set_num_threads(chosen)
    return chosen
