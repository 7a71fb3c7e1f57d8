"""The shape of the package: imports go one way, light modules stay light, no pickle, files one can read.

All but the last two tests read source as syntax trees and import nothing.
"""

from __future__ import annotations

import ast
import graphlib
import importlib
import os
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "elias"

# Packages from bottom to top. A module imports from its own package or from lower ones.
LAYERS = [
    "kernels", "core", "dataset", "encoders", "index", "network", "training", "ranking", "model", "evaluation",
    "pipeline", "server", "cli",
]  # fmt: skip
FRONT = ["__init__", "__main__"]  # the package's own front: nothing inside imports from it
MOST_ENTRIES = 16  # of src/elias
MOST_PARAMETERS = 8
LAYER_OF = {unit: level for level, unit in enumerate([*LAYERS, *FRONT])}

LIGHT_MODULES = ["elias", "elias.cli", "elias.dataset", "elias.core.metrics", "elias.core.settings"]
HEAVY_PACKAGES = ["torch", "numba", "sklearn", "transformers"]
PICKLING_PACKAGES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def module_name(path: Path) -> str:
    """src/elias/dataset/__init__.py -> elias.dataset"""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in FILES.items()}


def unit_of(module: str) -> str:
    """elias.dataset.rows -> dataset; elias -> __init__"""
    return [*module.split("."), "__init__"][1]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def import_statements(tree: ast.AST, *, at_import: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements; with `at_import` only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif at_import and is_type_checking(node):
            assert isinstance(node, ast.If)
            for branch in node.orelse:
                yield from import_statements(ast.Module([branch], []), at_import=True)
        else:
            yield from import_statements(node, at_import=at_import)


def imported_modules(
    module: str, tree: ast.AST, known: set[str], *, is_package: bool = False, at_import: bool = False
) -> Iterator[tuple[str, int]]:
    """(module of ours, line) for each import; `from elias.dataset import rows` is elias.dataset.rows."""
    for node in import_statements(tree, at_import=at_import):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            source = node.module or ""
            if node.level:
                above = node.level - is_package
                package = module.split(".")[: len(module.split(".")) - above]
                source = ".".join([*package, *([source] if source else [])])
            targets = [f"{source}.{a.name}" if f"{source}.{a.name}" in known else source for a in node.names]
        for target in dict.fromkeys(targets):
            if target.split(".")[0] == "elias":
                yield target, node.lineno


def our_imports(module: str, *, at_import: bool = False) -> Iterator[tuple[str, int]]:
    is_package = FILES[module].name == "__init__.py"
    return imported_modules(module, TREES[module], set(FILES), is_package=is_package, at_import=at_import)


def upward_import(importer: str, imported: str) -> str | None:
    """What is wrong with this import, or None."""
    low, high = LAYER_OF.get(unit_of(importer)), LAYER_OF.get(unit_of(imported))
    if low is None or high is None or low >= high:
        return None
    return f"{importer} (layer {low}) imports {imported} (layer {high}): imports go down the layers only"


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return None


def pickle_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) wherever code could read or write pickled objects."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.value.lineno, ast.unparse(node)
        for name in names:
            if name.split(".")[0] in PICKLING_PACKAGES or name in {"torch.load", "torch.save"}:
                yield getattr(node, "lineno", 0), name


