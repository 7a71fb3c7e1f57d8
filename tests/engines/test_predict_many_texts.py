"""docs/how-to/predict-many-texts.md: its snippets run, and the files of deploy/ agree with the service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from elias import Model
from elias.server.middleware import is_allowed_host
from helpers.processes import environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "predict-many-texts.md"
PATIENCE = 300


def block_with(words: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (found,) = (block for block in blocks if words in block)
    return found


@pytest.fixture
def place(stacked_folder: Path, texts: list[str], tmp_path: Path) -> Path:
    """A folder with what the page names."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine").symlink_to(stacked_folder)
    lines = [json.dumps({"id": f"r{number:03d}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (tmp_path / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def run(code: str, place: Path) -> None:
    """A block as a program of its own; what engines listen on is loopback."""
    (place / "program.py").write_text(code, encoding="utf-8")
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=place, capture_output=True, text=True, timeout=PATIENCE,
        env=environment(**quiet),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def scores(labels: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(one["label"], one["score"]) for one in labels]


def check_answers(folder: Path, model: Model, texts: list[str]) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(folder).sort_by("id")
    found = model.predict(texts, k=10).records()
    assert table["id"].to_pylist() == [f"r{number:03d}" for number in range(len(texts))]
    assert [scores(row) for row in table["labels"].to_pylist()] == [scores(row) for row in found]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray")
def test_ray(place: Path, stacked_model: Model, texts: list[str]) -> None:
    start = "import ray\nray.init(include_dashboard=False, _node_ip_address='127.0.0.1')\n"
    run(start + block_with("elias.engines.ray"), place)
    check_answers(place / "suggestions-ray", stacked_model, texts)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyspark") is None or shutil.which("java") is None, reason="needs pyspark and Java")
def test_spark(place: Path, stacked_model: Model, texts: list[str]) -> None:
    run(block_with("mapInPandas"), place)
    check_answers(place / "suggestions-spark", stacked_model, texts)


def test_compose() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    service, balancer = compose["services"]["elias"], compose["services"]["balancer"]
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert service["deploy"]["replicas"] > 1
    assert "ports" not in service, "replicas cannot share one port of the machine"
    assert service["command"] == json.loads(docker.splitlines()[-1].removeprefix("CMD "))
    assert "/ready" in service["healthcheck"]["test"][-1]
    mounted = {volume.split(":")[-2 if volume.endswith(":ro") else -1] for volume in service["volumes"]}
    assert mounted == {"/model", "/var/cache/elias"}
    assert all(path in docker for path in mounted)
    nginx = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    assert f"listen {balancer['ports'][0].split(':')[-1]};" in nginx
    assert re.search(r"EXPOSE (\d+)", docker)[1] in re.search(r"server (elias:\d+)", nginx)[1]  # type: ignore[index]
    assert (ROOT / "deploy" / balancer["volumes"][0].split(":")[0]).exists()
    assert "proxy_set_header Host $http_host;" in nginx, "by default the Host is the name of the upstream"
    assert all(is_allowed_host(host, ()) for host in (b"127.0.0.1:8080", b"localhost:8080"))
    assert "max_fails=0" in nginx, "a replica that answers 503 is busy, not gone"


def test_kubernetes() -> None:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    deployment, service = documents
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert deployment["spec"]["replicas"] > 1
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == service["spec"]["selector"]
    (port,) = container["ports"]
    assert port["containerPort"] == 8000
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}
    routes = (ROOT / "src" / "elias" / "server" / "routes.py").read_text(encoding="utf-8")
    assert all(f'"{path}"' in routes for path in probes.values())
    args, name = container["args"], service["metadata"]["name"]
    allowed = {value for option, value in pairwise(args) if option == "--allow-host"}
    for host in (name, f"{name}.default.svc.cluster.local"):
        assert is_allowed_host(host.encode(), allowed), host
