"""Learning the score model from the candidates of held-out texts, of which it is known which are right.

    loss = mean over texts of
           (softmax cross-entropy of each right label among itself and the wrong ones, which rank first
            + binary cross-entropy of all candidates: how certain) / number of right ones

Minimized by AdamW over batches of texts. A step sees all right candidates of a text and a sample of the wrong ones.
In: `Features` and which candidates are right. Out: a `LearnedScore`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.settings import ScoreModelSettings, known
from ..kernels.score_fit import Parameters, fit_steps, split
from ..kernels.score_model import N_INPUTS
from .features import Features
from .score_model import FARTHEST, LearnedScore, score_inputs

LEARNING_RATE, WEIGHT_DECAY, BATCH = 5e-3, 1e-3, 64
BETA1, BETA2 = (0.95, 0.85), 0.999  # of AdamW: beta1 at the ends and at the highest rate
STEPS_AT_ONCE, TEXTS_AT_ONCE = 16, 1024  # bound memory, not results


@dataclass(frozen=True, eq=False)
class TrainingCandidates:
    """Candidates of held-out texts as the score is learned from them; several fits share one."""

    inputs: np.ndarray  # float32 [texts, m, N_INPUTS]
    right: np.ndarray  # bool [texts, m]
    real: np.ndarray  # bool [texts, m]: not PAD

    @classmethod
    def of(cls, features: Features, right: np.ndarray) -> TrainingCandidates:
        real = features.labels >= 0
        return cls(score_inputs(features), right & real, real)

    def mean_and_spread(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of every input over the candidates of some texts, float32."""
        total, squares, count = np.zeros(N_INPUTS), np.zeros(N_INPUTS), 0
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts[start : start + TEXTS_AT_ONCE]
            found = self.inputs[some][self.real[some]].astype(np.float64)
            total, squares, count = total + found.sum(axis=0), squares + (found**2).sum(axis=0), count + len(found)
        mean = total / max(1, count)
        spread = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0)) + 1e-6
        return mean.astype(np.float32), spread.astype(np.float32)


def fit_score(
    candidates: TrainingCandidates, texts: np.ndarray, settings: ScoreModelSettings, seed: int, *, fast: bool
) -> LearnedScore:
    """Learn the score from the candidates of some texts: AdamW, its rate and momentum on one cycle.

    `fast`: by the kernel; otherwise by autograd, which is the definition.
    """
    mean, spread = candidates.mean_and_spread(texts)
    texts = texts[candidates.right[texts].any(axis=1)]  # a text without a right candidate cannot be ranked better
    n_units, epochs = known(settings.hidden_units), known(settings.epochs)
    examples = Examples(candidates.right, candidates.real, texts, settings.negatives or 0)
    n_steps = epochs * -(-len(texts) // BATCH)
    learner = (_KernelLearner if fast else _TorchLearner)(n_units, seed, one_cycle(n_steps))
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(texts))
        for start in range(0, len(order), STEPS_AT_ONCE * BATCH):
            places = order[start : start + STEPS_AT_ONCE * BATCH]
            learner.learn(candidates.inputs, texts[places], examples(places, rng), mean, spread)
    return LearnedScore(mean, spread, *learner.weights())


