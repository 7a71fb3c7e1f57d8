"""The rivals: which package, which adapter, and the few settings that are tried on validation rows.

The settings of a variant that are left out are the package's own defaults, and the first variant is the default. The
others are what the package's documentation recommends or shows. LinearSVC runs where it is an option: its weights are
dense and every label is a fit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PEER, BASELINE, RESCORED = "peer", "baseline", "peer + score model"
BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}  # what omikuji's README compares with Bonsai


@dataclass(frozen=True)
class Peer:
    title: str
    adapter: str  # the module of this package that runs it
    package: str = ""  # none: it runs in our own environment
    variants: tuple[dict[str, Any], ...] = ({},)
    kind: str = PEER
    # PECOS asks for torch and transformers (for XR-Transformer), napkinXC for a downloader: neither is used here.
    with_dependencies: bool = True
    most_rows: int | None = None
    most_labels: int | None = None
    base: str = ""  # the peer whose candidates it scores
    version: int = 1  # of the adapter: raised when its answers change, so that its cells are measured anew

    def refusal(self, rows: int, labels: int) -> str | None:
        """Why it is not run on data of this size."""
        for what, count, most in (("training rows", rows, self.most_rows), ("labels", labels, self.most_labels)):
            if most is not None and count > most:
                return f"{count:,} {what}; it is run up to {most:,}"
        return None


def beams(*trained: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Each with the package's beam of 10 and with 50."""
    return tuple({**settings, "beam_size": beam} for settings in trained for beam in (10, 50))


def each(name: str, values: Iterable[Any], **fixed: Any) -> tuple[dict[str, Any], ...]:
    return tuple({**fixed, name: value} for value in values)


PEERS = {
    "words": Peer("words alone (our inverted index)", "words", kind=BASELINE),
    "bm25s": Peer(
        "bm25s", "bm25", "bm25s", (*each("neighbors", (30, 10, 100)), {"document": "label"}), kind=BASELINE
    ),
    "knn": Peer(
        "k-NN (cosine)", "nearest", "scipy",
        (*each("neighbors", (30, 10, 100), power=1), *each("neighbors", (30, 100), power=3)), kind=BASELINE,
    ),
    "linearsvc": Peer(
        "LinearSVC one-versus-rest", "one_versus_rest", "scikit-learn", each("C", (1.0, 0.1, 10.0)), kind=BASELINE,
        most_rows=10_000, most_labels=5_000,
    ),
    "pecos": Peer(
        "PECOS XR-Linear", "pecos", "libpecos",
        beams({}, {"negative_sampling": "tfn+man"}, {"trees": 3}), with_dependencies=False,
    ),
    "parabel": Peer("omikuji Parabel-like", "omikuji_trees", "omikuji", beams({"n_trees": 3}, {"n_trees": 5})),
    "bonsai": Peer(
        "omikuji Bonsai-like", "omikuji_trees", "omikuji",
        beams({"n_trees": 3, **BONSAI}, {"n_trees": 5, **BONSAI}),
    ),
    "napkinxc": Peer(
        "napkinXC PLT", "napkinxc_plt", "napkinxc", ({}, {"ensemble": 3}), with_dependencies=False
    ),
    "pecos-score": Peer("PECOS + score model", "rescored", kind=RESCORED, base="pecos"),
}  # fmt: skip
