"""`elias predict MODEL INPUT ... -o OUTPUT --engine ray`: files in, a folder of blocks out, on a Ray cluster.

One task reads a file and cuts its rows into blocks of --block-rows; a pool of actors answers them and writes a file for
each (`block_folder.py`). Rows are read, answered and formatted by the code of `elias predict`, so the blocks one after
another are what it writes; each .csv has a header line of its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ..core.errors import DataError, InputError
from ..core.progress import Progress, duration
from ..engines.ray import ModelPlace, absolute, opened
from .block_folder import BlockFolder, file_stamp, input_files
from .input_rows import READ, InputRow, RowReader, count_lines, suffix_of_name
from .options import chosen_fields
from .predict import Predictor, chunks
from .prediction_tables import Columns, ParquetColumns, write_parquet

FORMATS = ("jsonl", "csv", "tsv", "parquet")
BLOCK_ROWS = 20_000


@dataclass(frozen=True)
class Job:
    """What every process knows."""

    model: ModelPlace
    threads: int
    options: dict[str, Any]  # of `Model.predict`
    output_format: str
    output: BlockFolder
    columns: Columns
    parquet: ParquetColumns | None = None


def run(args: argparse.Namespace, options: dict[str, Any], command: dict[str, Any]) -> int:
    """`options`: of `Model.predict`; `command`: what determines the output, besides the input."""
    from ..dataset.fields import Fields
    from ..engines.ray import Pool, check_installed, run_blocks, session
    from ..model.ensemble import load

    check_installed()
    pool = Pool(args.actors, args.threads or 1)
    size = BLOCK_ROWS if args.block_rows is None else args.block_rows
    if size < 1:
        raise InputError(f"--block-rows {size}: a block has at least one row")
    files = input_files(args.input, READ)
    output_format = _format(args, files)
    if args.explain and output_format != "jsonl":
        raise InputError(f"a {output_format} file has no place for explanations; write them with --format jsonl")
    output = BlockFolder(args.output, f".{output_format}")
    command |= {"format": output_format, "block_rows": size, "input": [file_stamp(file) for file in files]}

    place = ModelPlace.of(args.model)
    if place.state:
        command |= {"model": place.state}
    model = load(place.local_folder(), threads=1)
    reader = RowReader(Fields.of(**chosen_fields(args)), model.first.fields)
    first = next((row for file in files for row in islice(_rows(reader, file, file), 1)), None)
    columns = Columns.of(first, files=len(files), has_texts=any(model.labels.texts_to_show))
    # Workers of a cluster run in another folder; messages here keep the name as it was given.
    written = replace(output, location=absolute(output.location))
    job = Job(place, pool.threads, options, output_format, written, columns)
    if output_format == "parquet":
        own = {} if first is None else columns.values(first)
        job = replace(job, parquet=ParquetColumns({k: type(v) is int for k, v in own.items()}, columns.has_texts))
    output.begin(command, restart=args.restart)

    progress, began, rows = Progress(quiet=args.quiet), time.monotonic(), 0
    local = [file for file in files if "://" not in file]
    total = count_lines(local) if progress.live and len(local) == len(files) else 0
    done = output.done()
    if done:
        progress.say(f"{args.output}: continuing after {len(done):,} blocks that are done already")
    with session(args.address):
        sources = [(number, file, absolute(file)) for number, file in enumerate(files)]
        read = partial(blocks_of, reader, size, frozenset(done))
        for finished in run_blocks(sources, read, BlockWriter, (job,), pool):
            rows += finished
            seconds = time.monotonic() - began
            left = max(0, total - len(done) * size)
            speed = f"{rows:,} rows, {rows / max(seconds, 1e-9):,.0f} per second"
            progress.update("predict", min(rows, left), left, seconds, speed)
    blocks = len(output.done()) - len(done)
    progress.say(f"{args.output}: {rows:,} rows in {blocks:,} blocks, {duration(time.monotonic() - began)}")
    return 0


def _format(args: argparse.Namespace, files: list[str]) -> str:
    """By --format, the name of OUTPUT, or the kind of the input."""
    suffixes = [suffix_of_name(urlsplit(name).path if "://" in name else name) for name in (args.output, files[0])]
    known = [suffix[1:] for suffix in suffixes if suffix[1:] in FORMATS]
    chosen = args.format or (known[0] if known else "jsonl")
    if chosen not in FORMATS:
        raise InputError(f"--format {chosen}: with --engine ray one of {', '.join(FORMATS)}")
    return str(chosen)


# -- in the tasks that read -------------------------------------------------------------------------------------------


def blocks_of(
    reader: RowReader, size: int, done: frozenset[tuple[int, int]], source: tuple[int, str, str]
) -> Iterator[tuple[int, bytes]]:
    """(number, rows as JSON) of the blocks that are not done; `source`: a file's number, name as given, and place."""
    number, file, place = source
    rows = _rows(reader, file, place)
    for block in count():
        if not (some := list(islice(rows, size))):
            return
        if (number, block) not in done:
            yield block, json.dumps([(row.text, row.id, row.candidates, row.number) for row in some]).encode()


def _rows(reader: RowReader, file: str, place: str) -> Iterator[InputRow]:
    with _here(place) as path:
        try:
            for row in reader.rows([path]):
                yield row._replace(file=file)
        except DataError as error:  # the copy has a name that users never saw
            raise DataError(error.message, file=file, line=error.line, field=error.field) from None


@contextmanager
def _here(file: str) -> Iterator[str]:
    """A file, or a copy of what is elsewhere for as long as it is read."""
    if "://" not in file:
        yield file
        return
    system, path = opened(file)
    with tempfile.TemporaryDirectory(prefix="elias-") as folder:
        target = Path(folder) / Path(path).name
        with system.open_input_stream(path, compression=None) as source, open(target, "wb") as copy:
            _copy(source, copy)
        yield str(target)


def _copy(source: Any, target: IO[bytes]) -> None:
    while piece := source.read(1 << 22):
        target.write(piece)


# -- in the actors ----------------------------------------------------------------------------------------------------


class BlockWriter:
    """Opens the model once; answers blocks and writes each to its file."""

    def __init__(self, job: Job) -> None:
        from ..model.ensemble import load

        self.job = job
        model = load(job.model.local_folder(), threads=job.threads)
        self.predictor = Predictor(model, job.options, job.output_format, job.columns)

    def __call__(self, source: tuple[int, str, str], block: int, content: bytes) -> int:
        number, file, _ = source
        rows = [InputRow(text, own, candidates, row, file) for text, own, candidates, row in json.loads(content)]
        text = self.predictor.head() + "".join(self.predictor.answer(some) for some in chunks(rows))
        raw = text.encode("utf-8", "backslashreplace")
        self.job.output.write(number, block, raw if self.job.parquet is None else self._as_parquet(raw, file))
        return len(rows)

    def _as_parquet(self, lines: bytes, file: str) -> bytes:
        import pyarrow as pa

        with tempfile.TemporaryDirectory(prefix="elias-") as folder:
            source, target = Path(folder) / "lines", Path(folder) / "table"
            source.write_bytes(lines)
            try:
                write_parquet(source, target, self.job.parquet)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
                raise InputError(
                    f"{file}: the id of the first row is a whole number, that of another is not ({problem}); "
                    "write them with --format jsonl"
                ) from None
            return target.read_bytes()