def one_cycle(n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """(rate, beta1) of every step: the rate rises to LEARNING_RATE in the first 30 % and falls to almost 0, beta1 moves
    the other way (Smith and Topin, "Super-convergence", 2018)."""
    turn, last = 0.3 * (n_steps + 1) - 1, max(1, n_steps)
    step = np.arange(n_steps)
    rising = np.clip(step / max(turn, 1e-9), 0, 1)
    falling = np.clip((step - turn) / max(last - turn, 1e-9), 0, 1)

    def between(low: float, high: float, end: float) -> np.ndarray:
        up = high + (low - high) / 2 * (1 + np.cos(np.pi * rising))
        down = end + (high - end) / 2 * (1 + np.cos(np.pi * falling))
        return np.where(step <= turn, up, down)

    return between(LEARNING_RATE / 25, LEARNING_RATE, LEARNING_RATE / 250_000), between(*BETA1, BETA1[0])


class _TorchLearner:
    """Steps of AdamW by autograd: the definition."""

    def __init__(self, n_units: int, seed: int, schedule: tuple[np.ndarray, np.ndarray]) -> None:
        import torch

        first = torch.from_numpy(first_hidden(n_units, seed))
        self.parameters = [torch.zeros(N_INPUTS), first, torch.zeros(n_units), torch.zeros(n_units), torch.zeros(1)]
        for parameter in self.parameters:
            parameter.requires_grad_()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.schedule = iter(zip(*(values.tolist() for values in schedule), strict=True))

    def learn(
        self, inputs: np.ndarray, texts: np.ndarray, examples: ExamplesOfTexts, mean: np.ndarray, spread: np.ndarray
    ) -> None:
        """One step per BATCH texts."""
        import torch

        linear, hidden, shift, out, bias = self.parameters
        for start in range(0, len(texts), BATCH):
            columns, y, counts = (array[start : start + BATCH] for array in examples)
            found = inputs[texts[start : start + BATCH, None], columns]
            x_BMI = torch.from_numpy(np.clip((found - mean) / spread, -FARTHEST, FARTHEST))
            z = x_BMI @ linear + torch.tanh(x_BMI @ hidden + shift) @ out + bias
            group = self.optimizer.param_groups[0]
            group["lr"], beta1 = next(self.schedule)
            group["betas"] = (beta1, BETA2)
            self.optimizer.zero_grad()
            _listwise_and_binary_loss(z, torch.from_numpy(y), torch.from_numpy(counts)).backward()
            self.optimizer.step()

    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        u, w, b, v, last = (parameter.detach().numpy().copy() for parameter in self.parameters)
        return u, w, b, v, float(last[0])


class _KernelLearner:
    """The same steps by the kernel, which keeps all weights in one array."""

    def __init__(self, n_units: int, seed: int, schedule: tuple[np.ndarray, np.ndarray]) -> None:
        self.parameters = Parameters.of(first_hidden(n_units, seed))
        self.rates, self.betas = schedule
        self.done = 0

    def learn(
        self, inputs: np.ndarray, texts: np.ndarray, examples: ExamplesOfTexts, mean: np.ndarray, spread: np.ndarray
    ) -> None:
        """One step per BATCH texts."""
        steps = slice(self.done, self.done + -(-len(texts) // BATCH))
        standardization = mean, 1 / spread, np.float32(FARTHEST)
        schedule = self.rates[steps], self.betas[steps], BETA2, WEIGHT_DECAY, self.done
        fit_steps(inputs, texts, tuple(examples), standardization, schedule, BATCH, self.parameters)
        self.done = steps.stop

    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        p = self.parameters
        linear, hidden, shift, out, bias = (array.copy() for array in split(p.values, p.n_units))
        return linear, np.ascontiguousarray(hidden.T), shift, out, float(bias[0])


def first_hidden(n_units: int, seed: int) -> np.ndarray:
    """W as it starts, float32 [inputs, units]; all other weights start at 0."""
    drawn = np.random.default_rng([seed, 1]).standard_normal((N_INPUTS, n_units)) / N_INPUTS**0.5
    return np.asarray(drawn, dtype=np.float32)


class ExamplesOfTexts(NamedTuple):
    """Candidates that the score is learned from, float32 and int64 [texts, M]."""

    columns: np.ndarray
    y: np.ndarray  # 1: right
    counts: np.ndarray  # how many candidates each one stands for: a sampled one for its share of the wrong; 0: PAD


class Examples:
    """The candidates of a step: all of each text, or the right ones and a random sample of the wrong ones."""

    def __init__(self, right: np.ndarray, real: np.ndarray, texts: np.ndarray, negatives: int) -> None:
        """`right`, `real` [texts, m]; `texts`: those that are asked for; `negatives`: wrong candidates per text and
        step, 0: all."""
        self.right, self.real = right[texts], real[texts]
        self.negatives = negatives if negatives < right.shape[1] else 0
        kind = np.where(self.right, 0, np.where(self.real, 1, 2)).astype(np.int8)
        self.order = np.argsort(kind, axis=1, kind="stable")  # right, wrong, PAD
        self.n_right = self.right.sum(axis=1, keepdims=True)
        self.n_wrong = self.real.sum(axis=1, keepdims=True) - self.n_right

    def __call__(self, places: np.ndarray, rng: np.random.Generator) -> ExamplesOfTexts:
        """Of some texts, by their places among `texts`."""
        if not self.negatives:
            every = np.broadcast_to(np.arange(self.right.shape[1]), (len(places), self.right.shape[1]))
            right, real = self.right[places].astype(np.float32), self.real[places].astype(np.float32)
            return ExamplesOfTexts(np.ascontiguousarray(every), right, real)
        n_right, n_wrong = self.n_right[places], self.n_wrong[places]
        shown = np.arange(n_right.max(initial=0))
        y = (shown < n_right).astype(np.float32)
        drawn = (rng.random((len(places), self.negatives)) * n_wrong).astype(np.int64)  # with replacement
        drawn = np.minimum(n_right + drawn, self.order.shape[1] - 1)  # of no effect but where nothing is wrong
        rank = np.concatenate([np.broadcast_to(shown, y.shape), drawn], axis=1)
        counts = np.repeat(n_wrong / self.negatives, self.negatives, axis=1)
        columns = np.take_along_axis(self.order[places], rank, axis=1)
        y_and_0 = np.pad(y, ((0, 0), (0, self.negatives)))
        return ExamplesOfTexts(columns, y_and_0, np.hstack([y, counts]).astype(np.float32))


def _listwise_and_binary_loss(z: Any, y: Any, counts: Any) -> Any:
    """Softmax cross-entropy of each right label among itself and the wrong ones, plus binary cross-entropy; row means.

    In one softmax over all labels the right ones of a text would compete, which costs P@1 where there are several.
    """
    import torch
    from torch.nn import functional as F

    wrong = (counts > 0) & (y == 0)
    wrong_sum = torch.logsumexp((z + torch.log(counts)).masked_fill(~wrong, -1e9), dim=1, keepdim=True)
    n_right = y.sum(1).clamp(min=1.0)
    listwise = (F.softplus(wrong_sum - z) * y).sum(1) / n_right
    binary = (F.binary_cross_entropy_with_logits(z, y, reduction="none") * counts).sum(1) / n_right
    return (listwise + binary).mean()
