"""Predictions as JSON: one object a text. Made in the compute thread, so that the event loop never waits for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.predictions import Predictions

SMALL = 32
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Ask:
    """What a request wants; requests that want the same model and options are computed together."""

    k: int = 5
    explain: bool = False
    threshold: float | None = None
    labels: tuple[str, ...] | None = None

    @property
    def together(self) -> tuple[object, ...]:
        """Small k and explain may differ within a batch: the first k of a few more are the k best."""
        return self.threshold, self.labels, self.k if self.k > SMALL else 0


def result_lines(
    found: Predictions, texts: Sequence[str], start: int, stop: int, ask: Ask, ids: Sequence[str] | None
) -> list[str]:
    """Rows start..stop of a batch as JSON objects; `ids` are those of these rows."""
    label_ids = found.label_ids
    assert label_ids is not None
    rows = slice(start, stop), slice(0, ask.k)
    labels, scores = found.labels[rows].tolist(), found.scores[rows].tolist()
    parts: dict[str, list[list[Any]]] = {}
    if ask.explain:
        parts = {name: values[rows].tolist() for name, values in (found.parts or {}).items()}
    lines = []
    for row, numbers in enumerate(labels):
        suggestions = []
        for column, number in enumerate(numbers):
            if number < 0:
                continue
            record: dict[str, Any] = {"label": label_ids[number], "score": rounded(scores[row][column])}
            if texts[number]:
                record["text"] = texts[number]
            for name, values in parts.items():
                value = values[row][column]
                record[name] = rounded(value) if isinstance(value, float) else value
            suggestions.append(record)
        head = {} if ids is None else {"id": ids[row]}
        lines.append(_encode({**head, "labels": suggestions}))
    return lines


def rounded(value: float) -> float:
    """Six digits are more than a float32 is worth."""
    return float(f"{value:.6g}")


def whole_answer(model: str, lines: Sequence[str]) -> bytes:
    body = f'{{"model":{json.dumps(model)},"results":[{",".join(lines)}]}}'
    return body.encode("utf-8", "backslashreplace")


def jsonl(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
