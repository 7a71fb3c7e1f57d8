"""Raw HTTP requests that no client would send, drawn from a seed, and what the service makes of them.

    PYTHONPATH=src:tests python tests/attacks/http_requests.py MODEL --requests 2000 --seed 0

starts `elias serve MODEL` and prints a row for each kind of attack: how many requests were answered, how many
connections were closed without an answer, and failures. A failure is a request with neither within BOUND_SECONDS, an
answer that is not HTTP or says 500, an error without the form of errors, a traceback or error in the log, and a service
that gives another answer than before to an ordinary request.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.serving import Running
from helpers.serving_process import process, wait_for

BOUND_SECONDS = 10.0
CLIENTS = 16
CHECK_EVERY = 50  # requests between two ordinary ones
LIMITS = ("--limit", "header_seconds=0.5", "--limit", "body_seconds=0.5", "--limit", "answer_seconds=5")
TEXT = "bada kuku"
ODD_BYTES = [
    b"\x00",
    b"\r",
    b"\n",
    b"\r\n",
    b"\xff",
    b"\xc3\x28",
    b" ",
    b":",
    b"\t",
    b"%",
    b'"',
    b"{",
    b"\x7f",
    b"9" * 40,
]
ROUTES = ["/", "/v1/predict", "/v1/models", "/v1/labels", "/v1/index", "/v1/paths", "/docs", "/metrics", "/nothing"]
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    -(10**400),
    1e308,
    "",
    "5",
    "x" * 5000,
    "\ud800",
    "\u0000",
    [],
    [[]],
    [None],
    {},
    {"a": {"b": []}},
    [1, "a"],
    ["a"] * 300,
    ["\u202e\ufeff"],
    [""],
    "\U0010ffff",
]


@dataclass(frozen=True)
class Attack:
    """The bytes of a request, in pieces that are sent with a pause before each, and what comes after them."""

    kind: str
    pieces: list[bytes]
    pause: float = 0.0
    end: str = "wait"  # for an answer; "half": close the sending side first; "reset": hang up


@dataclass
class Tally:
    tries: int = 0
    answered: int = 0
    closed: int = 0
    failures: list[str] = field(default_factory=list)


# -- the generator ----------------------------------------------------------------------------------------------------


def head(method: bytes = b"POST", target: bytes = b"/v1/predict", *lines: bytes, host: bool = True) -> bytes:
    first = [b"%s %s HTTP/1.1" % (method, target), *([b"Host: localhost"] if host else []), *lines]
    return b"\r\n".join(first) + b"\r\n\r\n"


def posted(body: bytes, target: bytes = b"/v1/predict", *lines: bytes, kind: bytes = b"application/json") -> bytes:
    return head(b"POST", target, b"Content-Type: " + kind, b"Content-Length: %d" % len(body), *lines) + body


def good_body(draw: random.Random) -> dict[str, Any]:
    return {"texts": [TEXT] * draw.randint(1, 4), "k": draw.randint(1, 5), "explain": draw.random() < 0.2}


def noise(draw: random.Random, most: int = 400) -> bytes:
    return draw.randbytes(draw.randint(1, most))


def mutated(draw: random.Random, content: bytes, times: int | None = None) -> bytes:
    """Bytes flipped, cut, doubled or replaced."""
    found = bytearray(content)
    for _ in range(times or draw.randint(1, 4)):
        place = draw.randrange(len(found) + 1)
        match draw.randrange(4):
            case 0 if place < len(found):
                found[place] ^= 1 << draw.randrange(8)
            case 1:
                del found[place : place + draw.randint(1, 20)]
            case 2:
                found[place:place] = found[place : place + draw.randint(1, 20)]
            case _:
                found[place:place] = draw.choice(ODD_BYTES)
    return bytes(found)


def methods(draw: random.Random) -> Attack:
    odd = [
        b"",
        b"get",
        b"G" * 5000,
        b"GET\x00",
        b"CONNECT",
        b"TRACE",
        b"PRI",
        b"DELETE",
        b"PUT",
        b"M-SEARCH",
        b"\xff\xfe",
    ]
    return Attack("method", [head(draw.choice([*odd, noise(draw, 20)]), draw.choice(ROUTES).encode())])


def targets(draw: random.Random) -> Attack:
    odd = [
        b"*",
        b"//",
        b"http://",
        b"http://localhost/health",
        b"localhost:80",
        b"/%00",
        b"/%ff%fe",
        b"/%",
        b"/../../etc/passwd",
        b"/%2e%2e/%2e%2e/",
        b"/page/..%2f..%2f",
        b"/v1/labels/" + b"x" * 20_000,
        b"/" + b"a" * 100_000,
        "/ü".encode(),
        b"/a b",
        b"/v1/labels?search=" + b"%F0%9F%92%A9" * 500,
        b"/v1/clusters/" + b"9" * 500,
        b"/v1/clusters/-1",
        b"/v1/clusters/1e3",
        b"/v1/labels?limit=NaN",
        b"/v1/labels?" + b"&".join([b"search=a"] * 2000),
        b"?",
        b"#",
        b"/#a",
        b"/v1/labels/%0d%0aX:1",
    ]
    return Attack(
        "target", [head(draw.choice([b"GET", b"HEAD", b"POST"]), draw.choice([*odd, b"/" + noise(draw, 60)]))]
    )


def versions(draw: random.Random) -> Attack:
    odd = [
        b"HTTP/0.9",
        b"HTTP/2.0",
        b"HTTP/1.",
        b"HTTP/11.1",
        b"HTTP/1.1 ",
        b"http/1.1",
        b"",
        b"HTTP/9.9",
        b"ICE/1.0",
        b"HTTP/1.0",
    ]
    return Attack("version", [b"GET /health " + draw.choice(odd) + b"\r\nHost: localhost\r\n\r\n"])


def headers(draw: random.Random) -> Attack:
    odd = [
        b"X: " + b"a" * draw.choice([10_000, 70_000, 1_000_000]),
        b"X" * 70_000 + b": a",
        b"no colon",
        b": empty",
        b"X : space",
        b" folded: line",
        b"X: a\x00b",
        b"X: a\nY: b",
        b"X: a\rY: b",
        b"X:\xff\xfe",
        b"\x00: a",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked, identity",
        b"Connection: " + b"close," * 3000,
        b"Cookie: " + b"a=b;" * 10_000,
        b"X-Request-Id: " + b"a" * 5000,
        b"X-Request-Id: {}\r\nX-Request-Id: b",
        b"Authorization: Bearer \xff",
        b"If-None-Match: " + b'"' * 3000,
        b"Accept-Encoding: " + b"gzip;q=" * 500,
        b"Origin: null",
        b"Forwarded: for=\x7f",
    ]
    lines = (
        [draw.choice(odd)] if draw.random() < 0.8 else [b"H%d: a" % n for n in range(draw.choice([200, 3000, 20_000]))]
    )
    return Attack("header", [head(b"GET", draw.choice(ROUTES).encode(), *lines)])


def hosts(draw: random.Random) -> Attack:
    odd = [
        b"",
        b"evil.example",
        b"localhost, evil.example",
        b"[::1",
        b"::1]",
        b"127.0.0.1:99999999999",
        b"localhost:x",
        b"\xff",
        b"a" * 60_000,
        b"localhost\x00.evil.example",
        b"[fe80::1%25eth0]",
        b"0x7f.1",
        b"user@localhost",
    ]
    lines = [b"Host: " + draw.choice(odd) for _ in range(draw.choice([0, 1, 1, 1, 2]))]
    return Attack("host", [head(b"GET", draw.choice(ROUTES).encode(), *lines, host=draw.random() < 0.2)])


def lengths(draw: random.Random) -> Attack:
    body = json.dumps(good_body(draw)).encode()
    right = b"%d" % len(body)
    odd = [
        b"-5",
        b"+5",
        b"five",
        b"",
        b"0x10",
        b"1e2",
        b"9" * 30,
        b"18446744073709551616",
        b"5, 5",
        right + b" " + right,
        b"\xb2",
    ]
    lines = [b"Content-Type: application/json", b"Content-Length: " + draw.choice(odd)]
    match draw.randrange(4):
        case 0:
            lines.append(b"Content-Length: " + right)
        case 1:
            lines.append(b"Transfer-Encoding: chunked")
        case 2:
            lines[1] = b"Content-Length: %d" % draw.choice([len(body) // 2, len(body) + 100, 0, 1 << 40])
    return Attack("length", [head(b"POST", b"/v1/predict", *lines), body])


def chunks(draw: random.Random) -> Attack:
    body = json.dumps(good_body(draw)).encode()
    size = b"%x" % len(body)
    odd = [
        b"zz\r\n" + body,
        b"-1\r\n" + body,
        b"f" * 20 + b"\r\n" + body,
        b"7fffffffffffffff\r\n" + body,
        size + b"\n" + body,
        size + b"\r\n" + body + b"xx\r\n0\r\n\r\n",
        size + b"; " + b"e" * 100_000 + b"\r\n" + body + b"\r\n0\r\n\r\n",
        size + b"\r\n" + body + b"\r\n0\r\nTrailer: " + b"t" * 200_000 + b"\r\n\r\n",
        size + b"\r\n" + body + b"\r\n0\r\nHost: evil.example\r\n\r\n",
        b"".join(b"1\r\n%c\r\n" % each for each in body) + b"0\r\n\r\n",
        b"0\r\n\r\n",
        b"\r\n",
        b"0\r\n" + noise(draw),
        size + b"\r\n" + body[:5],
        mutated(draw, size + b"\r\n" + body + b"\r\n0\r\n\r\n"),
    ]
    lines = (b"Content-Type: application/json", b"Transfer-Encoding: chunked")
    return Attack(
        "chunked", [head(b"POST", b"/v1/predict", *lines), draw.choice(odd)], end=draw.choice(["wait", "half"])
    )


def truncations(draw: random.Random) -> Attack:
    whole = posted(json.dumps(good_body(draw)).encode())
    return Attack("truncated", [whole[: draw.randrange(1, len(whole))]], end=draw.choice(["wait", "half", "reset"]))


def nested(draw: random.Random) -> Attack:
    depth = draw.choice([10, 200, 1000, 100_000, 2_000_000])
    opened, closed = draw.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"[[],", b"]")])
    inner = opened * depth + (b"1" + closed * depth if draw.random() < 0.8 else b"")
    return Attack("deep JSON", [posted(b'{"' + draw.choice([b"texts", b"k", b"x"]) + b'":' + inner + b"}")])


def numbers(draw: random.Random) -> Attack:
    odd = [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e400",
        b"-0",
        b"1" * 400,
        b"0." + b"1" * 5000,
        b"1e-400",
        b"0x10",
        b"01",
        b"+1",
        b".5",
        b"1E+9999999999",
        b"9223372036854775808",
        b"1" * 100_000,
    ]
    name = draw.choice([b"k", b"threshold", b"rare", b"texts", b"explain", b"ids"])
    return Attack("number", [posted(b'{"texts": ["a"], "' + name + b'": ' + draw.choice(odd) + b"}")])


def types(draw: random.Random) -> Attack:
    target, fields = draw.choice(
        [
            (
                b"/v1/predict",
                ["texts", "ids", "k", "threshold", "explain", "labels", "block", "rare", "stream", "model", "odd"],
            ),
            (b"/v1/paths", ["text", "k", "label", "model"]),
            (b"/v1/feedback", ["text", "id", "accepted", "rejected", "model"]),
            (b"/v1/reload", ["model"]),
            (b"/v1/projects/model/suggest-batch", ["documents", "text", "document_id"]),
        ]
    )
    body: Any = {"texts": [TEXT], "text": TEXT} if draw.random() < 0.5 else {}
    body.update({draw.choice(fields): draw.choice(ODD_VALUES) for _ in range(draw.randint(1, 4))})
    if draw.random() < 0.1:
        body = draw.choice(ODD_VALUES)
    return Attack("wrong type", [posted(json.dumps(body).encode(), target)])


def broken_json(draw: random.Random) -> Attack:
    body = json.dumps(good_body(draw)).encode()
    odd = [
        mutated(draw, body),
        mutated(draw, body),
        b"",
        b"\xef\xbb\xbf" + body,
        body.decode().encode("utf-16"),
        body + body,
        b'{"texts":["\xed\xa0\x80"]}',
        b'{"texts":["\xff"]}',
        b'{"texts":["a\x00"]}',
        b'{"k":1,"k":2,' + body[1:],
        body[:-1],
        noise(draw),
        b'{"texts":["' + b"\\ud800" * 1000 + b'"]}',
        b'{"' + b"f" * 100_000 + b'":1}',
    ]
    return Attack("broken JSON", [posted(draw.choice(odd))])


def forms(draw: random.Random) -> Attack:
    odd = [
        b"text=" + b"%" * 500,
        b"text=%ff%fe",
        b"&" * 5000,
        b"text=a&limit=" + b"9" * 400,
        b"text=a&limit=-1",
        b"text=a&threshold=NaN",
        b"text=" + b"a" * 300_000,
        b"text",
        b"=" * 1000,
        mutated(draw, b"text=PDF+viewer&limit=3&threshold=0.1"),
        noise(draw),
    ]
    kind = draw.choice(
        [
            b"application/x-www-form-urlencoded",
            b"multipart/form-data; boundary=x",
            b"text/plain",
            noise(draw, 9).hex().encode(),
        ]
    )
    target = draw.choice(
        [b"/v1/projects/model/suggest", b"/v1/projects/%00/suggest", b"/v1/projects/x/suggest?limit=a"]
    )
    return Attack("form", [posted(draw.choice(odd), target, kind=kind)])


def pipelines(draw: random.Random) -> Attack:
    good = posted(json.dumps(good_body(draw)).encode())
    odd = [
        good * draw.randint(2, 30),
        head(b"GET", b"/health") * draw.randint(2, 2000),
        good + noise(draw),
        good * 2 + mutated(draw, good),
        good + b"\r\n" * draw.choice([1, 5000]) + good,
        b"\r\n" * draw.choice([3, 100_000]) + good,
        good + good[:50],
        posted(b"{}", b"/v1/predict", b"Connection: close") + good,
    ]
    return Attack("pipelined", [draw.choice(odd)], end=draw.choice(["wait", "half", "reset"]))


def slow(draw: random.Random) -> Attack:
    whole = posted(json.dumps(good_body(draw)).encode())
    cuts = sorted(draw.sample(range(1, len(whole)), draw.randint(2, 8)))
    pieces = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    return Attack("slow", pieces, pause=draw.choice([0.01, 0.1, 0.4]), end=draw.choice(["wait", "half"]))


def too_large(draw: random.Random) -> Attack:
    size = draw.choice([17 << 20, 20 << 20])
    pieces = [b" " * (1 << 20)] * (size >> 20)
    lines = draw.choice([(), (b"Connection: close",), (b"Expect: 100-continue",)])
    declared = (b"Content-Type: application/json", b"Content-Length: %d" % size)
    return Attack("too large", [head(b"POST", b"/v1/predict", *declared, *lines), *pieces])


def other_protocols(draw: random.Random) -> Attack:
    good = posted(json.dumps(good_body(draw)).encode(), b"/v1/predict", b"Connection: Upgrade", b"Upgrade: h2c")
    odd = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(draw),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x04\x01\x00\x50",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + head(b"GET", b"/health"),
        good,
        mutated(draw, good),
        noise(draw, 2000),
        head(
            b"GET",
            b"/",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Key: a",
            b"Sec-WebSocket-Version: 13",
        )
        + noise(draw),
    ]
    return Attack("other protocol", [draw.choice(odd)], end=draw.choice(["wait", "half"]))


def mutations(draw: random.Random) -> Attack:
    whole = posted(json.dumps(good_body(draw)).encode(), draw.choice([b"/v1/predict", b"/v1/paths", b"/v1/feedback"]))
    return Attack("mutated", [mutated(draw, whole)], end=draw.choice(["wait", "wait", "half", "reset"]))


KINDS: list[Callable[[random.Random], Attack]] = [
    methods,
    targets,
    versions,
    headers,
    hosts,
    lengths,
    chunks,
    truncations,
    nested,
    numbers,
    types,
    broken_json,
    forms,
    pipelines,
    slow,
    too_large,
    other_protocols,
    mutations,
    mutations,
    types,
]


def attacks(count: int, seed: int) -> Iterator[Attack]:
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        yield KINDS[number % len(KINDS)](draw)


# -- what comes back --------------------------------------------------------------------------------------------------


def outcome(port: int, attack: Attack) -> str:
    """ "answered" or "closed"; anything else is a failure."""
    deadline = time.monotonic() + BOUND_SECONDS
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS) as sock:
        try:
            for number, piece in enumerate(attack.pieces):
                if number:
                    time.sleep(attack.pause)
                sock.sendall(piece)
            if attack.end == "half":
                sock.shutdown(socket.SHUT_WR)
        except TimeoutError:
            return "the service stopped reading"
        except OSError:
            pass  # it has closed the connection, perhaps after an answer
        if attack.end == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            return "closed"
        try:
            sock.settimeout(max(0.1, deadline - time.monotonic()))
            return read_answer(sock, attack)
        except TimeoutError:
            return f"neither an answer nor a close within {BOUND_SECONDS:g} s"
        except ConnectionError:
            return "closed"


def read_answer(sock: socket.socket, attack: Attack) -> str:
    answer = http.client.HTTPResponse(sock, method="HEAD" if attack.pieces[0].startswith(b"HEAD ") else "GET")
    try:
        answer.begin()
        content = answer.read()
    except http.client.RemoteDisconnected:
        return "closed"
    except http.client.HTTPException as problem:
        return f"not HTTP: {problem!r}"
    finally:
        answer.close()
    if answer.status == 500 or b"Traceback" in content:
        return f"status {answer.status}: {content[:200]!r}"
    if answer.status >= 400 and content:
        with suppress(ValueError):
            found = json.loads(content)
            if "error" in found or "detail" in found:
                return "answered"
        return f"an error without its form: {content[:200]!r}"
    return "answered"


def attack_service(found: Running, lines: list[dict[str, Any]], count: int, seed: int) -> dict[str, Tally]:
    """All attacks, by many clients at once; afterwards everything must be as before."""
    tallies: dict[str, Tally] = {}
    before = found.predict([TEXT], k=3)
    with ThreadPoolExecutor(CLIENTS) as pool:
        todo = list(attacks(count, seed))
        for start in range(0, count, CHECK_EVERY):
            some = todo[start : start + CHECK_EVERY]
            for number, (attack, got) in enumerate(
                zip(some, pool.map(lambda each: outcome(found.port, each), some), strict=True)
            ):
                tally = tallies.setdefault(attack.kind, Tally())
                tally.tries += 1
                tally.answered += got == "answered"
                tally.closed += got == "closed"
                if got not in ("answered", "closed"):
                    tally.failures.append(f"seed {seed}, request {start + number}: {got}")
            if found.predict([TEXT], k=3) != before:
                tallies[some[-1].kind].failures.append(
                    f"seed {seed}, before request {start + CHECK_EVERY}: another answer"
                )
    waiting = b"\nelias_waiting_requests 0\n"
    wait_for(lambda: waiting in found.get("/metrics").body)
    bad = Counter(line["event"] for line in lines if line["level"] == "error" or "Traceback" in json.dumps(line))
    if bad:
        tallies["log"] = Tally(failures=[f"{count} x {event}" for event, count in bad.items()])
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", default="1")
    args = parser.parse_args()
    with process(args.model, "--workers", args.workers, *LIMITS) as (_, found, lines):
        tallies = attack_service(found, lines, args.requests, args.seed)
    total = Tally()
    print("| kind | requests | answered | closed | failures |\n|---|---|---|---|---|")
    for kind, tally in sorted(tallies.items()):
        print(f"| {kind} | {tally.tries} | {tally.answered} | {tally.closed} | {len(tally.failures)} |")
        total.tries += tally.tries
        total.answered += tally.answered
        total.closed += tally.closed
        total.failures += tally.failures
    print(f"| all | {total.tries:,} | {total.answered:,} | {total.closed:,} | {len(total.failures)} |")
    print(*total.failures, sep="\n")


if __name__ == "__main__":
    main()
