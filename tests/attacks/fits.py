"""Kill a default fit at random moments, and fill its disk in every step: the model must be that of a fit left alone.

    PYTHONPATH=src:tests python tests/attacks/fits.py datasets/debian-packages --rows 2000 --kills 30 --full-disks

A fit is killed (SIGKILL) after a random time of at most half of what a whole fit takes, started again with the same
command and killed again, `--per-fit` times; then it runs to its end. The disk is a tmpfs that is made as small as its
content when a step has begun, and large again after the fit has ended with an error; this needs the right to mount.
Every file of the model is compared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS)]

from helpers.processes import content, start  # noqa: E402

ROOM = "4g"  # of the disk while it is not full
FULL = "the disk is full; free some space and start the same command again"
DISK_FULL = 6  # exit status
LONGEST = 600  # seconds of a fit
FILLS = 200  # attempts to make the disk as small as its content, while a fit writes to it


@dataclass
class Tally:
    """What came of the attacks of one kind."""

    fits: int = 0
    where: list[str] = field(default_factory=list)  # the step that each attack met
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fit:
    """The command of a fit, and the model of a fit left alone."""

    data: Path
    options: list[str]
    expected: dict[str, bytes]
    seconds: float

    def start(self, output: Path) -> subprocess.Popen[str]:
        return start("fit", self.data, "-o", output, *self.options)

    def compare(self, output: Path) -> list[str]:
        """The files that are not as they should be."""
        found = content(output)
        names = sorted(found.keys() | self.expected.keys())
        return [f"{name} differs" for name in names if found.get(name) != self.expected.get(name)]


def cut(source: Path, rows: int, folder: Path) -> Path:
    """The first training rows of a dataset of train.jsonl.gz, labels.tsv.gz and dataset.toml."""
    folder.mkdir(parents=True)
    with gzip.open(source / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [line for line, _ in zip(file, range(rows), strict=False)]
    (folder / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    used = {label for line in lines for label in json.loads(line)["labels"]}
    with gzip.open(source / "labels.tsv.gz", "rt", encoding="utf-8") as file:
        names = [line for line in file if line.split("\t")[0] in used]
    (folder / "labels.tsv").write_text("".join(names), encoding="utf-8")
    (folder / "dataset.toml").write_bytes((source / "dataset.toml").read_bytes())
    return folder


def left_alone(data: Path, options: list[str], work: Path) -> Fit:
    """A fit to its end. The first fills the cache of kernels; the second is timed, and must equal the first."""
    fit = Fit(data, options, {}, 0.0)
    for number in range(2):
        output, began = work / f"alone-{number}", time.monotonic()
        problem = ended(fit.start(output), 0)
        if problem:
            raise RuntimeError(problem)
        differing = fit.compare(output) if number else []
        if differing:
            raise RuntimeError(f"two fits left alone differ: {differing}")
        fit = Fit(data, options, content(output), time.monotonic() - began)
    return fit


def ended(process: subprocess.Popen[str], status: int) -> str:
    """Wait for the end; "" if it is as expected, else what was said."""
    _, err = process.communicate(timeout=LONGEST)
    return judged(process.returncode, err, status)


def judged(code: int, err: str, status: int) -> str:
    last = (err.splitlines() or [""])[-1]
    if code != status or "Traceback" in err or (status == DISK_FULL and FULL not in last):
        return f"exit status {code}: {err[-600:]}"
    return ""


def under_way(output: Path) -> list[str]:
    """Steps that have begun and not ended, of the run and of the folds inside it, and the model that is written."""
    run = output.with_name(f"{output.name}.run")
    steps = [*run.glob("*.part"), *run.glob("*/*.part")]
    found = [str(path.relative_to(run)).removesuffix(".part") for path in steps if path.is_dir()]
    steps_found = [name for name in found if name.rpartition("/")[2][0].isdigit()]
    return sorted([*steps_found, *(["the model itself"] if output.with_name(f"{output.name}.part").exists() else [])])


def kill_fits(fit: Fit, kills: int, per_fit: int, rng: Random, work: Path) -> Tally:
    """Kill, start again and kill again; after `per_fit` kills let the fit end."""
    tally = Tally()
    while len(tally.where) < kills:
        output = work / f"killed-{tally.fits}"
        tally.fits += 1
        for _ in range(min(per_fit, kills - len(tally.where))):
            process = fit.start(output)
            try:
                process.wait(rng.uniform(0, fit.seconds / 2))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                tally.where.append(", ".join(under_way(output)) or "before or between steps")
            else:  # it ended before: no kill
                tally.problems += [problem] if (problem := ended(process, 0)) else []
                break
        else:
            tally.problems += [problem] if (problem := ended(fit.start(output), 0)) else []
        tally.problems += [f"killed in {tally.where}: {one}" for one in fit.compare(output)]
        print(f"{len(tally.where)} kills in {tally.fits} fits, {len(tally.problems)} problems", flush=True)
    return tally


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def fill(disk: Path) -> None:
    """No room beyond what is used; what is written meanwhile makes it a little more."""
    for _ in range(FILLS):
        found = os.statvfs(disk)
        size = (found.f_blocks - found.f_bfree) * found.f_frsize
        done = subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], capture_output=True, text=True)
        if not done.returncode:
            return
    raise RuntimeError(f"{disk}: cannot be made full: {done.stderr.strip()}")


def fill_disks(fit: Fit, work: Path) -> Tally:
    """Fill the disk once in each step, in the order in which they begin."""
    tally, seen = Tally(fits=1), set[str]()
    with small_disk(work / "disk") as disk:
        output = disk / "model"
        while True:
            process = fit.start(output)
            while process.poll() is None and not (new := set(under_way(output)) - seen):
                time.sleep(0.001)
            if process.poll() is not None:
                tally.problems += [problem] if (problem := ended(process, 0)) else []
                break
            fill(disk)
            _, err = process.communicate(timeout=LONGEST)
            seen |= new
            if process.returncode == 0:  # the step had written what it writes
                break
            problem = judged(process.returncode, err, DISK_FULL)
            tally.where.append(", ".join(under_way(output)) or "before or between steps")
            tally.problems += [f"{sorted(new)}: {problem}"] if problem else []
            tally.problems += ["a model that is not whole"] if (output / "config.json").exists() else []
            resize(disk, ROOM)
            print(f"full in {tally.where[-1]}, {len(tally.problems)} problems", flush=True)
        resize(disk, ROOM)
        tally.problems += fit.compare(output)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="a folder like datasets/debian-packages")
    parser.add_argument("--rows", type=int, default=2000, help="the first of the training rows")
    parser.add_argument("--kills", type=int, default=0, metavar="N")
    parser.add_argument("--per-fit", type=int, default=5, help="kills of one fit, before it runs to its end")
    parser.add_argument("--full-disks", action="store_true", help="fill the disk in every step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attacked-fits-") as folder:
        work = Path(folder)
        data = cut(options.dataset, options.rows, work / "data")
        fit = left_alone(data, ["--set", f"run.threads={options.threads}"], work)
        print(f"{options.rows:,} rows, {len(fit.expected)} files, {fit.seconds:.0f} s left alone", flush=True)
        tallies: dict[str, Tally] = {}
        if options.full_disks:
            tallies["full disk"] = fill_disks(fit, work)
            print(shown("full disk", tallies["full disk"]), flush=True)
        if options.kills:
            tallies["kill -9"] = kill_fits(fit, options.kills, options.per_fit, Random(options.seed), work)
            print(shown("kill -9", tallies["kill -9"]), flush=True)
    return int(any(tally.problems for tally in tallies.values()))


def shown(name: str, tally: Tally) -> str:
    """A row of the table in docs/explanation/reliability.md, then the steps and the problems."""
    row = f"| {name} | {len(tally.where)} | {tally.fits} | {len(tally.problems)} |"
    return "\n".join([row, f"met: {dict(Counter(tally.where))}", *tally.problems])


if __name__ == "__main__":
    sys.exit(main())
