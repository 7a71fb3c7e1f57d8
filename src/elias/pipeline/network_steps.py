"""The straight line from a dataset to a model.

    split, tf-idf -> label centroids -> clusters -> stage 1 -> A' = M^T Y -> edges -> stage 2 -> final score -> model
                  -> words, ranker, tree (sparse_steps.py) ------------------------------------->

Below 100,000 rows the final score comes from several such lines, each without rows of its own (`fusion.draws`).
Each arrow is a step of the run folder: skipped when it is done, resumed when it was cut. The two lines meet in the
final score: settings of one do not touch the other, unless the ranker asks for the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.files import link_or_copy, link_tree, read_object, read_tensors, write_json, write_tensors
from ..core.progress import Progress
from ..core.rng import generator
from ..core.settings import ModelSettings, Settings, StageSettings, known, noise_seed
from ..dataset import Dataset
from ..encoders import load_encoder
from ..encoders.centroids import label_centroids, psi
from ..index.adjacency import learnable_index, matching
from ..index.clustering import balanced_clusters
from ..index.label_index import LabelIndex
from ..model.model import Model
from ..network.network import Network
from ..network.searcher import Searcher
from ..network.storage import load_index, load_network, save_index
from ..training.initialization import ENCODE_BATCH, new_network
from ..training.stage import CHECKPOINT, train_stage
from ..training.trainer import Stage
from .features_step import Prepared, open_preparation, write_preparation
from .ranking_steps import SparseSteps
from .run_folder import Run

TYPICAL_WORDS = 8
TINY = 1e-12


class Steps:
    """The steps of a run; each method is one arrow of the line and returns what the next one needs."""

    def __init__(self, data: Dataset, settings: Settings, run: Run, progress: Progress, device: torch.device) -> None:
        self.data, self.settings, self.run, self.progress, self.device = data, settings, run, progress, device
        self.threads = known(settings.run.threads)
        self._draws = settings.fusion.draws or 0  # None in runs that began before there were any

    def model(self) -> Path:
        prepared = self._prepared()
        sparse = SparseSteps(self.data, self.settings, self.run, self.progress, prepared, self._network)
        sparse.words()
        clusters, network = self._trained(prepared)
        folds = self._folds(sparse)
        drawn = [self._draw(number) for number in range(self._draws if sparse.is_on else 0)]
        samples = [sample for sample in drawn if sample is not None]
        return self._model(prepared, clusters, network, sparse.ranked(network, folds, samples))

    def sample(self) -> Path | None:
        """In place of a model, what the final score of another run is learned from; None where no row is held out."""
        prepared = self._prepared()
        if prepared.calibration.labels.nnz == 0:
            self.progress.say("  no rows to hold out: the texts, or their groups, are too few")
            return None
        sparse = SparseSteps(self.data, self.settings, self.run, self.progress, prepared, self._network)
        sparse.words()
        network = self._trained(prepared)[1]
        return sparse.sample(network, self._folds(sparse))

    def _folds(self, sparse: SparseSteps) -> list[Path]:
        """Networks that have not seen a fold of the rows."""
        return [self._trained(fold, f"-fold{number}")[1] for number, fold in enumerate(sparse.folds())]

    def _draw(self, number: int) -> Path | None:
        """Calibration rows drawn once more, and what networks and words that have not seen them say of them.

        Members of an ensemble learn their final scores from the same draws, whose networks are those of member 0:
        what networks of other clusterings say of a row that they have not seen is of the same kind.
        """
        again = " (as member 0)" if self.settings.run.member else ""
        self.progress.say(
            f"  final score, draw {number + 1} of {self._draws}: a network and words without its rows{again}"
        )
        seed = self.settings.split.seed + 1 + number
        settings = self.settings.updated(
            {"split.seed": seed, "fusion.draws": 0, "ranker.refit": False, "run.member": 0}
        )
        with self.run.below(f"draw-{number}") as run:
            run.freeze(settings, settings, self.data.fingerprint(), restart=True)
            return Steps(self.data, settings, run, self.progress, self.device).sample()

    def _trained(self, prepared: Prepared, suffix: str = "") -> tuple[Path, Path]:
        """Clusters and the trained network. `suffix`: of the names of steps that leave a fold of the rows out."""
        clusters = self._clusters(f"20-clusters{suffix}", prepared)
        if self.settings.clustering.again_after:
            clusters = self._clusters_again(prepared, clusters, suffix)
        stage1 = self._stage1(f"30-stage1{suffix}", prepared, clusters, self.settings.stage1)
        if not self.settings.stage2.epochs:
            return clusters, stage1
        edges = self._edges(prepared, clusters, stage1, suffix)
        return clusters, self._stage2(prepared, clusters, stage1, edges, suffix)

    def _prepared(self) -> Prepared:
        s = self.settings
        depends = {
            "features": vars(s.features),
            "encoder": vars(s.encoder),
            "seed": s.run.seed,
            "threads": s.run.threads,
        }
        if s.fusion.draws:  # then no calibration rows are held out here
            depends = {**depends, "draws": True}
        build = lambda folder: write_preparation(self.data, s, folder, self.progress)  # noqa: E731
        folder = self.run.step("10-features", depends, build)
        return open_preparation(self.data, s, folder, self.progress)

    def _clusters(self, name: str, prepared: Prepared, after: Path | None = None) -> Path:
        """Balanced clusters of label centroids, on tf-idf or, after a stage, on [tf-idf, phi]."""

        def build(folder: Path) -> None:
            features = prepared.bow if after is None else psi(prepared.bow, _phi(self._network(after), prepared))
            centroids = label_centroids(features, prepared.train.labels)
            clusters = balanced_clusters(
                centroids,
                known(self.settings.clustering.clusters),
                seed=noise_seed(self.settings),
                members=np.bincount(prepared.train.labels.indices, minlength=len(self.data.labels)) > 0,
                iterations=self.settings.clustering.iterations,
                threads=self.threads,
            )
            write_tensors(folder / "clusters.safetensors", {"cluster_of_label": clusters})
            write_json(
                folder / "words.json", typical_words(prepared, clusters, known(self.settings.clustering.clusters))
            )

        depends = {**vars(self.settings.clustering), "member": self.settings.run.member, **prepared.fold}
        return self.run.step(name, depends, build, after=[after or prepared.folder])

    def _clusters_again(self, prepared: Prepared, clusters: Path, suffix: str) -> Path:
        """A short first stage only to cluster once more on [tf-idf, phi]; nothing else of it is kept."""
        short = self.settings.updated({"stage1.epochs": self.settings.clustering.again_after}).stage1
        first = self._stage1(f"22-first-stage{suffix}", prepared, clusters, short)
        return self._clusters(f"24-clusters{suffix}", prepared, first)

    def _stage1(self, name: str, prepared: Prepared, clusters: Path, stage: StageSettings) -> Path:
        cluster_of_label = read_clusters(clusters)
        index = LabelIndex.from_clusters(cluster_of_label, known(self.settings.clustering.clusters))

        def make() -> Network:
            encoder = load_encoder(prepared.encoder_folder, threads=self.threads)
            encoder.to(self.device)
            own = Stage(name, self.settings, stage)
            return new_network(encoder, index, prepared.train, cluster_of_label, own, device=self.device)

        return self._stage(name, prepared, make, stage, after=clusters)

    def _edges(self, prepared: Prepared, clusters: Path, stage1: Path, suffix: str) -> Path:
        s = self.settings

        def build(folder: Path) -> None:
            searcher = Searcher(self._network(stage1))
            beams = searcher.all_beams(prepared.train.prepared, len(prepared.train))
            counts = matching(beams, prepared.train.labels, searcher.index.n_clusters)
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
            self.run.log({"edges": found.index.n_edges, "rescued_labels": rescues})
            write_json(folder / "rescues.json", rescues)

        folder = self.run.step(f"40-adjacency{suffix}", vars(s.index), build, after=[stage1])
        rescues = read_object(folder / "rescues.json", "by_matching", "by_cluster")
        self.progress.say(f"  rescued labels: {rescues['by_matching']} by matching, {rescues['by_cluster']} by cluster")
        return folder

    def _stage2(self, prepared: Prepared, clusters: Path, stage1: Path, edges: Path, suffix: str) -> Path:
        stage, name = self.settings.stage2, f"50-stage2{suffix}"

        def make() -> Network:
            previous = self._network(stage1)
            index = load_index(edges / "index.safetensors")
            return new_network(
                previous.encoder, index, prepared.train, read_clusters(clusters), Stage(name, self.settings, stage),
                device=self.device, previous=previous,
            )  # fmt: skip

        return self._stage(name, prepared, make, stage, after=edges)

    def _stage(self, name: str, prepared: Prepared, make: Any, stage: StageSettings, after: Path) -> Path:
        def build(folder: Path) -> None:
            train_stage(
                make, prepared.train, prepared.validation, Stage(name, self.settings, stage),
                folder=folder, progress=self.progress, log=self.run.log,
            )  # fmt: skip

        depends: Mapping[str, Any] = {"stage": vars(stage), "index": vars(self.settings.index)}
        usual = vars(ModelSettings())
        changed = {key: value for key, value in vars(self.settings.model).items() if value != usual[key]}
        if changed:  # runs of before there was a choice stay valid
            depends = {**depends, "model": changed}
        return self.run.step(name, depends, build, after=[after], scratch=[CHECKPOINT])

    def _network(self, stage: Path) -> Network:
        return load_network(stage / "network", device=self.device, threads=self.threads)

    def _model(self, prepared: Prepared, clusters: Path, stage: Path, plus: list[Path]) -> Path:
        """Everything a user needs, in one folder."""

        def build(folder: Path) -> None:
            link_tree(stage / "network", folder)
            for file in [path for step in plus for path in sorted(step.iterdir())]:
                if file.name not in ("done.json", "begun.json"):
                    link_or_copy(file, folder / file.name)
            counts, n_train = self.data.training_counts()
            Model(
                network=self._network(stage),
                labels=self.data.labels,
                label_counts=counts,
                stage1_clusters=read_clusters(clusters),
                cluster_words=read_object(clusters / "words.json", "words")["words"],
                vectorizer=prepared.vectorizer,
                n_train=n_train,
                about=about(self.data, self.settings, prepared, read_object(stage / "stage.json", "best")["best"]),
            ).write_around(folder)

        return self.run.step("90-model", {"data": self.data.name}, build, after=[stage, *plus])


def read_clusters(folder: Path) -> np.ndarray:
    return read_tensors(folder / "clusters.safetensors")[0]["cluster_of_label"]


@torch.no_grad()
def _phi(network: Network, prepared: Prepared) -> np.ndarray:
    """phi of every training row."""
    rows = np.arange(len(prepared.train))
    batches = np.array_split(rows, max(1, len(rows) // ENCODE_BATCH))
    return np.concatenate([network.encoder.encode(prepared.train.prepared, batch).cpu().numpy() for batch in batches])


def typical_words(prepared: Prepared, clusters: np.ndarray, n_clusters: int) -> dict[str, list[list[str]]]:
    """The words that tell a cluster's labels from all labels: largest h log(h / e), h their tf-idf weight here and
    e everywhere; none for vectors."""
    if prepared.vectorizer is None:
        return {"words": [[] for _ in range(n_clusters)]}
    centroids = label_centroids(prepared.bow, prepared.train.labels)
    words = prepared.vectorizer.words.words
    everywhere = np.asarray(centroids[np.flatnonzero(clusters >= 0)].mean(axis=0)).ravel()
    order = np.argsort(clusters, kind="stable")
    bounds = np.searchsorted(clusters[order], np.arange(n_clusters + 1))
    found: list[list[str]] = []
    for cluster in range(n_clusters):
        members = order[bounds[cluster] : bounds[cluster + 1]]
        here = np.asarray(centroids[members].mean(axis=0)).ravel() if len(members) else everywhere
        says = here * np.log(np.maximum(here, TINY) / np.maximum(everywhere, TINY))
        best = np.argsort(-says, kind="stable")[:TYPICAL_WORDS]
        found.append([words[word] for word in best if says[word] > 0])
    return {"words": found}


def about(data: Dataset, settings: Settings, prepared: Prepared, validation: dict[str, Any]) -> dict[str, Any]:
    """What config.json says besides versions."""
    features = None if prepared.vectorizer is not None else int(prepared.bow.shape[1])
    return {
        "settings": settings.as_dict(),
        "dataset": {
            "name": data.name,
            "exclude_own_id": data.settings.exclude_own_id,
            "propensity_a": data.settings.propensity_a,
            "propensity_b": data.settings.propensity_b,
            "features": features,  # columns of a vector; None: texts
        },
        "validation": validation,
    }
