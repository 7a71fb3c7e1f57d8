"""Values of settings: read as the type of their field, and checked against what the field allows."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .errors import SettingsError, did_you_mean

KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def converted(path: str, value: Any, hint: Any) -> Any:
    """`value` as the type of the setting."""
    union = isinstance(hint, types.UnionType)
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] if union else [hint]
    kind = kinds[0]
    if union and (value is None or value in ("auto", "none", "None")):
        return None
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise SettingsError(f"{path}={value}: say true or false")
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise SettingsError(f"{path}={value}: must be a whole number")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{path}={value}: must be {KINDS[kind]}") from None


def problems_of(section: str, values: Any) -> list[str]:
    """Everything wrong with the values of a section."""
    found = []
    hints = typing.get_type_hints(type(values))
    for item in fields(values):
        value = getattr(values, item.name)
        if value is not None or type(None) not in typing.get_args(hints[item.name]):
            problem = _problem(value, hints[item.name], item.metadata)
            found += [f"{section}.{item.name}={value}: {problem}"] if problem else []
    return found


def _problem(value: Any, hint: Any, about: Mapping[str, Any]) -> str:
    """What is wrong with one value, or nothing."""
    kinds = typing.get_args(hint) or (hint,)
    if not _is_a(value, kinds):
        return f"must be {KINDS[kinds[0]]}"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if about["choices"] and value not in about["choices"]:
        return f"must be one of {', '.join(about['choices'])}{did_you_mean(str(value), about['choices'])}"
    if about["low"] is not None and value < about["low"]:
        return f"must be at least {about['low']}"
    if about["high"] is not None and value > about["high"]:
        return f"must be at most {about['high']}"
    return ""


def _is_a(value: Any, kinds: tuple[Any, ...]) -> bool:
    """True is not a whole number, and a whole number is a number."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))
