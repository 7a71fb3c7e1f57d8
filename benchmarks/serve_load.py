"""Load for a server on this machine, from a process of its own: plain asyncio, requests written once.

    python benchmarks/serve_load.py PORT REQUESTS --connections 64 --seconds 10 [--rate 500]

REQUESTS is a file of JSON lines {"method", "path", "body"}; connections take them in turn. Without --rate every
connection sends the next request after each answer; with it requests begin at that rate (open loop). The result
is one JSON object: requests, statuses, latencies, and what was lost after it had been sent.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nconnection: close\r\n", re.IGNORECASE)


class Load:
    def __init__(self, requests: list[bytes], seconds: float) -> None:
        self.requests = itertools.cycle(requests)
        self.statuses: Counter[int] = Counter()
        self.accepted: list[float] = []  # seconds of answers with 200
        self.refused: list[float] = []
        self.lost = 0  # sent, and never answered
        self.not_sent = 0  # open loop: no connection was free
        self.ends = time.perf_counter() + seconds
        self.free: list[Client] = []
        self.clients: set[Client] = set()
        self.open_loop = False

    def record(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        (self.accepted if status == 200 else self.refused).append(seconds)


class Client(asyncio.Protocol):
    def __init__(self, load: Load) -> None:
        self.load, self.buffer, self.sent_at, self.is_waiting = load, bytearray(), 0.0, False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.load.clients.add(self)
        self.send()

    def send(self) -> None:
        if self.transport.is_closing() or time.perf_counter() >= self.load.ends:
            self.transport.close()
            return
        self.sent_at, self.is_waiting = time.perf_counter(), True
        self.transport.write(next(self.load.requests))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = LENGTH.search(self.buffer, 0, head + 2)
        assert length, bytes(self.buffer[:200])
        if len(self.buffer) < head + 4 + int(length[1]):
            return
        self.load.record(int(self.buffer[9:12]), time.perf_counter() - self.sent_at)
        closes = CLOSES.search(self.buffer, 0, head + 2) is not None
        self.buffer.clear()
        self.is_waiting = False
        if closes:
            self.transport.close()
        elif self.load.open_loop:
            self.load.free.append(self)
        else:
            self.send()

    def connection_lost(self, problem: Exception | None) -> None:
        self.load.clients.discard(self)
        if self in self.load.free:
            self.load.free.remove(self)
        self.load.lost += self.is_waiting


async def run(port: int, requests: list[bytes], connections: int, seconds: float, rate: float | None) -> Load:
    load = Load(requests, seconds)
    load.open_loop = rate is not None
    loop = asyncio.get_running_loop()
    began, due, opening = time.perf_counter(), 0, set[asyncio.Task[Any]]()
    load.ends = began + seconds
    if rate is None:
        for _ in range(connections):
            await loop.create_connection(lambda: Client(load), "127.0.0.1", port)
    while time.perf_counter() < load.ends and (load.clients or rate):
        if rate is not None:
            wanted = int((time.perf_counter() - began) * rate)
            while due < wanted:
                due += 1
                if load.free:
                    load.free.pop().send()
                elif len(load.clients) + len(opening) < connections:
                    task = loop.create_task(loop.create_connection(lambda: Client(load), "127.0.0.1", port))
                    opening.add(task)
                    task.add_done_callback(opening.discard)
                else:
                    load.not_sent += 1
        await asyncio.sleep(0.002 if rate else 0.05)
    patience = time.perf_counter() + 70
    while any(client.is_waiting for client in load.clients) and time.perf_counter() < patience:
        await asyncio.sleep(0.01)
    return load


def written(line: str) -> bytes:
    given = json.loads(line)
    body = json.dumps(given["body"]).encode() if given.get("body") is not None else b""
    head = f"{given['method']} {given['path']} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def share(values: list[float], place: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(len(values) * place))] * 1000 if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float)
    args = parser.parse_args()
    requests = [written(line) for line in args.requests.read_text(encoding="utf-8").splitlines()]
    began = time.perf_counter()
    load = asyncio.run(run(args.port, requests, args.connections, args.seconds, args.rate))
    taken = time.perf_counter() - began
    print(
        json.dumps(
            {
                "seconds": min(taken, args.seconds),
                "answered": len(load.accepted),
                "statuses": {str(status): count for status, count in sorted(load.statuses.items())},
                "lost": load.lost,
                "not_sent": load.not_sent,
                "p50_ms": share(load.accepted, 0.5),
                "p99_ms": share(load.accepted, 0.99),
                "refused_p99_ms": share(load.refused, 0.99),
            }
        )
    )


if __name__ == "__main__":
    main()
