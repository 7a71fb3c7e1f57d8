"""Real processes, really killed: started again with the same command, they make the model of an undisturbed run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

from elias.core.errors import RunError
from elias.core.files import FolderLock, read_tensors
from elias.training.checkpoint import REPLICATED
from elias.training.stage import CHECKPOINT
from helpers.processes import SMALL, content, elias, one_line, sets, start, wait_until

EVERY_STEP = ("--set", "run.checkpoint_seconds=0")


def under_way(run: Path, stage: str, epoch: int, step: int) -> Callable[[], bool]:
    """True once the checkpoint of a stage has come this far."""
    path = run / f"{stage}.part" / CHECKPOINT / REPLICATED

    def happened() -> bool:
        if not path.exists():
            return False
        try:
            at = json.loads(read_tensors(path, RunError)[1]["position"])
        except RunError:  # replaced while it was read
            return False
        return (at["epoch"], at["step"]) >= (epoch, step)

    return happened


def same_networks(left: Path, right: Path) -> None:
    ours, theirs = content(left, "*.safetensors"), content(right, "*.safetensors")
    assert len(ours) >= 4
    assert ours == theirs


def test_killed_in_every_step_it_is_the_same_model(tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    moments: list[Callable[[], bool]] = [
        (run / "05-tokens.part" / "begun.json").exists,
        (run / "10-features.part" / "split.safetensors").exists,
        under_way(run, "30-stage1", 1, 5),
        (run / "30-stage1" / "done.json").exists,
        under_way(run, "50-stage2", 1, 5),
    ]
    for moment in moments:
        process = start("fit", tiny_dataset, "-o", output, *sets(SMALL), *EVERY_STEP)
        wait_until(moment, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not output.exists()
    done = elias("fit", tiny_dataset, "-o", output, *sets(SMALL))
    assert done.returncode == 0, done.stderr
    for step in ("10-features", "20-clusters", "30-stage1", "40-adjacency", "50-stage2"):
        ours = content(run / step, "*.safetensors")
        assert ours == content(tiny_model_folder.with_name("model.run") / step, "*.safetensors"), step
    assert content(output).keys() == content(tiny_model_folder).keys()
    same_networks(output, tiny_model_folder)
    assert not list(tmp_path.rglob("*.part"))
    assert not list(tmp_path.rglob(CHECKPOINT))
    for line in (run / "log.jsonl").read_text().splitlines():
        json.loads(line)


def test_ctrl_c_leaves_a_run_that_goes_on_unless_a_bit_flipped(
    tiny_model_folder: Path, tiny_dataset: Path, tmp_path: Path
) -> None:
    output, run = tmp_path / "model", tmp_path / "model.run"
    process = start("fit", tiny_dataset, "-o", output, "--quiet", *sets(SMALL), *EVERY_STEP)
    wait_until(under_way(run, "30-stage1", 1, 2), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert one_line(err)
    assert "run the same command again to continue" in err
    state = run / "30-stage1.part" / CHECKPOINT / REPLICATED
    whole = state.read_bytes()
    state.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    done = elias("fit", tiny_dataset, "-o", output, "--quiet", *sets(SMALL))
    assert (done.returncode, done.stdout) == (6, "")
    assert one_line(done.stderr)
    assert f"{state}: its content is not what was written" in done.stderr
    assert not output.exists()
    state.write_bytes(whole)
    done = elias("fit", tiny_dataset, "-o", output, *sets(SMALL))
    assert done.returncode == 0, done.stderr
    assert "30-stage1: continuing at epoch 2" in done.stderr
    same_networks(output, tiny_model_folder)


def test_a_second_writer_is_refused(tiny_dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "model.run").mkdir()
    with FolderLock(tmp_path / "model.run"):
        done = elias("fit", tiny_dataset, "-o", tmp_path / "model", *sets(SMALL))
    assert (done.returncode, done.stdout) == (6, "")
    assert "is writing here" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
