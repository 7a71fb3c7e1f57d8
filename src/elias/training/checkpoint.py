"""The state of a stage under way, as one safetensors file: weights, optimizer state, running mean, position; with a
checksum of it all.

Restored, training continues as if it had never stopped, on a CPU bit for bit. `stage.py` decides when a checkpoint is
written; which step of a run continues at all is decided by `pipeline/run_folder.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..core.errors import RunError
from ..core.files import checksum_of, read_tensors, write_tensors
from ..core.rounding import as_array, as_tensor
from .trainer import Trainer, TrainingPosition

CHECKSUM = "checksum"  # in the metadata: a flipped bit would go on into every later weight


def save_checkpoint(trainer: Trainer, path: Path) -> None:
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
    write_tensors(path, arrays, {**about, CHECKSUM: checksum_of(arrays, about)})


def restore_checkpoint(trainer: Trainer, path: Path) -> None:
    """Put a trainer where the checkpoint was taken."""
    arrays, about = read_tensors(path, RunError)
    recorded = about.pop(CHECKSUM, None)
    if recorded != checksum_of(arrays, about):
        raise RunError(
            f"{path}: its content is not what was written (a damaged disk or memory); remove the file to start the "
            "stage again"
        )
    device = trainer.network.device
    try:
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
    except (KeyError, ValueError, TypeError, RuntimeError) as problem:
        message = f"{path}: not a checkpoint of this run ({problem}); remove the file to start the stage again"
        raise RunError(message) from None


def _dense(trainer: Trainer) -> list[torch.nn.Parameter]:
    return [parameter for group in trainer.optimizer.dense.param_groups for parameter in group["params"]]


def _below(start: str, arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """The arrays whose names begin with `start`, by the rest of their names."""
    return {name.removeprefix(start): _tensor(array) for name, array in arrays.items() if name.startswith(start)}


def _tensor(array: np.ndarray) -> Tensor:
    """A tensor with memory of its own: the file behind a memory map is about to be replaced."""
    return as_tensor(np.array(array))
