"""Prediction by Ray Data: a pool of actors, each with the model of a folder.

    predicted = elias.engines.ray.predict(ray.data.read_parquet("texts/"), "MODEL", k=5)
    predicted.write_parquet("suggestions/")

An actor opens the model once and answers one batch after another. Its arrays are memory maps of the files, so all
actors of a node share their pages. Ray starts an actor again when its process or its node is lost, and gives its
batches to others. `run_blocks` is the same pool for work that writes its own results: `elias predict --engine ray`.

A model can be at s3://, gs:// or any other place that pyarrow opens; each node then copies it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import EliasError, InputError, MissingExtraError, ModelError, did_you_mean
from ..core.files import replacing

if TYPE_CHECKING:
    from ..model.ensemble import Ensemble
    from ..model.model import Model

BATCH_ROWS = 2048
READERS_PER_ACTORS = 8  # one task that reads keeps that many actors supplied
WAITING_BLOCKS = 2  # per actor: one that is computed, one that waits
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

        room = max(1, int(ray.cluster_resources().get("CPU", 1)) // self.threads)
        size = {"size": self.actors} if self.actors is not None else {"min_size": 1, "max_size": room}
        if self.actors is not None and self.actors > room:
            raise InputError(
                f"{self.actors} actors of {self.threads} threads need {self.actors * self.threads} CPUs; this Ray "
                f"cluster has room for {room}"
            )
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
    _check_installed()
    from ..dataset.fields import Fields

    options = {"k": k, "allow": allow, "block": block, "threshold": threshold, "rare": rare}
    arguments = (_folder_of(model), threads, Fields.of(text, None, id), options)
    return dataset.map_batches(
        LabelColumn,
        fn_constructor_args=arguments,
        batch_size=batch_size,
        batch_format="pyarrow",
        **Pool(actors, threads).options(),
    )


class LabelColumn:
    """What an actor of `predict` does: a table in, the same with the column of labels out."""

    def __init__(self, folder: str, threads: int, chosen: Any, options: dict[str, Any]) -> None:
        from ..dataset.fields import Fields
        from ..model.ensemble import load

        self.model = load(local_folder(folder), threads=threads)
        self.fields = chosen.or_else(self.model.first.fields).or_else(Fields(text=("text",)))
        self.options = options

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        from ..dataset.record_parser import row_text

        wanted = [name for name in self.fields.text or () if self._has(table, name)]
        rows = table.select(wanted).to_pylist()
        texts = [row_text(row, self.fields, "dataset", number) for number, row in enumerate(rows)]
        key = self.fields.id
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

    def _has(self, table: Any, name: str) -> bool:
        names = list(table.column_names)
        if name in names:
            return True
        shown = ", ".join(f'"{other}"' for other in names)
        raise InputError(f'the dataset has no column "{name}"; it has {shown}{did_you_mean(name, names)}; say text=...')


def _folder_of(model: str | Path | Model | Ensemble) -> str:
    """The place that actors open."""
    if isinstance(model, str | Path):
        return str(model) if "://" in str(model) else os.path.abspath(model)
    if model.home is None or not model.home.holds(model.content()):
        raise InputError("this model is in no folder; save it, and pass the folder")
    return str(model.home.folder)


def local_folder(folder: str) -> Path:
    """The folder itself, or this node's copy of a URL; the first process of a node makes it, the others wait."""
    if "://" not in folder:
        return Path(folder)
    from pyarrow import fs

    place = Path(tempfile.gettempdir()) / f"elias-{hashlib.blake2b(folder.encode(), digest_size=12).hexdigest()}"
    place.mkdir(exist_ok=True, mode=0o700)
    if place.stat().st_uid != os.getuid():
        raise ModelError(f"{place}: belongs to another user; remove it, or set TMPDIR")
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "model").exists():
            with replacing(place / "model") as part:
                source, path = fs.FileSystem.from_uri(folder)
                fs.copy_files(path, str(part), source_filesystem=source)
    return place / "model"


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
            concurrency=min(len(sources), -(-actors // READERS_PER_ACTORS)),
        ).map_batches(
            _Worker,
            fn_constructor_args=(list(sources), worker, arguments),
            batch_size=1,
            batch_format="pyarrow",
            **options,
        )
        for table in found.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from table["rows"].to_pylist()


@dataclass(frozen=True)
class _Reader:
    """The task that reads a source."""

    sources: list[Any]
    read: Callable[[Any], Iterator[tuple[int, bytes]]]

    def __call__(self, table: Any) -> Iterator[Any]:
        import pyarrow as pa

        for number in table["number"].to_pylist():
            for block, content in self.read(self.sources[number]):
                yield pa.table(
                    {"number": [number], "block": [block], "content": pa.array([content], pa.large_binary())}
                )


class _Worker:
    """The actor that works on blocks."""

    def __init__(self, sources: list[Any], worker: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.sources, self.work = sources, worker(*arguments)

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        rows = [self.work(self.sources[row["number"]], row["block"], row["content"]) for row in table.to_pylist()]
        return pa.table({"rows": pa.array(rows, pa.int64())})


# -- Ray --------------------------------------------------------------------------------------------------------------


def _check_installed() -> None:
    """`find_spec` of the package: this module has its name, but is not it."""
    if find_spec("ray") is None or find_spec("ray.data") is None:
        raise MissingExtraError("prediction by Ray", "ray")


@contextmanager
def session(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address`; None: Ray on this machine, which listens on loopback alone.

    Without the dashboard, usage statistics, or lines of Ray's own on standard error.
    """
    _check_installed()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    mine: dict[str, Any] = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    where = mine if address is None else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, ValueError, TimeoutError) as problem:
        raise InputError(f"--address {address}: no Ray cluster answers there ({problem})") from None
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
    """An error of ours that was raised in another process, without the tracebacks around it."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as problem:
        ours = _cause(problem)
        if ours is None:
            raise EliasError(f"Ray: {_last_line(problem)}") from problem
        raise ours from None


def _cause(error: BaseException | None) -> EliasError | None:
    """The error of ours that this one was made of."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        cause = getattr(one, "cause", None)
        if isinstance(one, EliasError) and not isinstance(cause, BaseException):
            return one
        waiting += [cause if isinstance(cause, BaseException) else None, one.__cause__, one.__context__]
    return None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
