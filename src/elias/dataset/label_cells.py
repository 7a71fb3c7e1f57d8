"""A cell of labels: a list in one of its usual spellings, or labels between separators.

    ["a", "b"]   {"a": 0.5}         JSON
    ['a', 'b']   ['a' 'b']   (1,)   as Python, pandas and numpy print lists
    a;b   a|b   a, b   a<tab>b      labels between separators
    a                               one label

A cell that starts with [ or { must be a list; a broken one is an error, never one long label.

Which character separates is found from the cells that are not lists (`find_separator`). Labels move, the parts of one
name do not: "red" is the first label of one row and the third of another, while "American" in "Science fiction,
American" always comes second. So for each candidate (tab | ; ,) all different cells are split there, and among the
pieces that occur in several of them

    moved = share of pieces that stand at different places in different cells

A tab always separates. A candidate separates if the pieces are labels of the label file or stand alone in other cells
(9 of 10 split cells), or if moved is at least a half, with at least 3 recurring pieces for the comma, 1 for the
others and for a comma that no space follows. Where several candidates separate, the one that leaves the fewest
different labels does. A comma does not separate if moved is at most a quarter of at least 5 recurring pieces, or if
no piece recurs but the cells as a whole do. Names rarely contain | or ;, so they also separate where fewer than 5
pieces recur and one of them stands alone in another cell, or where no piece recurs and more than half of the cells
have them.

Whatever is left is not decided by the data, and the user is asked. Measured on gutenberg-lcsh, debian-packages,
eurlex57k and wikispeedia in samples of 10 to 20,000 rows: the right separator, or a question in samples below 1,000.
moved is 0.6 to 0.99 for labels joined by any candidate, in any order, and at most 0.15 for commas inside single subject
headings. Headings with commas that were joined by commas are split at all of them: nothing can tell them apart.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

CANDIDATES = ("\t", "|", ";", ",")
RARE_IN_NAMES = ("|", ";")
LIST_OPENINGS = ("[", "{")
MOVES, STAYS = 0.5, 0.25
FEWEST_COMMA_PIECES, FEWEST_FIXED_PIECES = 3, 5
KNOWN_SHARE = 0.9
REPEATED_CELLS = 3  # times that a cell occurs as a whole, on average, to be one name
WORDS = {"tab": "\t", "\\t": "\t", "none": ""}  # what users can write for a separator

_STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_NUMPY_STRINGS = re.compile(rf"\[\s*{_STRING}(?:\s+{_STRING})+\s*\]")  # without commas; Python would join them
_NUMPY_NUMBERS = re.compile(r"\[\s*(-?\d+\.?\d*(?:\s+-?\d+\.?\d*)*)\s*\]")
_WHOLE_FLOAT = re.compile(r"-?\d+\.0+")


@dataclass(frozen=True)
class Separator:
    """What the data say: `value` separates ("": nothing does), or None: they do not decide about `candidate`."""

    value: str | None
    candidate: str = ""
    example: str = ""  # a cell that contains the candidate


def named_separator(word: str) -> str:
    """A separator as users write it: itself, or tab, or none."""
    return WORDS.get(word.lower(), word)


def shown_separator(separator: str) -> str:
    return "tab" if separator == "\t" else f'"{separator}"'


def read_list(cell: str) -> object | None:
    """The list or dictionary that a cell spells; None for a cell that is not a list.

    Raises ValueError for a cell that starts like a list but is none.
    """
    if cell.startswith("("):
        found = _literal(cell)
        return list(found) if isinstance(found, tuple) else None
    if not cell.startswith(LIST_OPENINGS):
        return None
    try:
        return _container(json.loads(cell))
    except (ValueError, RecursionError) as error:
        problem = error
    if _NUMPY_STRINGS.fullmatch(cell):
        return [ast.literal_eval(text) for text in re.findall(_STRING, cell)]
    if numbers := _NUMPY_NUMBERS.fullmatch(cell):
        return [float(word) if "." in word else int(word) for word in numbers[1].split()]
    found = _literal(cell)
    if found is None:
        raise ValueError(problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem))
    return _container(found)


def _literal(cell: str) -> object | None:
    """A Python literal; literal_eval runs no code."""
    try:
        found: object = ast.literal_eval(cell)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return found


def _container(found: object) -> object:
    if isinstance(found, set):
        return sorted(found, key=str)
    if isinstance(found, list | dict):
        return found
    raise ValueError(f"it holds {type(found).__name__}")


def pieces_of(cell: str, separator: str) -> list[str]:
    """The labels of a cell that is not a list."""
    if not separator:
        return [cell] if cell else []
    return [piece for part in cell.split(separator) if (piece := part.strip())]


def are_whole_floats(cells: Collection[str]) -> bool:
    """Whether all cells are numbers such as 3.0: whole numbers, in a column that pandas made one of floats."""
    return bool(cells) and all(_WHOLE_FLOAT.fullmatch(cell) for cell in cells)


def find_separator(cells: Iterable[str], known: Collection[str] = ()) -> Separator:
    """Which candidate separates the labels of these cells, none of which is a list.

    Parameters
    ----------
    cells
        The cells of a column, without missing ones.
    known
        Labels that are known already, from a label file or another split: ids and texts.
    """
    counts = Counter(cells)
    examples = {
        candidate: cell for candidate in CANDIDATES for cell in [_first_with(candidate, counts)] if cell is not None
    }
    if not examples:
        return Separator("")
    found = {candidate: _separates(candidate, counts, known) for candidate in examples}
    separating = [candidate for candidate, separates in found.items() if separates]
    if separating:
        return Separator(min(separating, key=lambda candidate: _different_labels(candidate, counts)))
    asked = [candidate for candidate, separates in found.items() if separates is None]
    if asked:
        return Separator(None, asked[0], examples[asked[0]])
    return Separator("", next(iter(examples)), next(iter(examples.values())))


def _first_with(candidate: str, counts: Counter[str]) -> str | None:
    return next((cell for cell in counts if candidate in cell), None)


def _different_labels(candidate: str, counts: Counter[str]) -> int:
    return len({piece for cell in counts for piece in pieces_of(cell, candidate)})


def _separates(candidate: str, counts: Counter[str], known: Collection[str]) -> bool | None:
    """Whether a candidate separates; None: the data do not decide."""
    split = {cell: pieces for cell in counts if len(pieces := pieces_of(cell, candidate)) > 1}
    if not split:  # only at the ends of cells, such as "a;"
        return candidate != "," or None
    alone = {pieces[0] for cell in counts if cell not in split and (pieces := pieces_of(cell, candidate))}
    if candidate == "\t":  # no id may contain one
        return True
    if sum(cell in known for cell in split) >= KNOWN_SHARE * len(split):
        return False
    listed = sum(all(piece in known or piece in alone for piece in pieces) for pieces in split.values())
    if listed >= KNOWN_SHARE * len(split):
        return True
    cells_of: Counter[str] = Counter(alone)
    place_of: dict[str, int] = dict.fromkeys(alone, 0)
    moving: set[str] = set()
    pieces_seen: set[str] = set()
    for pieces in split.values():
        for place, piece in enumerate(pieces):
            if place_of.setdefault(piece, place) != place:
                moving.add(piece)
        cells_of.update(set(pieces))
        pieces_seen.update(pieces)
    recurring = [piece for piece in pieces_seen if cells_of[piece] > 1]
    moved = sum(piece in moving for piece in recurring)
    rare = candidate in RARE_IN_NAMES
    fewest = FEWEST_COMMA_PIECES if candidate == "," and any(", " in cell for cell in split) else 1
    if len(recurring) >= fewest and moved >= MOVES * len(recurring):
        return True
    if rare and len(recurring) < FEWEST_FIXED_PIECES and not alone.isdisjoint(pieces_seen):
        return True
    if rare:
        is_usual = not recurring and 2 * sum(counts[cell] for cell in split) > counts.total()
        return True if is_usual and _repeats(split, counts) < REPEATED_CELLS else None
    stays = len(recurring) >= FEWEST_FIXED_PIECES and moved <= STAYS * len(recurring)
    is_name = not recurring and _repeats(split, counts) >= REPEATED_CELLS
    return False if stays or is_name else None


def _repeats(split: Collection[str], counts: Counter[str]) -> float:
    """How often a cell occurs, on average."""
    return sum(counts[cell] for cell in split) / len(split)
