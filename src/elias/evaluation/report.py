"""What `elias report` shows of a model: facts, metrics and the paper's figures, measured on labeled rows.

    the model             on the test rows, by `evaluate`
    stage 2, stage 1      the network alone, and as it was after stage 1, on the same rows
    graph                 edge scores and clusters of the learned index; of an ensemble those of member 0

A figure that cannot be made says what is missing and how to get it. Files are written by `report_page.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import kernels
from ..core.metrics import (
    by_decile,
    calibrated_pairs,
    calibration_bins,
    calibration_error,
    deciles,
    mean_by_decile,
    recall_curve,
)
from ..core.progress import SILENT, Progress
from ..dataset import Dataset, Rows
from ..index.label_index import LabelIndex
from ..model.ensemble import Ensemble
from ..model.evaluate import DEPTH, Evaluation, evaluate_rows, labels_by_model
from ..model.model import Model
from . import figures
from .edge_analysis import ASSIGNED, clusters_per_label, stage1_edge_scores
from .figures import Cell, Figure, LabelNames, Table
from .label_maps import EncodedRows, assigned_clusters, choose_labels, label_map, own_rows, some_of

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@20", "R@100")
MOST_SCORED = 2_000  # rows whose true labels are scored one by one for figure 4
POOL = 5_000  # random training rows among which the background of the maps is looked for
POOL_OF_LABEL = 300  # and rows of labels that have the same clusters
BATCH = 1024
MAPS = 6  # labels per figure
SEVERAL, ONE = (2, 5), (1, 1)  # strong edges of a label


@dataclass(frozen=True)
class Report:
    title: str
    facts: list[tuple[str, str]]
    metrics: Table
    figures: list[Figure]
    notes: list[str]


@dataclass(frozen=True)
class Subject:
    """What is reported on."""

    name: str  # of the model
    saved: str  # when
    model: Model | Ensemble
    data: Dataset
    split: str
    stage1: Model | None  # the same model after stage 1
    no_stage1: str = ""  # why it is not there

    @property
    def rows(self) -> Rows:
        return self.data.splits[self.split]

    @property
    def network(self) -> Model:
        """The network alone."""
        return replace(self.model.first, reranker=None)


def make_report(subject: Subject, progress: Progress = SILENT) -> Report:
    """All figures of a model; asks each model once for its predictions."""
    model, data, rows = subject.model, subject.data, subject.rows
    progress.say(f"measuring on {len(rows):,} rows of {data.name}")
    measured = {"model": evaluate_rows(model, data, rows)}
    if _ranks(model):
        measured["stage 2" if _is_learned(model) else "network"] = evaluate_rows(subject.network, data, rows)
    elif _is_learned(model):
        measured = {"stage 2": measured["model"]}  # the network alone is the model
    if subject.stage1 is not None and _is_learned(model):
        measured["stage 1"] = evaluate_rows(subject.stage1, data, rows)
    progress.say("scores of true labels")
    made = [*_index_figures(model), _true_label_figure(subject), *_recall_figures(subject, measured)]
    progress.say("t-SNE of the texts of some labels")
    made += [*_map_figures(subject), _reliability_figure(model, next(iter(measured.values())))]
    order = [about[0] for about in _ORDER]
    return Report(
        title=f"Report on {subject.name}",
        facts=facts(subject),
        metrics=_metrics(measured),
        figures=sorted(made, key=lambda figure: order.index(figure.name)),
        notes=_notes(subject, next(iter(measured.values()))),
    )


_ORDER = (
    figures.EDGES, figures.SCORES, figures.RECALL, figures.CONTRIBUTION, figures.SURVIVAL, figures.CLUSTERS,
    figures.RELIABILITY, figures.SEVERAL, figures.ONE,
)  # fmt: skip


def _ranks(model: Model | Ensemble) -> bool:
    """Whether there is more to the model than one network."""
    return model.first.reranker is not None or len(model.all_members()) > 1


def _is_learned(model: Model | Ensemble) -> bool:
    return model.searcher.index.logits is not None


def _no_index(model: Model | Ensemble) -> str:
    if model.searcher.index.n_clusters == 1:
        return "This model is one-versus-all: it has no index. Fit with network.kind=elias for this figure."
    return "This model has stage 1 only: its edges are not learned. Fit with stage2.epochs above 0 for this figure."


# -- header -----------------------------------------------------------------------------------------------------------


def facts(subject: Subject) -> list[tuple[str, str]]:
    """What the model is: name, data, and the settings that matter."""
    model, index = subject.model, subject.model.searcher.index
    settings: dict[str, dict[str, Any]] = model.about.get("settings", {})

    def of(section: str, **names: str) -> str:
        """Settings of a section as "alpha 10, beta 16", by the name each is shown under; unset ones are left out."""
        values = settings.get(section, {})
        shown = [(name, values.get(key)) for key, name in names.items() if values.get(key) not in (None, "")]
        return ", ".join(f"{name} {f'{value:g}' if isinstance(value, float) else value}" for name, value in shown)

    members = len(model.all_members())
    epochs = [str(settings.get(stage, {}).get("epochs", "?")) for stage in ("stage1", "stage2")]
    trained_on = model.about.get("dataset", {}).get("name", "unknown data")
    found = {
        "Model": f"{subject.name}, saved {subject.saved}" + (f", {members} members" if members > 1 else ""),
        "Trained on": f"{trained_on}: {model.n_train:,} rows, {len(model.labels):,} labels",
        "Measured on": f"{subject.data.name}: {len(subject.rows):,} {_kind_of_rows(subject)}",
        "Encoder": of("encoder", kind="", model="", dim="dimension").strip(),
        "Index": f"{index.n_clusters:,} clusters, {index.n_edges:,} edges; "
        + of("index", alpha="alpha", beta="beta", kappa="kappa"),
        "Search": of("index", beam_size="beam", shortlist_size="shortlist"),
        "Training": f"{' + '.join(epochs)} epochs; "
        + of("stage2", batch_size="batch", shortlist_loss_weight="lambda")
        + "; "
        + of("run", seed="seed"),
        "Ranking": of("ranking", kind="").strip(),
    }
    return [(name, " ".join(text.split())) for name, text in found.items() if text]


def _kind_of_rows(subject: Subject) -> str:
    return "test rows" if subject.split == "test" else "rows (all rows of the file)"


def _notes(subject: Subject, found: Evaluation) -> list[str]:
    """What a reader must know of the rows."""
    notes = []
    if subject.split != "test":
        notes.append(
            f"{subject.data.name} has no split into training and test rows: if the model was trained on these rows, "
            "every number below flatters it."
        )
    unknown = len(found.label_ids) - len(subject.model.labels)
    if unknown:
        notes.append(f"{unknown:,} labels of the rows are not in the model; where a row has one, it counts as missed.")
    if len(subject.model.all_members()) > 1:
        notes.append("The graph, stage 1 and stage 2 are those of member 0; the model is the whole ensemble.")
    return notes


def _metrics(measured: dict[str, Evaluation]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (name, *(found.metrics[metric] for metric in SHOWN)) for name, found in measured.items()
    ]
    return Table(("what", *SHOWN), rows)


# -- figures ----------------------------------------------------------------------------------------------------------


def _index_figures(model: Model | Ensemble) -> list[Figure]:
    """Figures 3, 7a and 7b."""
    if not _is_learned(model):
        return [figures.missing(f, _no_index(model)) for f in (figures.EDGES, figures.SURVIVAL, figures.CLUSTERS)]
    index, trained = model.searcher.index, model.stage1_clusters >= 0
    of_label = deciles(model.label_counts)
    return [
        figures.edge_scores(index.edge_scores()),
        figures.stage1_edges(stage1_edge_scores(index, model.stage1_clusters)),
        figures.clusters_by_decile(*mean_by_decile(clusters_per_label(index)[trained], of_label[trained])),
    ]


def _true_label_figure(subject: Subject) -> Figure:
    """Figure 4: the true labels of the test rows, scored as given candidates."""
    model, rows = subject.model, subject.rows
    labels = labels_by_model(model, subject.data, rows)
    usable = np.flatnonzero(np.diff(labels.indptr) > 0)
    some = some_of(usable, MOST_SCORED, "true labels")
    wanted = [labels.indices[labels.indptr[row] : labels.indptr[row + 1]] for row in some.tolist()]
    ids = model.labels.ids
    inputs = rows.take(some)
    found = model.predict(
        inputs.texts if inputs.texts is not None else inputs.vectors,
        k=max(len(one) for one in wanted),
        candidates=[[ids[label] for label in one.tolist()] for one in wanted],
        explain=True,
    )
    assert found.parts is not None
    real = found.labels >= 0
    scores = {"network p": found.parts["cluster_score"] * found.parts["edge_score"] * found.parts["classifier"]}
    if "ranker" in found.parts:
        scores["ranker q"] = found.parts["ranker"]
    if _ranks(model):
        scores["model"] = found.scores
    of_pair = deciles(model.label_counts)[found.labels[real]]
    pairs, _ = mean_by_decile(np.zeros(len(of_pair)), of_pair)
    means = {name: mean_by_decile(values[real].astype(np.float64), of_pair)[1] for name, values in scores.items()}
    sampled = f"{len(some):,} of {len(usable):,} rows, chosen at random" if len(some) < len(usable) else "all rows"
    note = f"{int(pairs.sum()):,} true labels of {sampled}, each over all clusters with an edge to it."
    if "ranker q" not in scores:
        note += " This model has no linear ranker (ranking.kind), so there is no q."
    return figures.true_label_scores(pairs, means, note)


def _recall_figures(subject: Subject, measured: dict[str, Evaluation]) -> list[Figure]:
    """Figure 5: both stages and the model."""
    order: list[str] = [name for name in ("stage 1", "stage 2", "network", "model") if name in measured]
    curves = {
        name: recall_curve(measured[name].predictions.labels, measured[name].labels, DEPTH) for name in order
    }  # fmt: skip
    missing = "" if "stage 1" in measured else _no_stage1(subject)
    stages: dict[str, Evaluation] = {name: measured[name] for name in ("stage 1", "stage 2") if name in measured}
    if len(stages) < 2:
        return [figures.recall(curves, missing), figures.missing(figures.CONTRIBUTION, missing)]
    by_stage = {
        name: by_decile(one.predictions.labels, one.labels, label_counts=one.label_counts, k=DEPTH)
        for name, one in stages.items()
    }
    return [figures.recall(curves, ""), figures.contribution(by_stage)]


def _no_stage1(subject: Subject) -> str:
    if not _is_learned(subject.model):
        return _no_index(subject.model)
    return f"Stage 1 is missing. {subject.no_stage1}".strip()


def _reliability_figure(model: Model | Ensemble, found: Evaluation) -> Figure:
    if not model.gives_probabilities:
        return figures.missing(
            figures.RELIABILITY,
            "The scores of this model are not probabilities: it has no calibrated score model. Fit with "
            "ranking.kind=stacked on 400 texts or more for this figure.",
        )
    probabilities, right = calibrated_pairs(found.predictions.labels, found.predictions.scores, found.labels)
    bins, error = calibration_bins(probabilities, right), calibration_error(probabilities, right)
    return figures.reliability(bins, error, probabilities)


# -- maps of labels ---------------------------------------------------------------------------------------------------


def _map_figures(subject: Subject) -> list[Figure]:
    """Figures 8 and 9: labels with several strong edges, and with one."""
    model, data = subject.model.first, subject.data
    if not _is_learned(model):
        return [figures.missing(about, _no_index(model)) for about in (figures.SEVERAL, figures.ONE)]
    index = model.searcher.index
    labels = labels_by_model(model, data, data.train)
    n_texts, n_clusters = np.bincount(labels.indices, minlength=len(model.labels)), clusters_per_label(index)
    parents = index.parents()
    chosen = [choose_labels(n_clusters, n_texts, parents, edges, MAPS) for edges in (SEVERAL, ONE)]
    by_text = sp.csc_matrix(labels)
    own = [own_rows(by_text, int(label)) for label in np.concatenate(chosen)]
    pool = [some_of(np.arange(len(data.train)), POOL, "pool")]
    pool += [neighbors(by_text, index, int(label)) for label in np.concatenate(chosen)]
    encoded = encode_rows(model, data.train, np.unique(np.concatenate([*pool, *own])))
    names = LabelNames(model.labels.ids, model.labels.texts_to_show, model.cluster_words)
    made = []
    for about, some, edges in zip((figures.SEVERAL, figures.ONE), chosen, (SEVERAL, ONE), strict=True):
        has = f"{edges[0]} to {edges[1]} edges" if edges[0] < edges[1] else "one edge"
        if not len(some):
            reason = f"No label of this model with texts in {data.name} has {has} above {ASSIGNED}."
            made.append(figures.missing(about, reason))
            continue
        maps = [label_map(int(label), assigned_clusters(index, int(label)), by_text, encoded) for label in some]
        made.append(figures.label_maps(about, maps, names, _map_notes(len(some), has, subject)))
    return made


def neighbors(labels_by_text: sp.csc_matrix, index: LabelIndex, label: int) -> np.ndarray:
    """Some rows of the labels that share a cluster with this one: random rows are seldom of one of its clusters."""
    clusters = assigned_clusters(index, label)
    shared = np.unique(index.labels[np.isin(index.clusters, clusters) & (index.edge_scores() > ASSIGNED)])
    return some_of(np.unique(labels_by_text[:, shared].indices), POOL_OF_LABEL, "neighbors", label)


def _map_notes(count: int, has: str, subject: Subject) -> list[str]:
    texts = "training texts" if subject.split == "test" else f"texts of {subject.data.name}"
    notes = [
        f"Frequent labels of different clusters with {has} above {ASSIGNED}: their {texts} (black or white) among "
        "those of their clusters, which are named by their typical words."
    ]
    if count < MAPS:
        notes.append(
            f"Only {count} such label{'s have' if count > 1 else ' has'} five texts or more; {MAPS} were wanted."
        )
    return notes


def encode_rows(model: Model, rows: Rows, numbers: np.ndarray) -> EncodedRows:
    """phi and the clusters with s_c > 0.25 of some rows."""
    some = rows.take(numbers)
    phi, scores, at, clusters = [], [], [], []
    with kernels.reference(not model.use_kernels):
        prepared = model.network.encoder.prepare(model.read(some.texts if some.texts is not None else some.vectors))
        for start in range(0, len(numbers), BATCH):
            batch = np.arange(start, min(start + BATCH, len(numbers)))
            query = model.searcher.encode(prepared, batch)
            s_BC = model.searcher.cluster_scores(query).cpu().numpy()
            row, cluster = np.nonzero(s_BC > ASSIGNED)
            phi.append(query.phi_BD.cpu().numpy())
            scores.append(s_BC[row, cluster])
            at.append(batch[row])
            clusters.append(cluster)
    pairs = (_joined(scores), (_joined(at), _joined(clusters)))
    belongs = sp.csr_matrix(pairs, shape=(len(numbers), model.searcher.index.n_clusters))
    return EncodedRows(numbers, _joined(phi), belongs)


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(pieces)
