"""Steps 20 to 50 of a run: clusters -> stage 1 -> adjacency -> stage 2.

    15-training-rows where several processes train: the rows, where all can open them
    20-clusters      balanced clusters of label centroids; those of a fold, extended, where the network continues its
    22, 24           where clustering.again_after asks for it: a short first stage, and clusters on [tf-idf, phi]
    30-stage1        clusters fixed
    40-adjacency     the edges stage 2 starts with, equations (9) and (10)
    50-stage2        the graph learned

Each function is one arrow of that line: it builds its step, or finds it done, and returns its folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from ..core.devices import torch_threads
from ..core.files import read_object, write_json, write_tensors
from ..core.rng import generator
from ..core.settings import StageSettings, known, noise_seed
from ..encoders.centroids import label_centroids, psi
from ..index.adjacency import learnable_index, matching
from ..index.clustering import balanced_clusters, extended_clusters, read_clusters
from ..network.network import Network
from ..network.searcher import ENCODE_BATCH, Searcher
from ..network.storage import load_network, save_index
from ..training.stage import CHECKPOINT
from ..training.stored_rows import open_rows, write_rows
from ..training.trainer import Stage
from .context import FitContext
from .features_step import FeatureSet
from .stage_task import TRAIN, VALIDATION, Place, Report, StageStart, StageTask, run_task

TYPICAL_WORDS = 8
TINY = 1e-12
OF_MODEL = "saved_precision"  # a setting of the network that step 90 uses, and no stage
OF_EDGES = ("beta", "kappa", "logits")  # settings of the index that step 40 uses, and no stage


class TrainedNetwork(NamedTuple):
    """The folders of the clusters and of the last stage."""

    clusters: Path
    stage: Path


def train_network(context: FitContext, features: FeatureSet, *, start: TrainedNetwork | None = None) -> TrainedNetwork:
    """Clusters, stage 1, and stage 2 unless it has no epochs.

    `start`: a network of some of these rows, which stands in the place of stage 1.
    """
    settings = context.settings
    if start is not None:
        clusters = extended_clusters_step(context, features, start)
        edges = adjacency_step(context, features, clusters, start.stage)
        epochs = known(settings.score_model.continued_epochs)
        return TrainedNetwork(clusters, stage2_step(context, features, clusters, start.stage, edges, epochs))
    clusters = cluster_step(context, features, "20-clusters")
    if settings.clustering.again_after:
        # Only the clusters of this short stage are kept: they see [tf-idf, phi] instead of tf-idf alone.
        short = settings.updated({"stage1.epochs": settings.clustering.again_after}).stage1
        first = stage1_step(context, features, clusters, short, "22-first-stage")
        clusters = cluster_step(context, features, "24-clusters", after=first)
    stage1 = stage1_step(context, features, clusters, settings.stage1, "30-stage1")
    if not settings.stage2.epochs:
        return TrainedNetwork(clusters, stage1)
    edges = adjacency_step(context, features, clusters, stage1)
    return TrainedNetwork(clusters, stage2_step(context, features, clusters, stage1, edges))


def open_network(context: FitContext, stage: Path) -> Network:
    """The best weights of a stage."""
    return load_network(stage / "network", device=context.device, threads=context.threads)


def cluster_step(context: FitContext, features: FeatureSet, name: str, after: Path | None = None) -> Path:
    """Balanced clusters of label centroids, on tf-idf or, after a stage, on [tf-idf, phi]."""
    settings = context.settings
    n_clusters = known(settings.clustering.clusters)

    def build(folder: Path) -> None:
        with torch_threads(context.threads if settings.encoder.is_fine_tuned else 1):
            rows = features.bow if after is None else psi(features.bow, _phi(open_network(context, after), features))
        centroids = label_centroids(rows, features.train.labels)
        clusters = balanced_clusters(
            centroids,
            n_clusters,
            seed=noise_seed(settings),
            members=np.bincount(features.train.labels.indices, minlength=len(context.data.labels)) > 0,
            iterations=settings.clustering.iterations,
            threads=context.threads,
        )
        if after is not None:
            centroids = label_centroids(features.bow, features.train.labels)
        write_clusters(folder, clusters, typical_words(features, clusters, n_clusters, centroids))

    depends = {**vars(settings.clustering), "member": settings.run.member}
    return context.run.step(name, depends, build, after=[after or features.folder])


def extended_clusters_step(context: FitContext, features: FeatureSet, start: TrainedNetwork) -> Path:
    """20: the clusters of another network, with the labels that it has not seen."""
    n_clusters = known(context.settings.clustering.clusters)

    def build(folder: Path) -> None:
        labels = features.train.labels
        members = np.bincount(labels.indices, minlength=labels.shape[1]) > 0
        centroids = sp.csr_matrix(label_centroids(features.bow, labels))
        clusters = extended_clusters(read_clusters(start.clusters), centroids, members, n_clusters)
        write_clusters(folder, clusters, typical_words(features, clusters, n_clusters, centroids))

    return context.run.step("20-clusters", {}, build, after=[features.folder, start.stage])


def stage1_step(context: FitContext, features: FeatureSet, clusters: Path, stage: StageSettings, name: str) -> Path:
    """Train phi, W_C and W_L with every label in its one cluster."""
    start = StageStart(clusters, encoder=features.encoder_folder)
    return _stage_step(context, features, Stage(name, context.settings, stage), start, after=clusters)


def adjacency_step(context: FitContext, features: FeatureSet, clusters: Path, stage1: Path) -> Path:
    """(9) and (10): the edges from what stage 1 matches."""
    s = context.settings

    def build(folder: Path) -> None:
        searcher = Searcher(open_network(context, stage1))
        beams = searcher.all_beams(features.train.prepared, len(features.train))
        with torch_threads(context.threads if s.encoder.is_fine_tuned else 1):
            counts = matching(beams, features.train.labels, searcher.index.n_clusters)
        found = learnable_index(
            counts,
            read_clusters(clusters),
            kappa=known(s.index.kappa),
            beta=known(s.index.beta),
            logits=s.index.logits,
            rng=generator(noise_seed(s), "adjacency"),
        )
        save_index(found.index, folder / "index.safetensors")
        rescues = {"by_matching": found.rescued_by_matching, "by_cluster": found.rescued_by_cluster}
        context.run.log({"edges": found.index.n_edges, "rescued_labels": rescues})
        write_json(folder / "rescues.json", rescues)

    folder = context.run.step("40-adjacency", vars(s.index), build, after=[clusters, stage1])
    rescues = read_object(folder / "rescues.json", "by_matching", "by_cluster")
    context.progress.say(f"  rescued labels: {rescues['by_matching']} by matching, {rescues['by_cluster']} by cluster")
    return folder


def stage2_step(
    context: FitContext, features: FeatureSet, clusters: Path, stage1: Path, edges: Path, epochs: int | None = None
) -> Path:
    """Go on with phi and W_C, and learn the edges. `epochs`: default as the settings say."""
    settings = context.settings.stage2
    own = Stage("50-stage2", context.settings, settings if epochs is None else replace(settings, epochs=epochs))
    return _stage_step(context, features, own, StageStart(clusters, previous=stage1, edges=edges), after=edges)


def _stage_step(context: FitContext, features: FeatureSet, stage: Stage, start: StageStart, after: Path) -> Path:
    ranks = context.ranks
    stored = training_rows_step(context, features) if ranks.size > 1 else None

    def build(folder: Path) -> None:
        task, parts = StageTask(stage, start, folder), (features.train, features.validation)
        if stored is not None:
            ranks.text(task.text(stored))
            parts = open_rows(stored / TRAIN), open_rows(stored / VALIDATION)  # as the other ranks have them
        run_task(task, *parts, Place(context.device, ranks), Report(context.progress, context.run.log))

    # Without them another kappa leaves stage 1 as it is; stage 2 depends on them by the edges it comes after.
    index = {key: value for key, value in vars(context.settings.index).items() if key not in OF_EDGES}
    network = {key: value for key, value in vars(context.settings.network).items() if key != OF_MODEL}
    depends = {"stage": vars(stage.own), "index": index, "model": network}
    return context.run.step(stage.name, depends, build, after=[after], scratch=[CHECKPOINT])


def training_rows_step(context: FitContext, features: FeatureSet) -> Path:
    """15: the rows to learn from and to validate on, where other processes can open them."""

    def build(folder: Path) -> None:
        for name, rows in {TRAIN: features.train, VALIDATION: features.validation}.items():
            write_rows(rows, folder / name)

    return context.run.step("15-training-rows", {}, build, after=[features.folder])


def write_clusters(folder: Path, clusters: np.ndarray, words: list[list[str]]) -> None:
    write_tensors(folder / "clusters.safetensors", {"cluster_of_label": clusters})
    write_json(folder / "words.json", {"words": words})


@torch.no_grad()
def _phi(network: Network, features: FeatureSet) -> np.ndarray:
    """phi of every training row."""
    rows = np.arange(len(features.train))
    batches = np.array_split(rows, max(1, len(rows) // ENCODE_BATCH))
    return np.concatenate([network.encoder.encode(features.train.prepared, batch).cpu().numpy() for batch in batches])


def typical_words(
    features: FeatureSet, clusters: np.ndarray, n_clusters: int, centroids: sp.csr_matrix | np.ndarray
) -> list[list[str]]:
    """The words that tell a cluster's labels from all labels: largest h log(h / e), h their tf-idf weight in the
    cluster and e everywhere; none for vectors."""
    if features.vectorizer is None:
        return [[] for _ in range(n_clusters)]
    words = features.vectorizer.words.words
    everywhere = np.asarray(centroids[np.flatnonzero(clusters >= 0)].mean(axis=0)).ravel()
    order = np.argsort(clusters, kind="stable")
    bounds = np.searchsorted(clusters[order], np.arange(n_clusters + 1))
    found: list[list[str]] = []
    for cluster in range(n_clusters):
        members = order[bounds[cluster] : bounds[cluster + 1]]
        here = np.asarray(centroids[members].mean(axis=0)).ravel() if len(members) else everywhere
        gain = here * np.log(np.maximum(here, TINY) / np.maximum(everywhere, TINY))
        best = np.argsort(-gain, kind="stable")[:TYPICAL_WORDS]
        found.append([words[word] for word in best if gain[word] > 0])
    return found
