"""Vectors of many texts, computed batch by batch into one .npy file; a killed run resumes with the next batch.

folder/vectors/vectors.npy     rows x dim, float32 or float16, memory-mapped when it is whole
folder/vectors/state.json      what the vectors depend on, and how many batches are written
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..core.errors import RunError
from ..core.files import disk_errors, read_json, remove, write_json


class VectorCache:
    """The vectors in `folder/vectors`, if they are those of `key`."""

    def __init__(self, folder: Path, key: str) -> None:
        self.place = folder / "vectors"
        self.file, self.state_file, self.key = self.place / "vectors.npy", self.place / "state.json", key
        known = self.state_file.is_file() and self.file.is_file()
        state = read_json(self.state_file, RunError) if known else {}
        self.done: int = state["batches"] if state.get("key") == key else 0
        self.whole: bool = self.done > 0 and state["whole"]

    def open(self) -> np.ndarray:
        """The whole matrix, memory-mapped."""
        assert self.whole
        matrix: np.ndarray = np.load(self.file, mmap_mode="r", allow_pickle=False)
        return matrix

    def fill(
        self,
        batches: Sequence[np.ndarray],
        vectors_of: Callable[[np.ndarray], np.ndarray],
        shape: tuple[int, int],
        dtype: np.dtype,
        progress: Callable[[int, int], None],
    ) -> np.ndarray:
        """Compute the batches (of row numbers) that are not written yet, then open the matrix."""
        width = shape[1] * dtype.itemsize
        with disk_errors(self.file):
            if self.done == 0:
                self._begin(shape, dtype)
            # Plain writes: on a full disk they fail with an error, where a memory map would end the process.
            with open(self.file, "r+b") as file:
                np.lib.format.read_magic(file)
                np.lib.format.read_array_header_1_0(file)
                start = file.tell()
                finished = sum(len(batch) for batch in batches[: self.done])
                progress(finished, shape[0])
                for batch in batches[self.done :]:
                    for row, vector in zip(batch.tolist(), vectors_of(batch), strict=True):
                        file.seek(start + row * width)
                        file.write(vector.tobytes())
                    file.flush()
                    os.fsync(file.fileno())
                    finished += len(batch)
                    self._record(self.done + 1, whole=finished == shape[0])
                    progress(finished, shape[0])
        return self.open()

    def _begin(self, shape: tuple[int, int], dtype: np.dtype) -> None:
        remove(self.place)
        self.place.mkdir(parents=True)
        with open(self.file, "wb") as file:
            about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, about)
            file.truncate(file.tell() + shape[0] * shape[1] * dtype.itemsize)

    def _record(self, done: int, *, whole: bool) -> None:
        write_json(self.state_file, {"key": self.key, "batches": done, "whole": whole})
        self.done, self.whole = done, whole
