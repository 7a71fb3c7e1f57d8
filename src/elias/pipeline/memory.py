"""Is there enough memory? Checked before a fit begins, so that the out-of-memory killer does not end it halfway."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import SettingsError
from .estimate import Estimate

_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# The setting that makes each part smaller.
_REMEDIES = {
    "label classifiers": "encoder.dim (half of it halves this)",
    "word embeddings": "features.max_words or encoder.dim",
    "edges": "index.kappa",
}


def available_bytes() -> int | None:
    """What this process may still take; None where the system does not say."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    for name in _GROUP_LIMITS:
        try:
            found.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(found, default=None)


def refuse_if_too_large(needed: Estimate, available: int | None) -> None:
    """An error that names the largest part and the setting that makes it smaller."""
    if available is None or needed.total_bytes <= available:
        return
    largest = max(_REMEDIES, key=lambda part: needed.memory_bytes.get(part, 0))
    size = needed.memory_bytes[largest]
    gib = 2.0**30
    ways = [f"--set {setting} makes that {bytes_then / gib:.1f}" for setting, bytes_then in needed.smaller.items()]
    better = " " + "; ".join(ways) + "; or" if ways and largest == "label classifiers" else ""
    raise SettingsError(
        f"this fit needs about {needed.total_bytes / gib:.1f} GiB of memory and {available / gib:.1f} GiB are free; "
        f"most of it, {size / gib:.1f} GiB, are {largest}:{better} lower {_REMEDIES[largest]}, "
        "or say --set run.check_memory=false"
    )
