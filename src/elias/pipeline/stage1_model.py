"""A model as it was after stage 1, from its run folder: fixed clusters, no ranker.

What stage 2 is compared with. Where the network went on from that of a fold, it is the stage 1 of that fold, which has
not seen the held-out rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..core.errors import RunError
from ..core.predictions import PAD
from ..index.label_index import LabelIndex
from ..model.ensemble import Ensemble
from ..model.model import Model
from ..network.network import Network
from ..network.storage import load_network

STAGE1, FIRST_FOLD = "30-stage1", "fold-0"


def run_folder_of(folder: Path) -> Path:
    """The run folder of a model: MODEL.run; of a member inside an ensemble, its part of the ensemble's."""
    folder = folder.absolute()
    parent = folder.parent  # may be the root, which has no name to change
    whole = parent.parent / f"{parent.name}.run" / folder.name
    return whole if whole.is_dir() else folder.with_name(f"{folder.name}.run")


def open_stage1(model: Model | Ensemble, run: Path) -> Model:
    """The network of stage 1 as a model of its own; of an ensemble that of member 0."""
    first = model.first
    own = run / "member-0" if isinstance(model, Ensemble) else run
    # A network that goes on from that of a fold has no stage 1 of its own.
    places = [own / STAGE1 / "network", own / FIRST_FOLD / STAGE1 / "network"]
    network = next((path for path in places if path.is_dir()), places[0])
    if not network.is_dir():
        raise RunError(
            f"{network}: there is no such folder; keep the run folder that `elias fit` works in, or fit again"
        )
    stage1 = load_network(network, device=first.network.device, threads=first.network.threads)
    if not _same_data(first, stage1):
        raise RunError(f"{run}: it is the run of another model; name the one of this model")
    return replace(first, network=stage1, reranker=None)


def _same_data(model: Model, stage1: Network) -> bool:
    """Whether labels, clusters and the tables of the encoder are those of the model; a fold has not seen all labels."""
    if stage1.index.n_labels != len(model.labels) or stage1.encoder.kind != model.network.encoder.kind:
        return False
    seen = np.zeros(len(model.labels), dtype=bool)
    seen[stage1.index.labels] = True
    ours = LabelIndex.from_clusters(np.where(seen, model.stage1_clusters, PAD), model.network.index.n_clusters)
    edges = np.array_equal(ours.indptr, stage1.index.indptr) and np.array_equal(ours.labels, stage1.index.labels)
    sizes, theirs = (
        {name: tuple(table.values.shape) for name, table in one.encoder.tables().items()}
        for one in (model.network, stage1)
    )
    return edges and sizes == theirs
