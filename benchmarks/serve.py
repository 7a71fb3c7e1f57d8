"""`elias serve` under load, from a second process on loopback.

    python benchmarks/serve.py models/debian --data datasets/debian-packages --seconds 60
    python benchmarks/serve.py models/debian --against ../old/src --rounds 5 --seconds 5    # two versions in turn

start      seconds from the command to ready
single     one connection, one text per request: the latency that a user sees
nothing    requests per second to /health: the capacity of the server without a model
one text   64 connections, one text per request; as a share of `nothing`
64 texts   64 texts per request; as a share of batched prediction inside a process
overload   twice the capacity: refused requests, latency of the accepted ones, growth of memory
reload     SIGHUP under load, then SIGTERM under load: lost requests

With --against both versions are started for each round, in changing order, and only `single`, `nothing`
and `one text` are measured, and the CPU time of the server per request. Ratios within a round hold on a machine that
is not quiet, absolute figures do not.
--serve passes more options to the server, e.g. --serve=--workers=2 (to this version only, where there are two).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timing import machine, report

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
MANY = 64  # texts in a large request


class Server:
    def __init__(self, process: subprocess.Popen[bytes], port: int, start_seconds: float) -> None:
        self.process, self.port, self.start_seconds = process, port, start_seconds

    def memory(self) -> float:
        """Private memory in MiB, without memory-mapped weights."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))

    def cpu_seconds(self) -> float:
        """Of the process and its workers, up to now: a steadier figure than requests per second on a busy machine."""
        return sum(cpu_seconds(pid) for pid in [self.process.pid, *children(self.process.pid)])


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(model: Path, *options: str, source: Path = SOURCE) -> Iterator[Server]:
    """The server of the version whose code is in `source`."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "elias", "serve", str(model), "--port", "0", *options],
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        port = 0
        try:
            while True:
                log.seek(0)
                events = {line["event"]: line for line in map(json.loads, log.read().splitlines(keepends=False))}
                if "ready" in events:
                    break
                if process.poll() is not None:
                    raise SystemExit(f"the server ended: {events}")
                time.sleep(0.02)
            port = int(events["listening"]["url"].rpartition(":")[2])
            yield Server(process, port, time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@contextmanager
def load(port: int, requests: list[dict[str, Any]], *options: str) -> Iterator[subprocess.Popen[str]]:
    """The load as a process under way."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)
        file.flush()
        command = [sys.executable, str(HERE / "serve_load.py"), str(port), file.name, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        yield process
        process.wait(200)


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=300)
    found: dict[str, Any] = json.loads(output)
    return found


