"""Attack models, datasets and arrays, and count what came of it.

    python tests/attacks/run.py --models 10000 --datasets 5000 --arrays 1000 --seed 0

Cases run in worker processes: one that dies is a crash, one that does not answer is a hang, and both are replaced.
Prints the table of docs/explanation/reliability.md, and every failure with the case that repeats it:

    python tests/attacks/run.py --case models stacked:narrow 17

With --transformers where the case was drawn with it: files of other models are drawn from those that there are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from select import select
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS)]

from attacks.bases import MODELS, NARROW, TRANSFORMERS, make_datasets, make_transformer_models, make_vector_models  # noqa: E402

FIRST, PATIENCE = 400.0, 60.0  # seconds: of the first answer, which may wait for kernels to be compiled, and of others
BAD = ("crash", "traceback", "hang", "changed")
Case = dict[str, Any]


class Worker:
    """A process that answers one case after the other; after a crash or a hang it is started again."""

    def __init__(self, bases: Path) -> None:
        self.bases, self.fresh = bases, True
        self.process: subprocess.Popen[bytes] | None = None
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 (what a process says before it dies)

    def __call__(self, case: Case) -> Case:
        if self.process is None:
            path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
            environment = {**os.environ, "PYTHONPATH": path}
            command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(self.bases)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.printed, env=environment
            )
            self.fresh = True
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {**case, **self._ended("crash")}
        ready, _, _ = select([self.process.stdout], [], [], FIRST if self.fresh else PATIENCE)
        if not ready:
            return {**case, **self._ended("hang")}
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            return {**case, **self._ended("crash")}
        self.fresh = False
        return {**case, **json.loads(line)}

    def _ended(self, outcome: str) -> dict[str, Any]:
        assert self.process is not None
        try:
            code = self.process.wait(5 if outcome == "crash" else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._close_pipes()
        self.printed.seek(0)
        last = self.printed.read()[-1500:].decode(errors="replace")
        self.printed.truncate(0)
        return {"outcome": outcome, "said": f"{last}\nexit status {code}", "did": ""}

    def close(self) -> None:
        self._close_pipes()
        self.printed.close()

    def _close_pipes(self) -> None:
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process.wait()
            self.process = None


def cases(what: str, targets: Sequence[str], count: int, seed: int) -> Iterator[Case]:
    for number in range(count):
        yield {"what": what, "target": targets[number % len(targets)], "seed": seed * 1_000_000 + number}


def run_cases(
    given: Sequence[Case], bases: Path, *, workers: int = 2, say: Callable[[Case], None] = lambda case: None
) -> list[Case]:
    """What came of each case; `say` is told of each as it ends."""
    waiting: Queue[Case] = Queue()
    for case in given:
        waiting.put(case)

    def work() -> list[Case]:
        worker, done = Worker(bases), []
        try:
            while True:
                done.append(worker(waiting.get_nowait()))
                say(done[-1])
        except Empty:
            return done
        finally:
            worker.close()

    with ThreadPoolExecutor(workers) as pool:
        return [one for done in pool.map(lambda _: work(), range(workers)) for one in done]


def make_bases(folder: Path, what: str, *, transformers: bool = False) -> list[str]:
    """Make what an attack of this kind starts from; the targets."""
    if what == "datasets":
        return make_datasets(folder / "datasets")
    make_vector_models(folder / "models")
    own = make_transformer_models(folder / "models") if transformers else []
    return ["arrays"] if what == "arrays" else own or [*MODELS, *NARROW, "dense", "sparse"]


def is_failure(result: Case) -> bool:
    """Answers may change only after checksums were made anew: then it is another model."""
    return result["outcome"] in BAD and not (result["outcome"] == "changed" and result.get("anew"))


def table(results: Sequence[Case]) -> str:
    """As in docs/explanation/reliability.md."""
    columns = ("tries", "refused", "usable", "crashes", "tracebacks", "hangs", "changed without notice")
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for what in dict.fromkeys(result["what"] for result in results):
        own = [result for result in results if result["what"] == what]
        found = Counter(result["outcome"] for result in own)
        silent = sum(is_failure(result) for result in own if result["outcome"] == "changed")
        usable = found["same"] + found["accepted"] + found["changed"] - silent
        numbers = (len(own), found["refused"], usable, found["crash"], found["traceback"], found["hang"], silent)
        lines.append(f"| {what} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for what in ("models", "datasets", "arrays"):
        parser.add_argument(f"--{what}", type=int, default=0, metavar="N", help=f"mutated {what}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--transformers", action="store_true", help="models with transformer and hybrid encoders")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="copies of this model in place of the small ones")
    parser.add_argument("--case", nargs=3, metavar=("WHAT", "TARGET", "SEED"), help="one case again, in full")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attacks-") as folder:
        if options.case:
            what, target, seed = options.case
            make_bases(Path(folder), what, transformers=options.transformers or target in TRANSFORMERS)
            results = run_cases([{"what": what, "target": target, "seed": int(seed)}], Path(folder), workers=1)
            print(json.dumps(results[0], indent=1).replace("\\n", "\n"))
            return int(is_failure(results[0]))
        started, results = time.monotonic(), []
        for what in ("models", "datasets", "arrays"):
            count = getattr(options, what)
            if count:
                targets = make_bases(Path(folder), what, transformers=options.transformers)
                if what == "models" and options.model:
                    targets = [str(options.model.resolve())]
                given = list(cases(what, targets, count, options.seed))
                results += run_cases(given, Path(folder), workers=options.workers, say=print_failure)
    print(table(results))
    print(f"{time.monotonic() - started:.0f} s, seed {options.seed}")
    return int(any(map(is_failure, results)))


def print_failure(result: Case) -> None:
    """One line with what repeats the case."""
    if is_failure(result):
        last = result["said"].strip().splitlines()[-1:] or [""]
        case = f"{result['what']} {result['target']} {result['seed']}"
        print(f"{result['outcome']}: {case}: {result['did']}: {last[0][:200]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
