"""The peers: which package, which adapter, which settings. Settings left out are the peer's own defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Peer:
    title: str
    package: str
    adapter: str  # the module of this package that runs it
    settings: dict[str, Any] = field(default_factory=dict)
    # PECOS asks for torch and transformers (for XR-Transformer), napkinXC for a downloader: neither is used here.
    with_dependencies: bool = True


PEERS = {
    "pecos": Peer("PECOS XR-Linear", "libpecos", "pecos", {"beam_size": 10}, with_dependencies=False),
    "parabel": Peer("omikuji Parabel-like", "omikuji", "omikuji_trees", {"n_trees": 3}),
    # "unbalanced, cluster.k=100, max_depth=3" is what omikuji's README compares with Bonsai.
    "bonsai": Peer(
        "omikuji Bonsai-like",
        "omikuji",
        "omikuji_trees",
        {"n_trees": 3, "cluster_balanced": False, "cluster_k": 100, "max_depth": 3},
    ),
    "napkinxc": Peer("napkinXC PLT", "napkinxc", "napkinxc_plt", with_dependencies=False),
}
