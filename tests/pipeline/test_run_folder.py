"""Run folders: steps that are skipped, rebuilt or resumed, frozen settings, a log of whole lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elias.core.defaults import DataSize, resolve
from elias.core.errors import RunError
from elias.core.progress import SILENT
from elias.core.settings import Settings
from elias.pipeline.run_folder import Run, hash_of

GIVEN = Settings().updated({"run.threads": 2})
RESOLVED = resolve(GIVEN, DataSize(rows=100, labels=10, pairs=200))


def builder(seen: list[str], name: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        seen.append(name)
        (folder / "result").write_text(name)
        (folder / "scratch").write_text("")

    return build


def line(folder: Path, *, a: int = 1, b: int = 1, restart: bool = False, data: str = "data") -> list[str]:
    """A run of two steps; which of them were built."""
    seen: list[str] = []
    with Run(folder, SILENT) as run:
        run.freeze(GIVEN, RESOLVED, data, restart=restart)
        run.step("10-a", {"a": a}, builder(seen, "a"), scratch=["scratch"])
        run.step("20-b", {"b": b}, builder(seen, "b"), scratch=["scratch"])
    return seen


def test_only_changed_steps_and_those_after_them_run_again(tmp_path: Path) -> None:
    assert line(tmp_path) == ["a", "b"]
    assert line(tmp_path) == []
    assert line(tmp_path, b=2) == ["b"]
    assert line(tmp_path, a=2, b=2) == ["a", "b"]
    assert line(tmp_path, data="other", restart=True) == ["a", "b"]
    assert not list(tmp_path.rglob("scratch"))
    assert not list(tmp_path.glob("*.part"))


def branches(folder: Path, *, a: int = 1, left: int = 1, right: int = 1) -> list[str]:
    """Two steps after the first, and one after both; which were built."""
    seen: list[str] = []
    with Run(folder, SILENT) as run:
        run.freeze(GIVEN, RESOLVED, "data")
        first = run.step("10-a", {"a": a}, builder(seen, "a"))
        one = run.step("20-left", {"b": left}, builder(seen, "left"), after=[first])
        other = run.step("30-right", {"b": right}, builder(seen, "right"), after=[first])
        run.step("40-both", {}, builder(seen, "both"), after=[one, other])
    return seen


def test_a_step_depends_on_those_it_comes_after(tmp_path: Path) -> None:
    assert branches(tmp_path) == ["a", "left", "right", "both"]
    assert branches(tmp_path) == []
    assert branches(tmp_path, left=2) == ["left", "both"]
    assert branches(tmp_path, left=2, right=2) == ["right", "both"]
    assert branches(tmp_path, a=2, left=2, right=2) == ["a", "left", "right", "both"]


def reusing(folder: Path, other: Path, *, a: int = 1, b: int = 1) -> list[str]:
    """A run of two steps, and one below it, that may link the steps of another run; which were built."""
    seen: list[str] = []
    with Run(folder, SILENT, reuse=other) as run:
        run.freeze(GIVEN, RESOLVED, "data")
        run.step("10-a", {"a": a}, builder(seen, "a"))
        with run.below("fold-0") as inside:
            inside.freeze(GIVEN, RESOLVED, "data")
            below = inside.step("10-a", {"a": a}, builder(seen, "below"))
        run.step("20-b", {"b": b}, builder(seen, "b"), after=[below])
    return seen


def test_finished_steps_of_another_run_are_linked_where_they_are_the_same(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert reusing(first, tmp_path / "not there") == ["a", "below", "b"]
    assert reusing(second, first, b=2) == ["b"]
    for step in ("10-a", "fold-0/10-a"):
        for file in ("result", "done.json"):
            assert (first / step / file).samefile(second / step / file)
    assert not (first / "20-b" / "result").samefile(second / "20-b" / "result")
    assert reusing(second, first, b=2) == []
    assert reusing(third, first, a=2) == ["a", "below", "b"], "another hash"


def test_an_unfinished_step_of_another_run_is_not_linked(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    reusing(first, first)
    (first / "10-a").rename(first / "10-a.part")
    (first / "20-b" / "done.json").unlink()
    assert reusing(second, first) == ["a", "b"]


def test_a_step_that_was_cut_goes_on_in_its_own_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    found: list[bool] = []
    for depends, build in (
        ({"a": 1}, fail),
        ({"a": 1}, lambda folder: found.append((folder / "half").exists())),
        ({"a": 2}, fail),
        ({"a": 3}, lambda folder: found.append((folder / "half").exists())),  # half of another step is no use
    ):
        run = Run(tmp_path, SILENT)
        try:
            with run:
                run.freeze(GIVEN, RESOLVED, "data")
                run.step("10-a", depends, build)
        except KeyboardInterrupt:
            assert not (tmp_path / "10-a").exists()
    assert found == [True, False]


def test_killed_just_before_the_renaming_a_step_is_not_built_again(tmp_path: Path) -> None:
    line(tmp_path)
    (tmp_path / "20-b").rename(tmp_path / "20-b.part")
    (tmp_path / "20-b.part" / "scratch").write_text("")
    assert line(tmp_path) == []
    assert (tmp_path / "20-b" / "result").exists()
    assert not (tmp_path / "20-b" / "scratch").exists()


def test_settings_are_frozen_at_the_first_start(tmp_path: Path) -> None:
    with Run(tmp_path, SILENT) as run:
        run.freeze(GIVEN.updated({"run.seed": 9}), RESOLVED, "data")
        run.freeze(GIVEN, RESOLVED, "data")  # no step is done yet: a first call that failed can be put right
        run.step("10-a", {}, lambda folder: None)
        other = resolve(GIVEN, DataSize(rows=10**6, labels=10**5, pairs=10**6))  # as if the machine had changed
        assert run.freeze(GIVEN, other, "data") == RESOLVED
        often = GIVEN.updated({"run.checkpoint_seconds": 1})
        assert run.freeze(often, other, "data") == RESOLVED.updated({"run.checkpoint_seconds": 1})
        changed = GIVEN.updated({"stage2.epochs": 3, "run.seed": 4})
        with pytest.raises(RunError, match=r"stage2\.epochs None -> 3; run\.seed 0 -> 4.*--force"):
            run.freeze(changed, other, "data")
        with pytest.raises(RunError, match="other data"):
            run.freeze(GIVEN, RESOLVED, "other data")
        assert run.freeze(changed, other, "data", restart=True) == other
        assert run.freeze(changed, RESOLVED, "data") == other


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "settings.json: not readable as JSON"),
        ("[]", "settings.json: holds a list"),
        ('{"format": 99}', "another version"),
        ('{"format": 1, "given": {}}', "another version"),
        ('{"format": 1, "given": {"old": {"key": 1}}, "resolved": {}, "data": ""}', "another version"),
    ],
)
def test_foreign_settings_are_refused(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with Run(tmp_path, SILENT) as run, pytest.raises(RunError, match=expected):
        run.freeze(GIVEN, RESOLVED, "data")


def test_the_log_survives_a_torn_line(tmp_path: Path) -> None:
    with Run(tmp_path, SILENT) as run:
        run.log({"note": "first ü \udcff"})
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write('{"time": 1, "lo')
    with Run(tmp_path, SILENT) as run:
        run.log({"note": "second"})
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [record["note"] for record in lines] == ["first ü \udcff", "second"]


def test_hashes_tell_values_apart() -> None:
    assert hash_of(1, {"b": 1, "a": 2}) == hash_of(1, {"a": 2, "b": 1})
    assert len({hash_of(1), hash_of("1"), hash_of(1.5), hash_of(None), hash_of([1]), hash_of(1, 1)}) == 6
