"""A model of ours, in a process of its own as the peers are.

    python -m peers.our_model fit DATASET MODEL OUTPUT SETTINGS      trains MODEL; OUTPUT/train.json
    python -m peers.our_model predict DATASET MODEL OUTPUT SETTINGS  OUTPUT/predictions.npz, OUTPUT/predict.json
    python -m peers.our_model ask DATASET MODEL OUTPUT SETTINGS      answers questions of in_turn.py

SETTINGS is JSON: threads, and for `fit` members and settings. Training seconds are those of the steps in MODEL.run, so
a fit that was interrupted and continued counts in full.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from timing import peak_bytes

import elias
from elias.core.errors import EliasError, InputError
from elias.core.metrics import calibration_error_of
from elias.model.evaluate import evaluate_model
from peers.in_turn import answer_questions
from peers.runner import K, timed, write, write_predictions

TEXTS = "texts.json"
DEPTH = 100


def main() -> None:
    step, dataset, folder, output = sys.argv[1], *map(Path, sys.argv[2:5])
    given = json.loads(sys.argv[5])
    if step == "fit":
        from elias.pipeline.fit import fit_to

        data = elias.load_dataset(dataset)
        assert data.test is not None
        if data.test.texts is not None:  # as the rivals get them: a process that answers does not read training rows
            write(output / TEXTS, list(data.test.texts))

        settings = elias.Settings().updated({**given["settings"], "run.threads": given["threads"]})
        fit_to(data, folder, settings=settings, members=given["members"], force=True)
        write(output / "train.json", {"train_peak_bytes": peak_bytes(), **trained(folder)})
        return
    texts = json.loads((output / TEXTS).read_text()) if (output / TEXTS).exists() else None
    started = time.perf_counter()
    model = elias.load(folder, threads=given["threads"])
    load_seconds = time.perf_counter() - started
    inputs: Any = texts if texts is not None else rows_of_test(dataset)

    def answer(rows: Sequence[int]) -> None:
        model.predict([inputs[row] for row in rows] if isinstance(inputs, Sequence) else inputs[rows], K)

    if step == "ask":
        answer_questions(lambda: answer)
        return
    speed = timed(answer, len(inputs) if isinstance(inputs, Sequence) else inputs.shape[0])
    model.predict(inputs, DEPTH)
    peak = {"load_seconds": load_seconds, "predict_peak_bytes": peak_bytes()}
    data = elias.load_dataset(dataset)
    assert data.test is not None
    found = evaluate_model(model, data).predictions
    labels = in_numbers_of(data, list(model.labels.ids), found.labels)
    write_predictions(output / "predictions.npz", labels, found.scores)
    error = calibration_error_of(labels, found.scores, data.test.labels)
    write(output / "predict.json", {**peak, **speed, "calibration_error": error, **trained(folder)})


def rows_of_test(dataset: Path) -> Any:
    """The test rows of a dataset without texts that are there already."""
    test = elias.load_dataset(dataset).test
    assert test is not None
    return list(test.texts) if test.texts is not None else test.vectors


def in_numbers_of(data: elias.Dataset, names: list[str], labels: np.ndarray) -> np.ndarray:
    """The model's label numbers as the dataset's; a label the dataset lacks could not be scored."""
    number = np.array([data.labels.number_of.get(name, -1) for name in names], dtype=np.int32)
    if (number < 0).any():
        unknown = names[int(np.flatnonzero(number < 0)[0])]
        raise InputError(f'the model has the label "{unknown}", which {data.name} lacks; was it trained on other data?')
    return np.where(labels >= 0, number[labels], -1)


def trained(folder: Path) -> dict[str, float]:
    """What is known about the training: seconds of the run's steps, and the size on disk."""
    found = folder.with_name(folder.name + ".run").rglob("done.json")
    steps = {path.stat().st_ino: path for path in found}.values()  # members of an ensemble share some of theirs
    files = {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}  # members share files
    size = sum(path.stat().st_size for path in files.values())
    seconds = {"train_seconds": sum(json.loads(path.read_text())["seconds"] for path in steps)} if steps else {}
    return {"model_bytes": size, **seconds}


if __name__ == "__main__":
    try:
        main()
    except EliasError as problem:
        sys.exit(str(problem))
