"""Is there enough memory, here and on the GPU? Checked before a fit begins, so that nothing ends it halfway."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import SettingsError
from .estimate import Estimate

_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_BATCH = "stage1.batch_size and stage2.batch_size"
# What makes each part smaller.
_REMEDIES = {
    "label classifiers": "encoder.dim (half of it halves this)",
    "word embeddings": "features.max_words or encoder.dim",
    "clusters": "clustering.clusters",
    "edges": "index.kappa",
    "transformer": "the size of encoder.model",
    "activations": f"encoder.max_length, or {_BATCH}",
    "published ranker": "ranking.network_candidates (or set ranking.kind=none)",
    "words of labels, ranker": "inverted_index.words_per_label",
    "labels of a batch": f"index.training_shortlist_size, or {_BATCH}",
}
GIB = 2.0**30


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


def available_gpu_bytes(device: str) -> int | None:
    """What is free on a CUDA device; None for other devices."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.mem_get_info(torch.device(device))[0])


def refuse_if_too_large(needed: Estimate, available: int | None, gpu_available: int | None = None) -> None:
    """An error that says which memory is short, its largest part, and the settings that help."""
    gpu_then = {setting: then.total_gpu_bytes for setting, then in needed.smaller.items()}
    then = {setting: then.total_bytes for setting, then in needed.smaller.items()}
    if gpu_available is not None and needed.total_gpu_bytes > gpu_available:
        raise SettingsError(_refusal("GPU memory", needed.gpu_bytes, gpu_available, gpu_then) + ", or run.device=cpu")
    if available is not None and needed.total_bytes > available:
        raise SettingsError(_refusal("memory", needed.memory_bytes, available, then))


def _refusal(memory: str, parts: dict[str, int], available: int, smaller: dict[str, int]) -> str:
    total, largest = sum(parts.values()), max(parts, key=lambda part: parts[part])
    ways = [f"--set {setting} makes it {then / GIB:.1f}" for setting, then in smaller.items() if then < total]
    remedy = f"lower {_REMEDIES[largest]}, or " if largest in _REMEDIES else ""
    if largest == "label classifiers" and "transformer" in parts:
        remedy = "lower the width of encoder.model, or "  # is d
    return (
        f"this fit needs about {total / GIB:.1f} GiB of {memory} and {available / GIB:.1f} GiB are free; "
        f"most of it, {parts[largest] / GIB:.1f} GiB, is for {largest}: {'; '.join([*ways, ''])}{remedy}"
        "say --set run.check_memory=false"
    )
