"""The loss: L = L_c + lambda * L_s, equations (7) and (8).

    (7)  L_c = - mean over batch x shortlist of   y log p + (1 - y) log(1 - p),    p = sigmoid(z) * yhat
    (8)  L_s = - mean over batch x P of           log yhat of the positives that any explored path reaches

P is the largest number of positives of a row in the batch; positives that no path reaches add 0. A positive
with weight y counts y times; a row with weight w counts w times. Everything in float32 and in logarithms.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = 1e-12
MOST = 1.0 - 1e-6  # a negative's p, at most


def classification_loss(z_BS: Tensor, yhat_BS: Tensor, y_BS: Tensor, real_BS: Tensor, weight_B: Tensor) -> Tensor:
    """(7). `real_BS` is false at pads; `y_BS` is the weight of a positive, 0 for a negative."""
    log_p_BS = F.logsigmoid(z_BS) + torch.log(yhat_BS.clamp(min=TINY))
    log_not_p_BS = torch.log1p(-torch.exp(log_p_BS).clamp(max=MOST))
    terms_BS = torch.where(y_BS > 0, y_BS * log_p_BS, log_not_p_BS)
    terms_BS = terms_BS.masked_fill(~real_BS, 0.0)
    return -(terms_BS.sum(dim=1) * weight_B).sum() / mean_over(real_BS)


def mean_over(real_BS: Tensor) -> int:
    """What (7) is a mean over: batch x the longest shortlist."""
    width = int(real_BS.sum(dim=1).max()) if real_BS.numel() else 0
    return max(1, len(real_BS) * width)


def shortlist_loss(yhat_P: Tensor, weight_P: Tensor, n_rows: int, most_positives: int) -> Tensor:
    """(8) over the reached positives of the batch, flat; `weight_P` is label weight times row weight."""
    return -(weight_P * torch.log(yhat_P.clamp(min=TINY))).sum() / max(1, n_rows * most_positives)
