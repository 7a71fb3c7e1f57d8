"""`fit`: a dataset in, a model or an ensemble out, in a run folder that a killed run goes on in.

    model.run/             the run of a model
    ensemble.run/          member-0/, member-1/ ...: the runs of its members

What members have in common is made once, by the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import kernels
from ..core.defaults import describe, resolve
from ..core.devices import pick_device, pick_threads
from ..core.errors import InputError, RunError
from ..core.files import FolderLock, disk_errors, link_tree, remove, replacing
from ..core.progress import SILENT, Progress
from ..core.settings import Settings
from ..dataset import Dataset
from ..model.ensemble import Ensemble, write_ensemble
from ..model.model import Model
from ..model.storage import load_model
from .estimate import estimate_fit
from .memory import available_bytes, refuse_if_too_large
from .network_steps import Steps
from .run_folder import Run

SHARED = ("10-features", "12-ranker", "14-ranker", "12-words", "14-words")  # steps in which members do not differ
MARKS = ("done.json", "begun.json")  # of a step


def fit(
    data: Dataset,
    *,
    settings: Settings | None = None,
    run_dir: str | Path | None = None,
    members: int = 1,
    progress: Progress = SILENT,
    force: bool = False,
) -> Model | Ensemble:
    """Train a model in `run_dir` (a temporary folder if None). Called again after a kill, it goes on.

    With `members` above 1, an ensemble of that many models with different clusterings.
    """
    if run_dir is None:
        with tempfile.TemporaryDirectory(prefix="elias-") as folder:
            # The maps of the model outlive the folder.
            return fit(data, settings=settings, run_dir=folder, members=members, progress=progress)
    with _fitted(data, settings or Settings(), Path(run_dir), members, progress, force) as (finished, used):
        models: list[Model] = []
        for path in finished:
            like = (finished[0], models[0]) if models else None
            models.append(load_model(path, device=used.run.device, threads=used.run.threads, like=like))
    return models[0] if members == 1 else Ensemble(models)


def fit_to(
    data: Dataset,
    output: str | Path,
    *,
    settings: Settings | None = None,
    members: int = 1,
    progress: Progress = SILENT,
    force: bool = False,
) -> Path:
    """Train in OUTPUT.run/ and put the finished model at OUTPUT. An existing OUTPUT is refused without `force`."""
    output = Path(output)
    check_output(output, force=force)
    run_dir = output.with_name(output.name + ".run")
    with _fitted(data, settings or Settings(), run_dir, members, progress, force) as (finished, _):
        check_output(output, force=force)  # another run may have put it there before this one had the lock
        with replacing(output) as part:
            if members == 1:
                _link_model(finished[0], part)
                return output
            names = [f"member-{number}" for number in range(members)]
            for name, path in zip(names, finished, strict=True):
                _link_model(path, part / name)
            write_ensemble(part, names)
    return output


def check_output(output: Path, *, force: bool) -> None:
    """Refuse a place where no model can go, before anything is computed."""
    if output.name in ("", ".."):
        raise InputError(f'"{output}" is not a name for a model; write -o FOLDER')
    if not output.exists():
        return
    if not force:
        raise RunError(f"{output} exists; choose another -o, or pass --force to replace it")
    if not any((output / name).is_file() for name in ("config.json", "ensemble.json")):
        raise RunError(f"{output} exists and is not a model, so --force does not replace it; choose another -o")


def _link_model(finished: Path, part: Path) -> None:
    link_tree(finished, part)
    for mark in MARKS:
        remove(part / mark)


@contextmanager
def _fitted(
    data: Dataset, given: Settings, run_dir: Path, members: int, progress: Progress, force: bool
) -> Iterator[tuple[list[Path], Settings]]:
    """The folders of the finished models, and the settings of the last. Nobody else writes in the run meanwhile."""
    if members < 1:
        raise InputError(f"members={members}: an ensemble has at least one member")
    kernels.discard_stale()
    if members == 1:
        with Run(run_dir, progress) as run:
            finished, used = _fit_in(data, given, None, run, progress, force)
            yield [finished], used
        return
    with disk_errors(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    with FolderLock(run_dir):
        folders: list[Path] = []
        settings: list[Settings] = []
        for number in range(members):
            progress.say(f"member {number} of {members}")
            own, first = run_dir / f"member-{number}", run_dir / "member-0"
            with Run(own, progress) as run:
                if number:
                    _share(first, own)
                asked = given.updated({"run.member": number})
                finished, used = _fit_in(data, asked, settings[0] if settings else None, run, progress, force)
            folders.append(finished)
            settings.append(used)
        yield folders, used


def _share(first: Path, other: Path) -> None:
    """Give a run the steps that it has in common with the first, unless it has them."""
    drawn = sorted(done.parent.relative_to(first) for done in first.glob("draw-*/*/done.json"))
    for name in [*map(Path, SHARED), *drawn]:
        ours, theirs = first / name / "done.json", other / name / "done.json"
        if ours.exists() and not (theirs.exists() and theirs.read_bytes() == ours.read_bytes()):
            with replacing(other / name) as part:
                link_tree(first / name, part)


def _fit_in(
    data: Dataset, given: Settings, first: Settings | None, run: Run, progress: Progress, force: bool
) -> tuple[Path, Settings]:
    """The finished model of one run. `first`: the settings of member 0, which the others have too.

    They may be older than the defaults: an ensemble that was begun by an earlier version ends as it began.
    """
    machine = {"run.threads": pick_threads(given.run.threads), "run.device": str(pick_device(given.run.device))}
    if first is None:
        resolved = resolve(given.updated(machine), data.size())
    else:
        resolved = first.updated({"run.member": given.run.member})
    settings = run.freeze(given, resolved, data.fingerprint(), restart=force)
    if settings.run.check_memory:
        refuse_if_too_large(estimate_fit(data, settings, data.size()), available_bytes())
    pick_threads(settings.run.threads)
    device = pick_device(settings.run.device)
    progress.say(describe(settings, data.size(), data.name))
    if kernels.are_new():
        progress.say("  compiling the kernels, once for this installation: about a minute in all")
    return Steps(data, settings, run, progress, device).model(), settings
