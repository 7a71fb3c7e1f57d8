"""`Predictions`: the one result type, from the network to ranker, ensemble, metrics, command line and server.

Rows are inputs, columns are labels in the order of falling scores. A row with fewer labels than columns ends in pads:
label PAD, score 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from .errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

PAD = -1  # the number of no label, cluster or row: fills arrays whose rows differ in length

PART_TYPES = {
    "cluster": np.int32,
    "cluster_score": np.float32,
    "edge_score": np.float32,
    "classifier": np.float32,
}
ID_PARTS = ("cluster", "member")  # parts that hold numbers of something: padded with PAD, all others with 0
SHOWN_ROWS, SHOWN_LABELS = 10, 5  # of the table in a notebook


@dataclass(frozen=True, kw_only=True, repr=False)
class Predictions:
    """The best labels of each input, best first, with their scores.

    Parameters
    ----------
    labels
        Label numbers, int32 [inputs, k]; PAD (-1) where a row has fewer than k labels.
    scores
        Their scores, float32 [inputs, k]; 0 at pads.
    parts
        What each score is made of, on request (`explain=True`), each an array [inputs, k]: `cluster` (of the winning
        path), `cluster_score` (s_c), `edge_score` (e_cl), `classifier` (sigmoid of w_l . phi + b_l). For the network
        alone score = cluster_score * edge_score * classifier. A ranker and an ensemble add parts of their own.
    ids
        The ids of the inputs, where the caller gave them.
    label_ids
        The id of each label number; `named` and `records` need it.
    known_words
        int32 [inputs]: how many different words of each text the model knows. 0: the text says nothing to it. None for
        inputs that are vectors.
    explanations
        Why each label has its score, on request, where the model has a stacked ranker: `explanations[row][column]` is
        a dictionary with `words`, `texts`, `contributions` and `score` (`ranking/explanation.py`), empty at pads.
    """

    labels: np.ndarray
    scores: np.ndarray
    parts: dict[str, np.ndarray] | None = None
    ids: Sequence[str] | None = None
    label_ids: Sequence[str] | None = None
    known_words: np.ndarray | None = None
    explanations: list[list[dict[str, Any]]] | None = None

    @classmethod
    def empty(cls, k: int, *, explain: bool = False) -> Predictions:
        """Predictions for no inputs, k columns wide."""
        parts = {name: np.empty((0, k), dtype=dtype) for name, dtype in PART_TYPES.items()} if explain else None
        return cls(labels=np.empty((0, k), np.int32), scores=np.empty((0, k), np.float32), parts=parts)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        size = f"{len(self):,} input{'' if len(self) == 1 else 's'}, up to {self.labels.shape[1]:,} labels each"
        first = [f"{self._name(label)} {score:.2f}" for label, score in self._row(0)[:3]] if len(self) else []
        return f"<elias.Predictions: {size}{'; the first: ' + ', '.join(first) if first else ''}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks: the first inputs with their first labels."""
        columns = min(SHOWN_LABELS, self.labels.shape[1])
        head = "".join(f"<th>{rank}</th>" for rank in range(1, columns + 1))
        lines = [f"<tr><th>{'id' if self.ids is not None else 'input'}</th>{head}</tr>"]
        for row in range(min(SHOWN_ROWS, len(self))):
            cells = [f"{escape(self._name(label))} <small>{score:.3f}</small>" for label, score in self._row(row)]
            cells = (cells + [""] * columns)[:columns]
            name = escape(str(row if self.ids is None else self.ids[row]))
            lines.append(f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        more = [f"{len(self):,} inputs"] if len(self) > SHOWN_ROWS else []
        more += [f"{self.labels.shape[1]:,} labels each"] if self.labels.shape[1] > columns else []
        return f"<table>{''.join(lines)}</table>" + (f"<p>{', '.join(more)}</p>" if more else "")

    def _row(self, row: int) -> list[tuple[int, float]]:
        """Label numbers and scores of one input, without pads."""
        pairs = zip(self.labels[row].tolist(), self.scores[row].tolist(), strict=True)
        return [(label, score) for label, score in pairs if label >= 0]

    def _name(self, label: int) -> str:
        return str(label) if self.label_ids is None else self.label_ids[label]

    def named(self) -> list[list[tuple[str, float]]]:
        """Label ids and scores of each input: [[("evince", 0.91), ...], ...]."""
        assert self.label_ids is not None, "these predictions carry no label ids"
        return [[(self.label_ids[label], score) for label, score in self._row(row)] for row in range(len(self))]

    def to_pandas(self) -> pd.DataFrame:
        """One row per input and label: `input` (its number), `id` (where ids were given), `rank`, `label`, `score`.

        Ranks count from 1. With `explain=True` also the parts of the score.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_pandas", "pandas") from None
        rows, ranks = np.nonzero(self.labels >= 0)
        numbers = self.labels[rows, ranks]
        columns: dict[str, Any] = {"input": rows}
        if self.ids is not None:
            columns["id"] = [self.ids[row] for row in rows.tolist()]
        columns["rank"] = ranks + 1
        columns["label"] = [self._name(label) for label in numbers.tolist()]
        columns["score"] = self.scores[rows, ranks]
        columns |= {name: values[rows, ranks] for name, values in (self.parts or {}).items()}
        return pd.DataFrame(columns)

    def records(self, label_texts: Sequence[str] | None = None) -> list[list[dict[str, Any]]]:
        """One dictionary per label with everything known about it, in types that JSON has.

        Parameters
        ----------
        label_texts
            The text of each label number (`LabelSet.texts_to_show`); adds a key `text` where it is not empty.
        """
        assert self.label_ids is not None, "these predictions carry no label ids"
        return [
            [self._record(row, column, label_texts) for column in np.flatnonzero(self.labels[row] >= 0).tolist()]
            for row in range(len(self))
        ]

    def _record(self, row: int, column: int, label_texts: Sequence[str] | None) -> dict[str, Any]:
        assert self.label_ids is not None
        label = int(self.labels[row, column])
        record: dict[str, Any] = {"label": self.label_ids[label], "score": float(self.scores[row, column])}
        if label_texts is not None and label_texts[label]:
            record["text"] = label_texts[label]
        for name, values in (self.parts or {}).items():
            record[name] = values[row, column].item()
        if self.explanations is not None:
            record["explanation"] = self.explanations[row][column]
        return record

    def top(self, k: int) -> Predictions:
        """The first k columns."""
        parts = None if self.parts is None else {name: values[:, :k] for name, values in self.parts.items()}
        explanations = self.explanations and [row[:k] for row in self.explanations]
        labels, scores = self.labels[:, :k], self.scores[:, :k]
        return replace(self, labels=labels, scores=scores, parts=parts, explanations=explanations)

    def above(self, threshold: float) -> Predictions:
        """Pads in place of the labels whose score is below `threshold`."""
        low = self.scores < threshold
        labels, scores = np.where(low, PAD, self.labels), np.where(low, 0, self.scores).astype(np.float32)
        parts = self.parts and {
            name: np.where(low, PAD if name in ID_PARTS else 0, values).astype(values.dtype)
            for name, values in self.parts.items()
        }
        explanations = self.explanations and [
            [{} if gone else item for gone, item in zip(*pair, strict=True)]
            for pair in zip(low.tolist(), self.explanations, strict=True)
        ]
        return replace(self, labels=labels, scores=scores, parts=parts, explanations=explanations)

    def resize(self, k: int) -> Predictions:
        """Exactly k columns: the first k, or all and pads after them."""
        missing = k - self.labels.shape[1]
        if missing <= 0:
            return self.top(k)

        def padded(values: np.ndarray, value: int = 0) -> np.ndarray:
            return np.pad(values, ((0, 0), (0, missing)), constant_values=value)

        parts = self.parts and {name: padded(v, PAD if name in ID_PARTS else 0) for name, v in self.parts.items()}
        labels, scores = padded(self.labels, PAD), padded(self.scores)
        explanations = self.explanations and [[*row, *({} for _ in range(missing))] for row in self.explanations]
        return replace(self, labels=labels, scores=scores, parts=parts, explanations=explanations)

    def to_csr(self, n_labels: int) -> sp.csr_matrix:
        """Scores as a sparse matrix, inputs x `n_labels`."""
        rows, columns = np.nonzero(self.labels >= 0)
        entries = (self.scores[rows, columns], (rows, self.labels[rows, columns]))
        return sp.csr_matrix(entries, shape=(len(self), n_labels))


def stack(pieces: Sequence[Predictions]) -> Predictions:
    """Predictions of consecutive batches as one."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    parts = first.parts and {name: np.concatenate([p.parts[name] for p in pieces if p.parts]) for name in first.parts}
    return replace(
        first,
        labels=np.concatenate([piece.labels for piece in pieces]),
        scores=np.concatenate([piece.scores for piece in pieces]),
        parts=parts,
        ids=None if first.ids is None else [i for piece in pieces for i in (piece.ids or [])],
        explanations=first.explanations and [row for piece in pieces for row in (piece.explanations or [])],
    )
