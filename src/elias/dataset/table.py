"""Tables with a header line: .csv (comma) and .tsv (tab), quoted as the csv module reads them, and .parquet.

A label cell is a JSON list, or ids between `label_separator` (";" unless dataset.toml says otherwise).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import DataError, MissingExtraError
from .lines import file_errors, numbered_lines, one_line
from .log import BLANK_LINE, Log, place
from .records import Record, RecordParser

LARGEST_CELL = 2**31 - 1  # the csv module stops at 128 KB unless told otherwise
PARQUET_BATCH = 1024


def read_table(file: Path, delimiter: str, parser: RecordParser, log: Log) -> Iterator[Record]:
    csv.field_size_limit(LARGEST_CELL)
    rows = _cells(file, delimiter)
    header = next((cells for _, cells in rows if cells), None)
    if header is None:
        raise DataError("no header line", file=file)
    header = [cell.strip() for cell in header]
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise DataError("twice in the header line", file=file, line=1, field=repeated)
    for line, cells in rows:
        if not cells:
            log.note(BLANK_LINE, place(file, line))
            continue
        try:
            if len(cells) != len(header):
                message = f"{len(cells)} cells, the header has {len(header)}; quote cells that contain {delimiter!r}"
                raise DataError(message, file=file, line=line)
            record = parser.parse(dict(zip(header, cells, strict=True)), line)
        except DataError as error:
            log.defect(error)
            continue
        yield record
    parser.finish()


def _cells(file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line the row starts in, its cells); the cells of a blank line are []."""
    reader = csv.reader((text + "\n" for _, text in numbered_lines(file)), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = 'a quote inside a quoted cell is written twice: ""'
            raise DataError(f"not a table: {one_line(error)}; {remedy}", file=file, line=start) from None
        yield start, cells


def read_parquet(file: Path, parser: RecordParser, log: Log) -> Iterator[Record]:
    """Columns named like the fields; rows are counted from 1 in errors."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError(f"{file.name}: reading parquet", "parquet") from None
    number = 0
    try:
        with file_errors(file), pq.ParquetFile(file) as table:
            if table.metadata.num_rows == 0:
                raise DataError("no rows", file=file)
            for batch in table.iter_batches(batch_size=PARQUET_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    try:
                        record = parser.parse(row, number)
                    except DataError as error:
                        log.defect(error)
                        continue
                    yield record
    except UnicodeDecodeError as error:
        raise DataError(f"a text is not UTF-8: {one_line(error)}", file=file, line=number + 1) from None
    except pa.ArrowException as error:
        raise DataError(f"not a parquet file that can be read: {one_line(error)}", file=file) from None
    parser.finish()
