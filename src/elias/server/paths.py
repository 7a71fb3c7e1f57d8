"""Why a label was suggested: the beam of clusters, and every edge from it to the labels shown. Figure 2, for one text.

text -> clusters in the beam, with s_c -> labels, with e; a path weighs s_c * e, the heaviest wins (6)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .answers import rounded
from .errors import invalid, shown

if TYPE_CHECKING:
    from .models import Served


def paths_of(served: Served, text: str, k: int, label: str | None) -> dict[str, Any]:
    """The k best labels (and `label`), the beam, and the edges between them."""
    model, explorer = served.model, served.explorer
    found = model.predict([text], k, explain=True).records(model.labels.texts)[0]
    if label is not None and label not in {record["label"] for record in found}:
        if label not in model.labels.number_of:
            raise invalid(f'unknown label "{shown(label)}"; find it with GET /v1/labels?search=', "label")
        found += model.predict([text], 1, explain=True, allow=[label]).records(model.labels.texts)[0]
    prepared, _ = model.prepare([text])
    _, beam_BT, s_BT = model.finder.beams(prepared, np.arange(1))
    beam, scores = beam_BT[0].tolist(), s_BT[0].tolist()
    score_of = dict(zip(beam, scores, strict=True))
    for record in found:  # a label that was asked for may hang on a cluster outside the beam
        score_of.setdefault(record.get("cluster", -1), record.get("cluster_score", 0.0))
    score_of.pop(-1, None)
    return {
        "model": served.name,
        "clusters": [
            {"cluster": cluster, "score": rounded(score), "words": model.cluster_words[cluster]}
            for cluster, score in score_of.items()
        ],
        "labels": [_rounded(record) for record in found],
        "edges": [edge for record in found for edge in _edges(explorer, record, score_of)],
    }


def _edges(explorer: Any, record: dict[str, Any], score_of: dict[int, float]) -> list[dict[str, Any]]:
    number = explorer.model.labels.number_of[record["label"]]
    edges = explorer.edges_L[explorer.indptr_L[number] : explorer.indptr_L[number + 1]]
    return [
        {
            "cluster": cluster,
            "label": record["label"],
            "edge_score": rounded(score),
            "weight": rounded(score_of[cluster] * score),
            "wins": cluster == record.get("cluster"),
        }
        for cluster, score in zip(
            explorer.clusters_F[edges].tolist(), explorer.edge_scores[edges].tolist(), strict=True
        )
        if cluster in score_of
    ]


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {name: rounded(value) if isinstance(value, float) else value for name, value in record.items()}
