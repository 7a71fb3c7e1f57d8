"""One process that attacks: reads cases from standard input, one JSON line each, and answers each with one.

    {"what": "models", "target": "stacked:narrow", "seed": 17}  ->  {"outcome": "refused", "said": "...", "did": "..."}

Outcomes: refused (one EliasError), same (the answers of the undamaged model), changed (other answers; `anew`: after its
checksums were made anew, as of another model), accepted (data or arrays that can be used), traceback. A crash or a hang
is seen by whoever started the process.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

MEMORY = 12 << 30  # bytes of address space: what asks for more is an error, not a killed machine
LONGEST = 600  # characters of a message that is still one line for a person


class Attacker:
    def __init__(self, bases: Path) -> None:
        self.bases = bases
        self.models: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        rng = Random(f"{case['what']} {case['target']} {case['seed']}")
        attack = {"models": self.model, "datasets": self.dataset, "arrays": self.arrays}[case["what"]]
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            return attack(case["target"], rng, Path(folder))

    # -- models -------------------------------------------------------------------------------------------------------

    def model(self, target: str, rng: Random, folder: Path) -> dict[str, Any]:
        from attacks.mutators import mutate_model

        name, _, kind = target.partition(":")
        source = self.source(name)
        narrow(kind == "narrow")
        if target not in self.answers:
            self.answers[target] = answer_of(source, verify=False)
        shutil.copytree(source, folder / "model", copy_function=shutil.copyfile)
        donor = self.source(rng.choice([other for other in self.targets() if other != name]))
        did, anew = mutate_model(folder / "model", rng, donor)

        verify = rng.random() < 0.5
        outcome, said, answer = judged(lambda: answer_of(folder / "model", verify=verify))
        if outcome == "accepted":
            outcome = "same" if answer == self.answers[target] else "changed"
        if outcome == "changed" and not anew and not verify:  # the content of large files is compared on request
            found, said, _ = judged(lambda: answer_of(folder / "model", verify=True))
            outcome = "refused" if found == "refused" else "changed"
        return {"outcome": outcome, "said": said, "did": did, "anew": anew}

    def targets(self) -> list[str]:
        from attacks.bases import MODELS, TRANSFORMERS

        return [name for name in (*MODELS, "dense", "sparse", *TRANSFORMERS) if self.source(name).is_dir()]

    def source(self, name: str) -> Path:
        """A golden model, one that was fitted for the attack, or a folder that was named by its whole path."""
        from attacks.bases import GOLDEN

        return GOLDEN / name if (GOLDEN / name).is_dir() else self.bases / "models" / name

    # -- datasets and arrays ------------------------------------------------------------------------------------------

    def dataset(self, target: str, rng: Random, folder: Path) -> dict[str, Any]:
        from attacks.mutators import mutate_dataset
        from elias.cli import main

        shutil.copytree(self.bases / "datasets" / target, folder / "data")
        did = mutate_dataset(folder / "data", rng)

        def check() -> int:
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                code = main(["check", str(folder / "data"), *(["--json"] if rng.random() < 0.5 else [])])
            if "Traceback" in err.getvalue() + out.getvalue():
                raise AssertionError(err.getvalue())
            if code not in (0, 3, 4):
                raise AssertionError(f"exit code {code}: {err.getvalue()}")
            return code

        outcome, said, code = judged(check)
        outcome = "refused" if outcome == "accepted" and code else outcome
        return {"outcome": outcome, "said": said, "did": did}

    def arrays(self, target: str, rng: Random, folder: Path) -> dict[str, Any]:
        import elias
        from attacks.arrays import attack

        narrow(False)
        for name in ("dense", "sparse", "stacked", "network"):
            if name not in self.models:
                self.models[name] = elias.load(self.source(name), threads=2)
        did, call = attack(rng, self.models)
        outcome, said, found = judged(call)
        if outcome == "accepted" and isinstance(found, elias.Predictions) and not finite(found):
            outcome, said = "changed", "a score is not finite"
        return {"outcome": outcome, "said": said, "did": did}


def judged(call: Any) -> tuple[str, str, Any]:
    """(outcome, message, result) of a call that may raise."""
    from elias import EliasError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "accepted", "", call()
    except EliasError as error:
        said = str(error)
        if "\n" in said or len(said) > LONGEST:
            return "traceback", f"not one line: {said[:300]}", None
        return "refused", said, None
    except BaseException:
        return "traceback", traceback.format_exc()[-1500:], None


def answer_of(folder: Path, *, verify: bool) -> Any:
    """Labels and scores of some inputs; ValueError for a score that is not finite."""
    from scipy.sparse import csr_matrix

    import elias
    from attacks.bases import TEXTS, vectors

    model = elias.load(folder, threads=2, verify=verify)
    texts = [*TEXTS, "w1 w5 w20"]  # the last has words of the models with transformers
    given: Any = texts if model.first.vectorizer is not None else vectors()[0][:5]
    if not isinstance(given, list) and "words" in model.first.network.encoder.tables():
        given = csr_matrix(given)
    found = [model.predict(given, k=5, explain=True), model.predict(given, k=20), model.predict(given[:1], k=3)]
    if not all(map(finite, found)):
        raise ValueError("a score is not finite")
    return [(one.labels.tolist(), one.scores.tolist()) for one in found]


def finite(found: Any) -> bool:
    import numpy as np

    return bool(np.isfinite(found.scores).all())


def narrow(on: bool) -> None:
    """Tables as models of more than 16,384 labels have them."""
    from elias.ranking import inverted_index, margins

    for module in (inverted_index, margins):
        module.QUANTIZED_FROM = 1 if on else 16_384


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()  # where a crash happened, to standard error
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes elsewhere
    attacker = Attacker(Path(sys.argv[1]))
    for line in sys.stdin:
        answers.write(json.dumps(attacker.run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
