"""Our tf-idf where torch is not installed.

`elias.encoders` imports torch, `elias.encoders.tfidf` does not need it, and the peers' environment does without: there
the package is entered in sys.modules by its folder alone, without running its __init__.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import elias

if find_spec("torch") is None and "elias.encoders" not in sys.modules:
    _package = ModuleType("elias.encoders")
    _package.__path__ = [str(Path(elias.__path__[0]) / "encoders")]
    sys.modules["elias.encoders"] = _package

from elias.encoders.tfidf import TfIdf

__all__ = ["TfIdf"]
