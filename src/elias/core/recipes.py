"""Recipes: files of settings, by name or by path.

    read_recipe("amazon-670k")   -> {"run.recipe": "amazon-670k", "clustering.clusters": 8192, "stage1.epochs": 20, ...}
    read_recipe("mine.toml")

The packaged ones (src/elias/recipes) are the paper's systems and the authors' program; docs/reproduce.md. A recipe is a
TOML file with a `description` and the settings in their sections:

    description = "short titles, three epochs"

    [stage1]
    epochs = 3

What a recipe does not name keeps its default; whatever is set beside a recipe wins.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from .errors import InputError, SettingsError, did_you_mean
from .settings import Settings

FOLDER = Path(__file__).parent.parent / "recipes"
SUFFIX = ".toml"


class Recipe(NamedTuple):
    name: str
    description: str
    values: dict[str, Any]  # by "section.key"
    text: str  # of the file


def recipe_names() -> list[str]:
    """The packaged recipes."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def read_recipe(name_or_path: str | Path) -> dict[str, Any]:
    """The settings of a recipe by "section.key", and its name as `run.recipe`.

    Raises
    ------
    InputError
        There is no such recipe or file.
    SettingsError
        The file is not a recipe, with the place and the remedy; or its settings are wrong, with every problem.
    """
    recipe = open_recipe(name_or_path)
    return {"run.recipe": recipe.name, **recipe.values}


def open_recipe(name_or_path: str | Path) -> Recipe:
    """A packaged recipe by its name, or a file; its settings are checked."""
    path = _path_of(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read as a recipe ({problem.strerror})") from None
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{path}: not a text in UTF-8 (byte {problem.start}); a recipe is a TOML file") from None
    except (ValueError, RecursionError) as problem:
        said = " ".join(str(problem).split())[:200]
        raise SettingsError(f"{path}: not a TOML file: {said}; write [section] and key = value") from None
    description = content.pop("description", "")
    if not isinstance(description, str):
        raise SettingsError(f'{path}: description={description}: must be text, as in description = "short titles"')
    name = path.stem if path.parent == FOLDER else path.name
    recipe = Recipe(name, description, _values(path, content), text)
    try:
        Settings().updated(recipe.values)
    except SettingsError as problem:
        raise SettingsError(f"{path}: {problem}") from None
    return recipe


def _path_of(name_or_path: str | Path) -> Path:
    names, given = recipe_names(), str(name_or_path)
    if given in names:
        return FOLDER / f"{given}{SUFFIX}"
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{path} is a folder; a recipe is a {SUFFIX} file, or one of {', '.join(names)}")
    if path.suffix == SUFFIX or path.name != given:
        raise InputError(f"{path}: there is no such file; recipes by name: {', '.join(names)}")
    known = f"known: {', '.join(names)}; or the path of a {SUFFIX} file"
    raise InputError(f'unknown recipe "{given}"{did_you_mean(given.lower(), names) or ";"} {known}')


def _values(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """ "section.key" -> value; anything that is not a section of plain values is refused."""
    values: dict[str, Any] = {}
    for section, table in content.items():
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: {section}={table}: is in no section; write it below a [section]")
        for key, value in table.items():
            if not isinstance(value, bool | int | float | str):
                raise SettingsError(f"{path}: {section}.{key}: must be one number, one text, true or false")
            values[f"{section}.{key}"] = value
    return values
