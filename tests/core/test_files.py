"""Files appear whole or not at all; a damaged one is named; hard links are never written through."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elias.core.errors import ModelError, RunError
from elias.core.files import (
    FolderLock,
    give_back,
    link_tree,
    read_json,
    read_object,
    read_tensors,
    remove,
    replacing,
    write_json,
    write_tensors,
)


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with replacing(path) as part:
        part.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as part:  # noqa: PT012
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for words in (["a", "b"], ["c"]):
        with replacing(path) as part:
            part.mkdir()
            for word in words:
                (part / word).write_text(word)
    assert os.listdir(path) == ["c"]
    with pytest.raises(ValueError, match="no"), replacing(path) as part:  # noqa: PT012
        part.mkdir()
        raise ValueError("no")
    assert os.listdir(path) == ["c"]
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_renamed_when_its_writer_was_killed_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "model"
    (tmp_path / "model.old").mkdir()
    (tmp_path / "model.old" / "a").write_text("a")
    (tmp_path / "model.part").mkdir()
    with pytest.raises(KeyboardInterrupt), replacing(path):  # noqa: PT012
        assert (path / "a").read_text() == "a"
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_never_replaces_a_folder(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one").write_text("1")
    with pytest.raises(RunError, match="it is a folder"), replacing(tmp_path / "photos") as part:
        part.write_text("x")
    assert (tmp_path / "photos" / "one").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_json(tmp_path / "file" / "x.json", {})
    with pytest.raises(RunError, match="cannot be written"):
        write_json(tmp_path / ("x" * 300), {})


def test_links_are_replaced_and_never_written_through(tmp_path: Path) -> None:
    source, copy = tmp_path / "run", tmp_path / "model"
    (source / "encoder").mkdir(parents=True)
    write_json(source / "config.json", [1])
    write_tensors(source / "encoder" / "x.safetensors", {"x": np.arange(3.0)})
    for _ in range(2):  # the second time over what is there
        link_tree(source, copy)
        assert (copy / "config.json").samefile(source / "config.json")
    write_json(copy / "config.json", [2])
    write_tensors(copy / "encoder" / "x.safetensors", {"x": np.zeros(3)})
    assert read_json(source / "config.json") == [1]
    assert read_tensors(source / "encoder" / "x.safetensors")[0]["x"].tolist() == [0, 1, 2]


def test_mapped_arrays_can_be_written_to_and_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"x": np.arange(4, dtype=np.float32)})
    before = path.read_bytes()
    array = read_tensors(path)[0]["x"]
    array += 1
    del array
    assert path.read_bytes() == before
    old = read_tensors(path)[0]["x"]
    write_tensors(path, {"x": np.zeros(4, dtype=np.float32)})  # over the mapped file
    assert old.tolist() == [0, 1, 2, 3]


def test_memory_that_is_given_back_is_read_again(tmp_path: Path) -> None:
    numbers = np.arange(1 << 20)
    write_tensors(tmp_path / "numbers.safetensors", {"numbers": numbers, "none": numbers[:0]})
    arrays, _ = read_tensors(tmp_path / "numbers.safetensors")

    def resident() -> int:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["RssFile"].split()[0]) << 10

    np.testing.assert_array_equal(arrays["numbers"], numbers)
    before = resident()
    give_back(arrays["numbers"][5:], arrays["none"], numbers)
    assert resident() < before - numbers.nbytes // 2
    np.testing.assert_array_equal(arrays["numbers"], numbers)


def test_given_back_are_whole_pages_of_the_array_alone(tmp_path: Path) -> None:
    """Arrays of a file share a map; what was written to one stays when another is given back."""
    sizes = {"before": 3, "large": 5000, "after": 3}
    write_tensors(tmp_path / "x", {name: np.arange(size, dtype=np.float32) for name, size in sizes.items()})
    arrays, _ = read_tensors(tmp_path / "x")
    for name in ("before", "after"):
        arrays[name] += 1
    give_back(arrays["large"], arrays["before"])
    for name, size in sizes.items():
        assert arrays[name].tolist() == (np.arange(size) + (name != "large")).tolist()


def test_a_mapped_file_holds_one_descriptor(tmp_path: Path) -> None:
    """A map keeps its descriptor open: one per array ran into the limit of 1,024 after some twenty models."""
    write_tensors(tmp_path / "x", {f"array {number}": np.arange(10) for number in range(20)})
    before = len(os.listdir("/proc/self/fd"))
    arrays, _ = read_tensors(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert len(arrays) == 20
    del arrays
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("dtype", [*"fdeilhb", "u1", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (4, 0), (1, 2, 3)])
def test_tensors_survive_writing_and_reading(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    write_tensors(tmp_path / "x", {"a": array, "b": array.copy(order="F")}, {"note": "ü"})
    found, about = read_tensors(tmp_path / "x")
    for name in "ab":
        assert (found[name].dtype, found[name].shape) == (array.dtype, shape)
        assert (found[name] == array).all()
    assert about == {"note": "ü"}


def test_other_programs_read_our_tensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    array = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    write_tensors(tmp_path / "x", {"a": array, "n": np.arange(4)}, {"note": "x"})
    found = safetensors.load_file(tmp_path / "x")
    assert (found["a"] == array).all()
    safetensors.save_file({"b": array}, tmp_path / "y")
    assert (read_tensors(tmp_path / "y")[0]["b"] == array).all()


def test_a_truncated_file_at_any_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.arange(20.0)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"x\.safetensors: not a whole safetensors file"):
            read_tensors(path)


@given(st.binary(max_size=200), st.integers(0, 150))
def test_damage_is_an_error_and_never_a_crash(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("damage") / "x"
    write_tensors(path, {"a": np.arange(6.0), "b": np.ones((2, 2), dtype=np.int32)}, {"k": "v"})
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    with suppress(ModelError):
        read_tensors(path)


def test_json_is_read_back_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": ["ü", "\udcff", 1.5]})  # a file name may hold half a surrogate pair
    assert read_json(path) == {"a": ["ü", "\udcff", 1.5]}
    assert read_object(path, "a")
    with pytest.raises(ModelError, match='has no "b"'):
        read_object(path, "b")
    for broken, message in [("{", "not readable as JSON"), ("[1]", "holds a list"), ("[" * 100_000, "not readable")]:
        path.write_text(broken)
        with pytest.raises(RunError, match=message):
            read_object(path, error=RunError)
    path.write_bytes(b"\xff")
    with pytest.raises(ModelError, match="not readable as JSON"):
        read_json(path)
    remove(path)
    for reader in (read_json, read_tensors):
        with pytest.raises(ModelError, match="the file is missing"):
            reader(path)
    path.mkdir()
    for reader in (read_json, read_tensors):
        with pytest.raises(ModelError, match=r"cannot be read|not a file but"):
            reader(path)


def test_a_second_lock_is_refused_and_names_the_process(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        with pytest.raises(RunError, match=f"process {os.getpid()} is writing here"), FolderLock(tmp_path):
            pass
        with pytest.raises(RunError, match="is writing here"), FolderLock(tmp_path):
            pass
    with FolderLock(tmp_path):
        pass
    assert json.loads((tmp_path / "lock").read_text().split()[1]) == os.getpid()
