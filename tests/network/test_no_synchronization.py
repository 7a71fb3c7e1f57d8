"""No GPU is needed to see that one would not be waited for.

A whole training step (loss, backward, optimizers) and a search run on torch's `meta` device. Its tensors have no data:
whatever would have to read one (`float`, `.cpu()`, a Python `if`) raises, and so does an operation on tensors of two
devices. Operations whose result has a size that depends on data are counted; one is allowed, for the size of the
union of the batch's labels. The same operations are counted in a step of the trainer on the CPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from elias import kernels
from elias.core.ragged import Ragged
from elias.network.one_versus_all import OneVersusAll
from elias.network.searcher import EncodedQuery, Searcher
from helpers.networks import make_steps, network_on

META, CPU = torch.device("meta"), torch.device("cpu")
# A GPU is waited for: these return a Python number, or a tensor whose size depends on data.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal")


class Waits(TorchDispatchMode):
    """Counts what a GPU would be waited for, and refuses tensors of two devices in one operation."""

    def __init__(self, *, skip_host: bool = True) -> None:
        """`skip_host`: numbers read from CPU tensors do not count; AdamW keeps its step counts there."""
        super().__init__()
        self.skip_host = skip_host
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        on_host = name == "_local_scalar_dense" and self.skip_host and tensors[0].device.type == "cpu"
        if name in WAITS and not on_host:
            self.seen[name] += 1
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            places = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, torch.Tensor)]
            self.seen.update(["index by bools"] * sum(place.dtype == torch.bool for place in places))
        if name == "repeat_interleave" and "output_size" not in (kwargs or {}):
            self.seen[name] += 1
        devices = {tensor.device.type for tensor in tensors if tensor.dim()}
        assert len(devices) <= 1 or name in ("_to_copy", "copy_"), f"{func} on {devices}"
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.seen.values())


@contextmanager
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Inside, `nonzero` of the meta device returns the largest size it could have."""
    monkeypatch.setitem(sys.modules["torch.fx.experimental._config"].__dict__, "meta_nonzero_assume_all_nonzero", True)
    with Waits() as mode:
        yield mode


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("optimizer", ["rowwise", "adamw"])
def test_a_training_step_waits_once(learned: bool, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, vectors, batch = network_on(META, learned=learned)
    with waits(monkeypatch) as found:
        make_steps(network, vectors, batch, network.index.parents(), optimizer=optimizer)
    assert found.seen == {"nonzero": 2}, "one of each step"


@pytest.mark.parametrize(("accumulated", "sums"), [("classifiers", 2), ("all", 3)])
def test_gradients_are_summed_without_waiting(accumulated: str, sums: int) -> None:
    """Only a step on the sums waits, for the number of rows of each table that they touch."""
    network, vectors, batch = network_on(CPU, learned=True)
    with kernels.reference(), Waits() as found:
        make_steps(network, vectors, batch, network.index.parents(), accumulate=2, accumulated=accumulated)
    assert found.seen == {"nonzero": 2 + sums}, "one of each of two steps, and the sums"


def test_one_versus_all_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    network, vectors, batch = network_on(META, learned=False, kind=OneVersusAll)
    with waits(monkeypatch) as found:
        make_steps(network, vectors, batch, np.empty(0, dtype=np.int32))
    assert found.total == 0


@torch.no_grad()
def test_a_search_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, _, _ = network_on(CPU, learned=True)
    index = network.learned_index()
    network, _, _ = network_on(META, learned=True)
    monkeypatch.setattr(network, "learned_index", lambda: index)  # once per searcher, not per search
    searcher = Searcher(network)
    searcher.all_edges  # noqa: B018
    phi = torch.zeros(5, network.encoder.dim, device=META)
    excluded = Ragged.of([np.arange(2)] * 5)
    with waits(monkeypatch) as found:
        labels, *_ = searcher.search_on_device(EncodedQuery(phi, network.clusters(phi)), 4, excluded=excluded)
    assert labels.shape == (5, 4)
    assert found.seen == {"nonzero": 1}


def test_the_same_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With data: nothing waits that the meta device would have let pass."""
    network, vectors, batch = network_on(CPU, learned=True)
    parents = network.learned_index().parents()
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    with kernels.reference(), Waits(skip_host=False) as found:
        make_steps(network, vectors, batch, parents)
    assert found.seen == {"nonzero": 2}


def test_what_waits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = torch.ones(3, device=META)
    with waits(monkeypatch) as found:
        ones[ones > 0]
        ones.nonzero()
        with pytest.raises(RuntimeError, match="meta"):
            float(ones.sum())
        with pytest.raises(NotImplementedError, match="meta"):
            ones.cpu()
        with pytest.raises(AssertionError, match=r"on \{'"):
            ones + torch.ones(3)
    assert found.seen == {"index by bools": 1, "nonzero": 1, "_local_scalar_dense": 1}
