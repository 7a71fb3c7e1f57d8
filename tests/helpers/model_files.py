"""Model folders changed on purpose: their checksums made anew, so that readers are tested, not hashes."""

from __future__ import annotations

from pathlib import Path

from elias.core.files import read_json
from elias.model.ensemble import NAME, write_ensemble
from elias.model.storage import CONFIG, write_config


def reseal(folder: Path) -> None:
    """Record size and hash of every file as it is now, of a model or of all members of an ensemble."""
    if (folder / NAME).exists():
        content = read_json(folder / NAME)
        for name in content["members"]:
            reseal(folder / name)
        write_ensemble(folder, content["members"], content["quality"])
        return
    content = read_json(folder / CONFIG)
    made = ("format_version", "files", "checksum")
    write_config(folder, {name: value for name, value in content.items() if name not in made})
