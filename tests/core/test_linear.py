"""Products shared by threads against the layer of torch: values, gradients, threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from elias.core.devices import torch_threads
from elias.core.linear import BLOCK, linear


def gradients(y_BE: Tensor, x_BD: Tensor, layer: nn.Linear) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    grads = torch.autograd.grad(y_BE, [x_BD, layer.weight, layer.bias], torch.randn(y_BE.shape, generator=generator))
    return [y_BE.detach(), *grads]


@pytest.mark.parametrize("n_rows", [1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize(("into", "out_of"), [(7, 5), (40, 2 * BLOCK + 3)])
def test_values_and_gradients_are_those_of_the_layer(n_rows: int, into: int, out_of: int) -> None:
    torch.manual_seed(0)
    layer, x_BD = nn.Linear(into, out_of), torch.randn(n_rows, into, requires_grad=True)
    expected = gradients(layer(x_BD), x_BD, layer)
    with torch_threads(1):  # as in training; with more, how torch divides a product depends on how busy the machine is
        one, two = (gradients(linear(layer, x_BD, threads), x_BD, layer) for threads in (1, 2))
    for ours, also, theirs in zip(one, two, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        assert torch.equal(ours, also), "threads change nothing"


def test_an_input_that_is_given_needs_no_gradient() -> None:
    layer, x_BD = nn.Linear(7, 5), torch.randn(9, 7)
    linear(layer, x_BD, 2).sum().backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, x_BD.sum(dim=0).expand(5, 7))
    assert x_BD.grad is None


def test_the_number_of_threads_of_the_caller_stays() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        layer = nn.Linear(3, 3)
        linear(layer, torch.randn(2 * BLOCK, 3), 2).sum().backward()  # type: ignore[no-untyped-call]
        assert torch.get_num_threads() == 2
        assert layer.weight.grad is not None
    finally:
        torch.set_num_threads(before)


def test_without_gradients_it_is_the_layer() -> None:
    layer, x_BD = nn.Linear(4, 4), torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(linear(layer, x_BD, 2), layer(x_BD))
