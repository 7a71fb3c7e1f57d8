"""Prediction by Ray Data: a pool of actors, each with the model of a folder.

    predicted = elias.engines.ray.predict(ray.data.read_parquet("texts/"), "MODEL", k=5)
    predicted.write_parquet("suggestions/")

An actor opens the model once and answers one batch after another. Its arrays are memory maps of the files, so all
actors of a node share their pages. Ray starts an actor again when its process or its node is lost, and gives its
batches to others. `run_blocks` is the same pool for work that writes its own results: `elias predict --engine ray`.

A model can be at s3://, gs:// or any other place that pyarrow opens; each node then copies it once. Its files
must stay what they were when the run began: a model that is replaced meanwhile is an error, not two in one output.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import DataError, EliasError, InputError, MissingExtraError, ModelError, RunError, did_you_mean
from ..core.files import replacing

if TYPE_CHECKING:
    from ..model.ensemble import Ensemble
    from ..model.model import Model

BATCH_ROWS = 2048
ACTORS_PER_READER = 8  # that many are kept supplied by one task that reads
WAITING_BLOCKS = 2  # per actor: one that is computed, one that waits
KINDS: dict[str, type[EliasError]] = {kind.__name__: kind for kind in (DataError, InputError, ModelError, RunError)}
ANSI = r"\x1b\[[0-9;]*m"  # colors of a terminal
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass(frozen=True)
class Pool:
    """The actors of a prediction.

    Parameters
    ----------
    actors
        How many at most; None: as many as the cluster has room for.
    threads
        CPU threads of each actor, and the CPUs that Ray sets aside for it.
    """

    actors: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        for name, value in (("actors", self.actors), ("threads", self.threads)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value}: at least one is needed")

    def options(self) -> dict[str, Any]:
        """Arguments of `Dataset.map_batches`."""
        import ray
        from ray.data import ActorPoolStrategy

        # An actor is on one node; what is left over on each holds none.
        cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        room = sum(count // self.threads for count in cpus)
        if room < (self.actors or 1):
            raise InputError(
                f"actors={self.actors or 1}, threads={self.threads}: this Ray cluster has room for {room} such actors "
                f"(CPUs per node: {', '.join(map(str, cpus))}); ask for fewer"
            )
        # A fixed pool could take every CPU from the tasks that read and write.
        size = {"min_size": 1, "max_size": self.actors or room}
        return {
            "compute": ActorPoolStrategy(**size, max_tasks_in_flight_per_actor=WAITING_BLOCKS),
            "num_cpus": self.threads,
        }


# -- datasets ---------------------------------------------------------------------------------------------------------


def predict(
    dataset: Any,
    model: str | Path | Model | Ensemble,
    *,
    k: int = 5,
    text: str | Sequence[str] | None = None,
    id: str | None = None,
    allow: Sequence[str] | None = None,
    block: Sequence[str] | None = None,
    threshold: float | None = None,
    rare: float = 0.0,
    actors: int | None = None,
    threads: int = 1,
    batch_size: int = BATCH_ROWS,
) -> Any:
    """A dataset with one more column, `labels`: a list of {label, label_text, score} for each row, best first.

    `label_text` is left out where no label has a text of its own. Nothing is computed before the dataset is consumed.

    Parameters
    ----------
    dataset
        A `ray.data.Dataset`.
    model
        The folder of a model, under a path that every node can open, or a URL; or a model that was loaded from one.
    k
        How many labels per row.
    text
        The column of the text, or several, which are joined; default: those of the training data, or "text".
    id
        The column of the rows' own ids; default: that of the training data.
    allow, block, threshold, rare
        As in `Model.predict`.
    actors
        How many processes; default: as many as the cluster has room for.
    threads
        CPU threads of each.
    batch_size
        Rows that an actor is given at once.
    """
    check_installed()
    from ..dataset.fields import Fields

    options = {"k": k, "allow": allow, "block": block, "threshold": threshold, "rare": rare}
    arguments = (_place_of(model), threads, Fields.of(text, None, id), options)
    return dataset.map_batches(
        LabelColumn,
        fn_constructor_args=arguments,
        batch_size=batch_size,
        batch_format="pyarrow",
        **Pool(actors, threads).options(),
    )


class LabelColumn:
    """What an actor of `predict` does: a table in, the same with the column of labels out."""

    def __init__(self, place: ModelPlace, threads: int, chosen: Any, options: dict[str, Any]) -> None:
        from ..dataset.fields import Fields
        from ..model.ensemble import load

        self.model = load(place.local_folder(), threads=threads)
        self.fields = chosen.or_else(self.model.first.fields).or_else(Fields(text=("text",)))
        self.options, self.named_id = options, chosen.id  # that of the training data may be missing here

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        from ..dataset.record_parser import row_text

        wanted = [name for name in self.fields.text or () if self._has(table, name)]
        rows = table.select(wanted).to_pylist()
        texts = [row_text(row, self.fields, "dataset", number) for number, row in enumerate(rows)]
        key = self.fields.id
        if self.named_id is not None:
            self._has(table, self.named_id, "id")
        ids = [str(value) for value in table[key].to_pylist()] if key in table.column_names else None
        found = self.model.predict(texts, ids=ids, **self.options)
        label_texts = self.model.labels.texts_to_show
        records = found.records(label_texts)
        label = {"label": pa.string(), "label_text": pa.string(), "score": pa.float32()}
        if not any(label_texts):
            del label["label_text"]
        values = [
            [{"label": one["label"], "label_text": one.get("text", ""), "score": one["score"]} for one in row]
            for row in records
        ]
        column = pa.array(values, pa.list_(pa.struct(list(label.items()))))
        place = table.schema.get_field_index("labels")
        return table.append_column("labels", column) if place < 0 else table.set_column(place, "labels", column)

    def _has(self, table: Any, name: str, argument: str = "text") -> bool:
        names = list(table.column_names)
        if name in names:
            return True
        shown = ", ".join(f'"{other}"' for other in names)
        raise InputError(
            f'the dataset has no column "{name}"; it has {shown}{did_you_mean(name, names)}; say {argument}=...'
        )


def _place_of(model: str | Path | Model | Ensemble) -> ModelPlace:
    """The place that actors open."""
    if isinstance(model, str | Path):
        return ModelPlace.of(str(model))
    if model.home is None or not model.home.holds(model.content()):
        raise InputError("this model is in no folder; save it, and pass the folder")
    return ModelPlace.of(str(model.home.folder))


# -- places -----------------------------------------------------------------------------------------------------------


def opened(location: str) -> tuple[Any, str]:
    """(file system of pyarrow, path) of a path or a URL."""
    from pyarrow import fs

    if "://" not in location:
        return fs.LocalFileSystem(), os.path.abspath(location)
    try:
        system, path = fs.FileSystem.from_uri(location)
    except (OSError, ValueError) as problem:
        raise InputError(f"{location}: not a place that can be opened ({first_line(problem)})") from None
    return system, str(path)


def absolute(location: str) -> str:
    """For a process that runs in another folder. Links stay: nodes can have them in other places."""
    return location if "://" in location else os.path.abspath(location)


def first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


@dataclass(frozen=True)
class ModelPlace:
    """Where actors find the model.

    Parameters
    ----------
    location
        A path, made absolute, or a URL.
    state
        Of the files at a URL: a hash of it and of their names, sizes and times; empty for a path.
    """

    location: str
    state: str = ""

    @classmethod
    def of(cls, location: str) -> ModelPlace:
        if "://" not in location:
            return cls(absolute(location))
        return cls(location, _state_of(location))

    def local_folder(self) -> Path:
        """The folder itself, or this node's copy of a URL; the first process of a node makes it, the others wait."""
        if not self.state:
            return Path(self.location)
        from pyarrow import fs

        place = Path(tempfile.gettempdir()) / f"elias-{self.state}"
        place.mkdir(exist_ok=True, mode=0o700)
        if place.stat().st_uid != os.getuid():
            raise ModelError(f"{place}: belongs to another user; remove it, or set TMPDIR")
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / "model").exists():
                with replacing(place / "model") as part:
                    part.mkdir()
                    source, path = opened(self.location)
                    fs.copy_files(path, str(part), source_filesystem=source)
                    if _state_of(self.location) != self.state:
                        raise ModelError(f"{self.location}: the model was replaced meanwhile; start again")
        return place / "model"


