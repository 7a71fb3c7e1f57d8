"""The processes that train one network together, as `torchrun` starts them: ranks 0 .. n - 1.

    gather        the rows of all ranks, one under the other, in the order of the ranks
    scatter_sum   the sum over all ranks of such rows; each rank gets back its own
    sum           the sum over all ranks, in place

`ALONE` is the one process of an ordinary fit: every call returns at once what it was given. Everything here is a call
of torch.distributed: gloo for tensors on a CPU, NCCL for those on a GPU. Sums have a fixed order, so that two runs with
the same number of ranks agree bit for bit on a CPU. Texts travel as UTF-8 bytes, never as pickles.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from .errors import RunError

STEP_TIMEOUT = timedelta(minutes=30)  # a rank that is alive writes checkpoints and validates in less
CONTINUES = "the same command goes on from the last checkpoint"
IDLE_TIMEOUT = timedelta(days=30)  # rank 0 clusters, or learns the ranker, while the others wait


@dataclass(eq=False)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1
    local_size: int = 1  # processes on this machine
    idle: Any = None  # the group in which ranks wait for rank 0
    in_stage: bool = False  # not waiting for a task

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @contextmanager
    def stage(self) -> Iterator[None]:
        """What all ranks do together; after an error in it, `in_stage` stays set."""
        self.in_stage = True
        yield
        self.wait()
        self.in_stage = False

    def share(self, n_rows: int) -> slice:
        """Which of the rows of a batch are this rank's."""
        return slice(n_rows * self.rank // self.size, n_rows * (self.rank + 1) // self.size)

    def numbers(self, *mine: int) -> list[tuple[int, ...]]:
        """Some whole numbers of every rank."""
        if self.size == 1:
            return [mine]
        found = [torch.empty(len(mine), dtype=torch.int64) for _ in range(self.size)]
        with _lost_ranks(self.rank):
            dist.all_gather(found, torch.tensor(mine, dtype=torch.int64))
        return [tuple(numbers.tolist()) for numbers in found]

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all ranks; `counts` says how many each has."""
        if self.size == 1:
            return rows
        most = max(counts)
        gathered = rows.new_empty((self.size * most, *rows.shape[1:]))
        with _lost_ranks(self.rank):
            dist.all_gather(list(torch.split(gathered, most)) if most else [gathered] * self.size, _filled(rows, most))
        if min(counts) == most:
            return gathered
        return torch.cat([gathered[rank * most :][:count] for rank, count in enumerate(counts)])

    def scatter_sum(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The sum of `rows` over all ranks, of which each gets as many as `counts` says: the transpose of `gather`."""
        if self.size == 1:
            return rows
        most = max(counts)
        parts = [_filled(part, most) for part in torch.split(rows, list(counts))]
        own = rows.new_empty((most, *rows.shape[1:]))
        with _lost_ranks(self.rank):
            dist.reduce_scatter(own, parts)
        return own[: counts[self.rank]]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            with _lost_ranks(self.rank):
                dist.all_reduce(tensor)
        return tensor

    def any(self, flags: Tensor) -> Tensor:
        """Where a flag (bool) is set on some rank."""
        if self.size == 1:
            return flags
        numbers = flags.to(torch.uint8)
        with _lost_ranks(self.rank):
            dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return numbers.bool()

    def wait(self) -> None:
        """Go on when every rank is here."""
        self.numbers(0)

    def text(self, text: str = "") -> str:
        """The text of rank 0, on every rank. Rank 0 may take its time."""
        if self.size == 1:
            return text
        raw = torch.tensor(list(text.encode()), dtype=torch.uint8)
        length = torch.tensor([len(raw)])
        with _lost_ranks(self.rank):
            dist.broadcast(length, 0, group=self.idle)
            raw = raw if self.is_first else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(raw, 0, group=self.idle)
        return bytes(raw.tolist()).decode()


ALONE = Ranks()


def _filled(rows: Tensor, most: int) -> Tensor:
    """`rows`, zeros under them up to `most`: collectives want tensors of one shape."""
    if len(rows) == most:
        return rows.contiguous()
    return torch.cat([rows, rows.new_zeros((most - len(rows), *rows.shape[1:]))])


def _number(name: str, default: int) -> int:
    """A variable of the environment that torchrun sets."""
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise RunError(f"{name}={value!r} in the environment is no number; torchrun sets it, for one process unset it")
    return int(value)


@contextmanager
def launched_ranks() -> Iterator[Ranks]:
    """The ranks that the launcher has started: RANK, WORLD_SIZE, MASTER_ADDR ... in the environment, as torchrun sets
    them. Without a launcher `ALONE`. A process that is one of several ends with the block."""
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        yield ALONE
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RunError(
            f"WORLD_SIZE={size} without {', '.join(missing)}: put torchrun before the command, which sets them; or, "
            "for one process, unset WORLD_SIZE (job schedulers export it)"
        )
    local_rank, local_size = _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1)
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    rank = _number("RANK", 0)
    _end_with_a_line(rank)
    with _lost_ranks(rank):
        # With --max-restarts torchrun keeps its store, and in it the addresses of the processes that are gone.
        store, _, _ = next(rendezvous("env://", rank, size, timeout=STEP_TIMEOUT))
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=STEP_TIMEOUT)
        idle = dist.new_group(backend="gloo", timeout=IDLE_TIMEOUT)
    yield Ranks(rank, size, local_size, idle)
    # The work of this process is done, and it ends here. Taking the groups of gloo down aborted one process of three
    # ("terminate called without an active exception") when another was quicker. After an error nothing is taken down
    # either: that would wait for ranks that may be gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with_a_line(rank: int) -> None:
    """SIGTERM, which torchrun sends when another rank or itself has been ended, ends this process at once, with a line.

    A signal handler would have to wait until the collective under way returns. A thread takes the signal instead; it
    sleeps until then.
    """

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        print(
            f"elias: rank {rank}: stopped by SIGTERM (another process has ended, or torchrun was stopped); {CONTINUES}",
            file=sys.stderr,
        )
        sys.stderr.flush()
        os._exit(128 + signal.SIGTERM)

    if threading.current_thread() is threading.main_thread():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # threads that start later inherit it
        threading.Thread(target=wait, name="elias-termination", daemon=True).start()


@contextmanager
def _lost_ranks(rank: int) -> Iterator[None]:
    """A lost connection in one line."""
    try:
        yield
    except torch.OutOfMemoryError as problem:  # a RuntimeError, too
        reason = str(problem).strip().split(". ")[0]
        raise RunError(f"rank {rank}: not enough memory on the GPU ({reason}); {CONTINUES}") from None
    except RuntimeError as problem:
        # [file:line] what happened. What it may come from
        reason = re.sub(r"^\[[^]]*\]\s*", "", str(problem).strip().splitlines()[0]).split(". ")[0]
        raise RunError(f"rank {rank}: another process of this fit is gone ({reason}); {CONTINUES}") from None
