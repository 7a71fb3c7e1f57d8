"""Time to learn the score model, kernel against autograd, on the held-out predictions of a finished run.

    python benchmarks/score_fit.py MODEL.run [--epochs 4] [--rounds 3] [--json]

Both learn from the same candidates, on one thread, from the same seed. `difference` is the largest between the scores
that the two give to the candidates, in standard deviations of the scores.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from timing import machine, report

from elias.core.errors import EliasError
from elias.core.settings import ScoreModelSettings
from elias.ranking.cross_fitting import NAME, HeldOutPredictions
from elias.ranking.score_fit import TrainingCandidates, fit_score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folders = [path.parent for path in sorted(args.run.rglob(NAME))]
    if not folders:
        raise EliasError(f"{args.run}: no held-out predictions; is this the .run folder of a stacked ranker?")
    held_out = HeldOutPredictions.join([HeldOutPredictions.load(folder) for folder in folders])
    candidates = TrainingCandidates.of(held_out.features, held_out.right)
    texts = np.arange(len(held_out.right))
    settings = ScoreModelSettings(hidden_units=32, epochs=args.epochs, negatives=32)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    scores = {}
    for turn in range(args.rounds + 1):  # the first compiles
        for fast in (True, False):
            started = time.perf_counter()
            learned = fit_score(candidates, texts, settings, 0, fast=fast)
            if turn:
                seconds[fast].append(time.perf_counter() - started)
            scores[fast] = learned.of_inputs(candidates.inputs[:1000])[candidates.real[:1000]]
    kernel, autograd = (float(np.median(seconds[fast])) for fast in (True, False))
    difference = float(np.abs(scores[True] - scores[False]).max() / scores[False].std())
    row = {
        "held-out rows": len(texts), "candidates": int(candidates.real.sum()), "epochs": args.epochs,
        "kernel s": kernel, "autograd s": autograd, "autograd / kernel": autograd / kernel, "difference": difference,
    }  # fmt: skip
    report("learning the score model", [row], as_json=args.json, **machine())
    if not args.json:
        print(machine())


if __name__ == "__main__":
    main()
