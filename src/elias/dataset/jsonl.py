"""One JSON object a line: train.jsonl, train.jsonl.gz."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ..core.errors import DataError
from .lines import numbered_lines
from .log import BLANK_LINE, Log, place
from .records import Record, RecordParser


def read_objects(file: Path, log: Log) -> Iterator[tuple[int, dict[str, object]]]:
    """(line, object) of each line that is a JSON object; blank lines are skipped and counted."""
    for line, text in numbered_lines(file, log):
        if not text or text.isspace():
            log.note(BLANK_LINE, place(file, line))
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            log.defect(DataError(_bad_json(text, error, line), file=file, line=line))
            continue
        if isinstance(found, dict):
            yield line, cast("dict[str, object]", found)
        else:
            kind = type(found).__name__
            log.defect(DataError(f"a JSON {kind}, not an object; one {{...}} a line is read", file=file, line=line))


def read_jsonl(file: Path, parser: RecordParser, log: Log) -> Iterator[Record]:
    for line, row in read_objects(file, log):
        try:
            record = parser.parse(row, line)
        except DataError as error:
            log.defect(error)
            continue
        yield record
    parser.finish()


def _bad_json(text: str, error: Exception, line: int) -> str:
    if line == 1 and text.strip() in ("[", "{"):
        return "JSON spread over several lines; one object a line is read, make it so with: jq -c '.[]' (or '.')"
    if isinstance(error, json.JSONDecodeError):
        near = text[max(0, error.pos - 15) : error.pos + 15]
        return f"not JSON: {error.msg} at position {error.pos + 1}, near {near!r}"
    return f"not JSON: {error}"