def loaded(port: int, requests: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    with load(port, requests, *options) as process:
        return result_of(process)


def texts_of(data: Path, count: int) -> list[str]:
    from elias.dataset import load_dataset

    rows = load_dataset(data).test
    assert rows is not None
    assert rows.texts is not None
    return list(rows.texts[:count])


def predicts(texts: list[str], size: int) -> list[dict[str, Any]]:
    return [
        {"method": "POST", "path": "/v1/predict", "body": {"texts": texts[start : start + size], "k": 5}}
        for start in range(0, len(texts) - size + 1, size)
    ]


def in_process(model: Path, texts: list[str], seconds: float) -> float:
    """Texts per second of successive calls inside this process."""
    from elias.model.ensemble import load as load_model

    opened = load_model(model)
    opened.predict(texts[:256], 5)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = count % (len(texts) - 256 + 1)
        count += len(opened.predict(texts[start : start + 256], 5))
    return count / (time.perf_counter() - began)


def row(name: str, found: dict[str, Any], size: int = 1, **more: Any) -> dict[str, Any]:
    errors = sum(count for status, count in found["statuses"].items() if status not in {"200", "503"}) + found["lost"]
    return {
        "row": name,
        "requests/s": found["answered"] / found["seconds"],
        "texts/s": size * found["answered"] / found["seconds"] if size else None,
        "p50 ms": found["p50_ms"],
        "p99 ms": found["p99_ms"],
        "503": found["statuses"].get("503", 0),
        "errors": errors,
        "share": None,
        **more,
    }


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    texts = texts_of(args.data, args.texts)
    seconds, connections = str(args.seconds), str(args.connections)
    options = ["--connections", connections, "--seconds", seconds]
    inside = in_process(args.model, texts, min(args.seconds, 10))
    rows: list[dict[str, Any]] = []
    with serving(args.model, *args.serve) as server:
        rows.append({"row": "start to ready", "seconds": server.start_seconds})
        single = loaded(server.port, predicts(texts, 1), "--connections", "1", "--seconds", str(min(args.seconds, 10)))
        rows.append(row("single", single))
        nothing = loaded(server.port, [{"method": "GET", "path": "/health"}], *options)
        rows.append(row("nothing", nothing, size=0))
        empty = loaded(server.port, [{"method": "POST", "path": "/v1/predict", "body": {"texts": []}}], *options)
        rows.append(row("no text", empty, size=0, share=empty["answered"] / nothing["answered"]))
        one = loaded(server.port, predicts(texts, 1), *options)
        rows.append(row("one text", one, share=one["answered"] / nothing["answered"]))
        rows.append({"row": "in process, batches of 256", "texts/s": inside})
        many = loaded(server.port, predicts(texts, MANY), *options)
        rate = many["answered"] / many["seconds"]
        rows.append(row(f"{MANY} texts", many, size=MANY, share=MANY * rate / inside))
        rows.append(overload(server, texts, rate, args.seconds))
        rows += reload_and_end(server, texts, connections, max(2.0, min(8.0, args.seconds)))
    return rows


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """This version and another one, in turn: the median of each figure over all rounds, and of its ratio."""
    requests = predicts(texts_of(args.data, args.texts), 1)
    health = [{"method": "GET", "path": "/health"}]
    seconds, connections = str(args.seconds), str(args.connections)
    versions = {"old": (args.against, []), "new": (SOURCE, args.serve)}
    loads = {
        "single": (requests, "1"),
        "nothing": (health, connections),
        "one text": (requests, connections),
    }
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(args.rounds):
        for version in ("old", "new") if number % 2 == 0 else ("new", "old"):
            source, options = versions[version]
            with serving(args.model, *options, source=source) as server:
                loaded(server.port, requests, "--connections", connections, "--seconds", "1")  # warm
                for name, (sent, many) in loads.items():
                    before = server.cpu_seconds()
                    result = loaded(server.port, sent, "--connections", many, "--seconds", seconds)
                    cpu = 1000 * (server.cpu_seconds() - before) / max(1, result["answered"])
                    entry = {**row(f"{name}, {version}", result), "CPU ms": cpu}
                    found.setdefault((name, version), []).append(entry)
                    print({key: value for key, value in found[name, version][-1].items() if value}, file=sys.stderr)
    rows = []
    figures = ("requests/s", "p50 ms", "p99 ms", "CPU ms")
    for name in loads:
        old, new = found[name, "old"], found[name, "new"]
        for label, values in ((f"{name}, old", old), (f"{name}, new", new)):
            medians = {key: statistics.median(each[key] for each in values) for key in figures}
            spread = statistics.median(each["p99 ms"] / each["p50 ms"] for each in values)
            rows.append({"row": label, **medians, "p99/p50": spread, "errors": sum(each["errors"] for each in values)})
        ratios = {key: statistics.median(b[key] / a[key] for a, b in zip(old, new, strict=True)) for key in figures}
        rows.append({"row": f"{name}, new / old", **ratios})
    return rows


def overload(server: Server, texts: list[str], rate: float, seconds: float) -> dict[str, Any]:
    """Requests at twice the rate that 64 connections reached."""
    before = server.memory()
    options = ["--connections", "900", "--seconds", str(seconds), "--rate", str(2 * rate)]
    found = loaded(server.port, predicts(texts, MANY), *options)
    urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=10).read()
    return row("twice the capacity", found, size=MANY, grown_mib=server.memory() - before, not_sent=found["not_sent"])


def reload_and_end(server: Server, texts: list[str], connections: str, seconds: float) -> list[dict[str, Any]]:
    """Answers lost while the model is swapped, and while the process ends."""
    options = ["--connections", connections, "--seconds", str(seconds)]
    found = []
    for name, number in (("SIGHUP under load", signal.SIGHUP), ("SIGTERM under load", signal.SIGTERM)):
        with load(server.port, predicts(texts, 8), *options) as process:
            time.sleep(0.4 * seconds)
            server.process.send_signal(number)
            found.append(row(name, result_of(process), size=8))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, default=HERE.parent / "datasets" / "debian-packages")
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--against", type=Path, metavar="SRC", help="the src folder of another version")
    parser.add_argument("--rounds", type=int, default=5, help="with --against")
    parser.add_argument("--serve", action="append", default=[], metavar="OPTION", help="for `elias serve`")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    about = machine()
    rows = compare(args) if args.against else measure(args)
    columns = list(dict.fromkeys(name for each in rows for name in each))
    report(f"elias serve {args.model.name}; {about}", [{name: each.get(name) for name in columns} for each in rows],
           as_json=args.json)  # fmt: skip


if __name__ == "__main__":
    main()
