"""Write requirements.lock: every package that `pip install elias-xmc[serve]` brings, with version and hash.

    python deploy/lock.py          # `make lock`

pip resolves against constraints.txt, in the environment and on the platform that runs this, and reports the files it
would install. torch is left out: its wheel differs by platform and by CPU or CUDA build, so one hash would be wrong for
most.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXEMPT = {"torch", "elias-xmc"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resolved() -> list[tuple[str, str, str]]:
    """(name, version, SHA-256) of every file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", str(report), "-c", str(ROOT / "constraints.txt"), f"{ROOT}[serve]"]
        subprocess.run(command, check=True)
        items = json.loads(report.read_text())["install"]
    found = []
    for item in items:
        name, version = normalized(item["metadata"]["name"]), item["metadata"]["version"]
        if name not in EXEMPT:
            found.append((name, version, item["download_info"]["archive_info"]["hashes"]["sha256"]))
    return sorted(found)


def main() -> None:
    version = ".".join(platform.python_version_tuple()[:2])
    lines = [
        f"# Made by `make lock` for {platform.python_implementation()} {version} on {platform.system()} "
        f"{platform.machine()}; see docs/reference/supply-chain.md. Without torch, whose wheel differs by platform.",
        *(f"{name}=={version} --hash=sha256:{digest}" for name, version, digest in resolved()),
    ]
    (ROOT / "requirements.lock").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
