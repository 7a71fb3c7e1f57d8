"""Steps 60 to 70 of a run with `ranking.kind=published`: ELIAS++ of the paper (`ranking/published.py`).

    60-ranking       one linear classifier per label on [tf-idf, phi], from the network's 100 best labels of each row
    65-held-out      the network's best labels of the held-out rows, with p and q
    70-calibration   the decision tree T grown on them; without held-out rows, or with published.calibration=false, p q

Everything here comes after the network, so the members of an ensemble share none of it. Label texts train the network
only: they are no training points of the ranker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.devices import torch_threads
from ..core.files import link_or_copy, read_tensors, write_tensors
from ..core.predictions import Predictions, stack
from ..core.ragged import Ragged
from ..dataset.rows import KIND_TEXT
from ..encoders.centroids import psi
from ..network.searcher import BATCH, Searcher
from ..ranking.linear_ranker import NAME as RANKER
from ..ranking.linear_ranker import load_ranker, save_ranker
from ..ranking.published import PublishedRanker, fit_tree_calibration, save_calibration, train_published_ranker
from ..training.trainer import TrainingRows
from .context import FitContext
from .features_step import FeatureSet
from .network_steps import TrainedNetwork, open_network

PAIRS = "pairs.safetensors"


def published_steps(context: FitContext, features: FeatureSet, network: TrainedNetwork) -> Path:
    """Build steps 60 to 70, or skip them; the last holds all files of the ranker."""
    ranker, held_out = ranker_step(context, features, network), None
    if context.settings.published.calibration:
        if features.held_out.labels.nnz:
            held_out = held_out_step(context, features, network, ranker)
        else:
            context.progress.say("  calibration: none, so scores are p q: no labeled rows could be held out for T")
    return calibration_step(context, features, ranker, held_out)


def ranker_step(context: FitContext, features: FeatureSet, network: TrainedNetwork) -> Path:
    """60: the linear classifiers."""
    s = context.settings

    def build(folder: Path) -> None:
        rows = features.train.of_kind(KIND_TEXT)
        found, phi = _searched(context, network, features.train, rows)
        seen = sp.csr_matrix(psi(sp.csr_matrix(features.bow)[rows], phi))
        ranker = train_published_ranker(
            seen, found.labels, features.train.labels[rows], s.linear_ranker,
            unretrieved_positives=s.published.unretrieved_positives, threads=context.threads,
        )  # fmt: skip
        save_ranker(ranker, folder)

    solver = {name: value for name, value in vars(s.linear_ranker).items() if name != "negatives"}
    depends: dict[str, Any] = {"kind": s.ranking.kind, "network_candidates": s.ranking.network_candidates, **solver}
    depends["unretrieved_positives"] = s.published.unretrieved_positives
    return context.run.step("60-ranking", depends, build, after=[network.stage])


def held_out_step(context: FitContext, features: FeatureSet, network: TrainedNetwork, ranker: Path) -> Path:
    """65: pairs (row, label) of rows that neither the network nor the ranker has seen."""
    s = context.settings

    def build(folder: Path) -> None:
        bow = sp.csr_matrix(features.bow_held_out)
        found, phi = _searched(context, network, features.held_out, np.arange(len(features.held_out)))
        own = PublishedRanker(
            ranker=load_ranker(
                ranker, n_labels=len(context.data.labels), n_words=bow.shape[1] + phi.shape[1], coded=False
            ),
            loss=s.linear_ranker.loss,
            network_candidates=s.ranking.network_candidates,
            calibration=None,
            threads=context.threads,
        )
        write_tensors(folder / PAIRS, {"labels": found.labels, "p": found.scores, "q": own.q(bow, phi, found.labels)})

    depends = {"kind": s.ranking.kind, "network_candidates": s.ranking.network_candidates}
    return context.run.step("65-held-out", depends, build, after=[network.stage, ranker])


def calibration_step(context: FitContext, features: FeatureSet, ranker: Path, held_out: Path | None) -> Path:
    """70: T, beside the classifiers: the whole ranker."""
    s = context.settings

    def build(folder: Path) -> None:
        calibration = None
        if held_out is not None:
            pairs, _ = read_tensors(held_out / PAIRS)
            found = Predictions(labels=pairs["labels"], scores=pairs["p"])
            calibration = fit_tree_calibration(
                found, pairs["q"], features.held_out.labels, features.label_counts, s.published.tree_weight
            )
            context.progress.say(f"  calibration: T from {len(found):,} held-out rows")
        link_or_copy(ranker / RANKER, folder / RANKER)
        save_calibration(folder, s.linear_ranker.loss, s.ranking.network_candidates, calibration)

    depends = {**vars(s.published), "loss": s.linear_ranker.loss}
    return context.run.step("70-calibration", depends, build, after=[ranker, *([held_out] if held_out else [])])


def _searched(
    context: FitContext, network: TrainedNetwork, given: TrainingRows, rows: np.ndarray
) -> tuple[Predictions, np.ndarray]:
    """(the network's best labels of some rows without their excluded pairs, phi of these rows)."""
    searcher = Searcher(open_network(context, network.stage))
    depth = min(context.settings.ranking.network_candidates, given.labels.shape[1])
    found, phi = [Predictions.empty(depth)], [np.empty((0, searcher.network.encoder.dim), dtype=np.float32)]
    with torch_threads(context.threads):
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            query = searcher.encode(given.prepared, some)
            found.append(searcher.search(query, depth, excluded=Ragged.from_rows(given.excluded, some)[0]))
            phi.append(query.phi_BD.cpu().numpy())
    return stack(found), np.concatenate(phi)
