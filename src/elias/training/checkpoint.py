"""The state of a stage under way: weights, optimizer state, running mean, position; each file with a checksum.

    checkpoint/replicated.safetensors         what every rank has: encoder, W_C, A, position
    checkpoint/shard-0-of-2.safetensors       the classifiers of one rank's labels, with their optimizer state and mean

The folder appears whole or not at all. Restored, training continues as if it had never stopped, on a CPU bit for bit.
Any number of ranks reads what any other number wrote: each takes the rows of its own labels from all shards.
`stage.py` decides when a checkpoint is written; which step of a run continues at all is decided by
`pipeline/run_folder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..core.distributed import Ranks
from ..core.errors import RunError
from ..core.files import checksum_of, read_tensors, replacing, write_tensors
from ..core.rounding import as_array, as_tensor
from ..network.sharding import own_labels
from .trainer import Trainer, TrainingPosition

CHECKSUM = "checksum"  # in the metadata: a flipped bit would go on into every later weight
REPLICATED = "replicated.safetensors"
OF_LABELS = ("classifier_weights", "classifier_biases")  # tables with a row per label


def save_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Everything `restore_checkpoint` needs; the old checkpoint stays until the new one is whole."""
    tensors: dict[str, Tensor] = {}
    for name, table in trainer.network.tables().items():
        tensors |= {f"table:{name}:{part}": tensor for part, tensor in table.tensors().items()}
    for number, parameter in enumerate(_dense(trainer)):
        tensors[f"dense:{number}"] = parameter.data
        for part, value in trainer.optimizer.dense.state.get(parameter, {}).items():
            tensors[f"dense:{number}:{part}"] = value
    tensors |= {f"mean:{name}": tensor for name, tensor in trainer.mean.tensors.items()}
    if trainer.parents is not None:
        tensors["parents"] = torch.from_numpy(trainer.parents)
    trainer.read_loss()
    about = {"position": json.dumps(asdict(trainer.at), allow_nan=False), "mean_count": str(trainer.mean.count)}
    arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
    ranks = trainer.network.ranks
    with _replacing_together(folder, ranks) as part:
        own = {name: array for name, array in arrays.items() if _is_sharded(name)}
        _write(part / _shard_name(ranks.rank, ranks.size), own, {})
        if ranks.is_first:
            _write(part / REPLICATED, {name: array for name, array in arrays.items() if name not in own}, about)


@contextmanager
def _replacing_together(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """`replacing`, where every rank writes files of its own; rank 0 renames the folder when all are there."""
    if not ranks.is_first:
        ranks.wait()
        yield folder.with_name(f"{folder.name}.part")
        ranks.wait()
        return
    with replacing(folder) as part:
        part.mkdir()
        ranks.wait()
        yield part
        ranks.wait()


def restore_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Put a trainer where the checkpoint was taken."""
    arrays, about = _read(folder / REPLICATED)
    device = trainer.network.device
    try:
        arrays |= _own_rows(folder, trainer)
        for name, table in trainer.network.tables().items():
            table.restore(_below(f"table:{name}:", arrays))
        for number, parameter in enumerate(_dense(trainer)):
            parameter.data.copy_(_tensor(arrays[f"dense:{number}"]))
            state = _below(f"dense:{number}:", arrays)
            if state:
                # The step count of AdamW is on the device only where the optimizer is fused.
                fused = trainer.optimizer.dense.defaults["fused"]
                stays = () if fused else ("step",)
                moved = {part: value if part in stays else value.to(device) for part, value in state.items()}
                trainer.optimizer.dense.state[parameter] = moved
        trainer.mean.tensors = {name: tensor.to(device) for name, tensor in _below("mean:", arrays).items()}
        trainer.mean.count = int(about["mean_count"])
        trainer.parents = np.array(arrays["parents"]) if "parents" in arrays else None
        trainer.at = TrainingPosition(**json.loads(about["position"]))
        trainer.loss_sum.fill_(trainer.at.loss_sum)
    except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as problem:
        message = f"{folder}: not a checkpoint of this run ({problem}); remove the folder to start the stage again"
        raise RunError(message) from None


def _own_rows(folder: Path, trainer: Trainer) -> dict[str, np.ndarray]:
    """What the shards hold of the labels of this rank."""
    ranks, n_labels = trainer.network.ranks, trainer.network.index.n_labels
    size = len(list(folder.glob("shard-*.safetensors")))
    if size == ranks.size:
        return _read(folder / _shard_name(ranks.rank, size))[0]
    shards = [_read(folder / _shard_name(rank, size))[0] for rank in range(size)]
    labels = np.arange(n_labels)[own_labels(n_labels, ranks)]
    found = dict(shards[0])
    for name, first in found.items():
        if first.ndim == 0:  # the same on every rank
            continue
        found[name] = np.empty((len(labels), *first.shape[1:]), first.dtype)
        for rank, shard in enumerate(shards):
            mine = labels % size == rank
            found[name][mine] = shard[name][labels[mine] // size]
    return found


def _write(path: Path, arrays: dict[str, np.ndarray], about: dict[str, str]) -> None:
    write_tensors(path, arrays, {**about, CHECKSUM: checksum_of(arrays, about)})


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of a file of a checkpoint, as they were written."""
    remedy = f"remove the folder {path.parent} to start the stage again"
    try:
        arrays, about = read_tensors(path, RunError)
    except RunError as problem:
        raise RunError(f"{problem}, or {remedy}") from None
    recorded = about.pop(CHECKSUM, None)
    if recorded != checksum_of(arrays, about):
        raise RunError(f"{path}: its content is not what was written (a damaged disk or memory); {remedy}")
    return arrays, about


def _shard_name(rank: int, size: int) -> str:
    return f"shard-{rank}-of-{size}.safetensors"


def _is_sharded(name: str) -> bool:
    return name.startswith(tuple(f"{kind}:{table}" for kind in ("table", "mean") for table in OF_LABELS))


def _dense(trainer: Trainer) -> list[torch.nn.Parameter]:
    return [parameter for group in trainer.optimizer.dense.param_groups for parameter in group["params"]]


def _below(start: str, arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The arrays whose names begin with `start`, by the rest of their names."""
    return {name.removeprefix(start): _tensor(array) for name, array in arrays.items() if name.startswith(start)}


def _tensor(array: np.ndarray) -> Tensor:
    """A tensor with memory of its own: the file behind a memory map is about to be replaced."""
    return as_tensor(np.array(array))
