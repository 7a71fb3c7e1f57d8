"""Predictions as tables: one line per input and label in .csv and .tsv, one row per input in .parquet.

    csv, tsv    id,rank,label,label_text,score          id: row (from 1) where the input has no ids, and then text for
                                                        texts of the command line; label_text where labels have texts
                                                        other than their ids; file, first, where there are several
    parquet     id, labels: list of {label, label_text, score}

A .parquet file cannot be continued, so its rows are first written as JSON lines and converted when all are there.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..core.errors import MissingExtraError
from .input_rows import InputRow

DELIMITERS = {"csv": ",", "tsv": "\t"}
PARQUET_ROWS = 10_000  # per row group


@dataclass(frozen=True)
class Columns:
    """The columns of a table of predictions.

    Parameters
    ----------
    key
        What tells the inputs apart: id, row or text.
    has_files
        Whether rows come from several files.
    has_texts
        Whether some label has a text that is not its id.
    """

    key: str
    has_files: bool
    has_texts: bool

    @classmethod
    def of(cls, first: InputRow | None, *, files: int, has_texts: bool) -> Columns:
        """For input that begins with this row."""
        key = "row" if first is None or first.id is None else "id"
        return cls("text" if key == "row" and not files else key, files > 1, has_texts)

    def values(self, row: InputRow) -> dict[str, Any]:
        """The columns that come from the input."""
        own = {"id": row.id, "row": row.number, "text": row.text}[self.key]
        return {**({"file": row.file} if self.has_files else {}), self.key: own}

    def head(self, kind: str) -> str:
        """The header line of a csv or tsv."""
        before = ["file"] if self.has_files else []
        after = ["label_text"] if self.has_texts else []
        return _line([*before, self.key, "rank", "label", *after, "score"], kind)

    def lines(self, row: InputRow, records: Sequence[dict[str, Any]], kind: str) -> str:
        """The labels of one input, one line each."""
        values = list(self.values(row).values())
        return "".join(
            _line([*values, rank, *self._label(record), f"{record['score']:.6g}"], kind)
            for rank, record in enumerate(records, start=1)
        )

    def _label(self, record: dict[str, Any]) -> list[str]:
        return [record["label"], record.get("text", "")] if self.has_texts else [record["label"]]


def _line(cells: Sequence[Any], kind: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=DELIMITERS[kind], lineterminator="\n").writerow(cells)
    return out.getvalue()


def check_parquet() -> None:
    """Before anything is computed."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise MissingExtraError("writing parquet", "parquet")


@dataclass(frozen=True)
class ParquetColumns:
    """The columns of a .parquet file.

    Parameters
    ----------
    whole
        By the name of each column from the input: whether it is one of integers, else of texts.
    has_texts
        Whether labels have a text.
    """

    whole: Mapping[str, bool]
    has_texts: bool

    @classmethod
    def of(cls, lines: Path) -> ParquetColumns:
        """A column of integers is one where every value is one."""
        first = next(_objects(lines), {"row": 0, "labels": []})
        names = [name for name in first if name != "labels"]
        whole = {name: all(_is_whole(row[name]) for row in _objects(lines)) for name in names}
        return cls(whole, any("text" in found for row in _objects(lines) for found in row["labels"]))


def _is_whole(value: Any) -> bool:
    """The integers of parquet have 64 bits, those of JSON any number."""
    return type(value) is int and abs(value) < 2**63


def write_parquet(lines: Path, target: Path, columns: ParquetColumns | None = None) -> None:
    """JSON lines of predictions as a .parquet file; `columns`: None for those that the lines tell."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = ParquetColumns.of(lines) if columns is None else columns
    label = {"label": pa.string(), "label_text": pa.string(), "score": pa.float32()}
    if not known.has_texts:
        del label["label_text"]
    types = {name: pa.int64() if whole else pa.string() for name, whole in known.whole.items()}
    schema = pa.schema([*types.items(), ("labels", pa.list_(pa.struct(list(label.items()))))])
    with pq.ParquetWriter(target, schema) as writer:
        rows = _objects(lines)
        while batch := list(islice(rows, PARQUET_ROWS)):
            table: dict[str, list[Any]] = {
                name: [row[name] if whole else _as_text(row[name]) for row in batch]
                for name, whole in known.whole.items()
            }
            table["labels"] = [
                [{"label": f["label"], "label_text": f.get("text", ""), "score": f["score"]} for f in row["labels"]]
                for row in batch
            ]
            writer.write_table(pa.table(table, schema=schema))


def _as_text(value: Any) -> str | None:
    """Half a surrogate pair, which parquet cannot hold, becomes \\udxxx, as in the other formats."""
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode()


def _objects(lines: Path) -> Iterator[dict[str, Any]]:
    with open(lines, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield json.loads(line)