def report(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


def place(module: str, line: int | None = None) -> str:
    where = FILES[module].relative_to(ROOT).as_posix()
    return where if line is None else f"{where}:{line}"


def test_there_is_source_to_check() -> None:
    assert "elias.core.errors" in FILES


def test_every_module_has_a_layer() -> None:
    unknown = sorted({unit_of(module) for module in FILES} - set(LAYER_OF))
    report([f"elias.{unit} has no layer: add it to LAYERS in tests/test_architecture.py" for unit in unknown])


def test_imports_go_down_the_layers() -> None:
    """Imports inside functions and under TYPE_CHECKING count too: they are how a layer leaks."""
    report(
        [
            f"{place(module, line)}: {problem}"
            for module in FILES
            for imported, line in our_imports(module)
            if (problem := upward_import(module, imported))
        ]
    )


def test_no_import_cycle_between_files() -> None:
    graph = {module: {imported for imported, _ in our_imports(module, at_import=True)} for module in FILES}
    assert find_cycle(graph) is None


def test_no_pickle() -> None:
    report(
        [
            f"{place(module, line)}: {what}: use safetensors or JSON"
            for module, tree in TREES.items()
            for line, what in pickle_uses(tree)
        ]
    )


def test_files_are_named_after_what_they_hold() -> None:
    report([f"{place(m)}: say what it holds" for m, path in FILES.items() if path.name in {"utils.py", "base.py"}])


def test_every_module_has_a_docstring() -> None:
    report([f"{place(module)}: no docstring" for module, tree in TREES.items() if not ast.get_docstring(tree)])


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("elias.index.label_index", "import elias.model", ["elias.model"]),
        ("elias.index.label_index", "from elias.model import Model", ["elias.model"]),
        ("elias.index.label_index", "from elias import model, fit", ["elias.model", "elias"]),
        ("elias.index.label_index", "from ..model import Model", ["elias.model"]),
        ("elias.dataset.rows", "from . import labels", ["elias.dataset.labels"]),
        ("elias.dataset.rows", "from ..core.errors import DataError", ["elias.core.errors"]),
        ("elias.index.label_index", "def f():\n    import elias.model", []),
        ("elias.index.label_index", "if TYPE_CHECKING:\n    import elias.model", []),
        ("elias.index.label_index", "try:\n    import elias.model\nexcept ImportError:\n    pass", ["elias.model"]),
        ("elias.index.label_index", "import numpy, torch.nn", []),
    ],
)
def test_the_reader_of_imports(module: str, source: str, expected: list[str]) -> None:
    known = {"elias", "elias.model", "elias.core.errors", "elias.dataset", "elias.dataset.labels"}
    found = imported_modules(module, ast.parse(source), known, at_import=True)
    assert [name for name, _ in found] == expected


def test_the_rules_catch_what_they_forbid() -> None:
    assert upward_import("elias.dataset.rows", "elias.training.trainer")
    assert upward_import("elias.cli.fit", "elias")
    assert upward_import("elias.kernels.bag", "elias.core.errors")
    assert upward_import("elias.training.trainer", "elias.dataset.rows") is None
    assert upward_import("elias.index.shortlist", "elias.index.label_index") is None
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    source = "from torch import load\nimport pickle\ntorch.load(f)\nnp.load(f, allow_pickle=True)\nnp.load(f)"
    assert [line for line, _ in sorted(pickle_uses(ast.parse(source)))] == [1, 2, 3, 4]


def test_light_modules_do_not_import_heavy_packages() -> None:
    """Reading data, computing metrics and `elias --help` cost no torch import, not even indirectly."""
    light = [module for module in LIGHT_MODULES if module in FILES]
    code = f"import {', '.join(['sys', *light])}; print(*[name for name in {HEAVY_PACKAGES} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"importing {', '.join(light)} imports {done.stdout.strip()}"


@pytest.mark.skipif("elias" not in FILES, reason="the package has no __init__.py yet")
def test_all_matches_what_can_be_imported() -> None:
    elias = importlib.import_module("elias")
    assert len(set(elias.__all__)) == len(elias.__all__)
    missing = [name for name in elias.__all__ if not hasattr(elias, name)]
    assert not missing, f"in elias.__all__ but not importable: {missing}"
    unlisted = [
        name
        for name, value in vars(elias).items()
        if not name.startswith("_")
        and name not in elias.__all__
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "elias").split(".")[0] == "elias"
        and name not in {"annotations", "TYPE_CHECKING"}
    ]
    assert not unlisted, f"public in elias but not in elias.__all__: {unlisted}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert getattr(elias, "__version__", project["version"]) == project["version"]
