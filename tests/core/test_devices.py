"""Threads of torch, and what a fork does to them."""

from __future__ import annotations

import subprocess
import sys

from helpers.processes import environment

SCRIPT = """
import os, warnings
import torch
from elias.core.devices import torch_threads

def work():
    with torch_threads(2):
        torch.exp(torch.ones(4_000_000)).sum()
        return torch.get_num_threads()

warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and later, for a fork beside threads
assert work() == 2
child = os.fork()
if child == 0:
    os._exit(work())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), work())
"""


def test_a_forked_process_does_not_wait_for_threads_that_are_gone() -> None:
    """It would hang, and this test with it."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout == "1 2\n", done.stderr
