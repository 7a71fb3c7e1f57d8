"""What each part of a model is worth on a dataset: one row per part, measured on the test rows.

    python benchmarks/ablation.py DATA [--members 3] [--no-yardstick] [--json] [--work FOLDER]

    stage 1            clusters fixed before training
    control            stage 1 for as many epochs as both stages together
    + stage 2          the graph learned: the network alone, ELIAS
    + ranker           candidates by words too, ranked by the paper's p q
    + calibration      ranked by the paper's T + p q
    + score model      ranked by a score learned from all features, in place of T + p q
    + label tree       one more feature, the path of a tree of classifiers: one model as it is by default
    + N members        an ensemble
    one-versus-all     every label trained on every text, same encoder: the yardstick of the network alone

Everything is trained in WORK (default runs/ablation/NAME), resumable; rows share the steps in which they do not differ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import elias
from elias.core.files import link_tree
from elias.core.progress import Progress, duration
from elias.model.ensemble import Ensemble
from elias.model.evaluate import Evaluation, evaluate_model
from elias.network.storage import load_network
from elias.pipeline.fit import fit_to
from elias.ranking.score_model import ScoreModel

COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@20", "R@100")
FEATURES, STAGES = ["05-tokens", "10-features"], ["20-clusters", "30-stage1", "40-adjacency", "50-stage2"]
RANKING, HELD_OUT, SCORE = ["60-ranking", "80-ranking", "82-texts"], "65-held-out", "70-score-model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--no-yardstick", action="store_true", help="leave one-versus-all and the control out")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    args = parser.parse_args()

    data = elias.load_dataset(args.data)
    changes = dict(item.split("=", 1) for item in args.changes)
    if not args.json:
        print(f"{'row':<16}" + "".join(f"{name:>8}" for name in COLUMNS) + f"{'training':>12}", flush=True)
    for name, found, seconds in rows(data, changes, args.members, args.work / data.name, not args.no_yardstick):
        if args.json:
            record = {"data": data.name, "row": name, "seconds": seconds, **found.metrics.as_dict()}
            print(json.dumps(record), flush=True)
        else:
            values = "".join(f"{found.metrics[column]:8.2f}" for column in COLUMNS)
            print(f"{name:<16}{values}{duration(seconds):>12}", flush=True)


def rows(
    data: elias.Dataset, changes: dict[str, str], members: int, work: Path, yardstick: bool
) -> Iterator[tuple[str, Evaluation, float]]:
    whole = fitted(data, work / "ensemble", changes, members)
    run = work / "ensemble.run"
    first, run = (whole.members[0], run / "member-0") if isinstance(whole, Ensemble) else (whole, run)
    assert first.reranker is not None, "this dataset has no words, so there are no ranking parts"
    assert len(first.reranker.parts.tree.parents), "the models here have no label tree; choose another --work"
    alone = replace(first, reranker=None)
    network = load_network(run / "30-stage1" / "network", device=first.network.device, threads=first.network.threads)
    upto1, upto2 = seconds(run, FEATURES + STAGES[:2]), seconds(run, FEATURES + STAGES)
    yield "stage 1", evaluate_model(replace(alone, network=network), data), upto1
    used = first.about["settings"]  # of the models that are there, whatever the defaults are now
    folds = used["score_model"]["folds"]
    epochs = used["stage1"]["epochs"] + used["stage2"]["epochs"]
    # Yardsticks are trained on the rows that the model's own network is trained on.
    lacking = 0 if folds else used["split"]["calibration_rows"]
    unranked = {"ranking.kind": "none", "split.calibration_rows": str(lacking)}
    if yardstick:
        control = {**changes, **unranked, "stage1.epochs": str(epochs), "stage2.epochs": "0"}
        model = fitted(data, work / "control", control)
        yield "control", evaluate_model(model, data), seconds(work / "control.run", [*FEATURES, *STAGES[:2]])
    yield "+ stage 2", evaluate_model(alone, data), upto2
    treeless = {**changes, "label_tree.enabled": "false", "score_model.folds": str(folds)}
    scored_run, calibrated_run = work / "score-model.run", work / "calibration.run"
    share(run, scored_run, [*FEATURES, *STAGES, *of_folds(run, [*FEATURES, *STAGES])])
    scored = fitted(data, work / "score-model", treeless)
    assert isinstance(scored, elias.Model)
    assert scored.reranker is not None
    product = replace(scored.reranker, score_model=ScoreModel("product", scored.reranker.score_model.loss))
    ranked = upto2 + seconds(scored_run, RANKING)
    yield "+ ranker", evaluate_model(replace(scored, reranker=product), data), ranked
    kept = [*FEATURES, *STAGES, *RANKING, HELD_OUT]
    share(scored_run, calibrated_run, [*kept, *of_folds(scored_run, kept)])
    calibrated = fitted(data, work / "calibration", {**treeless, "score_model.kind": "tree"})
    yield "+ calibration", evaluate_model(calibrated, data), ranked + learning(calibrated_run)
    yield "+ score model", evaluate_model(scored, data), ranked + learning(scored_run)
    yield "+ label tree", evaluate_model(first, data), upto2 + seconds(run, RANKING) + learning(run)
    if members > 1:
        yield f"+ {members} members", evaluate_model(whole, data), seconds(work / "ensemble.run")
    if yardstick:
        others = {
            key: value for key, value in changes.items() if key.split(".")[0] not in ("clustering", "index", "stage2")
        }
        exact = {**others, **unranked, "network.kind": "one-versus-all", "stage1.epochs": str(epochs)}
        model = fitted(data, work / "one-versus-all", exact)
        yield "one-versus-all", evaluate_model(model, data), seconds(work / "one-versus-all.run")


def of_folds(run: Path, steps: list[str] | None = None) -> list[str]:
    """These steps, or all, of the folds that the score model is learned from, where a run has folds."""
    found = (done.parent.relative_to(run) for done in run.glob("fold-*/*/done.json"))
    return sorted(str(step) for step in found if steps is None or step.name in steps)


def learning(run: Path) -> float:
    """Time that the score model took: features of the held-out rows, folds, and the fit."""
    return seconds(run, [*of_folds(run), HELD_OUT, SCORE])


def share(run: Path, other: Path, steps: list[str]) -> None:
    """Steps of a run that another one need not make."""
    for step in steps:
        if (run / step).exists() and not (other / step).exists():
            link_tree(run / step, other / step)


def fitted(data: elias.Dataset, output: Path, changes: dict[str, str], members: int = 1) -> elias.Model | Ensemble:
    """The model at `output`, trained unless it is there."""
    if not output.exists():
        settings = elias.Settings().updated(changes)
        fit_to(data, output, settings=settings, members=members, progress=Progress())
    return elias.load(output)


def seconds(run: Path, steps: list[str] | None = None) -> float:
    """Time that some steps of a run took, or all; steps that members share count once."""
    found = run.rglob("done.json") if steps is None else [run / s / "done.json" for s in steps if (run / s).exists()]
    files = {path.stat().st_ino: path for path in found}
    return float(sum(json.loads(path.read_text())["seconds"] for path in files.values()))


if __name__ == "__main__":
    main()
