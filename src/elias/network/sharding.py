"""Label classifiers over several processes: each owns a share of the labels, and learns them from the whole batch.

    1  every rank encodes its rows of the batch and searches their shortlists              phi, log yhat, labels
    2  all-gather: every rank has the rows of all                                          `gathered`
    3  every rank computes (7) over the pairs whose labels it owns, and steps its own classifiers
    4  reduce-scatter: the gradients of phi and log yhat, summed over the ranks, go back to their rows

Renee and DEXML train this way. What a rank holds of W_L, its moments and its running mean falls with the number of
ranks. Rank r of n owns the labels l with l mod n = r: like labels, which stand together in most files and shortlists,
fall to different ranks. The sums over the pairs of one label have the order of one process; the gradient of phi is
summed over the labels of a rank, then over the ranks.

Shapes: B rows of the whole batch, S shortlist, D dimension, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.distributed import Ranks
from ..core.predictions import PAD

ELSEWHERE = -2  # a shortlisted label that another rank owns
ROWS_AT_ONCE = 1 << 14  # of a table that is gathered to be written


class ScoredPairs(NamedTuple):
    """What (7) needs of the rows of a batch besides the classifiers."""

    phi_BD: Tensor
    log_yhat_BS: Tensor
    labels_BS: Tensor
    y_BS: Tensor
    weight_B: Tensor


def gathered(pairs: ScoredPairs, counts: Sequence[int], ranks: Ranks) -> ScoredPairs:
    """The rows of all ranks (`counts`: of each), with the labels that this rank owns as rows of its own tables.

    Differentiable in phi and log yhat.
    """
    if ranks.size == 1:
        return pairs
    phi_BD, log_yhat_BS = _Gather.apply(pairs.phi_BD, pairs.log_yhat_BS, counts, ranks)  # type: ignore[no-untyped-call]
    labels_BS = ranks.gather(pairs.labels_BS.int(), counts)
    y_BS, weight_B = ranks.gather(pairs.y_BS, counts), ranks.gather(pairs.weight_B, counts)
    return ScoredPairs(phi_BD, log_yhat_BS, own_rows(labels_BS, ranks).long(), y_BS, weight_B)


def own_rows(labels: Tensor, ranks: Ranks) -> Tensor:
    """Where this rank keeps its labels; ELSEWHERE for those of other ranks, PAD stays PAD."""
    rows = labels.div(ranks.size, rounding_mode="trunc")  # half the time of `floor` and `%`
    rows = torch.where(labels - rows * ranks.size == ranks.rank, rows, ELSEWHERE)
    return torch.where(labels < 0, PAD, rows)


def own_labels(n_labels: int, ranks: Ranks) -> slice:
    """The labels that this rank owns, in the order of its rows."""
    return slice(ranks.rank, n_labels, ranks.size)


def all_rows(own: Tensor, n_rows: int, ranks: Ranks) -> Iterator[Tensor]:
    """A table whose rows the ranks share as `own_labels` says, block after block in the order of all; every rank takes
    part."""
    for start in range(0, -(-n_rows // ranks.size), ROWS_AT_ONCE):
        stop = start + ROWS_AT_ONCE
        counts = [len(range(rank, n_rows, ranks.size)[start:stop]) for rank in range(ranks.size)]
        gathered = ranks.gather(own[start:stop].contiguous().view(torch.uint8), counts)  # gloo has no bfloat16
        block = torch.empty_like(gathered)
        for rank, part in enumerate(torch.split(gathered, counts)):
            block[rank :: ranks.size] = part
        yield block.view(own.dtype)


class _Gather(torch.autograd.Function):
    """`Ranks.gather` of phi and log yhat; the gradient is `Ranks.scatter_sum`."""

    @staticmethod
    def forward(
        ctx: Any, phi_BD: Tensor, log_yhat_BS: Tensor, counts: Sequence[int], ranks: Ranks
    ) -> tuple[Tensor, Tensor]:
        ctx.counts, ctx.ranks = counts, ranks
        return ranks.gather(phi_BD.detach(), counts), ranks.gather(log_yhat_BS.detach(), counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *(ctx.ranks.scatter_sum(grad, ctx.counts) for grad in grads), None, None