def _state_of(url: str) -> str:
    from pyarrow import fs

    system, path = opened(url)
    try:
        entries = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as problem:
        raise ModelError(f"{url}: no model can be read there ({first_line(problem)})") from None
    files = sorted((one.path, one.size, one.mtime_ns) for one in entries if one.type == fs.FileType.File)
    return hashlib.blake2b(repr((url, files)).encode(), digest_size=12).hexdigest()


# -- blocks -----------------------------------------------------------------------------------------------------------


def run_blocks(
    sources: Sequence[Any],
    read: Callable[[Any], Iterator[tuple[int, bytes]]],
    worker: Callable[..., Callable[[Any, int, bytes], int]],
    arguments: tuple[Any, ...],
    pool: Pool,
) -> Iterator[int]:
    """Every block of every source through a pool of workers; yields how many rows a block had, as they are finished.

    A block travels alone, so that what is lost with an actor or a node is computed again and nothing else is.

    Parameters
    ----------
    sources
        JSON values. One task reads one source.
    read
        source -> (number, content) of its blocks.
    worker
        A class: called with `arguments` in each actor, then with (source, number, content) of each block. Its result
        is the number of rows, and everything else is its own to write.
    """
    import ray

    with _one_line_errors():
        blocks = ray.data.from_items([{"number": n} for n in range(len(sources))], override_num_blocks=len(sources))
        blocks.context.target_max_block_size = 1  # of Ray's blocks: one of ours each
        options = pool.options()
        actors = options["compute"].max_size
        found = blocks.map_batches(
            _Reader(list(sources), read),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=0,  # actors take every CPU, and must not wait for a reader that waits for one
            concurrency=min(len(sources), -(-actors // ACTORS_PER_READER)),
        ).map_batches(
            _Worker,
            fn_constructor_args=(list(sources), worker, arguments),
            batch_size=1,
            batch_format="pyarrow",
            **options,
        )
        for table in found.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for block in table.to_pylist():
                if block["error"] is not None:
                    raise KINDS.get(block["kind"], EliasError)(block["error"])
                yield block["rows"]


@dataclass(frozen=True)
class _Reader:
    """The task that reads a source."""

    sources: list[Any]
    read: Callable[[Any], Iterator[tuple[int, bytes]]]

    def __call__(self, table: Any) -> Iterator[Any]:
        import pyarrow as pa

        types = {"number": pa.int64(), "block": pa.int64(), "content": pa.large_binary()}
        types |= {"kind": pa.string(), "error": pa.string()}
        for number in table["number"].to_pylist():
            try:
                for block, content in self.read(self.sources[number]):
                    row = {"number": number, "block": block, "content": content, "kind": None, "error": None}
                    yield pa.Table.from_pylist([row], pa.schema(types))
            except EliasError as error:
                yield pa.Table.from_pylist([{"number": number, **_told(error)}], pa.schema(types))


class _Worker:
    """The actor that works on blocks."""

    def __init__(self, sources: list[Any], worker: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.sources = sources
        self.work: Callable[[Any, int, bytes], int] | None = None
        self.broken: dict[str, str] = {}
        try:
            self.work = worker(*arguments)
        except EliasError as error:  # such as a model that this node cannot open; every block is answered with it
            self.broken = _told(error)

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        rows = [self._done(row) for row in table.to_pylist()]
        return pa.Table.from_pylist(rows, pa.schema({"rows": pa.int64(), "kind": pa.string(), "error": pa.string()}))

    def _done(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["error"] is not None:
            return {"rows": 0, "kind": row["kind"], "error": row["error"]}
        if self.work is None:
            return {"rows": 0, **self.broken}
        try:
            return {"rows": self.work(self.sources[row["number"]], row["block"], row["content"])}
        except EliasError as error:
            return {"rows": 0, **_told(error)}


def _told(error: EliasError) -> dict[str, str]:
    """An error that users can correct travels as data: what is raised in a task comes with Ray's tracebacks."""
    return {"kind": type(error).__name__, "error": str(error)}


# -- Ray --------------------------------------------------------------------------------------------------------------


def check_installed() -> None:
    """`find_spec` of the package: this module has its name, but is not it."""
    if find_spec("ray") is None or find_spec("ray.data") is None:
        raise MissingExtraError("prediction by Ray", "ray")


@contextmanager
def session(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address`; None: Ray on this machine, which listens on loopback alone.

    Without the dashboard, usage statistics, or lines of Ray's Python code on standard error.
    """
    check_installed()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    mine: dict[str, Any] = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    where = mine if address is None else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, ValueError, TimeoutError, RuntimeError) as problem:
        reason = " ".join(str(problem).split()) or type(problem).__name__  # such as "Version mismatch: ..."
        if address is None:
            raise EliasError(f"Ray cannot be started on this machine ({reason})") from None
        raise InputError(f"--address {address}: no Ray cluster there that can be used ({reason})") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    loggers = [logging.getLogger(name) for name in ("ray.data", "ray")]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        ray.shutdown()


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What Ray itself raises, as one line."""
    import ray
    from ray.data import exceptions

    # Not in every version; no RayError: no progress for half an hour.
    stuck = getattr(exceptions, "ExecutionTimeoutError", ray.exceptions.RayError)
    try:
        yield
    except (ray.exceptions.RayError, stuck) as problem:
        raise EliasError(f"Ray: {_reason(problem)}") from problem


def _reason(problem: BaseException) -> str:
    """The line that says why: of an error that brings tracebacks along, what ends the first of them, its cause."""
    lines = [line.rstrip() for line in re.sub(ANSI, "", str(problem)).splitlines() if line.strip()]
    ends = [line for before, line in pairwise(lines) if before[0].isspace() and not line[0].isspace()]
    return (ends or lines or [type(problem).__name__])[0].strip()
