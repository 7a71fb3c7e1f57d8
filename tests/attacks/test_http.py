"""Raw HTTP requests against a real process: an answer or a close for each, and an unharmed service afterwards."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from attacks.http_requests import LIMITS, attack_service, attacks
from helpers.processes import PATIENCE
from helpers.serving_process import process


@pytest.mark.parametrize(
    ("count", "seed", "workers"),
    [(240, 0, 1), pytest.param(2000, 1, 1, marks=pytest.mark.slow), pytest.param(2000, 2, 2, marks=pytest.mark.slow)],
)
def test_every_request_ends(tiny_model_folder: Path, tmp_path: Path, count: int, seed: int, workers: int) -> None:
    options = ("--workers", str(workers), "--feedback", tmp_path / "feedback.jsonl")
    with process(tiny_model_folder, *options, *LIMITS) as (server, found, lines):
        tallies = attack_service(found, lines, count, seed)
        assert sum(tally.tries for tally in tallies.values()) == count
        assert [failure for tally in tallies.values() for failure in tally.failures] == []
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0


def test_attacks_are_drawn_from_the_seed() -> None:
    assert list(attacks(60, 5)) == list(attacks(60, 5))
    assert list(attacks(60, 5)) != list(attacks(60, 6))
