"""labels.tsv of a saved model: id, text, training count, stage-1 cluster. Row number = label number.

A tab, line break or backslash inside an id or text is written as \\t, \\n, \\r, \\\\ so that every id survives.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from .dataset.labels import LabelSet
from .errors import ModelError
from .persistence import unreadable, written_beside

HEADER = "id\ttext\ttraining_count\tstage1_cluster"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_BACK = {escaped: plain for plain, escaped in _ESCAPES.items()}


def write_labels(path: Path, labels: LabelSet, counts: np.ndarray, clusters: np.ndarray) -> None:
    with written_beside(path) as part, open(part, "w", encoding="utf-8", newline="\n", errors="surrogatepass") as out:
        out.write(HEADER + "\n")
        for label_id, text, count, cluster in zip(labels.ids, labels.texts, counts, clusters, strict=True):
            out.write(f"{_escaped(label_id)}\t{_escaped(text)}\t{int(count)}\t{int(cluster)}\n")


def read_labels(path: Path) -> tuple[LabelSet, np.ndarray, np.ndarray]:
    ids, texts, counts, clusters = [], [], [], []
    try:
        with open(path, encoding="utf-8", newline="\n", errors="surrogatepass") as lines:
            if next(lines, "").rstrip("\n") != HEADER:
                raise ModelError(f'{path}:1: the header must be "{HEADER}"; this is not a label file of elias')
            for number, line in enumerate(lines, start=2):
                fields = line.rstrip("\n").split("\t")
                if len(fields) != 4 or not fields[2].isdecimal() or not fields[3].removeprefix("-").isdecimal():
                    raise ModelError(f"{path}:{number}: needs id, text, count and cluster; the file is damaged")
                ids.append(_plain(fields[0]))
                texts.append(_plain(fields[1]))
                counts.append(int(fields[2]))
                clusters.append(int(fields[3]))
    except UnicodeDecodeError as problem:
        raise ModelError(f"{path}: not UTF-8 ({problem}); the file is damaged") from None
    except OSError as problem:
        raise ModelError(unreadable(path, problem)) from None
    return LabelSet(ids, texts), np.array(counts, dtype=np.int64), np.array(clusters, dtype=np.int32)


def _escaped(text: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda found: _ESCAPES[found[0]], text)


def _plain(text: str) -> str:
    return re.sub(r"\\[\\tnr]", lambda found: _BACK[found[0]], text) if "\\" in text else text
