"""All weights of a network by name, and their running mean.

Names are the names in checkpoint files: `encoder.<parameter>`, `clusters.weight`, and the tables
`classifier_weights`, `classifier_biases`, `edges`, `encoder.<table>`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.rng import key
from ..core.rounding import average_rounded
from ..network.network import Network

NOT_AVERAGED = ("edges",)  # the mean of logits is not the logit of a mean; the authors leave A out too


def weights_of(network: Network) -> dict[str, Tensor]:
    """The live tensors, not copies."""
    modules = network.dense_modules().items()
    dense = {f"{part}.{name}": p.data for part, module in modules for name, p in module.named_parameters()}
    return dense | {name: table.values for name, table in network.tables().items()}


def flush_tables(network: Network) -> None:
    """Bring the lazy decay of every table up to date."""
    for table in network.tables().values():
        table.flush()


class AveragedWeights:
    """The mean of the weights at the moments `add` was called."""

    def __init__(self) -> None:
        self.count = 0
        self.tensors: dict[str, Tensor] = {}

    def add(self, network: Network) -> None:
        flush_tables(network)
        self.count += 1
        for name, tensor in weights_of(network).items():
            if name in NOT_AVERAGED:
                continue
            if name in self.tensors and tensor.dtype == torch.bfloat16:
                noise = key("mean", name, self.count) & 0xFFFFFFFF
                average_rounded(self.tensors[name], tensor, 1.0 / self.count, noise, threads=network.threads)
            elif name in self.tensors:
                self.tensors[name].lerp_(tensor, 1.0 / self.count)
            else:
                self.tensors[name] = tensor.clone()

    def swap(self, network: Network) -> None:
        """Exchange the network's weights with the mean; a second call exchanges them back."""
        for name, tensor in weights_of(network).items():
            if name in self.tensors:
                held = tensor.clone()
                tensor.copy_(self.tensors[name])
                self.tensors[name].copy_(held)
