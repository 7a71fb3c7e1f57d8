"""Encoding of queries: the kernel of the bag encoder against the encoder itself."""

from __future__ import annotations

import numpy as np
import pytest

from elias import kernels
from elias.model.model import Model


@pytest.mark.parametrize("count", [1, 3, 9, 80])
def test_the_kernel_encodes_as_the_encoder_does(tiny_model: Model, texts: list[str], count: int) -> None:
    """One text, fewer and more than are encoded at once, more than one thread; a text without known words is 0."""
    chosen = ["", *texts][:count]
    prepared = tiny_model.network.encoder.prepare(tiny_model.read(chosen))
    rows = np.arange(count)[::-1].copy()
    fast = tiny_model.searcher.encode(prepared, rows)
    with kernels.reference():
        slow = tiny_model.searcher.encode(prepared, rows)
    np.testing.assert_allclose(fast.phi_BD.numpy(), slow.phi_BD.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fast.logits_BC.numpy(), slow.logits_BC.numpy(), rtol=1e-4, atol=1e-4)
    assert not fast.phi_BD[-1].any()
    if count > 1:
        assert fast.phi_BD[:-1].norm(dim=1).numpy() == pytest.approx(tiny_model.network.encoder.head.radius, rel=1e-4)
