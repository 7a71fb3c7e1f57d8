"""The shape of the package: imports go one way, light modules stay light, no pickle, functions of few parameters.

All but the last tests read source as syntax trees and import nothing.
"""

from __future__ import annotations

import ast
import dataclasses
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
    "pipeline", "engines", "server", "cli",
]  # fmt: skip
FRONT = ["sklearn", "__init__", "__main__"]  # the package's own front: nothing inside imports from it
MOST_ENTRIES = 19  # of src/elias
MOST_PARAMETERS = 8
LAYER_OF = {unit: level for level, unit in enumerate([*LAYERS, *FRONT])}

# Functions of the public API may have as many keyword-only options as users need.
PUBLIC_API = {"fit", "fit_to", "load", "predict", "predict_rows", "evaluate", "from_lists", "from_arrays"}
# What broke a rule when the rule was introduced. Entries may only go: one that is no longer broken fails.
KNOWN: set[str] = set()
KERNEL_PACKAGES = {"numpy", "numba", "llvmlite"}

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


def foreign_packages(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(top package, line) of every absolute import."""
    for node in import_statements(tree, at_import=False):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif not node.level:
            yield (node.module or "").split(".")[0], node.lineno


def functions(
    tree: ast.AST, inside: str = "", of_autograd: bool = False
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """(qualified name, function, whether it is a method of an autograd function) of every def in a file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            autograd = any(ast.unparse(base).endswith("autograd.Function") for base in node.bases)
            yield from functions(node, f"{inside}{node.name}.", autograd)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{inside}{node.name}", node, of_autograd
            yield from functions(node, f"{inside}{node.name}.")
        else:
            yield from functions(node, inside, of_autograd)


def long_functions(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """(qualified name, line, parameters) of every function with more parameters than a reader can follow."""
    for name, node, of_autograd in functions(tree):
        own = name.rsplit(".", 1)[-1]
        if of_autograd and own in {"forward", "backward"}:
            continue
        if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        positional = [*node.args.posonlyargs, *node.args.args]
        if positional and positional[0].arg in {"self", "cls"}:
            positional = positional[1:]
        count = len(positional) + (0 if own in PUBLIC_API else len(node.args.kwonlyargs))
        if count > MOST_PARAMETERS:
            yield name, node.lineno, count


def read_attributes(tree: ast.AST) -> set[str]:
    """Names that are read as attributes: `x.name`."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return {node.attr for node in found}


def report(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


def only_known(found: set[str], rule: str) -> None:
    """Nothing breaks a rule but what is in KNOWN, and all of that still does. `rule`: what its entries contain."""
    known = {entry for entry in KNOWN if rule in entry}
    report(sorted(found - known))
    report([f"{entry}: no longer so, take it out of KNOWN" for entry in sorted(known - found)])


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


def test_the_package_has_few_entries() -> None:
    entries = sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")
    assert len(entries) <= MOST_ENTRIES, entries


def test_kernels_know_numpy_and_numba_alone() -> None:
    allowed = KERNEL_PACKAGES | set(sys.stdlib_module_names)
    report(
        [
            f"{place(module, line)}: {package}: kernels take and return arrays and know nothing else"
            for module, tree in TREES.items()
            if unit_of(module) == "kernels"
            for package, line in foreign_packages(tree)
            if package not in allowed
        ]
    )
    ours = {imported for module in FILES if unit_of(module) == "kernels" for imported, _ in our_imports(module)}
    assert {unit_of(module) for module in ours} <= {"kernels"}, ours


def test_ranking_never_imports_training() -> None:
    found = {
        f"{module.removeprefix('elias.')} imports {imported.removeprefix('elias.')}"
        for module in FILES
        if unit_of(module) == "ranking"
        for imported, _ in our_imports(module)
        if unit_of(imported) == "training"
    }
    only_known(found, " imports training")


def test_functions_have_at_most_eight_parameters() -> None:
    """Outside kernels, autograd functions, compiled functions, and keyword-only options of the public API."""
    found = {
        f"{module.removeprefix('elias.')}.{name} has {count} parameters"
        for module, tree in TREES.items()
        if unit_of(module) != "kernels"
        for name, _, count in long_functions(tree)
    }
    only_known(found, " parameters")


def test_every_setting_is_described_and_read() -> None:
    from elias.core.settings import Settings

    read = {name for module, tree in TREES.items() if module != "elias.core.settings" for name in read_attributes(tree)}
    sections = {section.name: getattr(Settings(), section.name) for section in dataclasses.fields(Settings)}
    keys = [(section, item) for section, values in sections.items() for item in dataclasses.fields(values)]
    assert len(keys) > 50
    undescribed = [f"{section}.{item.name}" for section, item in keys if not item.metadata["what"].strip()]
    assert not undescribed
    only_known(
        {f"{section}.{item.name} is never read" for section, item in keys if item.name not in read}, "is never read"
    )


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
    assert [name for name, _ in foreign_packages(ast.parse("import torch.nn\nfrom ..core import x"))] == ["torch"]
    long = "(a, b, c, d, *, e, f, g, h, i)"
    found = long_functions(
        ast.parse(
            f"def f{long}: ...\ndef short(a, b, c, d, e, f, g, h): ...\n@njit\ndef compiled{long}: ...\n"
            f"class A(torch.autograd.Function):\n def forward{long}: ...\n def other{long}: ...\n"
            f"class B:\n def method(self, {long[1:]}: ...\n def predict(self, {long[1:]}: ...\n"
        )
    )
    assert [(name, count) for name, _, count in found] == [("f", 9), ("A.other", 9), ("B.method", 9)]
    assert read_attributes(ast.parse("x.read\nx.written = 1\nx.call()")) == {"read", "call"}
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


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import elias", [*HEAVY_PACKAGES, "numpy", "scipy", "pandas"]),
        ("import elias; elias.Dataset.from_lists(['a'], [['x']])", [*HEAVY_PACKAGES, "pandas"]),
        ("import elias; elias.Settings().updated({'stage2.epochs': 3})", [*HEAVY_PACKAGES, "numpy", "pandas"]),
        ("import elias.model.ensemble", ["sklearn.ensemble", "transformers", "pandas"]),
    ],
)
def test_imports_cost_what_is_used(code: str, forbidden: list[str]) -> None:
    """`import elias` takes milliseconds, and data is read without torch."""
    code = f"{code}; import sys; print(*[name for name in {forbidden} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


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
