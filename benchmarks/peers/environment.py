"""The peers' own environment: a folder made once and used again. A peer that cannot be installed is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .catalogue import Peer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMON = ("numpy", "scipy", "scikit-learn")
_VERSIONS = (
    "import json; from importlib.metadata import distributions; "
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in distributions()}))"
)


class Environment:
    """A virtual environment; `python` is its interpreter, `versions` what is installed."""

    def __init__(self, folder: Path = ROOT / ".venv-peers") -> None:
        self.python = folder / "bin" / "python"
        if not self.python.exists():
            print(f"making {folder} for the peers, once", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.versions = self._versions()

    def require(self, peer: Peer) -> str | None:
        """Install the peer unless it is there; the reason if that fails."""
        wanted = [package for package in COMMON if package not in self.versions]
        reason = self._install(wanted) if wanted else None
        if reason is None and peer.package not in self.versions:
            reason = self._install([peer.package, *([] if peer.with_dependencies else ["--no-deps"])])
        self.versions = self._versions()
        return reason

    def versions_of(self, peer: Peer) -> dict[str, str]:
        return {package: self.versions[package] for package in sorted({peer.package, *COMMON})}

    def _install(self, what: list[str]) -> str | None:
        command = [str(self.python), "-m", "pip", "install", "--quiet", "-c", str(HERE / "constraints.txt"), *what]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return None if done.returncode == 0 else " ".join(lines or done.stderr.splitlines()[-1:] or ["pip failed"])

    def _versions(self) -> dict[str, str]:
        done = subprocess.run([str(self.python), "-c", _VERSIONS], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found
